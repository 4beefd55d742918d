import { expect } from 'vitest';
import type { Redis } from 'ioredis';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import { LeaderLease } from '#scheduler/cluster/leader.ts';
import type { LeaderOptions, Leadership } from '#scheduler/cluster/leader.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface World {
  readonly keys: Keys;
  readonly eye: Redis;
  /** A replica with a connection of its own. */
  readonly replica: (
    options?: Partial<LeaderOptions>,
  ) => Promise<{ lease: LeaderLease; client: Redis; seen: Leadership[] }>;
}

const test = base.extend('world', async ({ redis }, { onCleanup }): Promise<World> => {
  const keys = keysOf(`l${newId().slice(0, 8)}`);
  const leases: LeaderLease[] = [];
  const clients: Redis[] = [];
  onCleanup(async () => {
    for (const lease of leases) await lease.stop();
    for (const client of clients) client.disconnect();
  });
  return {
    keys,
    eye: redis.connect(),
    replica: async (options = {}) => {
      const client = redis.connect({
        maxRetriesPerRequest: 1,
        enableOfflineQueue: false,
        commandTimeout: 200,
        retryStrategy: () => 20,
      });
      clients.push(client);
      await waitFor(async () => client.status === 'ready', 'the client is connected');
      const log = createLog({ name: 'test', level: 'silent' });
      const instance = newInstanceId();
      const lease = new LeaderLease({ client, keys, instance, log, leaseMs: 600, renewMs: 100, ...options });
      leases.push(lease);
      const seen: Leadership[] = [];
      lease.onChange((now) => seen.push(now));
      return { lease, client, seen };
    },
  };
});

test('of two contenders exactly one leads, and the other follows when it resigns, with a higher number', async ({
  world,
}) => {
  const [a, b] = [await world.replica(), await world.replica()];
  await Promise.all([a.lease.start(), b.lease.start()]);
  expect([a, b].filter(({ lease }) => lease.isLeader())).toHaveLength(1);
  const [first, second] = a.lease.isLeader() ? [a, b] : [b, a];
  const fence = first.lease.fence() ?? 0;
  expect(second.lease.fence()).toBeUndefined();
  await first.lease.stop();
  expect(first.lease.isLeader()).toBe(false);
  await waitFor(async () => second.lease.isLeader(), 'the other leads');
  expect(second.lease.fence()).toBeGreaterThan(fence);
  expect(first.seen).toEqual([
    { kind: 'leading', fence },
    { kind: 'following', why: 'resigned' },
  ]);
});

test('one that waits leads as soon as it hears that the lease was given back', async ({ world }) => {
  const long = { leaseMs: 600_000, renewMs: 60_000 };
  const waits = await world.replica(long);
  const leads = await world.replica({ ...long, onFreed: () => waits.lease.freed() });
  await leads.lease.start();
  await waits.lease.start();
  expect([leads, waits].map(({ lease }) => lease.isLeader())).toEqual([true, false]);
  await leads.lease.stop();
  await waitFor(() => waits.lease.isLeader(), 'the other leads');
});

test('a leader that renews keeps its number beyond the lease', async ({ world }) => {
  const { lease, seen } = await world.replica();
  const other = await world.replica();
  await lease.start();
  await other.lease.start();
  const fence = lease.fence();
  const untilMs = performance.now() + 1500;
  await waitFor(async () => {
    expect([lease.isLeader(), other.lease.isLeader()]).toEqual([true, false]);
    return performance.now() > untilMs;
  }, 'more than two leases have passed');
  expect(lease.fence()).toBe(fence);
  expect(seen).toHaveLength(1);
});

test('a leader cut off from Redis stops leading before anybody else can start', async ({ world }) => {
  const a = await world.replica({ renewMs: 100 });
  await a.lease.start();
  const b = await world.replica();
  let both = false;
  b.lease.onChange(() => (both ||= a.lease.isLeader()));
  a.client.disconnect();
  await b.lease.start();
  await waitFor(async () => b.lease.isLeader(), 'the other leads');
  expect(both).toBe(false);
  expect(a.lease.fence()).toBeUndefined();
  expect(a.seen.at(-1)).toEqual({ kind: 'following', why: 'lease_ran_out' });
});

test('by its own clock a leader that was stopped too long does not lead, whatever it heard last', async ({ world }) => {
  let nowMs = 0;
  const { lease } = await world.replica({
    clock: { nowMs: () => 0, monotonicMs: () => nowMs },
    leaseMs: 10_000,
    renewMs: 60_000,
  });
  await lease.start();
  nowMs = 8999;
  expect(lease.isLeader()).toBe(true);
  nowMs = 9000;
  expect(lease.isLeader()).toBe(false);
  expect(lease.fence()).toBeUndefined();
});

test('a lease taken over is noticed at the next renewal', async ({ world }) => {
  const { lease, seen } = await world.replica();
  await lease.start();
  await world.eye.set(world.keys.leader, 'somebody', 'PX', 60_000);
  await waitFor(async () => !lease.isLeader(), 'it follows');
  expect(seen.at(-1)).toEqual({ kind: 'following', why: 'held_by_another' });
});

test('resigning does not take the lease of another', async ({ world }) => {
  const { lease } = await world.replica({ renewMs: 60_000, leaseMs: 60_000 });
  await lease.start();
  await world.eye.set(world.keys.leader, 'somebody', 'PX', 60_000);
  await lease.stop();
  expect(await world.eye.get(world.keys.leader)).toBe('somebody');
});

test('the fencing number grows even when Redis lost its data', async ({ world }) => {
  const a = await world.replica();
  await a.lease.start();
  const first = a.lease.fence() ?? 0;
  await a.lease.stop();
  const b = await world.replica();
  await b.lease.start();
  const second = b.lease.fence() ?? 0;
  expect(second).toBeGreaterThan(first);
  await world.eye.flushall();
  await waitFor(async () => (b.lease.fence() ?? 0) > second, 'it took the lease anew');
});

test('a replica that starts without Redis leads once it is there', async ({ redis, world }) => {
  const { lease, client } = await world.replica();
  await redis.crash();
  await waitFor(async () => client.status !== 'ready', 'the client noticed');
  await lease.start();
  expect(lease.isLeader()).toBe(false);
  await redis.restart();
  await waitFor(async () => lease.isLeader(), 'it leads');
});

test('a Redis that came back older than the database: the next number is above the highest that ever led', async ({
  world,
}) => {
  const highest = 5_000_000_000;
  const asked: number[] = [];
  const { lease } = await world.replica({
    raise: (fence) => {
      asked.push(fence);
      return Promise.resolve(Math.max(fence, highest));
    },
  });
  await lease.start();
  expect(lease.isLeader()).toBe(false);
  await waitFor(async () => lease.isLeader(), 'it leads');
  expect(lease.fence()).toBe(highest + 1);
  expect(asked.at(-1)).toBe(highest + 1);
});

test('who cannot say its number to the database does not lead, and leaves the lease to others', async ({ world }) => {
  const cut = await world.replica({ raise: () => Promise.reject(new Error('the database is away')) });
  await cut.lease.start();
  expect(cut.lease.isLeader()).toBe(false);
  const other = await world.replica();
  await other.lease.start();
  await waitFor(async () => other.lease.isLeader(), 'the other leads');
  expect(cut.seen).toEqual([]);
});
