// `crossing`: processor time of a call that arrives at one of two scheduler processes and runs on a machine linked to
// the other. The baseline is a call that arrives where the machine is linked. Counted is the time of both schedulers
// and their Redis; the machine is simulated, and the load is the generator's own.
import { ControlPlane } from '../control-plane.ts';
import { load } from '../load.ts';
import type { LoadTarget } from '../load.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL_SECONDS = 4;
const QUICK_SECONDS = 2;
const WARM_UP_SECONDS = 1;
const CONNECTIONS = 16;
/** Calls wait for nothing but each other: more slots than connections, in one container that stays. */
const APP = {
  concurrentRequests: 64,
  keepWarmSeconds: 3600,
  autoscaler: { type: 'queue_depth', tasksPerContainer: 1000, maxContainers: 1, minContainers: 0 },
} as const;

export async function crossing(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const seconds = context.isQuick ? QUICK_SECONDS : FULL_SECONDS;
  const near = await ControlPlane.start(place, await context.postgres(), 'crossing');
  const far = await near.another('crossing-far');
  await near.machines(1);
  const [app] = await near.deploy(1, 'crossing', APP);
  if (app === undefined) throw new Error('nothing was deployed');
  await near.call(app);
  const local = near.target(app);
  const crossed = far.targetOf(app);

  const spentMs = async (): Promise<number> => (await near.usage()).cpuMs + far.cpuMs();
  const measured = async (target: LoadTarget): Promise<Figures> => {
    place.signal.throwIfAborted();
    await load(target, CONNECTIONS, { seconds: WARM_UP_SECONDS });
    const beforeMs = await spentMs();
    const { figures, answered } = await load(target, CONNECTIONS, { seconds });
    return { ...figures, processor: (((await spentMs()) - beforeMs) / answered) * 1000 };
  };
  const rounds = await context.runRounds(
    'crossing',
    inTurn(
      () => measured(local),
      () => measured(crossed),
    ),
  );
  return {
    measures: [
      measureOf('crossing', 'processor', 'us', rounds, slack),
      measureOf('crossing', 'p50', 'ms', rounds, slack),
      measureOf('crossing', 'rate', '/s', rounds, slack),
    ],
    rounds,
  };
}
