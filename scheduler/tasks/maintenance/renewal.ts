// Renewal of the locks and leases of this replica's attempts of asynchronous tasks, on time even while machines are
// silent. A round goes in batches with a pause between them: many attempts at once would hold up calls here and
// clients of Redis.
import { repeat, sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import { LOCK_MS } from '../../stores/queues/task-queues.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Changes } from '../records/changes.ts';
import { recordOf } from '../records/recording.ts';
import { leaseOf } from '../dispatch/sending.ts';

/** Pause between two rounds. */
const RENEW_EVERY_MS = 30_000;
/** Longest that the pauses of one round last together; both times together are far below the life of a lock. */
const SPREAD_MS = 10_000;
const MOST_PAUSE_MS = 250;
/** Attempts renewed or restored together. */
const BATCH = 500;

export interface RenewalParts {
  readonly attempts: Pick<Attempts, 'all' | 'beingRecorded' | 'current'>;
  readonly queues: Pick<TaskQueues, 'renew' | 'countRunning'>;
  readonly leases: Pick<Leases, 'renew' | 'restore'>;
  readonly changes: Pick<Changes, 'apply'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class Renewal {
  readonly #parts: RenewalParts;

  constructor(parts: RenewalParts) {
    this.#parts = parts;
  }

  start(): void {
    const { signal, log } = this.#parts;
    const round = (): Promise<void> => this.round();
    void repeat(RENEW_EVERY_MS, signal, round, (error) =>
      log.warn({ err: error, reason: messageOf(error) }, 'locks not renewed, trying again in 30 s'),
    );
  }

  /** Renews the locks and leases, batch by batch, even while machines are silent. */
  async round(): Promise<void> {
    // Attempts of one queue side by side: their locks are renewed by one command.
    const leased = [...this.#parts.attempts.all()].filter(({ job }) => !job.sync);
    const batches = batchesOf([...Map.groupBy(leased, ({ queue }) => queue).values()].flat());
    const pauseMs = Math.min(MOST_PAUSE_MS, SPREAD_MS / batches.length);
    for (const [index, batch] of batches.entries()) {
      if (index > 0 && !(await sleep(pauseMs, this.#parts.signal))) return;
      await this.#renew(batch.filter((attempt) => this.#isHere(attempt)));
    }
  }

  async #renew(all: readonly Attempt[]): Promise<void> {
    const { queues, leases } = this.#parts;
    const held = all.map((attempt) => ({ queue: attempt.queue, taskId: attempt.job.taskId, lock: attempt.lock }));
    const lost = new Set<string>((await queues.renew(held, LOCK_MS)).map(({ lock }) => lock));
    await leases.renew(all.map(({ job }) => job));
    // An attempt that ended meanwhile has no lock to renew.
    const running = all.filter(
      (attempt) => lost.has(attempt.lock) && attempt.ending === undefined && this.#isHere(attempt),
    );
    if (running.length > 0) await this.#keepLeases(running);
  }

  #isHere(attempt: Attempt): boolean {
    return this.#parts.attempts.current(attempt.job.taskId) === attempt;
  }

  /**
   * Writes the leases of all attempts here again after Redis lost its data, before they are looked for.
   * Attempts that ended count, too, until their last record is written, which drops the lease. If this process dies
   * before, the agent repeats the result to another replica, which accepts it because of that lease.
   */
  async restoreAll(): Promise<void> {
    const { attempts, changes } = this.#parts;
    const unwritten = [...attempts.all(), ...attempts.beingRecorded()].filter(({ job }) => !job.sync);
    for (const attempt of unwritten.filter(({ ending }) => ending === undefined)) {
      const record = recordOf(attempt.job, attempt.queue, 'RUNNING', attempt.number);
      const { containerId, sentAtMs: startedAtMs } = attempt;
      if (changes.apply(attempt.status, 'start', { ...record, containerId, startedAtMs })) attempt.status = 'RUNNING';
    }
    await this.#restore(unwritten);
  }

  async #restore(lost: readonly Attempt[]): Promise<void> {
    for (const batch of batchesOf(lost)) {
      await Promise.all(batch.map((attempt) => this.#parts.leases.restore(leaseOf(attempt))));
      await this.#parts.queues.countRunning(batch);
    }
  }

  /**
   * Writes leases of attempts whose lock is lost, because Redis may have come
   * back without its data. The leases keep their tasks from being queued again.
   */
  async #keepLeases(running: readonly Attempt[]): Promise<void> {
    this.#parts.log.warn({ count: running.length }, 'locks could not be renewed');
    await this.#restore(running);
  }
}

function batchesOf(attempts: readonly Attempt[]): (readonly Attempt[])[] {
  const batches: (readonly Attempt[])[] = [];
  for (let at = 0; at < attempts.length; at += BATCH) batches.push(attempts.slice(at, at + BATCH));
  return batches;
}
