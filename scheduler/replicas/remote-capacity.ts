// Capacity of other replicas for a queue: which have containers of it linked to them,
// and how many free slots. Rows and messages tell, so the answer is a moment late.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Presence } from '../cluster/presence.ts';
import type { Bus } from '../cluster/bus.ts';
import type { Loads } from '../cluster/loads.ts';

export interface RemoteCapacityParts {
  readonly instance: InstanceId;
  readonly containers: Pick<ContainerRegistry, 'ofQueue'>;
  readonly machines: Pick<Machines, 'get'>;
  readonly loads: Pick<Loads, 'of'>;
  readonly presence: Pick<Presence, 'isAlive'>;
  readonly bus: Pick<Bus, 'isLive'>;
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
      if (row.state !== 'RUNNING' || row.machineId === null || (looked += 1) > MOST_LOOKED_AT) continue;
      const replica = machines.get(row.machineId)?.row.replica ?? null;
      if (replica === null || replica === instance) continue;
      let capacity = found.get(replica);
      if (capacity === undefined) found.set(replica, (capacity = { free: 0, slots: 0 }));
      capacity.free += Math.max(0, row.slots - (loads.of(row.id)?.inFlight ?? 0));
      capacity.slots += row.slots;
    }
    return found;
  }

  /**
   * Picks a replica to forward a task of that queue to, at random, weighted by free slots. A
   * replica never gets more forwarded tasks than it has slots, because the free slots told may be old.
   * @param forwardedTo - number of tasks forwarded to the replica; Infinity excludes it
   */
  receiverOf(queue: QueueName, forwardedTo: (replica: InstanceId) => number): InstanceId | undefined {
    const { presence, bus } = this.#parts;
    // Without the bus, a task that the receiver gives back would not be heard of.
    if (!bus.isLive) return undefined;
    const weights = new Map<InstanceId, number>();
    for (const [replica, { free, slots }] of this.of(queue)) {
      const left = slots - forwardedTo(replica);
      if (left > 0 && presence.isAlive(replica)) weights.set(replica, 0.01 + Math.min(free, left));
    }
    return pickOf(weights, Math.random());
  }
}

/** Picks a key at random, with a probability proportional to its weight. @param random - gives [0, 1) */
export function pickOf<T>(weights: ReadonlyMap<T, number>, random: number): T | undefined {
  let left = random * [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  let last: T | undefined;
  for (const [one, weight] of weights) {
    if ((left -= weight) < 0) return one;
    last = one;
  }
  return last;
}
