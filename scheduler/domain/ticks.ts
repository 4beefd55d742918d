// Ticks of a schedule: a cron expression in local time, as instants. The only importer of
// cron-parser, which understands expressions. The library is asked in UTC, because its answers
// around a change of the clocks depend on where its search began. Here the same question must
// have the same answer on every replica. Decision 0050 says how local time becomes instants.
import { CronDate, CronExpressionParser } from 'cron-parser';
import type { CronExpression } from 'cron-parser';
import { messageOf } from '#shared/errors.ts';

/** Time of a schedule, as in a stub's configuration. */
export interface When {
  /** Cron expression of five fields or six (seconds first), or a name. */
  readonly when: string;
  /** IANA name of the time zone. */
  readonly timezone: string;
}

export interface DueTicks {
  /** Epoch milliseconds, oldest first: the newest `limit` of them. */
  readonly ticks: readonly number[];
  /** Number of ticks before those; counted up to {@link MOST_COUNTED}. */
  readonly older: number;
}

export const MOST_COUNTED = 1_000;
const NAMES = [
  '@yearly',
  '@annually',
  '@monthly',
  '@weekly',
  '@daily',
  '@hourly',
  '@minutely',
  '@secondly',
  '@weekdays',
  '@weekends',
];
const MOST_CHARACTERS = 256;
const DAY_MS = 86_400_000;
/** Largest step by which clocks were ever moved at once is a day; one hour is added. */
const FURTHEST_SHIFT_MS = DAY_MS + 3_600_000;
/** Interval within which clocks are not moved twice. */
const STEP_MS = 7 * DAY_MS;
/** Most changes of the clocks that a search for the next tick passes: an expression may mean 29 February alone. */
const MOST_CHANGES = 64;

/** Reads and checks the schedule in a stub's `extra`. A returned text is a refusal, and names the field. */
export function readWhen(extra: Readonly<Record<string, unknown>>): When | string {
  const when = extra['when'];
  const timezone = extra['timezone'] ?? '';
  if (typeof when !== 'string' || when.trim() === '') {
    return 'extra.when must say when the schedule runs: a cron expression of 5 or 6 fields, or a name such as @hourly';
  }
  if (typeof timezone !== 'string') return 'extra.timezone must be the name of a time zone, such as Europe/Berlin';
  const zone = timezone.trim() === '' ? 'UTC' : timezone.trim();
  if (!isZone(zone)) {
    return `extra.timezone ${quoted(zone)} is not a time zone; one is named as Europe/Berlin or UTC`;
  }
  const read = { when: when.trim(), timezone: zone };
  const problem = problemOf(read);
  return problem === undefined ? read : `extra.when ${quoted(read.when)} ${problem}`;
}

function problemOf(read: When): string | undefined {
  const { when } = read;
  if (when.length > MOST_CHARACTERS) return `is longer than ${MOST_CHARACTERS} characters`;
  if (when.startsWith('@')) {
    if (!NAMES.includes(when)) return `is not known; names are ${NAMES.join(', ')}`;
  } else {
    const fields = when.split(/\s+/).length;
    if (fields !== 5 && fields !== 6) return `has ${fields} fields; 5 are needed, or 6 with seconds first`;
    // The library's `H` means another time at each reading.
    if (when.replace(/[A-Za-z]{3}/g, '').includes('H')) return 'has an H, which names no time';
  }
  try {
    if (new Ticks(read).next(Date.UTC(2024, 0)) === undefined) return 'names a time that never comes';
  } catch (error) {
    return `cannot be read (${messageOf(error)})`;
  }
  return undefined;
}

const quoted = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);

function isZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name });
    return new CronDate(0, name).getUTCOffset() !== undefined;
  } catch {
    return false;
  }
}

/** Instants with one offset from UTC: after `fromMs`, up to and including `toMs`. */
interface Piece {
  readonly fromMs: number;
  readonly toMs: number;
  readonly offsetMs: number;
}

/** Time from one change of the clocks on. */
interface Span {
  /** Instant at which the span began; -Infinity: long ago. */
  readonly startMs: number;
  readonly offsetMs: number;
  /** Offset before the span, in milliseconds. */
  readonly beforeMs: number;
}

export class Ticks {
  readonly #expression: CronExpression;
  readonly #timezone: string;
  /** True when the expression means every hour. Such a schedule follows elapsed time instead of the clocks. */
  readonly #everyHour: boolean;

  /** @throws Error when the expression or the time zone cannot be read */
  constructor({ when, timezone }: When) {
    this.#expression = CronExpressionParser.parse(when, { tz: 'UTC' });
    this.#timezone = timezone;
    this.#everyHour = this.#expression.fields.hour.values.length === 24;
  }

  /** First tick after that moment; undefined: none ever. */
  next(afterMs: number): number | undefined {
    let cursorMs = afterMs;
    for (let changes = 0; changes < MOST_CHANGES; changes += 1) {
      const span = this.#spanAt(cursorMs + 1, cursorMs);
      const firsts = this.#pieces(span, cursorMs, Infinity).map((piece) => this.#firstOf(piece) ?? Infinity);
      const firstMs = Math.min(...firsts);
      // The search has no end here, so the library itself gave up, after eight years and more.
      if (firstMs === Infinity) return undefined;
      const changeMs = this.#changeAfter(cursorMs + 1, firstMs);
      if (changeMs === undefined) return firstMs;
      cursorMs = changeMs - 1;
    }
    return undefined;
  }

  /** Ticks after `fromMs`, up to and including `toMs`. */
  between(fromMs: number, toMs: number, limit: number): DueTicks {
    const most = limit + MOST_COUNTED;
    const found = new Set<number>();
    let endMs = toMs;
    while (endMs > fromMs && found.size < most) {
      const span = this.#spanAt(endMs, fromMs);
      for (const piece of this.#pieces(span, fromMs, endMs)) this.#collect(piece, most, found);
      endMs = span.startMs - 1;
    }
    const ticks = [...found].toSorted((a, b) => a - b);
    const kept = limit === 0 ? [] : ticks.slice(-limit);
    return { ticks: kept, older: Math.min(MOST_COUNTED, ticks.length - kept.length) };
  }

  /** Parts of a span in which to look for ticks, each with one offset. */
  #pieces(span: Span, fromMs: number, toMs: number): readonly Piece[] {
    const { startMs, offsetMs, beforeMs } = span;
    const shiftMs = offsetMs - beforeMs;
    // Clocks went back: the local times that they show again are past.
    const firstMs = this.#everyHour || shiftMs >= 0 ? startMs : startMs - shiftMs;
    const pieces: Piece[] = [{ fromMs: Math.max(fromMs, firstMs - 1), toMs, offsetMs }];
    if (!this.#everyHour && shiftMs > 0) {
      // Clocks went forward: a tick in the skipped time comes at the same instant as under the old offset.
      const lastMs = Math.min(toMs, startMs + shiftMs - 1);
      pieces.push({ fromMs: Math.max(fromMs, startMs - 1), toMs: lastMs, offsetMs: beforeMs });
    }
    return pieces.filter((piece) => piece.fromMs < piece.toMs);
  }

  #firstOf({ fromMs, toMs, offsetMs }: Piece): number | undefined {
    const found = this.#step('next', fromMs + offsetMs);
    return found === undefined || found - offsetMs > toMs ? undefined : found - offsetMs;
  }

  /** Collects the newest ticks of a piece, at most `most`. */
  #collect({ fromMs, toMs, offsetMs }: Piece, most: number, into: Set<number>): void {
    let found = this.#step('prev', toMs + offsetMs + 1);
    for (let count = 0; count < most && found !== undefined && found - offsetMs > fromMs; count += 1) {
      into.add(found - offsetMs);
      found = this.#step('prev', found);
    }
  }

  /** Nearest tick before or after that moment of a UTC clock, the moment itself excluded. */
  #step(direction: 'next' | 'prev', atMs: number): number | undefined {
    this.#expression.reset(new Date(atMs));
    try {
      return this.#expression[direction]().getTime();
    } catch {
      return undefined;
    }
  }

  /** Finds the span around a moment. @param downToMs - changes that do not affect times after this need not be found */
  #spanAt(atMs: number, downToMs: number): Span {
    const offsetMs = this.#offsetAt(atMs);
    let laterMs = atMs;
    while (laterMs > downToMs - FURTHEST_SHIFT_MS) {
      const earlierMs = laterMs - STEP_MS;
      if (this.#offsetAt(earlierMs) !== offsetMs) {
        const startMs = this.#changeWithin(earlierMs, laterMs, offsetMs);
        return { startMs, offsetMs, beforeMs: this.#offsetAt(startMs - 1) };
      }
      laterMs = earlierMs;
    }
    return { startMs: -Infinity, offsetMs, beforeMs: offsetMs };
  }

  /** Next change of the clocks up to `toMs`; undefined: there is none. */
  #changeAfter(fromMs: number, toMs: number): number | undefined {
    const offsetMs = this.#offsetAt(fromMs);
    for (let earlierMs = fromMs; earlierMs < toMs; earlierMs += STEP_MS) {
      const laterMs = Math.min(toMs, earlierMs + STEP_MS);
      const laterOffsetMs = this.#offsetAt(laterMs);
      if (laterOffsetMs !== offsetMs) return this.#changeWithin(earlierMs, laterMs, laterOffsetMs);
    }
    return undefined;
  }

  /** First moment with the offset of `laterMs`; the offset at `earlierMs` must differ. */
  #changeWithin(earlierMs: number, laterMs: number, offsetMs: number): number {
    let [before, after] = [earlierMs, laterMs];
    while (after - before > 1) {
      const middle = Math.floor((before + after) / 2);
      if (this.#offsetAt(middle) === offsetMs) after = middle;
      else before = middle;
    }
    return after;
  }

  #offsetAt(atMs: number): number {
    return new CronDate(atMs, this.#timezone).getUTCOffset() * 60_000;
  }
}
