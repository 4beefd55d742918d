// `agent` (G11): the resources of an agent with 50 idle containers, which it samples every five seconds. Figures are
// its processor time and its resident memory (as `ps` shows it; beside it the part that is its own). The baselines are
// the memory of a bare Node with the same libraries, and the engine's load in equal time while the agent stands still.
// `rss tuned` has the floor started with the agent's own options and environment, which spare memory.
// Both programs are bundled and started as a release does it. `agent-gpus` is the same with eight GPUs, each in one of
// the containers. Stand-ins are the driver's tool, whose processor time is not the agent's, and CDI before the engine.
import { mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { connectionOptions } from '#agent/containers/engine/options.ts';
import { cdiEngine } from '../../test/helpers/cdi-engine.ts';
import { FakeNvidia, aGpu } from '../../test/helpers/gpus.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { processorMs } from '../processes.ts';
import { startProduct } from '../product.ts';
import type { Product } from '../product.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { settleMs: 120_000, windowMs: 60_000 } as const;
const QUICK = { settleMs: 10_000, windowMs: 15_000 } as const;
const APPS = 'bench/apps/rest/app.py';
const GPUS = 8;
const STARTED_MS = 300_000;
/** The link is dialled again, and everything is told again, after the agent stood still. */
const RECONNECTED_MS = 8_000;

export async function agent(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  return atRest(context, 'agent', product, context.isQuick ? { few: 10 } : { handler: 50 });
}

export async function agentGpus(context: SuiteContext): Promise<SuiteResult> {
  const { place } = context;
  const directory = join(place.directory, 'gpus');
  mkdirSync(directory);
  const nvidia = new FakeNvidia(directory, { gpus: Array.from({ length: GPUS }, (_, index) => aGpu(index)) });
  const docker = connectionOptions(place.env['DOCKER_HOST']);
  if (!('socketPath' in docker)) throw new Error('agent-gpus needs an engine on a unix socket: unset DOCKER_HOST');
  const engine = await cdiEngine(docker.socketPath, 'no_gpus');
  place.later(() => engine.close());
  engine.listed = nvidia.now.gpus.map(({ uuid }) => uuid);
  engine.known = engine.listed;
  const product = await startProduct(place, {
    name: 'g',
    profileDir: context.profileDir,
    release: await context.release(),
    settings: { LONGSHORE_CPU_WORK_ON_GPU_POOLS: '*' },
    agentSettings: { DOCKER_HOST: engine.host, LONGSHORE_NVIDIA_SMI: nvidia.tool },
  });
  const result = await atRest(context, 'agent-gpus', product, {
    ...(context.isQuick ? { few: 10 } : { beside: 42 }),
    gpus: GPUS,
  });
  await product.stop();
  return result;
}

/** @param handlers - of `bench/apps/rest`, with how many containers each has */
async function atRest(
  context: SuiteContext,
  suite: 'agent' | 'agent-gpus',
  product: Product,
  handlers: Readonly<Record<string, number>>,
): Promise<SuiteResult> {
  const { place, slack } = context;
  const { settleMs, windowMs } = context.isQuick ? QUICK : FULL;
  const release = await context.release();
  const floor = place.start({ name: 'floor', ...release.bare('floor', place.env) });
  const tuned = place.start({ name: 'floor-tuned', ...release.program('floor', place.env) });
  await Promise.all([floor.ready(), tuned.ready()]);
  const deploymentIds: string[] = [];
  for (const [handler, containers] of Object.entries(handlers)) {
    const { deploymentId } = await product.deploy(`${APPS}:${handler}`);
    deploymentIds.push(deploymentId);
    await untilRunning(context, product.client, deploymentId, containers);
  }
  await sleep(settleMs);
  const pid = product.pids.agent;
  const rounds = await context.runRounds(suite, async () => {
    place.signal.throwIfAborted();
    const active = await used(pid, windowMs);
    process.kill(pid, 'SIGSTOP');
    let still;
    try {
      still = await used(pid, windowMs);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await sleep(RECONNECTED_MS);
    const memory = (one: number, other: number): Figures => ({
      rss: memoryMib(one, 'Rss'),
      'rss alone': memoryMib(one, 'Rss'),
      'rss tuned': memoryMib(other, 'Rss'),
      'pss tuned': memoryMib(other, 'Pss'),
    });
    return {
      baseline: { cpu: 0, engine: still.engine, ...memory(floor.pid, tuned.pid) },
      product: { cpu: active.own, engine: active.engine, ...memory(pid, pid) },
    };
  });
  for (const id of deploymentIds) await product.client.gateway('POST', `/deployments/${id}/stop`);
  return {
    measures: [
      measureOf(suite, 'cpu', '% of a core', rounds, slack),
      measureOf(suite, 'engine', '% of a core', rounds, slack),
      measureOf(suite, 'rss', 'MiB', rounds, slack),
      measureOf(suite, 'rss alone', 'MiB', rounds, slack),
      measureOf(suite, 'rss tuned', 'MiB', rounds, slack),
      measureOf(suite, 'pss tuned', 'MiB', rounds, slack),
    ],
    rounds,
  };
}

type Client = Awaited<ReturnType<SuiteContext['product']>>['client'];

async function untilRunning(
  { place }: SuiteContext,
  client: Client,
  deploymentId: string,
  wanted: number,
): Promise<void> {
  const until = performance.now() + STARTED_MS;
  for (;;) {
    place.signal.throwIfAborted();
    const { containers } = (await client.gateway('GET', '/containers')) as unknown as {
      readonly containers: readonly { readonly status: string; readonly deploymentId: string }[];
    };
    const running = containers.filter((one) => one.deploymentId === deploymentId && one.status === 'RUNNING').length;
    if (running >= wanted) return;
    if (performance.now() > until)
      throw new Error(`${running} of ${wanted} containers run after ${STARTED_MS / 1000} s`);
    await sleep(500);
  }
}

/** Use of the agent and of the engine over `ms`, in per cent of a core. */
async function used(pid: number, ms: number): Promise<{ readonly own: number; readonly engine: number }> {
  const engines = enginePids().map((one) => ({ pid: one, before: processorMsOrGone(one) }));
  const startedMs = performance.now();
  const before = processorMs(pid);
  await sleep(ms);
  const tookMs = performance.now() - startedMs;
  const own = processorMs(pid) - before;
  let engine = 0;
  // Another owner's engine may end meanwhile.
  for (const one of engines) engine += (processorMsOrGone(one.pid) ?? one.before ?? 0) - (one.before ?? 0);
  return { own: (own / tookMs) * 100, engine: (engine / tookMs) * 100 };
}

function processorMsOrGone(pid: number): number | undefined {
  try {
    return processorMs(pid);
  } catch {
    return undefined;
  }
}

/** dockerd and containerd, not the shims. */
function enginePids(): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return /^(?:dockerd|containerd)$/.test(readFileSync(`/proc/${pid}/comm`, 'utf8').trim());
      } catch {
        return false;
      }
    });
}

/** @param kind - `Rss`, or `Pss`: shared memory counts for each of its holders in part */
const memoryMib = (pid: number, kind: 'Rss' | 'Pss'): number =>
  Number(new RegExp(`^${kind}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]) / 1024;
