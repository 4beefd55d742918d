// `restart`: a scheduler restarts under many machines with tasks in flight. Measures from its health route's first 200
// until the last machine takes tasks again, the processor time that this takes, and the longest that the scheduler
// answered nothing. Half as many machines, with a scheduler of their own, are the baseline: what grows faster than the
// fleet shows.
import { HeldFleet } from '../held-fleet.ts';
import { measureOf } from '../measure.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { machines: 1_000, inFlight: 20, slots: 32 } as const;
const QUICK = { machines: 50, inFlight: 10, slots: 32 } as const;

export async function restart(context: SuiteContext): Promise<SuiteResult> {
  const { slack } = context;
  const tasks = context.isQuick ? QUICK : FULL;
  const half = await HeldFleet.start(context, 'restarthalf', { ...tasks, machines: tasks.machines / 2 });
  const whole = await HeldFleet.start(context, 'restartwhole', tasks);
  const rounds = await context.runRounds('restart', async () => ({
    baseline: await half.restart(),
    product: await whole.restart(),
  }));
  return {
    measures: [
      measureOf('restart', 'half', 'ms', rounds, slack),
      measureOf('restart', 'all', 'ms', rounds, slack),
      measureOf('restart', 'processor', 'ms', rounds, slack),
      measureOf('restart', 'block', 'ms', rounds, slack),
    ],
    rounds,
  };
}
