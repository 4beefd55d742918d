// The stores under the kill rounds, and how their Redis dies and comes back.
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { sleep } from '#shared/backoff.ts';
import { socketPathIn } from '#shared/socket-path.ts';
import { aPostgres } from '../../test/helpers/postgres.ts';
import { aRedis } from '../../test/helpers/redis.ts';
import type { Workplace } from '../workplace.ts';
import type { ChaosOptions } from './options.ts';

export interface Stores {
  /** Settings by which the scheduler finds the stores. */
  readonly env: Readonly<Record<string, string>>;
  /** kill -9; resolves when a Redis with the same data answers again. */
  killRedis(dataDir: string): Promise<void>;
  /** kill -9 of the server's processes; resolves when it answers again, on the same data. */
  killPostgres(): Promise<void>;
}

const BACK_MS = 30_000;
const POLL_MS = 20;

/** Opens the stores. The workplace ends servers after the processes that use them. */
export async function openChaosStores(kind: ChaosOptions['stores'], place: Workplace): Promise<Stores> {
  if (kind === 'embedded')
    return {
      env: {},
      killRedis: killChild,
      killPostgres: () => Promise.reject(new Error('an embedded database has no process of its own')),
    };
  const postgres = await aPostgres({ durable: true });
  place.later(() => postgres.stop());
  const redis = await aRedis();
  place.later(() => redis.stop());
  return {
    env: { DATABASE_URL: postgres.url, REDIS_URL: redis.url },
    killRedis: async () => {
      await redis.crash();
      await redis.restart();
    },
    killPostgres: async () => {
      await postgres.kill();
      await postgres.restart();
    },
  };
}

/** Kills the scheduler's own child, which the scheduler starts again. */
async function killChild(dataDir: string): Promise<void> {
  const path = socketPathIn(join(dataDir, 'redis'), 'redis.sock');
  const before = await pidOf(path);
  if (before === undefined) throw new Error(`no Redis answers on ${path}`);
  process.kill(before, 'SIGKILL');
  const deadlineMs = performance.now() + BACK_MS;
  for (;;) {
    const now = await pidOf(path);
    if (now !== undefined && now !== before) return;
    if (performance.now() > deadlineMs) throw new Error(`no other Redis answers after ${BACK_MS / 1000} s`);
    await sleep(POLL_MS);
  }
}

/** @returns undefined: Redis does not answer, or still loads its data */
async function pidOf(path: string): Promise<number | undefined> {
  const client = new Redis({
    path,
    lazyConnect: true,
    commandTimeout: 2_000,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return Number(/process_id:(\d+)/.exec(await client.info('server'))?.[1]);
  } catch {
    return undefined;
  } finally {
    client.disconnect();
  }
}
