import { describe, expect, test } from 'vitest';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, InstanceId, MachineId, StubId } from '#shared/domain/ids.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { pickOf, RemoteCapacity } from '#scheduler/replicas/remote-capacity.ts';

const queue = queueNameOf(null, 's' as StubId);
const [here, near, other] = [newInstanceId(), newInstanceId(), newInstanceId()];

interface Served {
  readonly by: InstanceId | null;
  readonly slots: number;
  readonly inFlight?: number;
  readonly state?: ContainerEntry['row']['state'];
}

function aRemoteCapacity(served: readonly Served[], { alive = [near, other], isLive = true } = {}): RemoteCapacity {
  const entries = served.map(({ slots, state = 'RUNNING' }, n) => {
    const row = { id: `c${n}` as ContainerId, state, machineId: `m${n}` as MachineId, slots };
    return { row, spec: { queue } } as unknown as ContainerEntry;
  });
  return new RemoteCapacity({
    instance: here,
    containers: { ofQueue: () => entries },
    machines: {
      get: (id) => ({ row: { id, replica: served[Number(id.slice(1))]?.by ?? null } }) as unknown as Machine,
    },
    loads: {
      of: (id) => {
        const { inFlight } = served[Number(id.slice(1))] ?? {};
        return inFlight === undefined
          ? undefined
          : { inFlight, idleSinceMs: 0, keepWarmMs: 0, completed: 0, served: false };
      },
    },
    presence: { isAlive: (replica) => alive.includes(replica) },
    bus: { isLive },
  });
}

test('room is what ready containers of others have, as far as it was said', () => {
  const remoteCapacity = aRemoteCapacity([
    { by: near, slots: 4, inFlight: 1 },
    { by: near, slots: 2 },
    { by: other, slots: 1, inFlight: 3 },
    { by: other, slots: 8, state: 'DRAINING' },
    { by: here, slots: 8 },
    { by: null, slots: 8 },
  ]);
  expect(Object.fromEntries(remoteCapacity.of(queue))).toEqual({
    [near]: { free: 5, slots: 6 },
    [other]: { free: 0, slots: 1 },
  });
});

describe('a task is forwarded', () => {
  const one = [{ by: near, slots: 2, inFlight: 2 }];

  test('as long as its receiver has fewer forwarded tasks than slots, whatever was last said of them', () => {
    expect(aRemoteCapacity(one).receiverOf(queue, () => 0)).toBe(near);
    expect(aRemoteCapacity(one).receiverOf(queue, () => 1)).toBe(near);
    expect(aRemoteCapacity(one).receiverOf(queue, () => 2)).toBeUndefined();
    expect(aRemoteCapacity(one).receiverOf(queue, () => Number.POSITIVE_INFINITY)).toBeUndefined();
  });

  test('to nobody who is not known to live, and by nobody who hears nothing', () => {
    expect(aRemoteCapacity(one, { alive: [] }).receiverOf(queue, () => 0)).toBeUndefined();
    expect(aRemoteCapacity(one, { isLive: false }).receiverOf(queue, () => 0)).toBeUndefined();
  });
});

test('who weighs more is picked more often, and somebody always is', () => {
  const weights = new Map([
    ['a', 1],
    ['b', 3],
  ]);
  expect([0, 0.2, 0.26, 0.99, 1].map((random) => pickOf(weights, random))).toEqual(['a', 'a', 'b', 'b', 'b']);
  expect(pickOf(new Map(), 0.5)).toBeUndefined();
});
