// The arithmetic of the benchmarks: percentiles of one measurement, and summaries of many rounds (the median, with the
// extremes beside it). Pure; the suites and the table use it. Ratios are taken inside a round first and summed up
// afterwards: a machine that slows down for a while slows both sides of a round.

/** Summary of a number that was measured several times. */
export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly count: number;
}

/**
 * The smallest value that at least `percent` of all values do
 * not exceed (nearest rank: always a value that was measured).
 * @throws RangeError without values, or for a percentage outside 0 to 100
 */
export function percentile(values: ArrayLike<number>, percent: number): number {
  if (values.length === 0) throw new RangeError('a percentile of no values');
  if (!(percent >= 0 && percent <= 100)) throw new RangeError(`percent must be from 0 to 100, got ${percent}`);
  const sorted = Float64Array.from(values).toSorted();
  const rank = Math.max(1, Math.ceil((percent / 100) * sorted.length));
  return sorted[rank - 1] as number;
}

/** The middle value; of an even count the mean of the two in the middle. @throws RangeError without values */
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new RangeError('a median of no values');
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length >> 1;
  const upper = sorted[half] as number;
  return sorted.length % 2 === 1 ? upper : ((sorted[half - 1] as number) + upper) / 2;
}

/** @throws RangeError without values */
export function summarise(values: readonly number[]): Summary {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values), count: values.length };
}

/** A round: the same thing measured on both sides. */
export interface Pair {
  readonly baseline: number;
  readonly product: number;
}

/** Both sides over all rounds, with their comparison round by round. */
export interface Comparison {
  readonly baseline: Summary;
  readonly product: Summary;
  /** product / baseline of each round */
  readonly ratio: Summary;
  /** product - baseline of each round, in the unit measured */
  readonly difference: Summary;
}

/** @throws RangeError without rounds */
export function compare(rounds: readonly Pair[]): Comparison {
  return {
    baseline: summarise(rounds.map((round) => round.baseline)),
    product: summarise(rounds.map((round) => round.product)),
    ratio: summarise(rounds.map((round) => round.product / round.baseline)),
    difference: summarise(rounds.map((round) => round.product - round.baseline)),
  };
}
