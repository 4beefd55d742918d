// Answers that requests got while a daemon or a store was disturbed, and those that the platform must not give. Pure.

/** A disturbance, by `performance.now()`. */
export interface Window {
  readonly fromMs: number;
  /** Infinity while it lasts. */
  readonly untilMs: number;
  /** Index of the scheduler that is disturbed; undefined: a store. */
  readonly replica: number | undefined;
}

export interface Asked {
  /** `call`, `far call` or `put`; a far call runs on a machine of the other scheduler. */
  readonly what: string;
  readonly askedMs: number;
  /** Infinity: not yet. */
  readonly answeredMs: number;
  /** Status of the answer, and behind it the code of a refusal; `unanswered`: none came. */
  readonly outcome: string;
}

/** Whether the window and the time of a request have a moment in common. @param graceMs - added to the window's end */
export const overlaps = ({ fromMs, untilMs }: Window, askedMs: number, answeredMs: number, graceMs = 0): boolean =>
  askedMs <= untilMs + graceMs && answeredMs >= fromMs;

/** `call` → `200` → how often, of requests that met a window. `late`: answered after it. */
export type Tally = Readonly<Record<string, Readonly<Record<string, number>>>>;

export function tallyOf(asked: readonly Asked[], windows: readonly Window[]): Tally {
  const counts: Record<string, Record<string, number>> = {};
  for (const one of asked) {
    const window = windows.find((some) => overlaps(some, one.askedMs, one.answeredMs));
    if (window === undefined) continue;
    const outcome = one.answeredMs > window.untilMs ? 'late' : one.outcome;
    const of = (counts[one.what] ??= {});
    of[outcome] = (of[outcome] ?? 0) + 1;
  }
  return counts;
}

/** `call: 200 × 12, 503 × 3; put: …` */
export function tallyText(tally: Tally): string {
  const texts = Object.entries(tally).map(([what, outcomes]) => {
    const each = Object.entries(outcomes).map(([outcome, count]) => `${outcome} × ${count}`);
    return `${what}: ${each.join(', ')}`;
  });
  return texts.length === 0 ? 'no request' : texts.join('; ');
}

/**
 * Findings where the platform must go on without a store.
 * @param mustServe - the requests that must be answered 200 within the absence
 */
export function notServed(tally: Tally, mustServe: readonly string[]): readonly string[] {
  return mustServe.flatMap((what) => {
    const { 200: served = 0, ...others } = tally[what] ?? {};
    const refused = Object.values(others).reduce((sum, count) => sum + count, 0);
    if (served > 0 && refused === 0) return [];
    return [`not_served: while the store was away: ${tallyText({ [what]: tally[what] ?? {} })}`];
  });
}
