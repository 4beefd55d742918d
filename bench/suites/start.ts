// `start` (G16): from spawning the scheduler to the first 200 of its health page. The data directory holds records and
// an append-only file, left by an earlier scheduler. Measured is a release, as the scheduler's unit starts it. Beside
// it the same from the sources of a checkout, whose many files are loaded one by one.
import { request } from 'undici';
import { sleep } from '#shared/backoff.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { startScheduler } from '../product.ts';
import type { Release } from '../release.ts';
import { inTurn } from '../rounds.ts';
import { freePort } from '../workplace.ts';
import type { Workplace } from '../workplace.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const HEALTHY_MS = 60_000;
const POLL_MS = 5;

export async function start(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  await product.stop();
  const release = await context.release();
  const fromSources = (): Promise<Figures> => startMs(context.place, product.env);
  const fromRelease = (): Promise<Figures> => startMs(context.place, product.env, release);
  // The first start after the others' load cleans up after them.
  await fromSources();
  await fromRelease();
  const rounds = await context.runRounds('start', inTurn(fromSources, fromRelease));
  return { measures: [measureOf('start', 'p50', 'ms', rounds, context.slack)], rounds };
}

/** Spawns a scheduler on the data directory that `env` names, waits for its health page, and ends it. */
export async function startMs(
  place: Workplace,
  env: Readonly<Record<string, string | undefined>>,
  release?: Release,
): Promise<Figures> {
  const port = await freePort();
  const agentPort = await freePort();
  const startedMs = performance.now();
  const addresses = {
    LONGSHORE_HTTP_ADDRESS: `127.0.0.1:${port}`,
    LONGSHORE_AGENT_ADDRESS: `127.0.0.1:${agentPort}`,
  };
  const scheduler = startScheduler(place, { ...env, ...addresses }, release);
  try {
    // Says why it does not start, which the page cannot.
    const ready = scheduler.ready();
    await Promise.race([
      untilHealthy(port, startedMs + HEALTHY_MS),
      ready.then(() => new Promise<never>(() => undefined)),
    ]);
    return { p50: performance.now() - startedMs };
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
      // The scheduler does not listen yet.
    }
    await sleep(POLL_MS);
  }
  throw new Error(`the scheduler was not healthy after ${HEALTHY_MS / 1000} s`);
}
