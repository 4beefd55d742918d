// `cold` (G3): from a POST to the answer of a handler that has no container yet. The
// baseline is the time that Docker alone needs to start such a container (B2). The image
// is there on both sides; between two starts everything of the one before is gone.
import { request } from 'undici';
import { sleep } from '#shared/backoff.ts';
import { coldContainerMs } from '../baselines/container.ts';
import type { ContainerBaseline } from '../baselines/container.ts';
import { load } from '../load.ts';
import type { LoadTarget } from '../load.ts';
import { measureOf } from '../measure.ts';
import type { ColdCall } from '../phases.ts';
import { phaseTable, phasesOf, readyLine } from '../phases.ts';
import type { DeployedApp, Product } from '../product.ts';
import { median, percentile } from '../stats.ts';
import type { Workplace } from '../workplace.ts';
import { targetOf } from './invoke.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

/** Starts of each side in one round; with five rounds 20 each. */
const FULL_STARTS = 4;
const QUICK_STARTS = 5;
const PHASE_CALLS = 11;
const QUICK_PHASE_CALLS = 3;
const GONE_MS = 60_000;
const POLL_MS = 20;
/** The kernel takes a network namespace apart after the engine said that the container is gone. */
const SETTLE_MS = 300;
/** Resources that bench/apps/cold asks for. */
const CPU_MILLICORES = 1000;
const MEMORY_BYTES = 128 * 1024 ** 2;

interface Starts {
  readonly baseline: number[];
  readonly product: number[];
}

export async function cold(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  const app = await product.deploy('bench/apps/cold/app.py:handler');
  const { engine } = context.place;
  const spec: ContainerBaseline = {
    image: product.image,
    network: product.network,
    cpuMillicores: CPU_MILLICORES,
    memoryBytes: MEMORY_BYTES,
  };
  // The first start of each side is thrown away: it fetches code, compiles the runner and fills caches.
  const target = await targetOf(product, app);
  await untilGone(context.place, app);
  await coldContainerMs(engine, spec);

  const baselineStart = async (): Promise<number> => {
    const ms = await coldContainerMs(engine, spec);
    await sleep(SETTLE_MS);
    return ms;
  };
  const productStart = (): Promise<number> => coldCallMs(context.place, target, app);
  const all: Starts[] = [];
  const rounds = await context.runRounds('cold', async (isBaselineFirst) => {
    const starts: Starts = { baseline: [], product: [] };
    all.push(starts);
    for (let n = 0; n < startsOf(context.isQuick); n += 1) {
      context.place.signal.throwIfAborted();
      if (isBaselineFirst) starts.baseline.push(await baselineStart());
      starts.product.push(await productStart());
      if (!isBaselineFirst) starts.baseline.push(await baselineStart());
    }
    return { baseline: { p50: median(starts.baseline) }, product: { p50: median(starts.product) } };
  });
  const figures = phasesOf(await phaseCalls(context, product, target, app));
  return {
    measures: [measureOf('cold', 'p50', 'ms', rounds, context.slack), slowest(context)],
    rounds,
    details: { text: phaseTable(figures), figures: { phases: figures } },
  };

  /** A handful of starts has no percentile worth the name: the 99th is taken over those of all rounds that count. */
  function slowest(of: SuiteContext): ReturnType<typeof measureOf> {
    const kept = all.filter((_, at) => rounds[at]?.isKept === true);
    if (kept.length === 0) return undefined;
    const p99 = (side: keyof Starts) => ({
      p99: percentile(
        kept.flatMap((starts) => starts[side]),
        99,
      ),
    });
    const pooled = { number: 1, baseline: p99('baseline'), product: p99('product'), outside: 0, isKept: true };
    return measureOf('cold', 'p99', 'ms', [pooled], of.slack);
  }
}

/** Some more cold starts, of which the agent says where their time went. */
async function phaseCalls(
  context: SuiteContext,
  product: Product,
  target: LoadTarget,
  app: DeployedApp,
): Promise<readonly ColdCall[]> {
  const calls: ColdCall[] = [];
  for (let n = 0; n < (context.isQuick ? QUICK_PHASE_CALLS : PHASE_CALLS); n += 1) {
    context.place.signal.throwIfAborted();
    const postedAtMs = performance.timeOrigin + performance.now();
    const answer = await request(target.url, { method: 'POST', headers: target.headers, body: target.body ?? '' });
    await answer.body.dump();
    const answeredAtMs = performance.timeOrigin + performance.now();
    const ready = product
      .agentLines()
      .map(readyLine)
      .filter((line) => line !== undefined)
      .at(-1);
    if (answer.statusCode !== 200 || ready === undefined) throw new Error('a cold call was not answered');
    calls.push({ postedAtMs, answeredAtMs, ready });
    await untilGone(context.place, app);
  }
  return calls;
}

/** Starts of one side in one round. */
export const startsOf = (isQuick: boolean): number => (isQuick ? QUICK_STARTS : FULL_STARTS);

/** Makes a cold call over a new connection, and waits until its container is gone again. */
export async function coldCallMs(place: Workplace, target: LoadTarget, app: DeployedApp): Promise<number> {
  place.signal.throwIfAborted();
  const { figures } = await load(target, 1, { requests: 1 });
  await untilGone(place, app);
  return figures['p50'] ?? Number.NaN;
}

/** Waits until the deployment is scaled to zero and the engine has nothing of it left. */
export async function untilGone(place: Workplace, app: DeployedApp): Promise<void> {
  const deadlineMs = performance.now() + GONE_MS;
  while ((await place.engine.countOfDeployment(app.deploymentId)) > 0) {
    place.signal.throwIfAborted();
    if (performance.now() > deadlineMs) throw new Error(`a container was not gone after ${GONE_MS / 1000} s`);
    await sleep(POLL_MS);
  }
  await sleep(SETTLE_MS);
}
