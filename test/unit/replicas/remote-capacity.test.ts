import { expect, test } from 'vitest';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, InstanceId, MachineId, StubId } from '#shared/domain/ids.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { RemoteCapacity } from '#scheduler/replicas/remote-capacity.ts';

const queue = queueNameOf(null, 's' as StubId);
const [here, near, other] = [newInstanceId(), newInstanceId(), newInstanceId()];

interface Served {
  readonly by: InstanceId | null;
  readonly slots: number;
  readonly inFlight?: number;
  readonly state?: ContainerEntry['row']['state'];
}

function aRemoteCapacity(
  served: readonly Served[],
  onLook: (all: Iterable<ContainerEntry>) => Iterable<ContainerEntry> = (all) => all,
): RemoteCapacity {
  const entries = served.map(({ slots, state = 'RUNNING' }, n) => {
    const row = { id: `c${n}` as ContainerId, state, machineId: `m${n}` as MachineId, slots };
    return { row, spec: { queue } } as unknown as ContainerEntry;
  });
  return new RemoteCapacity({
    instance: here,
    containers: { ofQueue: () => onLook(entries) },
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

test('a queue of any length costs a look at 200 containers that run', () => {
  let looked = 0;
  function* onLook(all: Iterable<ContainerEntry>): Iterable<ContainerEntry> {
    for (const one of all) {
      looked += 1;
      yield one;
    }
  }
  const served = Array.from({ length: 1_000 }, () => ({ by: near, slots: 1 }));
  expect(aRemoteCapacity(served, onLook).of(queue).get(near)).toEqual({ free: 200, slots: 200 });
  expect(looked).toBe(201);
});
