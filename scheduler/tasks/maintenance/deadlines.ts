// Deadlines of waiting tasks, in a heap on the leader. An asynchronous task that no container has at its
// deadline is EXPIRED, even if its queue is never fetched from. A running task is left alone, and looked
// at again when it comes back. Synchronous tasks are left to their callers' replicas, and to sweep.ts. The heap
// holds the tasks due soon. It is read from the rows again and again, and at once when a whole page of them was
// carried out, with the workspaces in turn.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { LeaderLease } from '../../cluster/leader.ts';
import { whileLeading } from '../../cluster/while-leading.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import { EXPIRED, failureReasonOf } from '../../domain/endings.ts';
import type { Completion } from '../completion/completion.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Changes } from '../records/changes.ts';
import type { RecordRank } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import { RANK } from '../state.ts';

export interface Deadline {
  readonly taskId: TaskId;
  readonly queue: QueueName;
  readonly deadlineMs: number;
}

export interface DeadlinesParts {
  /**
   * Waiting tasks with a deadline before that time, the earliest first: at most `limit`, of one workspace `ofOne`,
   * `without` left out.
   */
  readonly due: (
    beforeMs: number,
    limit: number,
    ofOne: number,
    without: readonly TaskId[],
  ) => Promise<readonly Deadline[]>;
  readonly queues: Pick<TaskQueues, 'read' | 'remove'>;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly leases: Pick<Leases, 'isHeld'>;
  readonly completion: Pick<Completion, 'takeOut'>;
  readonly changes: Pick<Changes, 'applied'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly leader: Pick<LeaderLease, 'isLeader' | 'onChange'>;
  readonly reloadMs?: number;
  /** Most deadlines held; tests make it small. */
  readonly mostHeld?: number;
}

const RELOAD_MS = 10_000;
/** Most deadlines held; more are read when these are used up. */
const MOST_HELD = 2_000;
/** Part of them that one workspace may have. */
const PART_OF_ONE = 1 / 4;
/** Tasks that are ended together. */
const TOGETHER = 50;
/** Milliseconds until the next try, when a queue does not answer or a row lags. */
const AGAIN_MS = 1_000;
/** Time within which the row of a task that ended says so, and after which a failed one is tried again. */
const ROWS_LAG_MS = 10_000;
/** Most tasks that are left out of the next page. */
const MOST_REMEMBERED = 10_000;

export class Deadlines {
  readonly name = 'deadlines';
  readonly #parts: DeadlinesParts;
  readonly #held = new Map<TaskId, Deadline>();
  /** Tasks that were dealt with, and when, in monotonic milliseconds: their rows may lag, or they failed. */
  readonly #over = new Map<TaskId, number>();
  #end: (() => void) | undefined;
  #isStopped = false;
  #timer: NodeJS.Timeout | undefined;
  /** Time for which the timer is set, in monotonic milliseconds. */
  #armedForMs = Infinity;
  /** Whether the rows had more deadlines than are held. */
  #hasMore = false;
  #isFiring = false;

  constructor(parts: DeadlinesParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#end = whileLeading(this.#parts.leader, (signal) => void this.#lead(signal));
  }

  stop(): void {
    this.#isStopped = true;
    this.#end?.();
    this.#clear();
  }

  /** Notes a task accepted here: one with a short time to live does not wait for the next read of the rows. */
  accepted(deadline: Deadline): void {
    if (!this.#parts.leader.isLeader() || deadline.deadlineMs > this.#parts.clock.nowMs() + this.#reloadMs * 2) return;
    if (this.#held.size >= this.#mostHeld) return;
    this.#held.set(deadline.taskId, deadline);
    this.#armFor(deadline.deadlineMs);
  }

  /** Reads the rows again, for the loop, for tests, and for a new leader. */
  async reload(): Promise<void> {
    const { due, clock } = this.#parts;
    const ofOne = Math.ceil(this.#mostHeld * PART_OF_ONE);
    this.#forgetOld();
    const rows = await due(clock.nowMs() + this.#reloadMs * 2, this.#mostHeld, ofOne, [...this.#over.keys()]);
    this.#clear();
    // A page may also be short because workspaces have more than their part.
    this.#hasMore = rows.length >= ofOne;
    for (const row of rows) this.#held.set(row.taskId, row);
    this.#arm();
  }

  get #mayGoOn(): boolean {
    return this.#parts.leader.isLeader() && !this.#isStopped;
  }

  get #reloadMs(): number {
    return this.#parts.reloadMs ?? RELOAD_MS;
  }

  get #mostHeld(): number {
    return this.#parts.mostHeld ?? MOST_HELD;
  }

  #clear(): void {
    clearTimeout(this.#timer);
    this.#armedForMs = Infinity;
    this.#held.clear();
  }

  #forgetOld(): void {
    const beforeMs = this.#parts.clock.monotonicMs() - ROWS_LAG_MS;
    for (const [taskId, atMs] of this.#over) {
      if (atMs >= beforeMs && this.#over.size <= MOST_REMEMBERED) return;
      this.#over.delete(taskId);
    }
  }

  async #lead(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#clear(), { once: true });
    do await this.#reloadOrWarn();
    while (await sleep(this.#reloadMs, signal));
  }

  async #reloadOrWarn(): Promise<void> {
    try {
      await this.reload();
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'deadlines of tasks not read, trying again');
    }
  }

  /** Sets the timer for the earliest deadline. */
  #arm(atLeastMs = 0): void {
    let earliestMs = Infinity;
    for (const { deadlineMs } of this.#held.values()) earliestMs = Math.min(earliestMs, deadlineMs);
    clearTimeout(this.#timer);
    this.#armedForMs = Infinity;
    this.#armFor(Math.max(earliestMs, this.#parts.clock.nowMs() + atLeastMs));
  }

  #armFor(deadlineMs: number): void {
    if (deadlineMs >= this.#armedForMs || !this.#mayGoOn) return;
    clearTimeout(this.#timer);
    this.#armedForMs = deadlineMs;
    this.#timer = setTimeout(() => void this.#fire(), Math.max(1, deadlineMs - this.#parts.clock.nowMs()));
    this.#timer.unref();
  }

  async #fire(): Promise<void> {
    if (this.#isFiring) return;
    this.#isFiring = true;
    const nowMs = this.#parts.clock.nowMs();
    const due = [...this.#held.values()].filter(({ deadlineMs }) => deadlineMs < nowMs);
    let isDone = true;
    for (let at = 0; at < due.length && isDone && this.#mayGoOn; at += TOGETHER) {
      const some = await Promise.all(due.slice(at, at + TOGETHER).map((one) => this.#expire(one)));
      // Where all of them fail, a store is away; one that fails alone holds up nobody.
      isDone = some.some(Boolean);
    }
    this.#isFiring = false;
    if (!this.#mayGoOn) return;
    if (!isDone) return this.#arm(AGAIN_MS);
    if (due.length > 0 && this.#hasMore) await this.#reloadOrWarn();
    else this.#arm();
  }

  /** @returns false: it failed, and is tried again behind the others */
  async #expire(deadline: Deadline): Promise<boolean> {
    const { queues, completion, log } = this.#parts;
    const { queue, taskId } = deadline;
    try {
      const job = await queues.read(queue, taskId);
      const isExpired =
        job === undefined ? await this.#expireWithoutJob(deadline) : await completion.takeOut(queue, job, EXPIRED);
      if (isExpired) log.info({ taskId }, 'task expired');
      return true;
    } catch (error) {
      log.warn({ err: error, taskId }, 'a deadline could not be carried out yet');
      return false;
    } finally {
      if (this.#held.get(taskId) === deadline) this.#held.delete(taskId);
      this.#over.set(taskId, this.#parts.clock.monotonicMs());
    }
  }

  /**
   * Ends an asynchronous task without a job: its owner has not added it yet, or a process died behind taking it out.
   * A task that has ended, or that an attempt holds, is left alone.
   */
  async #expireWithoutJob({ queue, taskId }: Deadline): Promise<boolean> {
    const { records, leases, changes, queues, clock } = this.#parts;
    if (await leases.isHeld(taskId)) return false;
    const record = await records.read(taskId);
    if (record === undefined || record.rank >= 3 || record.sync || record.status === 'RUNNING') return false;
    const isExpired = await changes.applied(record.status, 'expire', {
      ...record,
      status: EXPIRED.status,
      rank: RANK[EXPIRED.status] as RecordRank,
      endedAtMs: clock.nowMs(),
      failureReason: failureReasonOf(EXPIRED),
    });
    // The job may have been added meanwhile.
    await queues.remove(queue, taskId);
    return isExpired;
  }
}
