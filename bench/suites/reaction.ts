// `reaction` (G6): from the call of a deployment that runs nowhere to the start order on the agent's stream, stamped by
// a simulated agent. Measured with one deployment and among a thousand, and while another workspace asks for a thousand
// containers. A check counts containers: N calls at once ask for ceil(N / tasksPerContainer) of them, no more than the
// bound.
import { sleep } from '#shared/backoff.ts';
import { ControlPlane, until } from '../control-plane.ts';
import type { IdleApp } from '../control-plane.ts';
import { measureOf } from '../measure.ts';
import type { Figures, Round } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { median, percentile } from '../stats.ts';
import type { Workplace } from '../workplace.ts';
import type { Plane } from './planes.ts';
import type { Check, SuiteContext, SuiteResult } from './suite.ts';

const FULL_CALLS = 30;
const QUICK_CALLS = 15;
const WAIT_MS = 30_000;
/** Time in which an order beyond the right count would have come. */
const NO_MORE_MS = 500;
/** Containers that another workspace asks for at once, and how small they are, so that all have room. */
const FULL_OTHERS = 1000;
const QUICK_OTHERS = 500;
const SMALL = { cpu: 10, memory: 64 };
const MACHINES = 8;
/** Deployments that are called for the first time meanwhile, and the pause between two of these calls. */
const FIRST_STARTS = 5;
const APART_MS = 40;
const BURST = 10;
const BURSTS = [
  { tasksPerContainer: 3, maxContainers: 10, expected: 4 },
  { tasksPerContainer: 1, maxContainers: 2, expected: 2 },
] as const;

interface Side {
  readonly at: Plane;
  readonly app: IdleApp;
  readonly all: number[][];
}

export async function reaction(context: SuiteContext): Promise<SuiteResult> {
  const { alone, crowded } = await context.planes();
  const sideOf = async (at: Plane): Promise<Side> => {
    const [app] = await at.plane.deploy(1, 'called');
    if (app === undefined) throw new Error('nothing was deployed');
    await oneReactionMs(context.place, at, app);
    return { at, app, all: [] };
  };
  const one = await sideOf(alone);
  const among = await sideOf(crowded);
  const measured = async ({ at, app, all }: Side): Promise<Figures> => {
    const took: number[] = [];
    for (let call = 0; call < callsOf(context.isQuick); call += 1)
      took.push(await oneReactionMs(context.place, at, app));
    all.push(took);
    return { p50: median(took) };
  };
  const rounds = await context.runRounds('reaction', async (isBaselineFirst) => {
    if (isBaselineFirst) {
      const baseline = await measured(one);
      return { baseline, product: await measured(among) };
    }
    const product = await measured(among);
    return { baseline: await measured(one), product };
  });
  const others = await startBesideOthers(context);
  const beside = await context.runRounds(
    'reaction',
    inTurn(
      async () => ({ 'first start': await others(0) }),
      async () => ({ 'first start': await others(context.isQuick ? QUICK_OTHERS : FULL_OTHERS) }),
    ),
  );
  const p99 = pooled(rounds, one.all, among.all);
  const { slack } = context;
  return {
    measures: [
      measureOf('reaction', 'p50', 'ms', rounds, slack),
      measureOf('reaction', 'p99', 'ms', p99, slack),
      measureOf('reaction', 'p50 alone', 'ms', baselineAs('p50', 'p50 alone', rounds), slack),
      measureOf('reaction', 'p99 alone', 'ms', baselineAs('p99', 'p99 alone', p99), slack),
      measureOf('reaction', 'first start', 'ms', beside, slack),
    ],
    rounds: [...rounds, ...beside],
    checks: [await exactCounts(context, crowded)],
  };
}

/**
 * Starts a control plane with two workspaces.
 * @returns a function that has one workspace ask for `others` containers, calls deployments of the other workspace
 *   meanwhile, and gives the median time of their first starts in milliseconds
 */
async function startBesideOthers({ place, postgres }: SuiteContext): Promise<(others: number) => Promise<number>> {
  const { signal } = place;
  const plane = await ControlPlane.start(place, await postgres(), 'others', { LONGSHORE_MAX_CONTAINERS: '100000' });
  const fleet = await plane.machines(MACHINES);
  const [wide] = await plane.deploy(1, 'wide', SMALL);
  if (wide === undefined) throw new Error('nothing was deployed');
  const client = await plane.workspace('first-starts');
  const apps = await plane.deploy(FIRST_STARTS, 'called', {}, client);
  const measured = async (others: number): Promise<number> => {
    signal.throwIfAborted();
    const startedMs = new Map<string, number>();
    let placed = 0;
    fleet.listen(({ deploymentId, atMs }) => {
      if (deploymentId === wide.deploymentId) placed += 1;
      else if (!startedMs.has(deploymentId)) startedMs.set(deploymentId, atMs);
    });
    if (others > 0) await plane.scale(wide, others);
    const took: number[] = [];
    const calls = apps.map(async (app, n): Promise<void> => {
      await sleep(n * APART_MS, signal);
      const calledMs = performance.now();
      await plane.call(app, client);
      took.push((startedMs.get(app.deploymentId) ?? Number.NaN) - calledMs);
    });
    await Promise.all(calls);
    await until(`${others} start orders`, () => placed >= others, WAIT_MS, signal);
    fleet.listen(undefined);
    if (others > 0) await plane.scale(wide, 0);
    await until('every container is gone', () => fleet.containers === 0, WAIT_MS, signal);
    await sleep(NO_MORE_MS, signal);
    return median(took);
  };
  // The first ones are slower.
  await measured(0);
  await measured(FIRST_STARTS);
  return measured;
}

/** Calls of one side in one round. */
export const callsOf = (isQuick: boolean): number => (isQuick ? QUICK_CALLS : FULL_CALLS);

/** Makes a cold call, and waits until everything of it is gone again. */
export async function oneReactionMs(
  { signal }: Pick<Workplace, 'signal'>,
  { plane, fleet }: Plane,
  app: IdleApp,
): Promise<number> {
  signal.throwIfAborted();
  let atMs: number | undefined;
  fleet.listen((start) => {
    if (start.deploymentId === app.deploymentId) atMs ??= start.atMs;
  });
  const calledMs = performance.now();
  await plane.call(app);
  fleet.listen(undefined);
  if (atMs === undefined) throw new Error('a call was answered though no container was started');
  await until('the container is gone', () => fleet.containers === 0, WAIT_MS, signal);
  return atMs - calledMs;
}

/** Puts the 99th percentile over all rounds that count, because a round has too few calls for one. */
function pooled(rounds: readonly Round[], baseline: readonly number[][], product: readonly number[][]): Round[] {
  const isKept = (_: unknown, at: number): boolean => rounds[at]?.isKept === true;
  if (!rounds.some((round) => round.isKept)) return [];
  const p99 = (all: readonly number[][]): Figures => ({ p99: percentile(all.filter(isKept).flat(), 99) });
  return [{ number: 1, baseline: p99(baseline), product: p99(product), outside: 0, isKept: true }];
}

/** The goal holds for both sides: the baseline's figures as a measure of their own. */
function baselineAs(name: string, as: string, rounds: readonly Round[]): Round[] {
  return rounds.map((round) => ({
    ...round,
    baseline: undefined,
    product: { [as]: round.baseline?.[name] ?? Number.NaN },
  }));
}

async function exactCounts(context: SuiteContext, { plane, fleet }: Plane): Promise<Check> {
  const said: string[] = [];
  let isRight = true;
  for (const [index, { expected, ...autoscaler }] of BURSTS.entries()) {
    const [app] = await plane.deploy(1, `burst-${index}`, { autoscaler: { type: 'queue_depth', ...autoscaler } });
    if (app === undefined) throw new Error('nothing was deployed');
    const started = new Set<string>();
    fleet.hold(app.deploymentId);
    fleet.listen((start) => {
      if (start.deploymentId === app.deploymentId) started.add(start.containerId);
    });
    const calls = Promise.all(Array.from({ length: BURST }, () => plane.call(app)));
    try {
      await until(`${expected} start orders`, () => started.size >= expected, WAIT_MS, context.place.signal);
      await sleep(NO_MORE_MS);
    } finally {
      fleet.release(app.deploymentId);
      await calls;
      fleet.listen(undefined);
    }
    isRight &&= started.size === expected;
    const { tasksPerContainer, maxContainers } = autoscaler;
    said.push(`${BURST} calls, ${tasksPerContainer} a container, at most ${maxContainers}: ${started.size} started`);
    await until('the containers are gone', () => fleet.containers === 0, WAIT_MS, context.place.signal);
  }
  return { suite: 'reaction', name: 'exactly as many containers as asked for', isRight, text: said.join('; ') };
}
