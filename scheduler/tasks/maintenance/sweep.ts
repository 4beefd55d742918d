// Slow sweep of the leader over tasks whose row is not final and has not changed for a while, and that have a caller or
// have had an attempt: asynchronous ones that only wait are missing-jobs.ts's and deadlines.ts's. Jobs whose lock ran
// out come back. A synchronous task ends when no replica has it (I29). No task that goes well waits for this. Queues
// with open tasks are woken, a page of them a round, because a wake-up may have been lost.
import type { ContainerId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import type { TaskRow } from '../../stores/store/queries/tasks.ts';
import { listOpenTasks, openQueues } from '../../stores/store/queries/tasks.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Changes } from '../records/changes.ts';
import { CALLER_GONE, EXPIRED, failureReasonOf, LOST } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { Completion } from '../completion/completion.ts';
import { parseTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { recordOfRow } from '../records/recording.ts';
import type { RecordRank, TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import { RANK } from '../state.ts';

const EVERY_MS = 15_000;
/** Milliseconds until the next page while whole pages of jobs, which Redis lost, are queued again. */
const NEXT_PAGE_MS = 50;
const UNCHANGED_MS = 10_000;
/** Age of a row without a job at which the job is lost; for a moment, a job may be between two places. */
const GONE_AFTER_MS = 60_000;
const BATCH = 500;
/** How long no replica has a synchronous task before it ends: agents that dialled a moment ago report first. */
const ABANDONED_MS = 30_000;
/** Most of them that are remembered, and for how long. */
const FORGOTTEN_MS = 600_000;
const MOST_ABANDONED = 10_000;
/** Milliseconds without a stall scan after a start: agents report and locks are renewed first. */
const SILENT_MS = 120_000;
/**
 * Milliseconds without a stall scan after this process stood still, or its clock was set.
 * Every replica renews its locks within 30 s, and for a minute a row looks older than it is.
 */
const CALM_MS = 60_000;

export interface TaskSweepParts {
  readonly db: Db;
  readonly queues: TaskQueues;
  readonly records: Pick<TaskRecords, 'caughtUp' | 'readSurely'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly leases: Leases;
  readonly completion: Completion;
  readonly changes: Changes;
  /** Reads the queue entry of an asynchronous task that has not ended from its row. */
  readonly jobOf: (taskId: TaskId) => Promise<string | undefined>;
  readonly isLeader: () => boolean;
  /** Which of these tasks some replica has; undefined: a present one did not answer. */
  readonly whoHas: (taskIds: readonly TaskId[]) => Promise<ReadonlySet<TaskId> | undefined>;
  /** Whether nothing more is to come from the container: its machine is linked and has reported, or is LOST. */
  readonly isReported: (containerId: ContainerId) => boolean | Promise<boolean>;
  /** Milliseconds since this process stood still or its wall clock was set. Absent: neither happened. */
  readonly calmMs?: () => number;
  /** Queues that containers serve. */
  readonly served: () => Iterable<QueueName>;
  /** Most rows looked at in one round; tests make it small. */
  readonly batch?: number;
  /** How long no replica has a synchronous task before it ends; tests shorten it. */
  readonly abandonedMs?: number;
}

export class TaskSweep {
  readonly name = 'task sweep';
  readonly #abort = new AbortController();
  readonly #parts: TaskSweepParts;
  readonly #returned = new Listeners<[QueueName]>();
  #startedAtMs = 0;
  #after: TaskId | undefined;
  #afterQueue: QueueName | undefined;
  /** Synchronous tasks that no replica had, and since when; monotonic milliseconds. */
  readonly #abandonedSince = new Map<TaskId, number>();

  constructor(parts: TaskSweepParts) {
    this.#parts = parts;
  }

  /** Told when jobs came back to the queue, and now and then of every queue with open tasks. */
  onReturned(listener: (queue: QueueName) => void): void {
    this.#returned.add(listener);
  }

  start(): void {
    this.#startedAtMs = this.#parts.clock.monotonicMs();
    void this.#loop();
  }

  stop(): void {
    this.#abort.abort();
  }

  async #loop(): Promise<void> {
    let restMs = EVERY_MS;
    while (await sleep(restMs, this.#abort.signal)) {
      restMs = EVERY_MS;
      if (!this.#parts.isLeader() || (this.#parts.calmMs?.() ?? Infinity) < CALM_MS) continue;
      try {
        if (await this.round()) restMs = NEXT_PAGE_MS;
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'task sweep failed, trying again later');
      }
    }
  }

  /** Runs one round. @returns true when jobs of this page were lost and another page follows: the rest need not wait */
  async round(): Promise<boolean> {
    const { clock, queues } = this.#parts;
    // Rows are judged that have all records; where some may be missing, the next round looks.
    const open = (await this.#parts.records.caughtUp()) ? await this.#next() : [];
    const [synchronous, others] = [open.filter(({ sync }) => sync), open.filter(({ sync }) => !sync)];
    await this.#endAbandonedCalls(synchronous.map(recordOfRow));
    const isQueuedAgain = await this.#returnLost(others);
    await this.#wakeQueues();
    const more = isQueuedAgain && this.#after !== undefined;
    if (more || clock.monotonicMs() - this.#startedAtMs < SILENT_MS) return more;
    for (const queue of new Set([...open.map((row) => row.queue), ...(await this.#withActive())])) {
      const returned = await queues.scanStalled(queue);
      if (returned.length > 0) this.#returned.tell(queue);
    }
    return false;
  }

  /**
   * Queues with active jobs, for the stall scan. A job whose recorded end never
   * reached its queue stays active without an open row, and counts as work.
   */
  async #withActive(): Promise<readonly QueueName[]> {
    const served = [...this.#parts.served()];
    const depths = await this.#parts.queues.depths(served);
    return served.filter((_queue, index) => (depths[index]?.active ?? 0) > 0);
  }

  async #wakeQueues(): Promise<void> {
    const queues = await openQueues(this.#parts.db, BATCH, this.#afterQueue);
    this.#afterQueue = queues.length < BATCH ? undefined : queues.at(-1);
    for (const queue of queues) this.#returned.tell(queue);
  }

  /** Next page of open tasks, so that those at the front do not hide the others; after the last page the first. */
  async #next(): Promise<readonly TaskRow[]> {
    const { db, clock } = this.#parts;
    const unchangedSinceMs = clock.nowMs() - UNCHANGED_MS;
    const limit = this.#parts.batch ?? BATCH;
    let page = await listOpenTasks(db, { unchangedSinceMs, limit, after: this.#after });
    if (page.length === 0 && this.#after !== undefined) page = await listOpenTasks(db, { unchangedSinceMs, limit });
    this.#after = page.length < limit ? undefined : page.at(-1)?.taskId;
    return page;
  }

  /** Looks at asynchronous tasks. @returns true when jobs were lost and are queued again */
  async #returnLost(rows: readonly TaskRow[]): Promise<boolean> {
    const { queues, clock, completion, whoHas } = this.#parts;
    const gone: TaskRecord[] = [];
    for (const row of rows) {
      const job = await queues.read(row.queue, row.taskId);
      if (job !== undefined) {
        if (clock.nowMs() > job.deadlineMs) await completion.takeOut(row.queue, job, EXPIRED);
      } else if (clock.nowMs() - row.updatedAtMs >= GONE_AFTER_MS) gone.push(recordOfRow(row));
    }
    // Where a replica does not answer, the next round looks.
    const had = gone.length === 0 ? undefined : await whoHas(gone.map(({ taskId }) => taskId));
    if (had === undefined) return false;
    let again = 0;
    for (const record of gone) if (!had.has(record.taskId) && (await this.#jobGone(record))) again += 1;
    return again > 0;
  }

  /** Ends synchronous tasks that nobody has: the replica that had each died before it recorded the end. */
  async #endAbandonedCalls(records: readonly TaskRecord[]): Promise<void> {
    if (records.length === 0) return;
    const { isReported, whoHas, leases, clock } = this.#parts;
    const reported = new Set<TaskId>();
    for (const { taskId, containerId } of records)
      if (containerId === null || (await isReported(containerId))) reported.add(taskId);
    // Asked last: what a report brought meanwhile is some replica's by now.
    const had = await whoHas(records.map(({ taskId }) => taskId));
    if (had === undefined) return;
    for (const record of records) {
      const { taskId, status } = record;
      if (had.has(taskId)) this.#abandonedSince.delete(taskId);
      if (had.has(taskId) || !this.#isAbandoned(taskId)) continue;
      const foreignUntilMs = await leases.foreignUntil(taskId);
      if (foreignUntilMs !== undefined) {
        if (status === 'RUNNING' && clock.nowMs() > foreignUntilMs) await this.#abandoned(record);
        continue;
      }
      if (status === 'RUNNING') {
        if (reported.has(taskId)) await this.#endCall(record, LOST, 'fail');
      } else await this.#endCall(record, CALLER_GONE, 'cancel');
    }
  }

  /** Whether the task was found without an owner for long enough. */
  #isAbandoned(taskId: TaskId): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    const sinceMs = this.#abandonedSince.get(taskId);
    if (sinceMs !== undefined) return nowMs - sinceMs >= (this.#parts.abandonedMs ?? ABANDONED_MS);
    this.#forgetOld(nowMs);
    if (this.#abandonedSince.size >= MOST_ABANDONED) return false;
    this.#abandonedSince.set(taskId, nowMs);
    return this.#parts.abandonedMs === 0;
  }

  /** Forgets tasks that ended otherwise. Those that find no room come when others have ended. */
  #forgetOld(nowMs: number): void {
    for (const [taskId, sinceMs] of this.#abandonedSince) {
      if (nowMs - sinceMs < FORGOTTEN_MS) return;
      this.#abandonedSince.delete(taskId);
    }
  }

  async #endCall(record: TaskRecord, ending: Ending, event: 'fail' | 'cancel'): Promise<void> {
    const { changes, clock, records, log } = this.#parts;
    this.#abandonedSince.delete(record.taskId);
    const now = await records.readSurely(record.taskId);
    if (now === undefined || now.rank !== record.rank || now.attempt !== record.attempt) return;
    const ended = finalRecordOf(record, ending.status, failureReasonOf(ending), clock.nowMs());
    if (await changes.applied(record.status, event, ended))
      log.info({ taskId: record.taskId, status: ending.status }, 'a call that no replica has is over');
  }

  /** Ends a task that an external runner held for longer than its limit, without saying how it ended. */
  async #abandoned(record: TaskRecord): Promise<void> {
    const { changes, clock, leases, log } = this.#parts;
    const ended = finalRecordOf(record, 'TIMEOUT', 'execution_timeout', clock.nowMs());
    if (!(await changes.applied(record.status, 'time_out', ended))) return;
    await leases.drop(record.taskId);
    log.info({ taskId: record.taskId }, 'a task that its runner abandoned is over');
  }

  /** Handles a task that no replica and no queue has: it was promised, so that it is queued again (true). */
  async #jobGone(record: TaskRecord): Promise<boolean> {
    const { records, changes, clock, leases, jobOf, queues, log } = this.#parts;
    const waits = record.status !== 'RUNNING';
    const foreignUntilMs = await leases.foreignUntil(record.taskId);
    if (foreignUntilMs !== undefined && !waits && clock.nowMs() > foreignUntilMs) {
      await this.#abandoned(record);
      return false;
    }
    const held = foreignUntilMs === undefined ? await leases.isHeld(record.taskId) : clock.nowMs() < foreignUntilMs;
    if (held) return false;
    // Job and record are removed together: the end may have come between the two reads.
    const now = await records.readSurely(record.taskId);
    if (now !== undefined && now.rank >= 3) return false;
    if (waits && clock.nowMs() > record.deadlineMs) {
      await changes.applied(record.status, 'expire', finalRecordOf(record, 'EXPIRED', 'expired', clock.nowMs()));
      return false;
    }
    const text = await jobOf(record.taskId);
    if (text !== undefined) {
      await queues.open(record.queue);
      await queues.add(record.queue, { ...parseTaskJob(text), attempts: record.attempt, isFromRow: true });
      log.warn({ taskId: record.taskId }, 'a task whose job was lost is queued again');
      this.#returned.tell(record.queue);
      return true;
    }
    const ended = finalRecordOf(record, 'ERROR', 'job_lost', clock.nowMs());
    if (await changes.applied(record.status, 'fail', ended))
      log.info({ taskId: record.taskId }, 'abandoned task ended');
    return false;
  }
}

function finalRecordOf(record: TaskRecord, status: TaskStatus, failureReason: string, endedAtMs: number): TaskRecord {
  return { ...record, status, rank: RANK[status] as RecordRank, endedAtMs, failureReason };
}
