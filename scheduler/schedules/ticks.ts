// When the time of a schedule comes: a cron expression in somebody's local time, as instants. The only importer of cron-parser, which knows expressions; it is asked in UTC, because what it finds around a change of
// the clocks depends on where it began to look, and here the same question must have the same answer on every replica. Local time becomes instants by the rules of decision 0050.
import { CronDate, CronExpressionParser } from 'cron-parser';
import type { CronExpression } from 'cron-parser';
import { messageOf } from '#shared/errors.ts';

/** As a stub's configuration keeps it. */
export interface When {
  /** Five fields, six (seconds first), or a name. */
  readonly when: string;
  /** IANA name. */
  readonly timezone: string;
}

export interface DueTicks {
  /** Epoch milliseconds, oldest first: the newest `limit` of them. */
  readonly ticks: readonly number[];
  /** Those before them; counted up to {@link MOST_COUNTED}. */
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
/** No clock was ever moved by more than a day at once. */
const FURTHEST_SHIFT_MS = DAY_MS + 3_600_000;
/** Clocks are not moved twice within it. */
const STEP_MS = 7 * DAY_MS;
/** Changes of the clocks that a search for the next tick passes: an expression may mean 29 February alone. */
const MOST_CHANGES = 64;

/** What a schedule's stub says in `extra`, checked. A text is a refusal, and names the field. */
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
    // The library's `H` is another time at each reading.
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

/** Instants of one offset from UTC: after `fromMs`, up to and with `toMs`. */
interface Piece {
  readonly fromMs: number;
  readonly toMs: number;
  readonly offsetMs: number;
}

/** From one change of the clocks on. */
interface Span {
  /** When it began; -Infinity: long before. */
  readonly startMs: number;
  readonly offsetMs: number;
  /** The offset before it. */
  readonly beforeMs: number;
}

export class Ticks {
  readonly #expression: CronExpression;
  readonly #timezone: string;
  /** It means every hour, and so time that passes rather than what clocks show. */
  readonly #everyHour: boolean;

  /** @throws Error when one of the two cannot be read */
  constructor({ when, timezone }: When) {
    this.#expression = CronExpressionParser.parse(when, { tz: 'UTC' });
    this.#timezone = timezone;
    this.#everyHour = this.#expression.fields.hour.values.length === 24;
  }

  /** The first tick after that moment; undefined: none ever. */
  next(afterMs: number): number | undefined {
    let cursorMs = afterMs;
    for (let changes = 0; changes < MOST_CHANGES; changes += 1) {
      const span = this.#spanAt(cursorMs + 1, cursorMs);
      const firsts = this.#pieces(span, cursorMs, Infinity).map((piece) => this.#firstOf(piece) ?? Infinity);
      const firstMs = Math.min(...firsts);
      // Without an end the library itself gave up looking: eight years and more.
      if (firstMs === Infinity) return undefined;
      const changeMs = this.#changeAfter(cursorMs + 1, firstMs);
      if (changeMs === undefined) return firstMs;
      cursorMs = changeMs - 1;
    }
    return undefined;
  }

  /** Ticks after `fromMs`, up to and with `toMs`. */
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

  /** What of a span is asked for, as stretches in which local time runs on. */
  #pieces(span: Span, fromMs: number, toMs: number): readonly Piece[] {
    const { startMs, offsetMs, beforeMs } = span;
    const shiftMs = offsetMs - beforeMs;
    // Clocks went back: what they show for the second time has been.
    const firstMs = this.#everyHour || shiftMs >= 0 ? startMs : startMs - shiftMs;
    const pieces: Piece[] = [{ fromMs: Math.max(fromMs, firstMs - 1), toMs, offsetMs }];
    if (!this.#everyHour && shiftMs > 0) {
      // They went forward: what was left out comes as much later, which is when they would have shown it.
      const lastMs = Math.min(toMs, startMs + shiftMs - 1);
      pieces.push({ fromMs: Math.max(fromMs, startMs - 1), toMs: lastMs, offsetMs: beforeMs });
    }
    return pieces.filter((piece) => piece.fromMs < piece.toMs);
  }

  #firstOf({ fromMs, toMs, offsetMs }: Piece): number | undefined {
    const found = this.#step('next', fromMs + offsetMs);
    return found === undefined || found - offsetMs > toMs ? undefined : found - offsetMs;
  }

  /** Its newest ticks, at most so many. */
  #collect({ fromMs, toMs, offsetMs }: Piece, most: number, into: Set<number>): void {
    let found = this.#step('prev', toMs + offsetMs + 1);
    for (let count = 0; count < most && found !== undefined && found - offsetMs > fromMs; count += 1) {
      into.add(found - offsetMs);
      found = this.#step('prev', found);
    }
  }

  /** The nearest one before or after, not at, that moment of a clock that shows UTC. */
  #step(direction: 'next' | 'prev', atMs: number): number | undefined {
    this.#expression.reset(new Date(atMs));
    try {
      return this.#expression[direction]().getTime();
    } catch {
      return undefined;
    }
  }

  /** @param downToMs - a change that has no bearing on what comes after it need not be found */
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

  /** When the clocks are changed next, until then; undefined: they are not. */
  #changeAfter(fromMs: number, toMs: number): number | undefined {
    const offsetMs = this.#offsetAt(fromMs);
    for (let earlierMs = fromMs; earlierMs < toMs; earlierMs += STEP_MS) {
      const laterMs = Math.min(toMs, earlierMs + STEP_MS);
      const laterOffsetMs = this.#offsetAt(laterMs);
      if (laterOffsetMs !== offsetMs) return this.#changeWithin(earlierMs, laterMs, laterOffsetMs);
    }
    return undefined;
  }

  /** The first moment at which the offset is what it is at `laterMs`; at `earlierMs` it is another. */
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
