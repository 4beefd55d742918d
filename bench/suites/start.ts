// `start` (G16): from spawning the scheduler on a data directory that an earlier one left (records, an append-only file) to the first 200 of its health page. There is no
// baseline: what it does is start.
import { request } from 'undici';
import { sleep } from '#shared/backoff.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { startScheduler } from '../product.ts';
import { freePort } from '../workplace.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const HEALTHY_MS = 60_000;
const POLL_MS = 5;

export async function start(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  await product.stop();
  // The first start after the others' load cleans up after them.
  await startMs(context, product.env);
  const rounds = await context.runRounds('start', async () => ({
    baseline: undefined,
    product: { p50: await startMs(context, product.env) } satisfies Figures,
  }));
  return { measures: [measureOf('start', 'p50', 'ms', rounds, context.slack)], rounds };
}

async function startMs(context: SuiteContext, env: Readonly<Record<string, string | undefined>>): Promise<number> {
  const port = await freePort();
  const agentPort = await freePort();
  const startedMs = performance.now();
  const scheduler = startScheduler(context.place, {
    ...env,
    LONGSHORE_HTTP_ADDRESS: `127.0.0.1:${port}`,
    LONGSHORE_AGENT_ADDRESS: `127.0.0.1:${agentPort}`,
  });
  try {
    // Says why it does not start, which the page cannot.
    const ready = scheduler.ready();
    await Promise.race([
      untilHealthy(port, startedMs + HEALTHY_MS),
      ready.then(() => new Promise<never>(() => undefined)),
    ]);
    return performance.now() - startedMs;
  } finally {
    await scheduler.stop();
  }
}

async function untilHealthy(port: number, deadlineMs: number): Promise<void> {
  while (performance.now() < deadlineMs) {
    try {
      const answer = await request(`http://127.0.0.1:${port}/api/v1/health`, { signal: AbortSignal.timeout(1_000) });
      await answer.body.dump();
      if (answer.statusCode === 200) return;
    } catch {
      // Nobody listens yet.
    }
    await sleep(POLL_MS);
  }
  throw new Error(`the scheduler was not healthy after ${HEALTHY_MS / 1000} s`);
}
