// Attempts of external runners. StartTask takes the task out of its queue, so no lock tells
// who has it from then on. A lease without a token does, until the execution limit. A retry
// that such a runner asks for goes back to the queue after a back-off, within the stub's
// retries. An abandoned task is taken over by the next StartTask, or is TIMEOUT at the limit.
import type { ContainerId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { Leases } from './dispatch/leases.ts';
import type { TaskJob } from '../stores/queues/jobs.ts';
import { parseTaskJob } from '../stores/queues/jobs.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { Lines } from './lines/lines.ts';
import type { Changes } from './records/changes.ts';
import { withPast } from './records/recording.ts';
import type { RecordRank, TaskRecord } from './records/task-record.ts';
import { RANK, USER_BACKOFF } from './state.ts';

export interface ForeignRunsParts {
  readonly queues: Pick<TaskQueues, 'open' | 'add' | 'mayBegin' | 'release'>;
  readonly lines: Pick<Lines, 'read' | 'remove' | 'putBack'>;
  readonly leases: Leases;
  readonly changes: Changes;
  readonly clock: Clock;
  readonly log: Log;
  /** Reads the queue entry of an asynchronous task that has not ended from its row; `keepJob` writes it. */
  readonly jobOf: (taskId: TaskId) => Promise<string | undefined>;
  readonly keepJob: (job: TaskJob) => Promise<void>;
  /** Whether the container is one of ours that has ended. */
  readonly isGone: (containerId: ContainerId) => Promise<boolean>;
  readonly signal: AbortSignal;
}

/** Seconds after which the task of an external runner without a limit counts as abandoned. */
const LONGEST_HOLD_S = 24 * 3600;
const LIMIT_GRACE_S = 10;
/** Most back-offs that this process waits for; the sweep returns the rest. */
const MOST_BACKOFFS = 10_000;

export class ForeignRuns {
  readonly #parts: ForeignRunsParts;
  readonly #queueChanged = new Listeners<[QueueName]>();
  #backoffs = 0;

  constructor(parts: ForeignRunsParts) {
    this.#parts = parts;
  }

  /** Told when an external runner took a task of the queue, or gave one back. */
  onQueueChanged(listener: (queue: QueueName) => void): void {
    this.#queueChanged.add(listener);
  }

  /**
   * Takes a waiting task for that runner. Only one caller can take the job out of its queue.
   * @returns false: another attempt has the task, or its flow control holds it
   */
  async start(record: TaskRecord, containerId: string): Promise<boolean> {
    const { lines, leases, queues } = this.#parts;
    const job = await lines.read(record.queue, record.taskId);
    if (job === undefined) return false;
    if (job.flow !== undefined && !(await queues.mayBegin(record.queue, job))) return false;
    await leases.announce(record.taskId);
    let isMine = false;
    try {
      isMine = await lines.remove(record.queue, record.taskId, true);
      if (!isMine) return false;
      await this.#begin(record, containerId, job.timeoutMs);
    } catch (error) {
      await this.#putBack(record.queue, job, isMine);
      throw error;
    }
    this.#queueChanged.tell(record.queue);
    return true;
  }

  /**
   * Adds the job of a start that failed again, because Redis may have removed it without an answer. Where Redis does
   * not take it now, the leader finds the task later.
   * @param isMine - this start removed the job, so that no other runner has the task
   */
  async #putBack(queue: QueueName, job: TaskJob, isMine: boolean): Promise<void> {
    const { queues, lines, leases, log } = this.#parts;
    try {
      if (!isMine && (await leases.foreignUntil(job.taskId)) !== undefined) return;
      await leases.drop(job.taskId);
      if (job.sync) lines.putBack(job.taskId);
      else await queues.add(queue, { ...job, isFromRow: true });
      this.#queueChanged.tell(queue);
    } catch (error) {
      log.info({ err: error, taskId: job.taskId }, 'a task whose start failed is not in its queue');
    }
  }

  /**
   * Starts a new attempt of a task whose runner's container is gone; one caller wins.
   * @returns false: the runner may still work on it
   */
  async startAgain(record: TaskRecord, containerId: string): Promise<boolean> {
    const { leases, lines, jobOf, isGone } = this.#parts;
    if (record.containerId === null || record.sync || !(await isGone(record.containerId))) return false;
    if ((await leases.foreignUntil(record.taskId)) === undefined) return false;
    if ((await lines.read(record.queue, record.taskId)) !== undefined) return false;
    const text = await jobOf(record.taskId);
    if (text === undefined || !(await leases.takeOver(record.taskId, record.attempt + 1))) return false;
    await this.#begin(record, containerId, parseTaskJob(text).timeoutMs);
    return true;
  }

  async #begin(record: TaskRecord, containerId: string, timeoutMs: number): Promise<void> {
    const { leases, changes, clock } = this.#parts;
    const seconds = timeoutMs === 0 ? LONGEST_HOLD_S : Math.ceil(timeoutMs / 1000) + LIMIT_GRACE_S;
    await leases.hold(record.taskId, clock.nowMs() + seconds * 1000);
    await changes.applied(record.status, 'start', {
      ...record,
      status: 'RUNNING',
      rank: RANK.RUNNING as RecordRank,
      attempt: record.attempt + 1,
      containerId: containerId === '' ? null : (containerId as ContainerId),
      startedAtMs: clock.nowMs(),
    });
  }

  /**
   * Returns the task to its queue after a back-off, within the stub's retries.
   * @returns false: they are used up, or the task may not be retried
   */
  async retry(record: TaskRecord): Promise<boolean> {
    const { leases, changes, clock, jobOf, keepJob } = this.#parts;
    const text = record.sync ? undefined : await jobOf(record.taskId);
    if (text === undefined) return false;
    const job = parseTaskJob(text);
    if (job.retriesUsed >= job.retries) return false;
    const one = {
      attempt: record.attempt,
      containerId: record.containerId ?? '',
      machineId: '',
      startedAtMs: record.startedAtMs ?? record.createdAtMs,
      endedAtMs: clock.nowMs(),
      outcome: 'handler_error',
    };
    const again = withPast({ ...job, retriesUsed: job.retriesUsed + 1, attempts: record.attempt }, one);
    const { past } = again;
    await keepJob(again);
    const waitMs = backoffMs(job.retriesUsed, USER_BACKOFF);
    await changes.applied(record.status, 'retry', {
      ...record,
      status: 'RETRY',
      rank: RANK.RETRY as RecordRank,
      failureReason: 'handler_error',
      ...(past === undefined ? {} : { past }),
    });
    // The lease keeps the task from counting as lost until then. If
    // this process dies meanwhile, the sweep queues the task again.
    await leases.hold(record.taskId, clock.nowMs() + waitMs);
    if (job.flow !== undefined) await this.#release(record);
    if (this.#backoffs < MOST_BACKOFFS) void this.#after(waitMs, record, again);
    return true;
  }

  /** An attempt of an external runner is over. A slot that stays is the sweep's. */
  async ended(record: TaskRecord): Promise<void> {
    if (!record.sync) await this.#release(record);
  }

  async #release({ taskId }: TaskRecord): Promise<void> {
    await this.#parts.queues.release(taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'slots of a task that ended are left to the sweep');
    });
  }

  async #after(waitMs: number, record: TaskRecord, job: TaskJob): Promise<void> {
    const { queues, leases, signal, log } = this.#parts;
    this.#backoffs += 1;
    try {
      if (!(await sleep(waitMs, signal))) return;
      await queues.open(record.queue);
      await queues.add(record.queue, job);
      await leases.drop(record.taskId);
      this.#queueChanged.tell(record.queue);
    } catch (error) {
      log.info({ err: error, taskId: record.taskId }, 'a retry is not in its queue; the sweep puts it there');
    } finally {
      this.#backoffs -= 1;
    }
  }
}
