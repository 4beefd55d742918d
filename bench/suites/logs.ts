// `logs`: five containers write 5,000 lines a second in all, while an endpoint is called at a fixed rate. Beside it the
// same containers write the same lines to /dev/null. Every line must be stored. The stores are servers: the embedded
// database is no store for such a flow.
import { sleep } from '#shared/backoff.ts';
import { createLog } from '#shared/log.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Client } from '#cli/client.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { startProduct } from '../product.ts';
import { inTurn } from '../rounds.ts';
import { percentile } from '../stats.ts';
import { WebClient } from '../streams-client.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const WRITERS = 5;
const LINES_PER_SECOND = 1_000;
const SECONDS = { full: 20, quick: 5 } as const;
/** Calls of the endpoint beside the writers: per second, and how many may be under way. */
const CALLS = { perSecond: 50, connections: 32, body: '{"name":"bench"}' } as const;
const WARM_UP_MS = 2_000;
const SERVING_MS = 60_000;
const STORED_MS = 60_000;
const POLL_MS = 50;

export async function logs(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack, isQuick } = context;
  const { signal } = place;
  const seconds = isQuick ? SECONDS.quick : SECONDS.full;
  const databaseUrl = await (await context.postgres()).createDatabase('logs');
  const release = await context.release();
  const { profileDir } = context;
  const product = await startProduct(place, {
    name: 'l',
    settings: { DATABASE_URL: databaseUrl },
    release,
    profileDir,
  });
  const headers = { authorization: `Bearer ${product.client.context.token}` };
  const writer = await product.deploy('bench/apps/logs/app.py:write');
  const endpoint = await product.deploy('bench/apps/logs/app.py:call');
  const writers = new WebClient({ url: writer.url, headers }, WRITERS);
  const calls = new WebClient({ url: endpoint.url, headers }, CALLS.connections);
  const log = createLog({ name: 'bench', level: 'silent' });
  const db = await openDb({ databaseUrl, dataDir: place.directory, log });
  place.later(() => db.close());
  const stored = async (): Promise<number> => {
    const { rows } = await db.query<{ readonly lines: number }>(
      'select coalesce(sum(line_count), 0)::int as lines from log_lines where stub_id = $1 and line like $2',
      [writer.stubId, '% xxx%'],
    );
    return rows[0]?.lines ?? 0;
  };
  let written = 0;
  let kept = 0;

  /** Writers of one side and the calls beside them, from the first line to the last. */
  const beside = async (to: 'stdout' | 'null'): Promise<Figures> => {
    signal.throwIfAborted();
    const body = JSON.stringify({ to, seconds, per_second: LINES_PER_SECOND });
    const writing = Promise.all(Array.from({ length: WRITERS }, () => writers.call(body)));
    writing.catch(() => undefined);
    const p95 = percentile(await calls.offered(CALLS, seconds * 1000, signal), 95);
    const lines = (await writing).reduce((sum, answer) => sum + writtenOf(answer), 0);
    if (to === 'null') return { 'calls p95': p95, lines: lines / seconds, 'stored after': 0 };
    const endedMs = performance.now();
    written += lines;
    while ((kept = await stored()) < written && performance.now() - endedMs < STORED_MS) await sleep(POLL_MS, signal);
    return {
      'calls p95': p95,
      lines: lines / seconds,
      'stored after': performance.now() - endedMs,
    };
  };

  await untilServing(product.client, writer.deploymentId, signal);
  await calls.offered(CALLS, WARM_UP_MS, signal);
  const rounds = await context.runRounds(
    'logs',
    inTurn(
      () => beside('null'),
      () => beside('stdout'),
    ),
  );
  writers.close();
  calls.close();
  for (const { deploymentId } of [writer, endpoint])
    await product.client.gateway('POST', `/deployments/${deploymentId}/stop`);
  const ours = rounds.map((round) => ({ ...round, baseline: undefined }));
  return {
    measures: [
      measureOf('logs', 'calls p95', 'ms', rounds, slack),
      measureOf('logs', 'lines', '/s', ours, slack),
      measureOf('logs', 'stored after', 'ms', ours, slack),
    ],
    rounds,
    checks: [{ suite: 'logs', name: 'every line is stored', isRight: kept === written, text: `${kept} of ${written}` }],
  };
}

/** Waits until as many containers serve as write. */
async function untilServing(client: Client, deploymentId: string, signal: AbortSignal): Promise<void> {
  const deadlineMs = performance.now() + SERVING_MS;
  for (;;) {
    const { containers } = (await client.gateway('GET', '/containers')) as {
      containers: readonly { deploymentId: string; status: string }[];
    };
    const serving = containers.filter((one) => one.deploymentId === deploymentId && one.status === 'RUNNING');
    if (serving.length >= WRITERS) return;
    if (performance.now() > deadlineMs) throw new Error(`there were not ${WRITERS} containers in time`);
    await sleep(POLL_MS, signal);
  }
}

function writtenOf(answer: string): number {
  const { written } = JSON.parse(answer) as { readonly written?: unknown };
  if (typeof written !== 'number') throw new Error(`a writer answered ${answer}`);
  return written;
}
