// Return of attempts whose task goes on: to the queue at once and first in line, or after a
// back-off on the user's budget. The used budgets travel in the job and are kept in the task's row.
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { DueTimes } from '../../stores/queues/due.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Fence, TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Lines } from '../lines/lines.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { Changes } from '../records/changes.ts';
import { untilRequeued } from './requeue.ts';
import { pastOf, recordOf, withPast } from '../records/recording.ts';
import type { RecordRank } from '../records/task-record.ts';
import { RANK, USER_BACKOFF } from '../state.ts';

export interface ReturningParts {
  readonly queues: Pick<TaskQueues, 'giveBack' | 'lockOf' | 'read' | 'delay'>;
  readonly lines: Pick<Lines, 'return'>;
  readonly leases: Pick<Leases, 'dropOf'>;
  readonly changes: Pick<Changes, 'apply' | 'applied' | 'safe'>;
  readonly attempts: Pick<Attempts, 'remove' | 'current'>;
  readonly dispatcher: Pick<Dispatcher, 'wake'>;
  readonly due: Pick<DueTimes, 'add'>;
  /** Writes the changed queue entry of an asynchronous task to its row. */
  readonly keepJob: (job: TaskJob) => Promise<void>;
  readonly graces: Pick<GracePeriods, 'againMs' | 'endMs'>;
  readonly metrics: Pick<TaskMetrics, 'retries'>;
  readonly clock: Clock;
  readonly log: Log;
  /** Aborted when the process stops: attempts go on in their containers. */
  readonly signal: AbortSignal;
  readonly freeSlot: (attempt: Attempt) => void;
  /** Told when a container has one attempt less. */
  readonly ended: (attempt: Attempt) => void;
}

export class Returning {
  readonly #parts: ReturningParts;

  constructor(parts: ReturningParts) {
    this.#parts = parts;
  }

  /**
   * Returns the task to its queue.
   * @param budget - budgets left after an attempt that may have run; undefined: it did not begin, and none is touched
   * @param result - text that the attempt ended with; absent: none
   */
  async toQueue(
    attempt: Attempt,
    failureReason: string,
    budget: TaskJob | undefined,
    result?: string,
  ): Promise<boolean> {
    const { job, queue } = attempt;
    const { attempts, changes, leases, queues, metrics, dispatcher, clock } = this.#parts;
    attempt.isReturning = true;
    if (budget !== undefined) metrics.retries.inc({ stub_type: job.kind, cause: failureReason });
    // The record says PENDING again: its rank is above this attempt's RUNNING, below the next attempt's.
    const events =
      budget !== undefined && attempt.status === 'RUNNING' ? (['lose', 'due'] as const) : ('unclaim' as const);
    const record = {
      ...recordOf(job, queue, 'PENDING', attempt.number),
      rank: RANK.RETRY as RecordRank,
      failureReason,
    };
    attempt.onDecided?.();
    if (job.sync) {
      // The leader ends this row if the caller's replica is dead. A caller waits for no write.
      changes.apply(attempt.status, events, record);
      attempts.remove(attempt);
      this.#parts.freeSlot(attempt);
      this.#parts.lines.return(job.taskId, attempt.lock, true);
      this.#parts.ended(attempt);
      return true;
    }
    // Written before another attempt can begin: this process alone could tell of it.
    await changes.applied(attempt.status, events, record);
    // An attempt that its agent named meanwhile was adopted, and goes on.
    const now = attempts.current(job.taskId);
    if (now !== undefined && now !== attempt) return true;
    attempts.remove(attempt);
    const past = budget && withPast(budget, pastOf(attempt, failureReason, clock.nowMs(), result));
    const back = async (): Promise<void> => {
      await leases.dropOf(job.taskId, attempt.lock);
      const changed = past && (await this.#changedJob(attempt, past));
      await queues.giveBack(queue, job.taskId, attempt.lock, changed);
    };
    await untilRequeued(attempt, back, this.#parts);
    this.#parts.freeSlot(attempt);
    dispatcher.wake(queue, job.taskId);
    this.#parts.ended(attempt);
    return true;
  }

  /**
   * Job as stored in the queue, with its new budgets, which also go
   * to its row; undefined: another attempt holds it, or it is gone.
   */
  async #changedJob(attempt: Attempt, budget: TaskJob): Promise<TaskJob | undefined> {
    const { queues } = this.#parts;
    const { job, queue, lock } = attempt;
    if ((await queues.lockOf(queue, job.taskId)) !== lock) return undefined;
    const whole = await queues.read(queue, job.taskId);
    return whole === undefined ? undefined : this.#kept(withBudget(whole, budget));
  }

  /** Writes the budgets to the task's row, so that a job rebuilt from there has them. */
  #kept(changed: TaskJob): TaskJob {
    this.#parts.keepJob(changed).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, taskId: changed.taskId }, 'the budgets of a task are not in its row yet');
    });
    return changed;
  }

  /** Retries on the user's budget, after a back-off in the queue. */
  async retry(attempt: Attempt, failureReason: string, budget: TaskJob, result?: string): Promise<boolean> {
    const { job, queue } = attempt;
    const { changes, attempts, due, clock, metrics } = this.#parts;
    const dueMs = clock.nowMs() + backoffMs(job.retriesUsed, USER_BACKOFF);
    attempt.isReturning = true;
    metrics.retries.inc({ stub_type: job.kind, cause: failureReason });
    this.#parts.freeSlot(attempt);
    attempt.onDecided?.();
    // Written before another attempt can begin: nobody could tell of it after this process.
    await changes.applied(attempt.status === 'PENDING' ? 'RUNNING' : attempt.status, 'retry', {
      ...recordOf(job, queue, 'RETRY', attempt.number),
      failureReason,
      containerId: attempt.containerId,
    });
    // The lease stays until the queue has the task: by it another process can take this end over,
    // from the agent's report. The next attempt writes its own lease, and the last record drops it.
    const past = withPast(budget, pastOf(attempt, failureReason, clock.nowMs(), result));
    const fence = await this.#putOff(attempt, dueMs, past);
    if (fence !== undefined && fence.kind !== 'superseded') due.add(queue, dueMs);
    attempts.remove(attempt);
    this.#parts.ended(attempt);
    return (await changes.safe(job.taskId)) && fence !== undefined;
  }

  /**
   * Puts the job back into its queue, with one retry used; repeated while Redis does not answer.
   * @returns undefined: not written; the agent keeps the result
   */
  async #putOff(attempt: Attempt, dueMs: number, budget: TaskJob): Promise<Fence | undefined> {
    const { job, queue, lock } = attempt;
    const { queues, graces, clock, log, signal } = this.#parts;
    const untilMs = clock.monotonicMs() + graces.endMs;
    for (;;) {
      try {
        const whole = await queues.read(queue, job.taskId);
        const changed = withBudget(whole ?? job, { ...budget, retriesUsed: job.retriesUsed + 1 });
        // The job is gone with the data of Redis. An adopted attempt knows
        // its job without the input, so its row keeps the whole one.
        if (whole !== undefined || !attempt.adopted) this.#kept(changed);
        return await queues.delay(queue, job.taskId, lock, dueMs, changed);
      } catch (error) {
        log.warn({ err: error, taskId: job.taskId }, 'a retry is not in its queue yet, trying again');
      }
      if (clock.monotonicMs() >= untilMs || !(await sleep(graces.againMs, signal))) return undefined;
    }
  }
}

const withBudget = (whole: TaskJob, { retriesUsed, losses, preemptions, diedOn, past }: TaskJob): TaskJob => ({
  ...whole,
  retriesUsed,
  ...(losses === undefined ? {} : { losses }),
  ...(preemptions === undefined ? {} : { preemptions }),
  ...(diedOn === undefined ? {} : { diedOn }),
  ...(past === undefined ? {} : { past }),
});
