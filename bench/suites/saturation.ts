// `saturation`: two schedulers with twice as many callers each as there are slots, which are all linked to the first.
// Calls wait in both lines, and half of them cross. The p99 of callers at the first is the baseline of those at the
// other; the rate is that of both. Handlers take 1 ms, where the schedulers are the bound, and 50 ms, where the slots
// are: as many slots that were never idle are the baseline of that rate.
import { ControlPlane } from '../control-plane.ts';
import { load } from '../load.ts';
import type { LoadTarget } from '../load.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Release } from '../release.ts';
import type { PrivatePostgres } from '../../test/helpers/postgres.ts';
import type { Workplace } from '../workplace.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL_SECONDS = 6;
const QUICK_SECONDS = 3;
const WARM_UP_SECONDS = 1;
const SLOTS = 16;
const CALLERS = 2 * SLOTS;
const WORK_MS = [1, 50] as const;
/** A container that stays, and more room in the line than there are callers. */
const APP = {
  concurrentRequests: SLOTS,
  keepWarmSeconds: 3600,
  maxPendingTasks: 10_000,
  autoscaler: { type: 'queue_depth', tasksPerContainer: 1000, maxContainers: 1, minContainers: 0 },
} as const;

/** Figures of both schedulers under one handler. */
export type Saturated = (workMs: number, seconds: number) => Promise<Figures>;

/** Starts two schedulers and a machine at the first. @param name - of their database; lower case letters */
export async function startSaturated(
  place: Workplace,
  postgres: PrivatePostgres,
  name: string,
  release?: Release,
): Promise<Saturated> {
  const near = await ControlPlane.start(place, postgres, name, {}, release);
  const far = await near.another(`${name}-far`);
  const fleet = await near.machines(1, { slots: SLOTS });
  const targets = new Map<number, { readonly near: LoadTarget; readonly far: LoadTarget }>();
  for (const workMs of WORK_MS) {
    const [app] = await near.deploy(1, `takes-${workMs}`, APP);
    if (app === undefined) throw new Error('nothing was deployed');
    fleet.takes(app.deploymentId, workMs);
    await near.call(app);
    targets.set(workMs, { near: near.target(app), far: far.targetOf(app) });
  }
  return async (workMs, seconds) => {
    place.signal.throwIfAborted();
    const at = targets.get(workMs);
    if (at === undefined) throw new RangeError(`no handler takes ${workMs} ms`);
    const [here, there] = await Promise.all([load(at.near, CALLERS, { seconds }), load(at.far, CALLERS, { seconds })]);
    const rate = (here.figures['rate'] ?? 0) + (there.figures['rate'] ?? 0);
    return { rate, near: here.figures['p99'] ?? 0, far: there.figures['p99'] ?? 0 };
  };
}

/** A round with every handler: `rate 1 ms`, `near p99 1 ms`, `far p99 1 ms`, and the same of 50 ms. */
export async function saturatedRound(saturated: Saturated, isQuick: boolean): Promise<Figures> {
  const round: Record<string, number> = {};
  for (const workMs of WORK_MS) {
    await saturated(workMs, WARM_UP_SECONDS);
    const { rate = 0, near = 0, far = 0 } = await saturated(workMs, isQuick ? QUICK_SECONDS : FULL_SECONDS);
    round[`rate ${workMs} ms`] = rate;
    round[`near p99 ${workMs} ms`] = near;
    round[`far p99 ${workMs} ms`] = far;
  }
  return round;
}

/** The figures of a round and their units. */
export const SATURATED_FIGURES: Readonly<Record<string, string>> = Object.fromEntries(
  WORK_MS.flatMap((workMs) => [
    [`rate ${workMs} ms`, '/s'],
    [`near p99 ${workMs} ms`, 'ms'],
    [`far p99 ${workMs} ms`, 'ms'],
  ]),
);

export async function saturation(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const saturated = await startSaturated(place, await context.postgres(), 'saturation');
  const rounds = await context.runRounds('saturation', async () => {
    const figures = await saturatedRound(saturated, context.isQuick);
    const baseline = { 'rate 50 ms': (SLOTS * 1_000) / 50 };
    const far: Record<string, number> = {};
    for (const workMs of WORK_MS) far[`p99 ${workMs} ms`] = figures[`near p99 ${workMs} ms`] ?? 0;
    return {
      baseline: { ...baseline, ...far },
      product: {
        'rate 1 ms': figures['rate 1 ms'] ?? 0,
        'rate 50 ms': figures['rate 50 ms'] ?? 0,
        'p99 1 ms': figures['far p99 1 ms'] ?? 0,
        'p99 50 ms': figures['far p99 50 ms'] ?? 0,
      },
    };
  });
  // No baseline says how many calls the schedulers can take.
  const alone = rounds.map((round) => ({ ...round, baseline: undefined }));
  return {
    measures: [
      measureOf('saturation', 'rate 1 ms', '/s', alone, slack),
      measureOf('saturation', 'rate 50 ms', '/s', rounds, slack),
      measureOf('saturation', 'p99 1 ms', 'ms', rounds, slack),
      measureOf('saturation', 'p99 50 ms', 'ms', rounds, slack),
    ],
    rounds,
  };
}
