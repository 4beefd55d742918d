// The tasks of this replica's lane: synchronous ones whose callers wait here, in the order in which they came, each waiting or held by an attempt. Memory alone: what Redis knows of them is store.ts's,
// and who may enter is queues.ts's. What must stay true: a task is handed out once, to the attempt whose lock token then holds it.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Verdict } from './store.ts';

export interface LaneTask {
  readonly queue: QueueName;
  job: TaskJob;
  /** How often it was handed out. */
  starts: number;
  /** Of the attempt that has it; undefined: it waits, or moves to the queue. */
  lock: LockToken | undefined;
  /** Whose lease may still stand in Redis although that attempt was given back: dropped before the task is sent again. */
  leftLock: LockToken | undefined;
  /** It was being added to the queue when Redis did not answer: it may be a job, too. */
  mayBeJob: boolean;
  /** When it was last known to stand in Redis; monotonic milliseconds. */
  knownAtMs: number;
  /** undefined: it is in. Never rejects without being handled by whoever entered it. */
  entering: Promise<Verdict> | undefined;
  /** Of another replica's lane: sent only while that loan stands, and its lender's again when it cannot be. */
  readonly isBorrowed: boolean;
}

export function laneTask(queue: QueueName, job: TaskJob, isBorrowed = false): LaneTask {
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
    isBorrowed,
  };
}

/** In the order of their coming. The head is kept, because a new one would walk over all that left before it. */
interface Line {
  readonly tasks: Map<TaskId, LaneTask>;
  head: Iterator<LaneTask>;
}

export class Lane {
  readonly #tasks = new Map<TaskId, LaneTask>();
  readonly #counts = new Map<QueueName, number>();
  readonly #waiting = new Map<QueueName, Line>();
  /** Handed out and given back: first in line, the last one first. */
  readonly #returned = new Map<QueueName, LaneTask[]>();

  get(taskId: TaskId): LaneTask | undefined {
    return this.#tasks.get(taskId);
  }

  push(task: LaneTask): void {
    this.#tasks.set(task.job.taskId, task);
    this.#counts.set(task.queue, this.count(task.queue) + 1);
    let line = this.#waiting.get(task.queue);
    if (line === undefined) {
      const tasks = new Map<TaskId, LaneTask>();
      this.#waiting.set(task.queue, (line = { tasks, head: tasks.values() }));
    }
    line.tasks.set(task.job.taskId, task);
  }

  /** The next one, now held by that lock. */
  take(queue: QueueName, lock: LockToken): LaneTask | undefined {
    const task = this.#returned.get(queue)?.at(-1) ?? this.#first(queue);
    if (task === undefined) return undefined;
    this.#leaveLine(task);
    task.lock = lock;
    task.starts += 1;
    return task;
  }

  /** To be taken: the head does not come back to it. */
  #first(queue: QueueName): LaneTask | undefined {
    const line = this.#waiting.get(queue);
    if (line === undefined) return undefined;
    let next = line.head.next();
    if (next.done === true) next = (line.head = line.tasks.values()).next();
    return next.done === true ? undefined : next.value;
  }

  giveBack(task: LaneTask): void {
    task.lock = undefined;
    const returned = this.#returned.get(task.queue);
    if (returned === undefined) this.#returned.set(task.queue, [task]);
    else returned.push(task);
  }

  /** It waits no more here: it ended, or is somebody else's. */
  drop(task: LaneTask): void {
    this.#leaveLine(task);
    if (this.#tasks.get(task.job.taskId) !== task) return;
    this.#tasks.delete(task.job.taskId);
    const left = this.count(task.queue) - 1;
    if (left > 0) this.#counts.set(task.queue, left);
    else this.#counts.delete(task.queue);
  }

  /** All that wait leave the line, in order; they stay this lane's until they are dropped. */
  unlinkAll(queue: QueueName): readonly LaneTask[] {
    const line = this.line(queue);
    this.#returned.delete(queue);
    this.#waiting.delete(queue);
    return line;
  }

  /** Those that wait, the next one first. */
  line(queue: QueueName): readonly LaneTask[] {
    return [...(this.#returned.get(queue) ?? []).toReversed(), ...(this.#waiting.get(queue)?.tasks.values() ?? [])];
  }

  /** Waiting and held. */
  count(queue: QueueName): number {
    return this.#counts.get(queue) ?? 0;
  }

  waiting(queue: QueueName): number {
    return (this.#returned.get(queue)?.length ?? 0) + (this.#waiting.get(queue)?.tasks.size ?? 0);
  }

  /** Queues in which some wait. */
  queues(): readonly QueueName[] {
    return [...new Set([...this.#waiting.keys(), ...this.#returned.keys()])];
  }

  all(): Iterable<LaneTask> {
    return this.#tasks.values();
  }

  #leaveLine(task: LaneTask): void {
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
