// Spans and times that options such as `--since` take. Pure.
import { durationMsOf } from '#shared/domain/duration.ts';
import { usageError } from './errors.ts';

const DAY_MS = 86_400_000;
const DAYS_OF: Readonly<Record<string, number>> = { d: 1, w: 7 };
const TIME = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?$/i;

/** Milliseconds of `90s`, `1h30m`, `7d` or `2w`; undefined: the text is none of these. */
export function spanMsOf(text: string): number | undefined {
  const [, digits, unit = ''] = /^(\d{1,6})([dw])$/.exec(text) ?? [];
  return digits === undefined ? durationMsOf(text) : Number(digits) * (DAYS_OF[unit] ?? 0) * DAY_MS;
}

/**
 * Epoch milliseconds of a start: a span before now, or a time, which is UTC unless it names its zone.
 * @throws CliError that names `--since`
 */
export function sinceMsOf(text: string, nowMs: number): number {
  const spanMs = spanMsOf(text);
  const atMs = spanMs === undefined ? timeMsOf(text) : nowMs - spanMs;
  if (Number.isNaN(atMs) || atMs < 0)
    throw usageError(`--since ${text} is no time: give 30m, 24h, 7d or 2030-01-31T12:00:00Z`);
  return atMs;
}

function timeMsOf(text: string): number {
  const found = TIME.exec(text);
  if (found === null) return Number.NaN;
  const isBare = text.length > 'yyyy-mm-dd'.length && found[1] === undefined;
  return Date.parse(`${text}${isBare ? 'Z' : ''}`);
}
