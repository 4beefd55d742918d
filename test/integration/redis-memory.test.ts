// How much of its memory Redis may fill before new tasks are refused, and the bound of a Redis that is ours.
import type { Redis } from 'ioredis';
import { pino } from 'pino';
import { expect } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import { RedisMemory } from '../../scheduler/stores/queues/redis-memory.ts';
import type { RedisMemoryParts } from '../../scheduler/stores/queues/redis-memory.ts';
import { test } from '../helpers/services.ts';

const log = pino({ level: 'silent' });
const MIB = 1024 ** 2;
const PATIENT = { timeout: 20_000 };
const aMemory = (redis: RedisMemoryParts['redis'], over: Partial<RedisMemoryParts> = {}): RedisMemory =>
  new RedisMemory({ redis, registry: new Registry(), log, ...over });

/**
 * Stores so many bytes that the server makes itself. Bytes that a client sends are in memory twice or three times: as
 * the value, as a buffer for the next command until the server's timer takes it away, and, where the disk is slow, as
 * what is not in the append-only file yet.
 */
const fill = (client: Redis, bytes: number): Promise<number> => client.setrange('filling', bytes - 1, 'x');

test('asynchronous tasks are refused before Redis refuses a write, and are taken again below', async ({ redis }) => {
  const client = redis.connect();
  const memory = aMemory(client);
  await memory.check();
  // No bound, nothing refused.
  expect(memory.refuses()).toBe(false);
  const used = async (): Promise<number> => Number(/used_memory:(\d+)/.exec(await client.info('memory'))?.[1]);
  await fill(client, 32 * MIB);
  const fullTo = async (part: number): Promise<boolean> => {
    await client.config('SET', 'maxmemory', String(Math.floor((await used()) / part)));
    await memory.check();
    return memory.refuses();
  };
  expect(await fullTo(0.7)).toBe(false);
  expect(await fullTo(0.87)).toBe(true);
  expect(await fullTo(0.96)).toBe(true);
  // Writes of running tasks are still taken.
  await client.set('lease', 'x'.repeat(1024));
  // The state must not flap at the bound.
  expect(await fullTo(0.92)).toBe(true);
  expect(await fullTo(0.83)).toBe(true);
  expect(await fullTo(0.75)).toBe(false);
  // Bytes that this replica adds count at once, and Redis is asked again.
  memory.added(8 * MIB);
  expect(memory.refuses()).toBe(true);
  await expect.poll(() => memory.refuses(), PATIENT).toBe(false);
});

test('a Redis of our own is bounded, again after it was started anew; one that holds more comes down as it empties', async ({
  redis,
}) => {
  const client = redis.connect();
  const bound = async (): Promise<number> => Number((await client.config('GET', 'maxmemory'))[1]);
  const memory = aMemory(client, { ownMaxBytes: 64 * MIB });
  /** Redis frees what was deleted, and buffers of connections, in its own time. */
  const comesDown = () =>
    expect
      .poll(async () => {
        await memory.check();
        return await bound();
      }, PATIENT)
      .toBe(64 * MIB);
  await client.flushall();
  await comesDown();
  await client.config('SET', 'maxmemory', '0');
  await fill(client, 100 * MIB);
  await memory.check();
  // Running tasks can end, and no new ones are let in.
  expect(await bound()).toBeGreaterThan(100 * MIB);
  await client.set('lease', 'x');
  expect(memory.refuses()).toBe(true);
  await client.del('filling');
  await comesDown();
  // Also where a first step comes near the setting.
  await client.config('SET', 'maxmemory', String(66 * MIB));
  await comesDown();
  expect(memory.refuses()).toBe(false);
});
