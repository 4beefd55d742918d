// Room of other replicas for a queue: which have containers of it linked to them,
// and how many free slots. Rows and messages tell, so the answer is a moment late.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { ContainerBook } from '../fleet/containers/book.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Presence } from '../cluster/presence.ts';
import type { Bus } from '../cluster/bus.ts';
import type { Loads } from '../cluster/loads.ts';

export interface RoomParts {
  readonly instance: InstanceId;
  readonly book: Pick<ContainerBook, 'ofQueue'>;
  readonly machines: Pick<Machines, 'get'>;
  readonly loads: Pick<Loads, 'of'>;
  readonly presence: Pick<Presence, 'isAlive'>;
  readonly bus: Pick<Bus, 'isLive'>;
}

export interface RoomAt {
  /** Slots that were free at the last message. */
  free: number;
  slots: number;
}

/** Most containers of a queue counted; beyond that number any of them will do. */
const MOST_LOOKED_AT = 200;

export class Room {
  readonly #parts: RoomParts;

  constructor(parts: RoomParts) {
    this.#parts = parts;
  }

  /** Room by replica; some replicas may be gone by now. */
  of(queue: QueueName): ReadonlyMap<InstanceId, RoomAt> {
    const { book, machines, loads, instance } = this.#parts;
    const found = new Map<InstanceId, RoomAt>();
    let looked = 0;
    for (const { row } of book.ofQueue(queue)) {
      if (row.state !== 'RUNNING' || row.machineId === null || (looked += 1) > MOST_LOOKED_AT) continue;
      const replica = machines.get(row.machineId)?.row.replica ?? null;
      if (replica === null || replica === instance) continue;
      let room = found.get(replica);
      if (room === undefined) found.set(replica, (room = { free: 0, slots: 0 }));
      room.free += Math.max(0, row.slots - (loads.of(row.id)?.inFlight ?? 0));
      room.slots += row.slots;
    }
    return found;
  }

  /**
   * Picks a replica to lend a task of that queue to, at random, weighted by free slots. A
   * replica never gets more loans than it has slots, because the free slots told may be old.
   * @param lentTo - number of tasks the replica has on loan; Infinity excludes it
   */
  borrowerOf(queue: QueueName, lentTo: (replica: InstanceId) => number): InstanceId | undefined {
    const { presence, bus } = this.#parts;
    // Without the bus, a task that the borrower gives back would not be heard of.
    if (!bus.isLive) return undefined;
    const weights = new Map<InstanceId, number>();
    for (const [replica, { free, slots }] of this.of(queue)) {
      const left = slots - lentTo(replica);
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
