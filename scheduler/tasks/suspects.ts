// Locks and leases of attempts on machines that do not talk just now, and that no replica has in hand: whoever sent them may be gone, and their machine may redial any replica. The leader renews them until
// the machine is back (its replica adopts them) or LOST (then they are given back, or end).
import type { MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Leases } from '../dispatch/leases.ts';
import { LOCK_MS } from '../queues/task-queues.ts';
import type { TaskQueues } from '../queues/task-queues.ts';
import type { Attempts } from './attempts.ts';

const EVERY_MS = 30_000;

export interface SuspectsParts {
  /** Machines that are SUSPECT now. */
  readonly suspects: () => readonly MachineId[];
  /** Tasks that run in their containers, as the rows have it. */
  readonly runningOn: (machines: readonly MachineId[]) => Promise<readonly { taskId: TaskId; queue: QueueName }[]>;
  readonly queues: Pick<TaskQueues, 'renew'>;
  readonly leases: Pick<Leases, 'read' | 'renew'>;
  /** What this replica has in hand renews itself. */
  readonly attempts: Pick<Attempts, 'current'>;
  readonly isLeader: () => boolean;
  readonly log: Log;
}

export class Suspects {
  readonly name = 'suspect machines';
  readonly #parts: SuspectsParts;
  readonly #abort = new AbortController();

  constructor(parts: SuspectsParts) {
    this.#parts = parts;
  }

  start(): void {
    const { isLeader, log } = this.#parts;
    const round = (): unknown => isLeader() && this.round();
    void repeat(EVERY_MS, this.#abort.signal, round, (error) =>
      log.warn({ err: error }, 'locks of suspect machines not renewed, trying again in 30 s'),
    );
  }

  stop(): void {
    this.#abort.abort();
  }

  /** @returns how many attempts were renewed */
  async round(): Promise<number> {
    const { suspects, runningOn, queues, leases, attempts } = this.#parts;
    const machines = suspects();
    if (machines.length === 0) return 0;
    let renewed = 0;
    for (const { taskId, queue } of await runningOn(machines)) {
      if (attempts.current(taskId) !== undefined) continue;
      const lease = await leases.read(taskId);
      if (lease === undefined || !machines.includes(lease.machineId)) continue;
      const lost = await queues.renew([{ queue, taskId, lock: lease.lock }], LOCK_MS);
      if (lost.length > 0) continue;
      await leases.renew([lease.job]);
      renewed += 1;
    }
    return renewed;
  }
}
