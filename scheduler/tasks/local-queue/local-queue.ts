// Tasks of this replica's local queue: synchronous, with callers that wait here, in order of arrival, each waiting
// or held by an attempt. This file keeps memory alone: store.ts keeps what Redis knows, admission.ts decides
// who may enter. Invariant: a task is handed out once, to the attempt whose lock token then holds it.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { AdmissionResult } from './store.ts';

export interface LocalTask {
  readonly queue: QueueName;
  job: TaskJob;
  /** Number of times the task was handed out. */
  starts: number;
  /** Lock token of the attempt that holds the task; undefined: the task waits, or moves to the queue. */
  lock: LockToken | undefined;
  /**
   * Lock token of an attempt that was given back while its lease may still
   * stand in Redis. The lease is dropped before the task is sent again.
   */
  leftLock: LockToken | undefined;
  /**
   * True when Redis did not answer while the task was being added to the queue: the queue may hold it as a job, too.
   */
  mayBeJob: boolean;
  /** Time when the task was last known to stand in Redis; monotonic milliseconds. */
  knownAtMs: number;
  /**
   * Redis' answer on letting the task in; undefined: it is in. A
   * rejection is always handled by the code that entered the task.
   */
  entering: Promise<AdmissionResult> | undefined;
  /**
   * True for a task of another replica's local queue. This replica sends it
   * only while the forwarding stands, and else gives it back to the origin.
   */
  readonly isReceived: boolean;
}

export function localTask(queue: QueueName, job: TaskJob, isReceived = false): LocalTask {
  const knownAtMs = performance.now();
  return {
    queue,
    job,
    starts: 0,
    lock: undefined,
    leftLock: undefined,
    mayBeJob: false,
    knownAtMs,
    entering: undefined,
    isReceived,
  };
}

/**
 * Waiting tasks in order of arrival. The head iterator is kept,
 * because a new one would walk over all that left before it.
 */
interface Line {
  readonly tasks: Map<TaskId, LocalTask>;
  head: Iterator<LocalTask>;
}

export class LocalQueue {
  readonly #tasks = new Map<TaskId, LocalTask>();
  readonly #counts = new Map<QueueName, number>();
  readonly #waiting = new Map<QueueName, Line>();
  /** Tasks that were handed out and given back: first in line, the last one first. */
  readonly #returned = new Map<QueueName, LocalTask[]>();

  get(taskId: TaskId): LocalTask | undefined {
    return this.#tasks.get(taskId);
  }

  push(task: LocalTask): void {
    this.#tasks.set(task.job.taskId, task);
    this.#counts.set(task.queue, this.count(task.queue) + 1);
    let line = this.#waiting.get(task.queue);
    if (line === undefined) {
      const tasks = new Map<TaskId, LocalTask>();
      this.#waiting.set(task.queue, (line = { tasks, head: tasks.values() }));
    }
    line.tasks.set(task.job.taskId, task);
  }

  /** Takes the next task of the queue; the lock holds it from now on. */
  take(queue: QueueName, lock: LockToken): LocalTask | undefined {
    const task = this.#returned.get(queue)?.at(-1) ?? this.#first(queue);
    if (task === undefined) return undefined;
    this.#leaveLine(task);
    task.lock = lock;
    task.starts += 1;
    return task;
  }

  /** First task of the line, which the caller must take: the head does not come back to it. */
  #first(queue: QueueName): LocalTask | undefined {
    const line = this.#waiting.get(queue);
    if (line === undefined) return undefined;
    let next = line.head.next();
    if (next.done === true) next = (line.head = line.tasks.values()).next();
    return next.done === true ? undefined : next.value;
  }

  giveBack(task: LocalTask): void {
    task.lock = undefined;
    const returned = this.#returned.get(task.queue);
    if (returned === undefined) this.#returned.set(task.queue, [task]);
    else returned.push(task);
  }

  /** Removes a task from the local queue, because it ended or now belongs to another replica. */
  drop(task: LocalTask): void {
    this.#leaveLine(task);
    if (this.#tasks.get(task.job.taskId) !== task) return;
    this.#tasks.delete(task.job.taskId);
    const left = this.count(task.queue) - 1;
    if (left > 0) this.#counts.set(task.queue, left);
    else this.#counts.delete(task.queue);
  }

  /** Takes all waiting tasks out of the line, in order; they stay this local queue's until they are dropped. */
  unlinkAll(queue: QueueName): readonly LocalTask[] {
    const line = this.line(queue);
    this.#returned.delete(queue);
    this.#waiting.delete(queue);
    return line;
  }

  /** Tasks that wait for the queue, the next one first. */
  line(queue: QueueName): readonly LocalTask[] {
    return [...(this.#returned.get(queue) ?? []).toReversed(), ...(this.#waiting.get(queue)?.tasks.values() ?? [])];
  }

  /** Number of tasks of the queue in this local queue, waiting and held. */
  count(queue: QueueName): number {
    return this.#counts.get(queue) ?? 0;
  }

  waiting(queue: QueueName): number {
    return (this.#returned.get(queue)?.length ?? 0) + (this.#waiting.get(queue)?.tasks.size ?? 0);
  }

  /** Queues for which tasks wait here. */
  queues(): readonly QueueName[] {
    return [...new Set([...this.#waiting.keys(), ...this.#returned.keys()])];
  }

  all(): Iterable<LocalTask> {
    return this.#tasks.values();
  }

  #leaveLine(task: LocalTask): void {
    const { queue, job } = task;
    const waiting = this.#waiting.get(queue)?.tasks;
    if (waiting?.delete(job.taskId) === true) {
      if (waiting.size === 0) this.#waiting.delete(queue);
      return;
    }
    const returned = this.#returned.get(queue);
    const at = returned?.lastIndexOf(task) ?? -1;
    if (at >= 0) returned?.splice(at, 1);
    if (returned?.length === 0) this.#returned.delete(queue);
  }
}
