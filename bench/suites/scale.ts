// `scale` (G5): from ScaleDeployment to the last of N containers serving, from none, on one machine. Beside it a plain
// loop over the engine's API, four at a time, and Docker Swarm on a second engine (as root only). Their containers are
// the same image with the same limits and answer HTTP.
import { sleep } from '#shared/backoff.ts';
import { startAnswering } from '../baselines/container.ts';
import type { Swarm } from '../baselines/swarm.ts';
import { startSwarm, whyNoSwarm } from '../baselines/swarm.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { DeployedApp, Product } from '../product.ts';
import { targetOf } from './invoke.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const SIZES = [10, 25, 50];
const QUICK_SIZES = [10];
const AT_ONCE = 4;
const POLL_MS = 20;
const UP_MS = 180_000;
/**
 * The kernel removes network namespaces some time after the engine
 * reports the containers gone; pause containers are made anew.
 */
const SETTLE_MS = 3000;
/** Resources that bench/apps/scale asks for. */
const CPU_MILLICORES = 250;
const MEMORY_BYTES = 64 * 1024 ** 2;

export async function scale(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  const app = await product.deploy('bench/apps/scale/app.py:handler');
  const { engine } = context.place;
  const limits = { image: product.image, cpuMillicores: CPU_MILLICORES, memoryBytes: MEMORY_BYTES };
  const swarm =
    whyNoSwarm === undefined ? await startSwarm(engine, limits, (work) => context.place.later(work)) : undefined;
  const sizes = context.isQuick ? QUICK_SIZES : SIZES;
  // The first scaling of each side is thrown away.
  await targetOf(product, app);
  await scaled(context, product, app, 0);
  await plainLoop(context, { ...limits, network: product.network }, 1);
  await swarm?.scale(1);
  await swarm?.empty();

  const rounds = await context.runRounds('scale', async (isBaselineFirst) => {
    const baseline: Record<string, number> = {};
    const ours: Record<string, number> = {};
    for (const size of sizes) {
      context.place.signal.throwIfAborted();
      const sides: readonly (() => Promise<void>)[] = [
        async () =>
          void (baseline[`n${size}`] = await plainLoop(context, { ...limits, network: product.network }, size)),
        async () => {
          ours[`n${size}`] = await scaled(context, product, app, size);
          await scaled(context, product, app, 0);
        },
        ...(swarm === undefined ? [] : [async () => void (baseline[`n${size} swarm`] = await swarmed(swarm, size))]),
      ];
      for (const side of isBaselineFirst ? sides : sides.toReversed()) {
        await side();
        await sleep(SETTLE_MS);
      }
      // Our figure is the same beside either baseline.
      if (swarm !== undefined) ours[`n${size} swarm`] = ours[`n${size}`] ?? Number.NaN;
    }
    return { baseline: baseline satisfies Figures, product: ours satisfies Figures };
  });
  const names = sizes.flatMap((size) => [`n${size}`, ...(swarm === undefined ? [] : [`n${size} swarm`])]);
  const measures = names.map((name) => measureOf('scale', name, 'ms', rounds, context.slack));
  const text = swarm === undefined ? `  without Docker Swarm beside it: ${whyNoSwarm ?? ''}` : undefined;
  return { measures, rounds, ...(text === undefined ? {} : { details: { text, figures: {} } }) };
}

/** ScaleDeployment; resolves when so many serve, or, for none, when the engine has none. @returns milliseconds */
export async function scaled(
  context: SuiteContext,
  product: Product,
  app: Pick<DeployedApp, 'deploymentId'>,
  count: number,
): Promise<number> {
  const startedMs = performance.now();
  await product.client.gateway('POST', `/deployments/${app.deploymentId}/scale`, { containers: count });
  const isThere = async (): Promise<boolean> => {
    if (count === 0) return (await context.place.engine.countOfDeployment(app.deploymentId)) === 0;
    const { containers } = (await product.client.gateway('GET', '/containers')) as {
      containers: readonly { deploymentId: string; status: string }[];
    };
    const serving = containers.filter((one) => one.deploymentId === app.deploymentId && one.status === 'RUNNING');
    return serving.length === count;
  };
  while (!(await isThere())) {
    context.place.signal.throwIfAborted();
    if (performance.now() - startedMs > UP_MS) throw new Error(`there were not ${count} containers in time`);
    await sleep(POLL_MS);
  }
  const ms = performance.now() - startedMs;
  await context.place.engine.noteContainers();
  return ms;
}

async function plainLoop(
  context: SuiteContext,
  spec: Parameters<typeof startAnswering>[1],
  count: number,
): Promise<number> {
  const { engine } = context.place;
  const startedMs = performance.now();
  const ids: string[] = [];
  let left = count;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      ids.push(await startAnswering(engine, spec));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  const ms = performance.now() - startedMs;
  await Promise.all(ids.map((id) => engine.remove(id)));
  return ms;
}

async function swarmed(swarm: Swarm, count: number): Promise<number> {
  const ms = await swarm.scale(count);
  await swarm.empty();
  return ms;
}
