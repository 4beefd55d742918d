// `agent` (G11): what an agent uses that looks after 50 containers in which nothing happens, sampling them every five seconds: its processor time, its resident memory (as `ps` says it; beside it the share
// that is its own) and that of a bare Node with the same libraries, and what it makes the engine do, beside the same seconds in which the agent stands still. Both programs are bundled and started as a
// release does it.
import { readFileSync, readdirSync } from 'node:fs';
import { sleep } from '#shared/backoff.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { processorMs } from '../processes.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { containers: 50, handler: 'handler', settleMs: 30_000, windowMs: 30_000 } as const;
const QUICK = { containers: 10, handler: 'few', settleMs: 10_000, windowMs: 15_000 } as const;
const STARTED_MS = 300_000;
/** The link is dialled again, and everything is told again, after the agent stood still. */
const RECONNECTED_MS = 8_000;

export async function agent(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const { containers, handler, settleMs, windowMs } = context.isQuick ? QUICK : FULL;
  const product = await context.product();
  const { deploymentId } = await product.deploy(`bench/apps/rest/app.py:${handler}`);
  const floor = place.start({ name: 'floor', ...(await context.release()).program('floor', place.env) });
  await floor.ready();
  await untilRunning(context, product.client, deploymentId, containers);
  await sleep(settleMs);
  const pid = product.pids.agent;
  const rounds = await context.runRounds('agent', async () => {
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
    const [own, bare] = [memoryMib(pid, 'Rss'), memoryMib(floor.pid, 'Rss')];
    const [ownPart, barePart] = [memoryMib(pid, 'Pss'), memoryMib(floor.pid, 'Pss')];
    return {
      baseline: { cpu: 0, engine: still.engine, rss: bare, 'rss alone': bare, pss: barePart } satisfies Figures,
      product: { cpu: active.own, engine: active.engine, rss: own, 'rss alone': own, pss: ownPart } satisfies Figures,
    };
  });
  await product.client.gateway('POST', `/deployments/${deploymentId}/stop`);
  return {
    measures: [
      measureOf('agent', 'cpu', '% of a core', rounds, slack),
      measureOf('agent', 'engine', '% of a core', rounds, slack),
      measureOf('agent', 'rss', 'MiB', rounds, slack),
      measureOf('agent', 'rss alone', 'MiB', rounds, slack),
      measureOf('agent', 'pss', 'MiB', rounds, slack),
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

/** Percent of a core, over so long. */
async function used(pid: number, ms: number): Promise<{ readonly own: number; readonly engine: number }> {
  const engines = enginePids().map((one) => ({ pid: one, before: processorMsOrGone(one) }));
  const startedMs = performance.now();
  const before = processorMs(pid);
  await sleep(ms);
  const tookMs = performance.now() - startedMs;
  const own = processorMs(pid) - before;
  let engine = 0;
  // An engine of somebody else may end meanwhile.
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

/** @param kind - `Rss`, or `Pss`: what is shared counts for each of its holders in part */
const memoryMib = (pid: number, kind: 'Rss' | 'Pss'): number =>
  Number(new RegExp(`^${kind}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]) / 1024;
