// `growth` (G13): one busy deployment among a thousand that nobody calls, beside the same one alone. Measures latency,
// rate, and the cost of a changed deployment in the deciding loop.
import type { IdleApp } from '../control-plane.ts';
import { until } from '../control-plane.ts';
import { load } from '../load.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import type { Plane } from './planes.ts';
import type { Check, SuiteContext, SuiteResult } from './suite.ts';

const FULL_SECONDS = 3;
const QUICK_SECONDS = 1;
const CONNECTIONS = 64;
const CHANGES = 30;
const WAIT_MS = 30_000;
const EXAMINED = 'longshore_autoscaler_examined_total';
/** Allowed ratio of the cost of one changed deployment, crowded to alone; more is growth. */
const FLAT = 1.25;

export async function growth(context: SuiteContext): Promise<SuiteResult> {
  const { alone, crowded, idle } = await context.planes();
  const busy = async ({ plane }: Plane): Promise<() => Promise<Figures>> => {
    const [app] = await plane.deploy(1, 'busy', {
      concurrentRequests: CONNECTIONS,
      autoscaler: { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: CONNECTIONS },
    });
    if (app === undefined) throw new Error('nothing was deployed');
    const target = plane.target(app);
    await plane.call(app);
    return async () => {
      context.place.signal.throwIfAborted();
      const seconds = context.isQuick ? QUICK_SECONDS : FULL_SECONDS;
      await load(target, CONNECTIONS, { seconds: 1 });
      const { figures: one } = await load(target, 1, { seconds });
      const { figures: many } = await load(target, CONNECTIONS, { seconds });
      return { p50: one['p50'] ?? Number.NaN, rate: many['rate'] ?? Number.NaN };
    };
  };
  const measured = { alone: await busy(alone), crowded: await busy(crowded) };
  const rounds = await context.runRounds('growth', inTurn(measured.alone, measured.crowded));
  const few = await changes(context, alone);
  const many = await changes(context, crowded);
  const changed = [{ number: 1, baseline: few, product: many, outside: 0, isKept: true }];
  const { slack } = context;
  return {
    measures: [
      measureOf('growth', 'p50', 'ms', rounds, slack),
      measureOf('growth', 'rate', '/s', rounds, slack),
      measureOf('growth', 'examined', 'a change', changed, slack),
      measureOf('growth', 'processor', 'ms a change', changed, slack),
    ],
    rounds,
    checks: [looksAtWhatChanged(few, many, idle)],
  };
}

/** Wakes deployments one after another, each from no container to none again. */
async function changes(context: SuiteContext, { plane, fleet }: Plane): Promise<Figures> {
  const apps = await plane.deploy(CHANGES, 'changed');
  const kept = fleet.containers;
  const wake = async (app: IdleApp): Promise<void> => {
    context.place.signal.throwIfAborted();
    await plane.call(app);
    await until('its container is gone', () => fleet.containers === kept, WAIT_MS, context.place.signal);
  };
  const before = { examined: await plane.metric(EXAMINED), ...(await plane.usage()) };
  for (const app of apps) await wake(app);
  const after = { examined: await plane.metric(EXAMINED), ...(await plane.usage()) };
  return {
    examined: (after.examined - before.examined) / CHANGES,
    processor: (after.cpuMs - before.cpuMs) / CHANGES,
  };
}

function looksAtWhatChanged(few: Figures, many: Figures, idle: number): Check {
  const [alone = 0, among = 0] = [few['examined'], many['examined']];
  return {
    suite: 'growth',
    name: 'only deployments that changed are looked at',
    isRight: among <= alone * FLAT,
    text: `${among.toFixed(1)} looks for each change among ${idle} idle deployments, ${alone.toFixed(1)} without them`,
  };
}
