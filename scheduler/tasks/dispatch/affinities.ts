// Which container served a conversation last, for each queue: its engine may still hold the beginning of the
// conversation in its cache. Kept by each replica for the calls that it sent; nothing is shared.
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';

/** Time for which a container counts as the one that holds the conversation. */
export const AFFINITY_MS = 10 * 60_000;
const MOST_QUEUES = 1_000;
const MOST_OF_QUEUE = 4_096;

interface Served {
  readonly containerId: ContainerId;
  readonly atMs: number;
}

export class Affinities {
  readonly #queues: BoundedMap<QueueName, BoundedMap<string, Served>>;
  readonly #mostOfQueue: number;

  constructor(mostQueues = MOST_QUEUES, mostOfQueue = MOST_OF_QUEUE) {
    this.#queues = new BoundedMap(mostQueues);
    this.#mostOfQueue = mostOfQueue;
  }

  /** Container that served the hash within the last ten minutes. @param nowMs - monotonic milliseconds */
  of(queue: QueueName, hash: string, nowMs: number): ContainerId | undefined {
    const known = this.#queues.get(queue);
    const served = known?.get(hash);
    if (served === undefined) return undefined;
    if (nowMs - served.atMs < AFFINITY_MS) return served.containerId;
    known?.delete(hash);
    return undefined;
  }

  /** Remembers the container that gets a call of the hash. */
  served(queue: QueueName, hash: string, containerId: ContainerId, nowMs: number): void {
    let known = this.#queues.get(queue);
    if (known === undefined) this.#queues.set(queue, (known = new BoundedMap(this.#mostOfQueue)));
    known.set(hash, { containerId, atMs: nowMs });
  }

  /** Number of hashes of a queue. */
  countOf(queue: QueueName): number {
    return this.#queues.get(queue)?.size ?? 0;
  }
}
