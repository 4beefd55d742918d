// Free capacity of machines, counted in a real Redis: racing
// reservations, owners, reservations in flight, and corrected counts.
/* oxlint-disable no-empty-pattern */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect } from 'vitest';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { Reservations } from '#scheduler/control/placement/reservations.ts';
import type { Countable, Reservation } from '#scheduler/control/placement/reservations.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const MACHINE = 'm0000001' as MachineId;
const DEVICES = Array.from({ length: 8 }, (_none, index) => `GPU-${index}`);
const FENCE = 7;

let made = 0;
function aReservation(changes: Partial<Reservation> = {}): Reservation {
  made += 1;
  return {
    machineId: MACHINE,
    containerId: `endpoint-${made}` as ContainerId,
    assignmentId: randomUUID(),
    epoch: 1,
    cpuMillicores: 100,
    memoryBytes: 1024,
    gpuUuids: [],
    ...changes,
  };
}

function aCount(changes: Partial<Countable> = {}): Countable {
  return {
    machineId: MACHINE,
    schedulable: true,
    totalCpuMillicores: 64_000,
    totalMemoryBytes: 512 * 1024 ** 3,
    totalGpus: 8,
    held: [],
    ...changes,
  };
}

interface Ground {
  readonly reservations: Reservations;
  readonly keys: Keys;
  /** Free CPU, memory and GPUs, as Redis has them. */
  readonly left: () => Promise<readonly number[]>;
  readonly devices: () => Promise<Record<string, string>>;
}

const test = base.extend('ground', async ({ redis }): Promise<Ground> => {
  const client = redis.connect();
  const keys = keysOf(`t-${randomUUID().slice(0, 8)}`);
  await client.set(keys.leaderFence, FENCE);
  return {
    reservations: new Reservations({ client, keys, inFlightMs: 300 }),
    keys,
    left: async () => (await client.hmget(keys.capacity(MACHINE), 'cpu', 'memory', 'gpus')).map(Number),
    devices: () => client.hgetall(keys.devices(MACHINE)),
  };
});

describe('Second lease of a GPU', () => {
  test('500 racers for 8 GPUs get 8 distinct devices', async ({ redis, ground }) => {
    await ground.reservations.recount(aCount(), FENCE);
    const clients = Array.from({ length: 20 }, () => redis.connect());
    const racers = clients.map((client) => new Reservations({ client, keys: ground.keys }));
    const got = await Promise.all(
      Array.from({ length: 500 }, async (_none, index) => {
        // Each reservation tries every device, from a start of its own, as with an outdated view of the machine.
        for (let step = 0; step < 8; step += 1) {
          const uuid = DEVICES[(index * 3 + step) % 8] ?? '';
          const wanted = aReservation({ gpuUuids: [uuid] });
          const answer = await racers[index % 20]!.reserve(wanted, FENCE);
          if (answer === 'reserved') return uuid;
          expect(['gpu_taken', 'gpu_count']).toContain(answer);
        }
        return undefined;
      }),
    );
    const winners = got.filter((uuid) => uuid !== undefined);
    expect(winners.toSorted()).toEqual(DEVICES);
    expect(await ground.left()).toEqual([64_000 - 800, 512 * 1024 ** 3 - 8 * 1024, 0]);
    expect(Object.keys(await ground.devices()).toSorted()).toEqual(DEVICES);
  });

  test('refused by the script for another assignment, also on the same container', async ({ ground }) => {
    const { reservations } = ground;
    await reservations.recount(aCount(), FENCE);
    const first = aReservation({ gpuUuids: ['GPU-0', 'GPU-1'] });
    expect(await reservations.reserve(first, FENCE)).toBe('reserved');
    expect(await reservations.reserve(aReservation({ gpuUuids: ['GPU-1'] }), FENCE)).toBe('gpu_taken');
    const { containerId } = first;
    expect(await reservations.reserve(aReservation({ containerId }), FENCE)).toBe('already_assigned');
    expect(await ground.devices()).toEqual({
      'GPU-0': `${first.assignmentId} 1`,
      'GPU-1': `${first.assignmentId} 1`,
    });
  });

  test('found by a count: said, and one owner stays', async ({ ground }) => {
    const held = [aReservation({ gpuUuids: ['GPU-0'] }), aReservation({ gpuUuids: ['GPU-0'] })];
    const drift = await ground.reservations.recount(aCount({ held }), FENCE);
    expect(drift?.leasedTwice).toBe(1);
    expect(await ground.devices()).toEqual({ 'GPU-0': `${held[0]?.assignmentId} 1` });
  });
});

describe('a reservation', () => {
  test('is verified again: state of the machine, floors, and who leads', async ({ ground }) => {
    const { reservations } = ground;
    expect(await reservations.reserve(aReservation(), FENCE)).toBe('unknown_machine');
    await reservations.recount(aCount({ schedulable: false }), FENCE);
    expect(await reservations.reserve(aReservation(), FENCE)).toBe('not_schedulable');
    await reservations.recount(aCount({ totalCpuMillicores: 150, totalMemoryBytes: 2000, totalGpus: 1 }), FENCE);
    const before = await ground.left();
    expect(await reservations.reserve(aReservation({ cpuMillicores: 151 }), FENCE)).toBe('cpu');
    expect(await reservations.reserve(aReservation({ memoryBytes: 2001 }), FENCE)).toBe('memory');
    expect(await reservations.reserve(aReservation({ gpuUuids: ['GPU-0', 'GPU-1'] }), FENCE)).toBe('gpu_count');
    expect(await reservations.reserve(aReservation(), FENCE - 1)).toBe('stale_leader');
    expect(await ground.left()).toEqual(before);
    expect(await reservations.reserve(aReservation({ cpuMillicores: 150 }), FENCE)).toBe('reserved');
  });

  test('Scheduler crash mid-step: repeated under its assignment is success, and takes nothing twice', async ({
    ground,
  }) => {
    const { reservations } = ground;
    await reservations.recount(aCount(), FENCE);
    const wanted = aReservation({ gpuUuids: ['GPU-3'] });
    expect(await reservations.reserve(wanted, FENCE)).toBe('reserved');
    const left = await ground.left();
    expect(await reservations.reserve(wanted, FENCE)).toBe('reserved');
    expect(await ground.left()).toEqual(left);
  });

  test('is released by its owner only, as often as it likes', async ({ ground }) => {
    const { reservations } = ground;
    await reservations.recount(aCount(), FENCE);
    const full = await ground.left();
    const owner = aReservation({ gpuUuids: ['GPU-5'] });
    await reservations.reserve(owner, FENCE);
    const left = await ground.left();
    expect(await reservations.release({ ...owner, epoch: 2 })).toBe(false);
    expect(await reservations.release({ ...owner, assignmentId: randomUUID() })).toBe(false);
    expect(await ground.left()).toEqual(left);
    expect(await reservations.release(owner)).toBe(true);
    const next = aReservation({ gpuUuids: ['GPU-5'] });
    expect(await reservations.reserve(next, FENCE)).toBe('reserved');
    expect(await reservations.release(owner)).toBe(false);
    expect(await ground.devices()).toEqual({ 'GPU-5': `${next.assignmentId} 1` });
    await reservations.release(next);
    expect(await ground.left()).toEqual(full);
  });

  test('Scheduler crash mid-step: in flight is kept by a count, until it is overdue; a confirmed one that a count does not know goes', async ({
    ground,
  }) => {
    const { reservations } = ground;
    await reservations.recount(aCount(), FENCE);
    const flying = aReservation({ gpuUuids: ['GPU-1'] });
    await reservations.reserve(flying, FENCE);
    const drift = await reservations.recount(aCount(), FENCE);
    expect(drift).toEqual({ cpuMillicores: 0, memoryBytes: 0, gpus: 0, reservations: 0, leasedTwice: 0 });
    expect(Object.keys(await ground.devices())).toEqual(['GPU-1']);
    await waitFor(async () => (await reservations.overdue()).length === 1, 'it is overdue');
    const { machineId, containerId, assignmentId, epoch } = flying;
    expect(await reservations.overdue()).toEqual([{ machineId, containerId, assignmentId, epoch }]);
    expect(await reservations.confirm(flying)).toBe(true);
    expect(await reservations.overdue()).toEqual([]);
    expect(await reservations.recount(aCount(), FENCE)).toMatchObject({ gpus: 1, reservations: 1 });
    expect(await ground.devices()).toEqual({});
    expect(await reservations.confirm(flying)).toBe(false);
  });
});

describe('Scheduler crash mid-step', () => {
  test('what was reserved, dropped by the next leader’s count, and never written is settled once, not for ever', async ({
    ground,
  }) => {
    const { reservations } = ground;
    await reservations.recount(aCount(), FENCE);
    const flying = aReservation({ gpuUuids: ['GPU-1'] });
    await reservations.reserve(flying, FENCE);
    await waitFor(async () => (await reservations.overdue()).length === 1, 'it is overdue');
    await reservations.recount(aCount(), FENCE);
    expect(await reservations.release(flying)).toBe(false);
    expect(await reservations.overdue()).toEqual([]);
  });

  test('a machine that is no more leaves nothing behind, and what was on it can be placed elsewhere', async ({
    ground,
    redis,
  }) => {
    const { reservations, keys } = ground;
    await reservations.recount(aCount(), FENCE);
    const there = aReservation({ gpuUuids: ['GPU-1'] });
    await reservations.reserve(there, FENCE);
    const other = 'm0000002' as MachineId;
    await reservations.recount(aCount({ machineId: other }), FENCE);
    await reservations.forget(MACHINE);
    await reservations.release(there);
    const elsewhere = { ...there, machineId: other, assignmentId: randomUUID(), epoch: 2 };
    expect(await reservations.reserve(elsewhere, FENCE)).toBe('reserved');
    await reservations.confirm(elsewhere);
    // The machine's counts are forgotten late, or twice: a container
    // that is placed elsewhere by now keeps its reservation.
    await reservations.forget(MACHINE);
    expect(await redis.connect().hgetall(keys.assignments)).toEqual({ [there.containerId]: elsewhere.assignmentId });
    expect(await reservations.overdue()).toEqual([]);
    expect(await redis.connect().zcard(keys.reserving)).toBe(0);
  });
});

describe('a count', () => {
  test('sets what is there to what is said, and tells what was different', async ({ ground, redis }) => {
    const { reservations, keys } = ground;
    const held = [aReservation({ gpuUuids: ['GPU-0'] })];
    expect(await reservations.recount(aCount({ held }), FENCE)).toBeUndefined();
    expect(await reservations.recount(aCount({ held }), FENCE)).toMatchObject({ cpuMillicores: 0, reservations: 0 });
    await redis.connect().hincrby(keys.capacity(MACHINE), 'cpu', -40);
    await redis.connect().hset(keys.devices(MACHINE), 'GPU-7', 'nobody 1');
    expect(await reservations.recount(aCount({ held }), FENCE)).toMatchObject({ cpuMillicores: 40, gpus: 1 });
    expect(await ground.left()).toEqual([63_900, 512 * 1024 ** 3 - 1024, 7]);
    expect(await reservations.recount(aCount(), FENCE - 1)).toBeUndefined();
    expect(await ground.left()).toEqual([63_900, 512 * 1024 ** 3 - 1024, 7]);
  });

  test('of a machine that offers another share of itself, whoever counted it last, tells only what was different beside that', async ({
    ground,
    redis,
  }) => {
    const { reservations, keys } = ground;
    const held = [aReservation()];
    await reservations.recount(aCount({ held }), FENCE);
    const less = { held, totalCpuMillicores: 1500, totalMemoryBytes: 4096 };
    const none = { cpuMillicores: 0, memoryBytes: 0 };
    expect(await reservations.recount(aCount(less), FENCE + 1)).toMatchObject(none);
    await redis.connect().hincrby(keys.capacity(MACHINE), 'cpu', 30);
    expect(await reservations.recount(aCount({ held }), FENCE + 1)).toMatchObject({ ...none, cpuMillicores: 30 });
    expect(await reservations.recount(aCount({ held }), FENCE + 1)).toMatchObject(none);
  });

  test('whatever is reserved, released and counted: nothing below zero, devices with one owner, and all free again in the end', async ({
    ground,
  }) => {
    const { reservations } = ground;
    const small = { totalCpuMillicores: 500, totalMemoryBytes: 4096, totalGpus: 2 };
    const step = fc.record({
      what: fc.constantFrom('reserve', 'reserve', 'release', 'again', 'count'),
      who: fc.nat({ max: 5 }),
      cpuMillicores: fc.integer({ min: 0, max: 300 }),
      gpuUuids: fc.subarray(['GPU-0', 'GPU-1']),
    });
    const world = async (steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[]): Promise<void> => {
      await reservations.recount(aCount({ ...small, held: [] }), FENCE);
      const holding = new Map<number, Reservation>();
      for (const { what, who, cpuMillicores, gpuUuids } of steps) {
        const mine = holding.get(who);
        if (what === 'count') {
          const drift = await reservations.recount(aCount({ ...small, held: [...holding.values()] }), FENCE);
          expect(drift).toMatchObject({ cpuMillicores: 0, memoryBytes: 0, gpus: 0, reservations: 0, leasedTwice: 0 });
        } else if (what === 'reserve' && mine === undefined) {
          const wanted = aReservation({ cpuMillicores, gpuUuids });
          if ((await reservations.reserve(wanted, FENCE)) !== 'reserved') continue;
          await reservations.confirm(wanted);
          holding.set(who, wanted);
        } else if (what === 'again' && mine !== undefined) {
          expect(await reservations.reserve(mine, FENCE)).toBe('reserved');
          await reservations.confirm(mine);
        } else if (what === 'release' && mine !== undefined) {
          expect(await reservations.release(mine)).toBe(true);
          holding.delete(who);
        }
        const left = await ground.left();
        expect(Math.min(...left)).toBeGreaterThanOrEqual(0);
        const leased = [...holding.values()].flatMap((one) =>
          one.gpuUuids.map((uuid) => [uuid, `${one.assignmentId} 1`]),
        );
        expect(await ground.devices()).toEqual(Object.fromEntries(leased));
      }
      for (const one of holding.values()) await reservations.release(one);
      expect(await ground.left()).toEqual([500, 4096, 2]);
    };
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 25 }), world), { numRuns: 300 });
  });
});
