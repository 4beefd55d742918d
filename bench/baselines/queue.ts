// Baseline B1: fastify, a BullMQ queue, a Worker in another process, `waitUntilFinished`. No token, no record, no
// container: the lower bound for a queued call. The baseline starts its own Redis as the product starts one (unix
// socket, append-only file), so that only the code above Redis differs.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { startEmbeddedRedis } from '#shared/redis-child.ts';
import { createLog } from '#shared/log.ts';
import type { LoadTarget } from '../load.ts';
import type { Workplace } from '../workplace.ts';

/** Starts the baseline, which runs until the workplace is closed. */
export async function startQueueBaseline(place: Workplace, concurrency: number): Promise<LoadTarget> {
  const dataDir = join(place.directory, 'b1');
  await mkdir(dataDir, { recursive: true });
  const redis = await startEmbeddedRedis({ dataDir, log: createLog({ name: 'bench', level: 'silent' }) });
  place.later(() => redis.stop());
  const { socketPath } = redis;
  const worker = place.start({
    name: 'b1-worker',
    file: 'bench/baselines/queue-worker.ts',
    args: [socketPath, String(concurrency)],
    env: place.env,
  });
  const server = place.start({
    name: 'b1-server',
    file: 'bench/baselines/queue-server.ts',
    args: [socketPath],
    env: place.env,
  });
  const [ready] = await Promise.all([server.ready(), worker.ready()]);
  return {
    url: `http://127.0.0.1:${String(ready['port'])}/`,
    headers: {},
    body: '{"name":"bench"}',
    expected: '{"greeting":"Hello, bench!"}',
  };
}
