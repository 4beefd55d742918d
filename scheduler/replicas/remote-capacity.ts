// Capacity of other replicas for a queue: which have containers of it linked to them,
// and how many free slots. Rows and messages tell, so the answer is a moment late.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Loads } from '../cluster/loads.ts';

export interface RemoteCapacityParts {
  readonly instance: InstanceId;
  readonly containers: Pick<ContainerRegistry, 'ofQueue'>;
  readonly machines: Pick<Machines, 'get'>;
  readonly loads: Pick<Loads, 'of'>;
}

export interface ReplicaCapacity {
  /** Slots that were free at the last message. */
  free: number;
  slots: number;
}

/** Most containers of a queue counted; beyond that number any of them will do. */
const MOST_LOOKED_AT = 200;

export class RemoteCapacity {
  readonly #parts: RemoteCapacityParts;

  constructor(parts: RemoteCapacityParts) {
    this.#parts = parts;
  }

  /** Capacity by replica; some replicas may be gone by now. */
  of(queue: QueueName): ReadonlyMap<InstanceId, ReplicaCapacity> {
    const { containers, machines, loads, instance } = this.#parts;
    const found = new Map<InstanceId, ReplicaCapacity>();
    let looked = 0;
    for (const { row } of containers.ofQueue(queue)) {
      if (row.state !== 'RUNNING' || row.machineId === null) continue;
      if ((looked += 1) > MOST_LOOKED_AT) break;
      const replica = machines.get(row.machineId)?.row.replica ?? null;
      if (replica === null || replica === instance) continue;
      let capacity = found.get(replica);
      if (capacity === undefined) found.set(replica, (capacity = { free: 0, slots: 0 }));
      capacity.free += Math.max(0, row.slots - (loads.of(row.id)?.inFlight ?? 0));
      capacity.slots += row.slots;
    }
    return found;
  }
}
