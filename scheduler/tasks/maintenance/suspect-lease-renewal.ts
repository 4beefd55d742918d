// Renewal of locks and leases for attempts on silent machines that no replica has. The process
// that sent them may be gone, and their machine may redial any replica. The leader renews them
// until the machine is back (its replica adopts them) or LOST (then they are given back, or end).
import type { MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Leases } from '../dispatch/leases.ts';
import { LOCK_MS } from '../../stores/queues/task-queues.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Attempts } from '../dispatch/attempts.ts';

export interface SuspectLeaseRenewalParts {
  /** Machines that are SUSPECT now. */
  readonly suspects: () => readonly MachineId[];
  readonly queues: Pick<TaskQueues, 'renew'>;
  readonly leases: Pick<Leases, 'ofMachine' | 'renew'>;
  /** Attempts of this replica, which renews them itself. */
  readonly attempts: Pick<Attempts, 'current'>;
}

export class SuspectLeaseRenewal {
  readonly #parts: SuspectLeaseRenewalParts;

  constructor(parts: SuspectLeaseRenewalParts) {
    this.#parts = parts;
  }

  /** Runs one round. @returns how many attempts were renewed */
  async round(): Promise<number> {
    const { suspects, queues, leases, attempts } = this.#parts;
    let renewed = 0;
    for (const machineId of suspects()) {
      const held = (await leases.ofMachine(machineId)).filter(({ job }) => attempts.current(job.taskId) === undefined);
      if (held.length === 0) continue;
      const locks = held.map(({ queue, job, lock }) => ({ queue: queue as QueueName, taskId: job.taskId, lock }));
      const lost = new Set<string>((await queues.renew(locks, LOCK_MS)).map(({ lock }) => lock));
      const living = held.filter(({ lock }) => !lost.has(lock));
      await leases.renew(living.map(({ job }) => job));
      renewed += living.length;
    }
    return renewed;
  }
}
