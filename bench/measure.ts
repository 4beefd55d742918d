// From rounds to the reported measures. Pure. A suite names its measures, and a round holds a number per measure for
// each side. Rounds that other programs on the machine disturbed are not counted.
import { GOALS, verdictOn } from './goals.ts';
import type { Goal, Verdict } from './goals.ts';
import { compare, summarise } from './stats.ts';
import type { Comparison, Summary } from './stats.ts';

/** Numbers of one side in one round, by measure. */
export type Figures = Readonly<Record<string, number>>;

export interface Round {
  /** Number of the round, from 1, discarded rounds included. */
  readonly number: number;
  /** Absent where the suite has nothing to compare with. */
  readonly baseline: Figures | undefined;
  readonly product: Figures;
  /** The baseline measured once more, where a run shows how much the baseline differs from itself. */
  readonly again?: Figures;
  /** Share of the whole machine that processes outside the run used, from 0 to 1. */
  readonly outside: number;
  readonly isKept: boolean;
}

export interface Measure {
  readonly suite: string;
  readonly name: string;
  readonly unit: string;
  readonly product: Summary;
  readonly comparison: Comparison | undefined;
  readonly goal: Goal | undefined;
  /** undefined: no goal. */
  readonly verdict: Verdict | undefined;
}

/** Mean over turns of equal length; a figure missing from a turn counts as 0. */
export function meanOf(turns: readonly Figures[]): Figures {
  const names = new Set(turns.flatMap((figures) => Object.keys(figures)));
  const mean = (name: string): number => turns.reduce((sum, figures) => sum + (figures[name] ?? 0), 0) / turns.length;
  return Object.fromEntries([...names].map((name) => [name, mean(name)]));
}

/** A measure over the rounds that count, compared where the baseline has it, too; undefined when no round counts. */
export function measureOf(
  suite: string,
  name: string,
  unit: string,
  rounds: readonly Round[],
  slack: number,
): Measure | undefined {
  const kept = rounds.filter((round) => round.isKept);
  if (kept.length === 0) return undefined;
  const figure = (figures: Figures): number => {
    const value = figures[name];
    if (value === undefined) throw new RangeError(`${suite} did not measure ${name}`);
    return value;
  };
  const pairs = kept.flatMap(({ baseline, product }) =>
    baseline?.[name] === undefined ? [] : [{ baseline: baseline[name], product: figure(product) }],
  );
  const products = kept.map((round) => figure(round.product));
  const goal = GOALS[`${suite} ${name}`];
  const judged = pairs.length > 0 ? pairs : products.map((product) => ({ baseline: 0, product }));
  return {
    suite,
    name,
    unit,
    product: summarise(products),
    comparison: pairs.length > 0 ? compare(pairs) : undefined,
    goal,
    verdict: goal === undefined ? undefined : verdictOn(goal, judged, slack),
  };
}
