// Locks and leases of every attempt this replica has, renewed on time whatever the machines say meanwhile.
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import { LOCK_MS } from '../queues/task-queues.ts';
import type { HeldLock } from '../queues/task-queues.ts';
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
    void this.#loop();
  }

  /** Locks and leases of everything that runs, every 30 s, whatever the machines say meanwhile. */
  async #loop(): Promise<void> {
    while (await sleep(RENEW_EVERY_MS, this.#tasks.signal)) {
      const held = [...this.#tasks.attempts.all()].map((attempt) => ({
        queue: attempt.queue,
        taskId: attempt.job.taskId,
        lock: attempt.lock,
      }));
      if (held.length === 0) continue;
      try {
        const lost = await this.#tasks.queues.renew(held, LOCK_MS);
        await this.#tasks.leases.renew(held.map((one) => one.taskId));
        if (lost.length > 0) await this.#keepLeases(lost);
      } catch (error) {
        this.#tasks.log.warn({ err: error, reason: messageOf(error) }, 'locks not renewed, trying again in 30 s');
      }
    }
  }

  /** Redis lost its data: what runs here is said again, before anybody looks for it. */
  async restoreAll(): Promise<void> {
    const { attempts, changes, leases } = this.#tasks;
    const running = [...attempts.all()].filter((attempt) => attempt.ending === undefined);
    for (const attempt of running) {
      const record = recordOf(attempt.job, attempt.queue, 'RUNNING', attempt.number);
      const { containerId, sentAtMs: startedAtMs } = attempt;
      if (changes.apply(attempt.status, 'start', { ...record, containerId, startedAtMs })) attempt.status = 'RUNNING';
    }
    await Promise.all(running.map((attempt) => leases.restore(leaseOf(attempt))));
  }

  /** Redis may have come back without its data: the lease says that they run all the same, so that nobody queues them again. */
  async #keepLeases(lost: readonly HeldLock[]): Promise<void> {
    this.#tasks.log.warn({ count: lost.length }, 'locks could not be renewed');
    const running = lost
      .map(({ taskId }) => this.#tasks.attempts.current(taskId))
      .filter((attempt) => attempt !== undefined);
    await Promise.all(running.map((attempt) => this.#tasks.leases.restore(leaseOf(attempt))));
  }
}
