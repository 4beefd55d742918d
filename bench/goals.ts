// The goals of the benchmarks, and the rule that decides whether they are met. Pure. A goal
// is a line over the baseline of the same round (`factor` times the baseline plus `plus`),
// never an absolute speed of some machine. Without a baseline, `plus` alone is the bound. Where `plus` is so
// short that the speed of the machine decides, `plusAt` names that machine by its baseline.
import { median } from './stats.ts';

/** A bound for one measure of one suite. */
export interface Goal {
  readonly id: string;
  readonly kind: 'at_most' | 'at_least';
  readonly factor: number;
  /** Summand in the unit of the measure. */
  readonly plus: number;
  /** Baseline of the machine that `plus` was set for. Where the baseline is slower, `plus` may grow as it does. */
  readonly plusAt?: number;
}

/** `in_proportion`: missed as it stands, met once `plus` has grown with the baseline. */
export type Verdict = 'met' | 'in_proportion' | 'missed';

/** Goals by `suite measure`. */
export const GOALS: Readonly<Record<string, Goal>> = {
  'warm p50': { id: 'G1', kind: 'at_most', factor: 1.5, plus: 0 },
  'warm p99': { id: 'G1', kind: 'at_most', factor: 2, plus: 0 },
  'throughput rate': { id: 'G2', kind: 'at_least', factor: 0.8, plus: 0 },
  'cold p50': { id: 'G3', kind: 'at_most', factor: 1, plus: 60 },
  'cold p99': { id: 'G3', kind: 'at_most', factor: 1.5, plus: 100 },
  'scale n10': { id: 'G5', kind: 'at_most', factor: 1.15, plus: 0 },
  'scale n25': { id: 'G5', kind: 'at_most', factor: 1.15, plus: 0 },
  'scale n50': { id: 'G5', kind: 'at_most', factor: 1.15, plus: 0 },
  'scale n10 swarm': { id: 'G5', kind: 'at_most', factor: 1, plus: 0 },
  'scale n25 swarm': { id: 'G5', kind: 'at_most', factor: 1, plus: 0 },
  'scale n50 swarm': { id: 'G5', kind: 'at_most', factor: 1, plus: 0 },
  'loss killed': { id: 'G9', kind: 'at_most', factor: 0, plus: 1000 },
  'loss killed busy': { id: 'G9', kind: 'at_most', factor: 0, plus: 1000 },
  'loss killed to swarm': { id: 'G9', kind: 'at_most', factor: 0.5, plus: 0 },
  'loss frozen': { id: 'G9', kind: 'at_most', factor: 0, plus: 5000 },
  'loss frozen busy': { id: 'G9', kind: 'at_most', factor: 0, plus: 5000 },
  'loss frozen to swarm': { id: 'G9', kind: 'at_most', factor: 0.5, plus: 0 },
  'die seen': { id: 'G10', kind: 'at_most', factor: 0, plus: 30 },
  'die ordered': { id: 'G10', kind: 'at_most', factor: 0, plus: 30 },
  'reaction p50': { id: 'G6', kind: 'at_most', factor: 0, plus: 20 },
  'reaction p99': { id: 'G6', kind: 'at_most', factor: 0, plus: 100 },
  'reaction p50 alone': { id: 'G6', kind: 'at_most', factor: 0, plus: 20 },
  'reaction p99 alone': { id: 'G6', kind: 'at_most', factor: 0, plus: 100 },
  'reaction first start': { id: 'G6', kind: 'at_most', factor: 2, plus: 0 },
  'placement rate': { id: 'G7', kind: 'at_least', factor: 0, plus: 1500 },
  'placement decision': { id: 'G7', kind: 'at_most', factor: 1.5, plus: 0 },
  'placement decisions alone': { id: 'G7', kind: 'at_least', factor: 0, plus: 20_000 },
  'placement queued decision': { id: 'G7', kind: 'at_most', factor: 2, plus: 0 },
  'fair others p95': { id: 'G17', kind: 'at_most', factor: 1.5, plus: 0 },
  'fair jain': { id: 'G17', kind: 'at_least', factor: 0, plus: 0.98 },
  'fair high p95': { id: 'G17', kind: 'at_most', factor: 2, plus: 0 },
  'fair decisions': { id: 'G17', kind: 'at_most', factor: 1.2, plus: 0 },
  'fair whole machine': { id: 'G17', kind: 'at_most', factor: 1.2, plus: 0 },
  'fair ones': { id: 'G17', kind: 'at_least', factor: 0.95, plus: 0 },
  'placement queued block': { id: 'G7', kind: 'at_most', factor: 2, plus: 0 },
  'provisioning create': { id: 'provisioning', kind: 'at_most', factor: 0, plus: 50 },
  'provisioning rest': { id: 'provisioning', kind: 'at_most', factor: 1, plus: 0.1 },
  'rest cpu': { id: 'G12', kind: 'at_most', factor: 0, plus: 1.5 },
  'rest rss': { id: 'G12', kind: 'at_most', factor: 1, plus: 60 },
  'rest connections': { id: 'G12', kind: 'at_most', factor: 0, plus: 50 },
  'growth p50': { id: 'G13', kind: 'at_most', factor: 1.1, plus: 0 },
  'growth rate': { id: 'G13', kind: 'at_least', factor: 0.9, plus: 0 },
  'growth examined': { id: 'G13', kind: 'at_most', factor: 1.25, plus: 0 },
  'growth processor': { id: 'G13', kind: 'at_most', factor: 1.25, plus: 0 },
  'flow enqueue': { id: 'G18', kind: 'at_least', factor: 0.8, plus: 0 },
  'flow keys': { id: 'G18', kind: 'at_least', factor: 0.9, plus: 0 },
  'records rate': { id: 'G14', kind: 'at_least', factor: 0.5, plus: 0 },
  'list p50': { id: 'list', kind: 'at_most', factor: 1.5, plus: 0 },
  'grpc list': { id: 'grpc', kind: 'at_most', factor: 1.2, plus: 0 },
  'grpc config': { id: 'grpc', kind: 'at_most', factor: 1.2, plus: 0 },
  'grpc beside strangers': { id: 'grpc', kind: 'at_most', factor: 1.5, plus: 0 },
  'inference first token p50': { id: 'inference', kind: 'at_most', factor: 1, plus: 3 },
  'inference first token p50 to proxy': { id: 'inference', kind: 'at_most', factor: 1, plus: 0 },
  'inference rate': { id: 'inference', kind: 'at_least', factor: 0.95, plus: 0 },
  'events stream': { id: 'events', kind: 'at_most', factor: 0, plus: 30 },
  'logs calls p95': { id: 'logs', kind: 'at_most', factor: 1.1, plus: 0 },
  'logs lines': { id: 'logs', kind: 'at_least', factor: 0, plus: 4_950 },
  'console embedded views': { id: 'G19', kind: 'at_most', factor: 10, plus: 0 },
  'console postgres views': { id: 'G19', kind: 'at_most', factor: 10, plus: 0 },
  'console embedded growth': { id: 'G19', kind: 'at_most', factor: 1.5, plus: 0 },
  'console postgres growth': { id: 'G19', kind: 'at_most', factor: 1.5, plus: 0 },
  'console embedded hold': { id: 'G19', kind: 'at_most', factor: 5, plus: 0 },
  'console embedded list': { id: 'G19', kind: 'at_most', factor: 0, plus: 25 },
  'console postgres list': { id: 'G19', kind: 'at_most', factor: 0, plus: 25 },
  'console embedded idle tab': { id: 'G19', kind: 'at_most', factor: 0, plus: 0.05 },
  'console postgres idle tab': { id: 'G19', kind: 'at_most', factor: 0, plus: 0.05 },
  'console embedded calls': { id: 'G19', kind: 'at_least', factor: 0.98, plus: 0 },
  'console postgres calls': { id: 'G19', kind: 'at_least', factor: 0.98, plus: 0 },
  'console script': { id: 'G19', kind: 'at_most', factor: 0, plus: 60 },
  'crossing processor': { id: 'crossing', kind: 'at_most', factor: 1.5, plus: 0 },
  'saturation p99 1 ms': { id: 'saturation', kind: 'at_most', factor: 1.5, plus: 0 },
  'saturation p99 50 ms': { id: 'saturation', kind: 'at_most', factor: 1.5, plus: 0 },
  'streams first byte p50': { id: 'streams', kind: 'at_most', factor: 1, plus: 2, plusAt: 0.11 },
  'streams first byte p99': { id: 'streams', kind: 'at_most', factor: 1, plus: 2, plusAt: 0.98 },
  'streams first chunk p50': { id: 'streams', kind: 'at_most', factor: 1, plus: 2, plusAt: 0.12 },
  'streams first chunk p99': { id: 'streams', kind: 'at_most', factor: 1, plus: 2, plusAt: 0.98 },
  'bodies download': { id: 'bodies', kind: 'at_least', factor: 0.4, plus: 0 },
  'bodies upload': { id: 'bodies', kind: 'at_least', factor: 0.4, plus: 0 },
  'streams calls p95': { id: 'streams', kind: 'at_most', factor: 1.3, plus: 0 },
  'volumes large up': { id: 'volumes', kind: 'at_least', factor: 0.3, plus: 0 },
  'volumes large down': { id: 'volumes', kind: 'at_least', factor: 0.3, plus: 0 },
  'volumes large up verified': { id: 'volumes', kind: 'at_least', factor: 0.8, plus: 0 },
  'volumes large down verified': { id: 'volumes', kind: 'at_least', factor: 0.8, plus: 0 },
  'volumes small up': { id: 'volumes', kind: 'at_least', factor: 0.3, plus: 0 },
  'volumes small down': { id: 'volumes', kind: 'at_least', factor: 0.3, plus: 0 },
  'builds dockerfile': { id: 'builds', kind: 'at_most', factor: 1.1, plus: 1 },
  'builds definition': { id: 'builds', kind: 'at_most', factor: 1.1, plus: 1 },
  'sandboxes p50': { id: 'sandboxes', kind: 'at_most', factor: 1.2, plus: 0 },
  'serve reload p50': { id: 'serve', kind: 'at_most', factor: 0, plus: 700 },
  'serve first': { id: 'serve', kind: 'at_most', factor: 0, plus: 4000 },
  'agent cpu': { id: 'G11', kind: 'at_most', factor: 0, plus: 0.5 },
  'agent engine': { id: 'G11', kind: 'at_most', factor: 1, plus: 0.2 },
  'agent rss': { id: 'G11', kind: 'at_most', factor: 1, plus: 20 },
  'agent rss alone': { id: 'G11', kind: 'at_most', factor: 0, plus: 100 },
  'agent-gpus cpu': { id: 'G11', kind: 'at_most', factor: 0, plus: 0.5 },
  'agent-gpus engine': { id: 'G11', kind: 'at_most', factor: 1, plus: 0.2 },
  'agent-gpus rss': { id: 'G11', kind: 'at_most', factor: 1, plus: 20 },
  'agent-gpus rss alone': { id: 'G11', kind: 'at_most', factor: 0, plus: 100 },
  'reconcile start': { id: 'reconcile', kind: 'at_most', factor: 1, plus: 100 },
  'reconcile pass': { id: 'reconcile', kind: 'at_most', factor: 0, plus: 100 },
  'pull pulled': { id: 'G15', kind: 'at_most', factor: 1.05, plus: 50 },
  'restart all': { id: 'restart', kind: 'at_most', factor: 0, plus: 10_000 },
  'restart processor': { id: 'restart', kind: 'at_most', factor: 2, plus: 0 },
  'restart block': { id: 'restart', kind: 'at_most', factor: 2, plus: 500 },
  'renewal block': { id: 'restart', kind: 'at_most', factor: 2, plus: 0 },
  'first-start p50': { id: 'start', kind: 'at_most', factor: 1.5, plus: 0 },
  'start p50': { id: 'G16', kind: 'at_most', factor: 0, plus: 1500 },
};

/** Factor by which goals are looser in a short run, which has too few samples for more. */
export const QUICK_SLACK = 1.5;

/** Figures of a round; `baseline` is 0 where there is none. */
export type GoalRound = { readonly baseline: number; readonly product: number };

/** The median round decides. @throws RangeError without rounds */
export function verdictOn(goal: Goal, rounds: readonly GoalRound[], slack = 1): Verdict {
  if (isMet(goal, rounds, () => goal.plus, slack)) return 'met';
  const { plusAt } = goal;
  if (plusAt === undefined) return 'missed';
  const grown = (baseline: number): number => goal.plus * Math.max(1, baseline / plusAt);
  return isMet(goal, rounds, grown, slack) ? 'in_proportion' : 'missed';
}

/** @param plusOf - the summand, by the baseline of a round */
function isMet(goal: Goal, rounds: readonly GoalRound[], plusOf: (baseline: number) => number, slack: number): boolean {
  const over = median(
    rounds.map(({ baseline, product }) => {
      const line = goal.factor * baseline + plusOf(baseline);
      return goal.kind === 'at_most' ? product - line * slack : line / slack - product;
    }),
  );
  return over <= 0;
}

/** Text of a goal in the table: `<= 1.5 x`, `<= 1 x + 60 ms`, `<= 1 x + 2 ms (at 0.11 ms)`, `<= 1500 ms`. */
export function goalText(goal: Goal, unit: string): string {
  const sign = goal.kind === 'at_most' ? '<=' : '>=';
  const parts = [
    ...(goal.factor === 0 ? [] : [`${goal.factor} x`]),
    ...(goal.plus === 0 ? [] : [`${goal.plus} ${unit}`]),
  ];
  const machine = goal.plusAt === undefined ? '' : ` (at ${goal.plusAt} ${unit})`;
  return `${goal.id} ${sign} ${parts.join(' + ')}${machine}`;
}
