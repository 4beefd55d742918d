// Runs rounds. A round measures both sides; the side that goes first changes
// from round to round, so that neither always meets the warmer machine. A round
// that was disturbed from outside does not count and is repeated, up to a bound.
import type { Figures, Round } from './measure.ts';

/** Figures of a round; `baseline` is undefined where there is nothing to compare with. */
export type RoundFigures = Pick<Round, 'baseline' | 'product' | 'again'>;

export type MeasureRound = (isBaselineFirst: boolean) => Promise<RoundFigures>;

export interface RoundRules {
  /** Number of wanted rounds; as many again are tried on a machine that is not quiet. */
  readonly rounds: number;
  readonly maxOutside: number;
  /** Runs the work and returns the share of the machine that others used meanwhile. */
  readonly watch: <T>(work: () => Promise<T>) => Promise<{ readonly value: T; readonly outside: number }>;
  readonly onRound: (round: Round) => void;
  readonly signal: AbortSignal;
}

/** @returns all rounds, in order; those that do not count are marked */
export async function runRounds(measure: MeasureRound, rules: RoundRules): Promise<readonly Round[]> {
  const done: Round[] = [];
  let kept = 0;
  for (let number = 1; kept < rules.rounds && number <= rules.rounds * 2; number += 1) {
    rules.signal.throwIfAborted();
    const { value, outside } = await rules.watch(() => measure(number % 2 === 1));
    const isKept = outside <= rules.maxOutside;
    if (isKept) kept += 1;
    const round = { number, ...value, outside, isKept };
    done.push(round);
    rules.onRound(round);
  }
  return done;
}

/** A round that is one measurement of either side. */
export function inTurn(baseline: () => Promise<Figures>, product: () => Promise<Figures>): MeasureRound {
  return async (isBaselineFirst) => {
    if (isBaselineFirst) {
      const first = await baseline();
      return { baseline: first, product: await product() };
    }
    const first = await product();
    return { baseline: await baseline(), product: first };
  };
}
