// Clean-up after a dead scheduler process, by the leader. Machines whose link it held are SUSPECT
// until they redial; jobs that it fetched and never sent return to their queues at once. Attempts
// that it sent go on in their containers; the replica that their agents dial adopts them. The
// dead replica's name stays listed until this is done, so that the next leader finds it.
import type { InstanceId, LockToken, QueueName } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Presence } from '../cluster/presence.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';

const MOST_HELD = 100_000;

export interface DeadReplicasParts {
  readonly presence: Presence;
  readonly machines: Pick<Machines, 'all' | 'orphaned'>;
  readonly containers: Pick<ContainerRegistry, 'queues'>;
  readonly queues: Pick<TaskQueues, 'held' | 'giveBack'>;
  readonly leases: Pick<Leases, 'read'>;
  /** Queues with tasks that have not ended, according to the database. */
  readonly openQueues: () => Promise<readonly QueueName[]>;
  /** Empties the caches of all replicas: the dead one may have made changes that it did not announce. */
  readonly unannounced: () => void;
  /** Fencing number of the leader; undefined while this replica does not lead. */
  readonly fence: () => number | undefined;
  readonly log: Log;
}

export class DeadReplicas {
  readonly #parts: DeadReplicasParts;
  readonly #returned = new Listeners<[QueueName]>();

  constructor(parts: DeadReplicasParts) {
    this.#parts = parts;
  }

  /** Told when jobs of a dead replica are back in the queue. */
  onReturned(listener: (queue: QueueName) => void): void {
    this.#returned.add(listener);
  }

  /** Runs one round; nothing happens where this replica does not lead. */
  async round(): Promise<void> {
    const { presence, fence, unannounced, log } = this.#parts;
    const number = fence();
    if (number === undefined) return;
    await this.#orphans(number);
    for (const replica of presence.dead) {
      unannounced();
      const returned = await this.#giveBack(replica);
      await presence.forget(replica);
      log.warn({ replica, returned }, 'a replica died; what it had fetched and not sent is back in its queue');
    }
  }

  async #orphans(fence: number): Promise<void> {
    const { machines, presence } = this.#parts;
    const alive = new Map<InstanceId, boolean>();
    for (const machine of [...machines.all()]) {
      const { replica } = machine.row;
      const isLinked = machine.health === 'READY' || machine.health === 'RECONCILING';
      if (!isLinked || machine.sessionId !== undefined || replica === null) continue;
      const lives = alive.get(replica) ?? (await presence.ask(replica));
      alive.set(replica, lives);
      if (!lives) await machines.orphaned(machine, fence);
    }
  }

  /**
   * Returns jobs that the dead replica holds without a lease. Leases
   * are written before the send, so those jobs were never sent.
   */
  async #giveBack(replica: InstanceId): Promise<number> {
    const { containers, queues, leases, openQueues } = this.#parts;
    let returned = 0;
    for (const queue of new Set([...containers.queues(), ...(await openQueues())])) {
      for (const { taskId, lock } of await queues.held(queue, MOST_HELD)) {
        // The lease of an earlier attempt says nothing about this one.
        if (!isLockOf(replica, lock) || (await leases.read(taskId))?.lock === lock) continue;
        const fence = await queues.giveBack(queue, taskId, lock);
        if (fence.kind !== 'done') continue;
        returned += 1;
      }
      // Called also when no job came back: a wake-up that only the dead replica got is lost.
      this.#returned.tell(queue);
    }
    return returned;
  }
}

const isLockOf = (replica: InstanceId, lock: LockToken): boolean => lock.startsWith(`${replica}.`);
