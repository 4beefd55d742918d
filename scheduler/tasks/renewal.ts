// Locks and leases of every attempt this replica has, renewed on time whatever the machines say meanwhile.
import { repeat } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import { LOCK_MS } from '../queues/task-queues.ts';
import type { Attempt } from './attempts.ts';
import { recordOf } from './recording.ts';
import { leaseOf } from './sending.ts';
import type { TaskContext } from './task-parts.ts';

const RENEW_EVERY_MS = 30_000;

export class Renewal {
  readonly #tasks: TaskContext;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  start(): void {
    const { signal, log } = this.#tasks;
    const round = (): Promise<void> => this.#round();
    void repeat(RENEW_EVERY_MS, signal, round, (error) =>
      log.warn({ err: error, reason: messageOf(error) }, 'locks not renewed, trying again in 30 s'),
    );
  }

  /** Locks and leases of everything that runs, every 30 s, whatever the machines say meanwhile. */
  async #round(): Promise<void> {
    const { attempts, queues, leases } = this.#tasks;
    const all = [...attempts.all()];
    if (all.length === 0) return;
    const held = all.map((attempt) => ({ queue: attempt.queue, taskId: attempt.job.taskId, lock: attempt.lock }));
    const lost = new Set<string>((await queues.renew(held, LOCK_MS)).map(({ lock }) => lock));
    await leases.renew(all.map(({ job }) => job));
    // What is ended, or was meanwhile, has no lock to renew.
    const goesOn = (attempt: Attempt): boolean =>
      attempt.ending === undefined && attempts.current(attempt.job.taskId) === attempt;
    const running = all.filter((attempt) => lost.has(attempt.lock) && goesOn(attempt));
    if (running.length > 0) await this.#keepLeases(running);
  }

  /** Redis lost its data: what runs here is said again, before anybody looks for it. So is what is ending just now: its last record, which drops the lease, may not be written yet. */
  async restoreAll(): Promise<void> {
    const { attempts, changes, leases } = this.#tasks;
    const running = [...attempts.all()];
    for (const attempt of running.filter(({ ending }) => ending === undefined)) {
      const record = recordOf(attempt.job, attempt.queue, 'RUNNING', attempt.number);
      const { containerId, sentAtMs: startedAtMs } = attempt;
      if (changes.apply(attempt.status, 'start', { ...record, containerId, startedAtMs })) attempt.status = 'RUNNING';
    }
    await Promise.all(running.map((attempt) => leases.restore(leaseOf(attempt))));
  }

  /** Redis may have come back without its data: the lease says that they run all the same, so that nobody queues them again. */
  async #keepLeases(running: readonly Attempt[]): Promise<void> {
    this.#tasks.log.warn({ count: running.length }, 'locks could not be renewed');
    await Promise.all(running.map((attempt) => this.#tasks.leases.restore(leaseOf(attempt))));
  }
}
