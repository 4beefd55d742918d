// Callers who wait on this replica for a synchronous task, and the timer of each one's wait limit.
// A reply settles its caller exactly once. A reply for a caller of another replica goes there.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { Grouped } from '#shared/grouped.ts';
import { Listeners } from '#shared/listeners.ts';
import type { EndReason } from '../../domain/endings.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';

/**
 * Outcome of a synchronous task, ready for the invoke surface. `body` is
 * JSON text, or a generator's events (`isEventStream`), passed on as bytes.
 */
export interface Finished {
  readonly status: TaskStatus;
  /** Undefined: the status says all that is known. */
  readonly reason: EndReason | undefined;
  readonly body: string;
}

export interface Waiting {
  readonly taskId: TaskId;
  readonly queue: QueueName;
  readonly job: TaskJob;
  /** Takes a generator's items while it runs, in order and without a gap; the final result comes after them. */
  readonly onItem?: (taskId: TaskId, event: string) => void;
}

/** The task of a caller. An agent may forge the facts of an attempt, but not the workspace of its own containers. */
export type CallersTask = Pick<TaskJob, 'taskId' | 'replica' | 'workspaceId'>;

/** Way to tell other replicas of answers that their callers wait for. */
export interface ToReplicas {
  readonly finished: (task: CallersTask, finished: Finished, attempt: number) => void;
  readonly item: (task: CallersTask, seq: number, event: string) => void;
}

interface Entry {
  readonly waiting: Waiting;
  /** Time when the wait began; monotonic milliseconds. */
  readonly sinceMs: number;
  readonly resolve: (finished: Finished) => void;
  /** Number of items that the caller has received. */
  items: number;
  /** Whether the connection of the caller is gone, while its task could not be taken out. */
  isGone: boolean;
  timer: NodeJS.Timeout;
}

/**
 * Interval of the check, past the wait limit, that the caller's task still runs: it then waits only for a running task.
 */
const LOOK_AGAIN_MS = 5_000;

export class Replies {
  readonly #entries = new Map<TaskId, Entry>();
  readonly #byQueue = new Grouped<QueueName, Entry>();
  readonly #waitLimit = new Listeners<[Waiting]>();
  readonly #left = new Listeners<[TaskId]>();
  #elsewhere: ToReplicas | undefined;

  /** Told when a caller's wait limit passed without an answer, and every few seconds after that. */
  onWaitLimit(listener: (waiting: Waiting) => void): void {
    this.#waitLimit.add(listener);
  }

  /** Told when a caller does not wait any more. */
  onLeft(listener: (taskId: TaskId) => void): void {
    this.#left.add(listener);
  }

  /** Sets where answers for callers of other replicas go. */
  connect(elsewhere: ToReplicas): void {
    this.#elsewhere = elsewhere;
  }

  /** Waits for the answer; {@link onWaitLimit} tells when `waitMs` have passed without one. */
  wait(waiting: Waiting, waitMs: number): Promise<Finished> {
    return new Promise((resolve) => {
      const entry: Entry = {
        waiting,
        sinceMs: performance.now(),
        resolve,
        items: 0,
        isGone: false,
        timer: setTimeout(() => this.#limit(entry), waitMs),
      };
      this.#entries.set(waiting.taskId, entry);
      this.#byQueue.add(waiting.queue, entry);
    });
  }

  #limit(entry: Entry): void {
    if (this.#entries.get(entry.waiting.taskId) !== entry) return;
    entry.timer = setTimeout(() => this.#limit(entry), LOOK_AGAIN_MS);
    this.#waitLimit.tell(entry.waiting);
  }

  /** Answers the caller of the task. @returns true when a caller waited here */
  settle(taskId: TaskId, finished: Finished): boolean {
    const entry = this.#take(taskId);
    entry?.resolve(finished);
    return entry !== undefined;
  }

  #take(taskId: TaskId): Entry | undefined {
    const entry = this.#entries.get(taskId);
    if (entry === undefined) return undefined;
    this.#entries.delete(taskId);
    this.#byQueue.delete(entry.waiting.queue, entry);
    clearTimeout(entry.timer);
    this.#left.tell(taskId);
    return entry;
  }

  /**
   * Delivers an answer to the caller, here or at that replica.
   * @param attempt - attempt that ended; the caller's replica drops the answer of an earlier one
   */
  deliver(task: CallersTask, finished: Finished, attempt: number): void {
    if (!this.#entries.has(task.taskId)) this.#elsewhere?.finished(task, finished, attempt);
    else if (this.isOf(task)) this.settle(task.taskId, finished);
  }

  /** Whether a caller of that workspace waits here for the task. */
  isOf({ taskId, workspaceId }: Pick<CallersTask, 'taskId' | 'workspaceId'>): boolean {
    return this.#entries.get(taskId)?.waiting.job.workspaceId === workspaceId;
  }

  /**
   * Delivers an item to the caller, here or at that replica. An
   * item out of order is dropped: the result contains all items.
   */
  item(task: CallersTask, seq: number, event: string): void {
    const entry = this.#entries.get(task.taskId);
    if (entry === undefined) {
      this.#elsewhere?.item(task, seq, event);
    } else if (this.isOf(task) && seq === entry.items && entry.waiting.onItem !== undefined) {
      entry.items += 1;
      entry.waiting.onItem(task.taskId, event);
    }
  }

  /** Whether the caller has part of the answer already. */
  hasBegun(taskId: TaskId): boolean {
    return (this.#entries.get(taskId)?.items ?? 0) > 0;
  }

  /** Callers who have waited for at least `ageMs`. */
  *waitingSince(ageMs: number): Iterable<Waiting> {
    const untilMs = performance.now() - ageMs;
    for (const entry of this.#entries.values()) if (entry.sinceMs <= untilMs) yield entry.waiting;
  }

  get(taskId: TaskId): Waiting | undefined {
    return this.#entries.get(taskId)?.waiting;
  }

  has(taskId: TaskId): boolean {
    return this.#entries.has(taskId);
  }

  /** Notes that the caller is gone: its task runs on, and is not sent again. */
  leave(taskId: TaskId): void {
    const entry = this.#entries.get(taskId);
    if (entry !== undefined) entry.isGone = true;
  }

  /** Whether the caller waits, and its connection is there. */
  isWaiting(taskId: TaskId): boolean {
    return this.#entries.get(taskId)?.isGone === false;
  }

  /** Every caller who waits here. */
  *all(): Iterable<Waiting> {
    for (const { waiting } of this.#entries.values()) yield waiting;
  }

  /** Callers of one queue who wait here. */
  *of(queue: QueueName): Iterable<Waiting> {
    for (const { waiting } of this.#byQueue.of(queue)) yield waiting;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Answers every waiting caller, because the replica stops. */
  settleAll(finished: Finished): void {
    for (const taskId of [...this.#entries.keys()]) this.settle(taskId, finished);
  }
}
