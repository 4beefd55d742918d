// Says whether one commit is slower than another. Pure. The base is measured twice in each round. A difference counts
// only when it exceeds the base's difference from itself.
import type { Round } from '../measure.ts';
import { median, summarise } from '../stats.ts';
import type { Summary } from '../stats.ts';

/** `rate`, also of something, is better when it grows, every other figure when it shrinks. */
export const isMoreBetter = (figure: string): boolean => /^rate\b/.test(figure);

export interface Difference {
  readonly suite: string;
  readonly figure: string;
  readonly unit: string;
  readonly base: Summary;
  readonly ours: Summary;
  /** ours / base of each round; the base of a round is the geometric mean of its two measurements. */
  readonly ratio: Summary;
  /** base again / base of each round. */
  readonly itself: Summary;
  /** The largest factor, at least 1, by which the base differed from itself in a round. */
  readonly spread: number;
  readonly verdict: 'worse' | 'better' | 'no_difference' | 'too_few_rounds';
}

/** Rounds that a verdict needs: fewer show too little of the base's difference from itself. */
export const VERDICT_ROUNDS = 3;

/**
 * A figure over the rounds that count.
 * @returns undefined when no round counts
 * @throws RangeError when a side did not measure it
 */
export function differenceOf(
  suite: string,
  figure: string,
  unit: string,
  rounds: readonly Round[],
): Difference | undefined {
  const kept = rounds.filter((round) => round.isKept);
  if (kept.length === 0) return undefined;
  const sides = kept.map(({ baseline, again, product }) => {
    const [base, once, ours] = [baseline, again, product].map((figures) => figures?.[figure]);
    if (base === undefined || once === undefined || ours === undefined)
      throw new RangeError(`${suite} did not measure ${figure} on every side`);
    return { base, again: once, mean: Math.sqrt(base * once), ours };
  });
  const itself = sides.map(({ base, again }) => again / base);
  const ratios = sides.map(({ mean, ours }) => ours / mean);
  const spread = Math.max(...itself.map((ratio) => Math.max(ratio, 1 / ratio)));
  const middle = median(ratios);
  const cost = isMoreBetter(figure) ? 1 / middle : middle;
  return {
    suite,
    figure,
    unit,
    base: summarise(sides.map(({ mean }) => mean)),
    ours: summarise(sides.map(({ ours }) => ours)),
    ratio: summarise(ratios),
    itself: summarise(itself),
    spread,
    verdict: kept.length < VERDICT_ROUNDS ? 'too_few_rounds' : verdictOf(cost, spread),
  };
}

function verdictOf(cost: number, spread: number): Difference['verdict'] {
  if (cost > spread) return 'worse';
  return cost < 1 / spread ? 'better' : 'no_difference';
}
