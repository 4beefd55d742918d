// Cancels of tasks wherever they are: in a queue or a line, with an attempt here, or with one of another
// replica. Every cancel passes the same fences as the ends that our own runners report.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { failureReasonOf } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import { DEFERRED_CALLS_QUEUE } from '../../domain/inference.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { DeferredCalls } from '../deferred-calls/deferred-calls.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Changes } from '../records/changes.ts';
import type { RecordRank, TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import { ENDED_BY, RANK } from '../state.ts';
import type { Completion } from './completion.ts';

export interface CancellationParts {
  readonly attempts: Pick<Attempts, 'current'>;
  readonly completion: Pick<Completion, 'revoke' | 'takeOut' | 'endQueued' | 'answerOf' | 'answerAs'>;
  readonly changes: Pick<Changes, 'applied'>;
  readonly queues: Pick<TaskQueues, 'read' | 'remove' | 'lockOf' | 'fail'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly leases: Pick<Leases, 'read'>;
  /** Ends calls of models, which no queue of Redis has. */
  readonly deferred: Pick<DeferredCalls, 'cancel'>;
  readonly clock: Clock;
  /** Has the replica that has a synchronous task in its memory end it, which may be this one. false: none has it */
  readonly stopSync: (taskId: TaskId, ending: Ending) => Promise<boolean>;
  /** Tells the other replicas that a task ended here, because one may have its attempt. */
  readonly revokeElsewhere?: (taskId: TaskId, lock: LockToken, ending: Ending) => void;
}

/** Most tries to cancel a task that changes hands meanwhile. */
const CANCEL_TRIES = 3;

export class Cancellation {
  readonly #parts: CancellationParts;

  constructor(parts: CancellationParts) {
    this.#parts = parts;
  }

  /** Cancels a task whose caller left, wherever it is. */
  async cancel(taskId: TaskId, ending: Ending): Promise<void> {
    const record = await this.#parts.records.read(taskId);
    if (record !== undefined && !isTerminalTask(record.status)) await this.cancelRecorded(record, ending);
  }

  /**
   * Cancels a task. A waiting one is taken out of its queue. An attempt here is revoked, and
   * its handler told to stop. An attempt elsewhere is ended with the token that holds it.
   */
  async cancelRecorded(record: TaskRecord, ending: Ending): Promise<boolean> {
    const { queues, attempts, completion, records, changes, deferred, stopSync } = this.#parts;
    if (record.queue === DEFERRED_CALLS_QUEUE) return await deferred.cancel(record, ending);
    for (let tries = 0; tries < CANCEL_TRIES; tries += 1) {
      const attempt = attempts.current(record.taskId);
      // Over, or back in its queue: the look below tells.
      if (attempt?.ending !== undefined) await attempt.ending;
      else if (attempt !== undefined) return await this.revoke(attempt, ending);
      const job = await queues.read(record.queue, record.taskId);
      if (record.sync) {
        if (await stopSync(record.taskId, ending)) return true;
        // An order on its way to its replica, or back: the next try finds it.
        if (job !== undefined) continue;
      }
      if (job === undefined) {
        const now = await records.read(record.taskId);
        if (now === undefined || isTerminalTask(now.status)) return true;
        await changes.applied(now.status, ENDED_BY[ending.status], {
          ...now,
          status: ending.status,
          rank: RANK[ending.status] as RecordRank,
          endedAtMs: this.#parts.clock.nowMs(),
          failureReason: failureReasonOf(ending),
          result: completion.answerOf(ending).body,
        });
        completion.answerAs(record.taskId, ending);
        // A task that was accepted this moment may have been added, and even begun, meanwhile; its owner looks, too.
        if (await queues.remove(record.queue, record.taskId)) return true;
        const held = await queues.read(record.queue, record.taskId);
        if (held !== undefined) await this.endHeld(record.queue, held, ending);
        return true;
      }
      if (await completion.takeOut(record.queue, job, ending)) return true;
      if (await this.endHeld(record.queue, job, ending)) return true;
    }
    return false;
  }

  /**
   * Ends an asynchronous task that some attempt holds, perhaps at another replica, under the attempt's token, and tells
   * its replica.
   * @returns false: no attempt holds the task any more
   */
  async endHeld(queue: QueueName, job: TaskJob, ending: Ending): Promise<boolean> {
    const { queues, attempts, completion, records, leases } = this.#parts;
    const lock: LockToken | undefined = await queues.lockOf(queue, job.taskId);
    if (lock === undefined) return false;
    const fence = await queues.fail(queue, job.taskId, lock, failureReasonOf(ending));
    if (fence.kind !== 'done') return false;
    // The task was fetched and sent here meanwhile, so its handler is told to stop.
    const begun = attempts.current(job.taskId);
    // An attempt that was about to return finds its task gone, so the end is recorded here.
    if (begun?.ending !== undefined) await begun.ending;
    else if (begun !== undefined) return await this.revoke(begun, ending);
    this.#parts.revokeElsewhere?.(job.taskId, lock, ending);
    // The end carries the number of the attempt that holds the task, because that attempt may also report that it runs.
    const now = await records.read(job.taskId);
    const lease = await leases.read(job.taskId);
    const known = now === undefined ? job.attempts + 1 : now.status === 'RUNNING' ? now.attempt : now.attempt + 1;
    const attempt = Math.max(lease?.attempt ?? 0, known);
    await completion.endQueued(queue, job, ending, { status: now?.status ?? 'PENDING', attempt });
    return true;
  }

  /** Stops the handler of an attempt here whose task another replica ended. */
  revokedElsewhere(taskId: TaskId, lock: LockToken, ending: Ending): void {
    const attempt = this.#parts.attempts.current(taskId);
    if (attempt?.lock === lock) void this.revoke(attempt, ending);
  }

  /** Ends an attempt here, whose handler is told to stop. */
  revoke(attempt: Attempt, ending: Ending): Promise<boolean> {
    const ranMs = this.#parts.clock.nowMs() - attempt.sentAtMs;
    return this.#parts.completion.revoke(attempt, 'cancelled', ending, ranMs);
  }
}
