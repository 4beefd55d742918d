// Tasks whose callers wait at this replica, until each is answered: where each is (offers.ts), and the line of those
// that wait for a slot, in order of arrival. A task that comes back keeps its place. This file keeps memory alone.
// Invariant: a task is in the line exactly while its place is `waiting`, so it is handed out once.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { NEW } from './offers.ts';
import type { Place } from './offers.ts';

export interface LineTask {
  readonly queue: QueueName;
  readonly job: TaskJob;
  /** Number of its arrival at this replica: its place in the line. */
  readonly number: number;
  /** Monotonic milliseconds. */
  readonly sinceMs: number;
  readonly place: Place;
}

interface MutableTask extends LineTask {
  place: Place;
}

interface QueueTasks {
  readonly all: Set<MutableTask>;
  /** Tasks that wait and never left the line, in order of arrival. */
  readonly waiting: Map<TaskId, MutableTask>;
  /** Tasks that left the line and wait again, by number; seldom more than a few. */
  readonly back: MutableTask[];
  /** Tasks that each other replica was offered or has. */
  readonly out: Map<InstanceId, number>;
}

export class Line {
  readonly #tasks = new Map<TaskId, MutableTask>();
  readonly #queues = new Map<QueueName, QueueTasks>();
  /** Tasks that are neither in the line nor sent from here: silence, deaths and rows decide about them. */
  readonly #elsewhere = new Set<LineTask>();
  readonly #onChange: (queue: QueueName) => void;
  #arrivals = 0;

  /** @param onChange - told of each queue whose counts may be others now */
  constructor(onChange: (queue: QueueName) => void = () => undefined) {
    this.#onChange = onChange;
  }

  get(taskId: TaskId): LineTask | undefined {
    return this.#tasks.get(taskId);
  }

  add(queue: QueueName, job: TaskJob, nowMs: number): LineTask {
    const task: MutableTask = { queue, job, number: (this.#arrivals += 1), sinceMs: nowMs, place: NEW };
    this.#tasks.set(job.taskId, task);
    let tasks = this.#queues.get(queue);
    if (tasks === undefined)
      this.#queues.set(queue, (tasks = { all: new Set(), waiting: new Map(), back: [], out: new Map() }));
    tasks.all.add(task);
    tasks.waiting.set(job.taskId, task);
    this.#onChange(queue);
    return task;
  }

  /** Moves a task: it leaves the line, or waits in it again at its place. @returns false: it is not here any more */
  move(taskId: TaskId, place: Place): boolean {
    const task = this.#tasks.get(taskId);
    if (task === undefined) return false;
    const before = task.place;
    task.place = place;
    this.#count(task, before, place);
    if (before.kind === 'waiting' && place.kind !== 'waiting') this.#leave(task);
    else if (before.kind !== 'waiting' && place.kind === 'waiting') this.#comeBack(task);
    if (isElsewhere(place)) this.#elsewhere.add(task);
    else this.#elsewhere.delete(task);
    this.#onChange(task.queue);
    return true;
  }

  /** Takes a task out: its caller is answered. */
  drop(taskId: TaskId): LineTask | undefined {
    const task = this.#tasks.get(taskId);
    if (task === undefined) return undefined;
    this.#count(task, task.place, undefined);
    this.#leave(task);
    this.#elsewhere.delete(task);
    this.#tasks.delete(taskId);
    const tasks = this.#queues.get(task.queue);
    tasks?.all.delete(task);
    if (tasks?.all.size === 0) this.#queues.delete(task.queue);
    this.#onChange(task.queue);
    return task;
  }

  /** The oldest task that waits for a slot. */
  first(queue: QueueName): LineTask | undefined {
    const tasks = this.#queues.get(queue);
    const back = tasks?.back[0];
    for (const task of tasks?.waiting.values() ?? [])
      return back !== undefined && back.number < task.number ? back : task;
    return back;
  }

  /** Tasks that wait for a slot, the oldest first; the line must not change meanwhile. */
  *waiting(queue: QueueName): Iterable<LineTask> {
    const tasks = this.#queues.get(queue);
    if (tasks === undefined) return;
    let next = 0;
    for (const task of tasks.waiting.values()) {
      for (let back = tasks.back[next]; back !== undefined && back.number < task.number; back = tasks.back[next]) {
        next += 1;
        yield back;
      }
      yield task;
    }
    yield* tasks.back.slice(next);
  }

  waitingCount(queue: QueueName): number {
    const tasks = this.#queues.get(queue);
    return tasks === undefined ? 0 : tasks.waiting.size + tasks.back.length;
  }

  /** Tasks of the queue whose callers wait here, wherever they are. */
  count(queue: QueueName): number {
    return this.#queues.get(queue)?.all.size ?? 0;
  }

  /** Tasks of the queue that the other replica was offered or has. */
  outTo(queue: QueueName, replica: InstanceId): number {
    return this.#queues.get(queue)?.out.get(replica) ?? 0;
  }

  queues(): Iterable<QueueName> {
    return this.#queues.keys();
  }

  all(): Iterable<LineTask> {
    return this.#tasks.values();
  }

  /** Tasks that are neither in the line nor sent from here. */
  elsewhere(): Iterable<LineTask> {
    return this.#elsewhere;
  }

  get size(): number {
    return this.#tasks.size;
  }

  #count(task: LineTask, before: Place, after: Place | undefined): void {
    const from = 'to' in before ? before.to : undefined;
    const to = after !== undefined && 'to' in after ? after.to : undefined;
    const out = this.#queues.get(task.queue)?.out;
    if (from === to || out === undefined) return;
    if (from !== undefined) {
      const left = (out.get(from) ?? 0) - 1;
      if (left > 0) out.set(from, left);
      else out.delete(from);
    }
    if (to !== undefined) out.set(to, (out.get(to) ?? 0) + 1);
  }

  #leave(task: MutableTask): void {
    const tasks = this.#queues.get(task.queue);
    if (tasks === undefined || tasks.waiting.delete(task.job.taskId)) return;
    const at = tasks.back.indexOf(task);
    if (at >= 0) tasks.back.splice(at, 1);
  }

  #comeBack(task: MutableTask): void {
    const back = this.#queues.get(task.queue)?.back;
    if (back === undefined) return;
    const at = back.findIndex(({ number }) => number > task.number);
    back.splice(at < 0 ? back.length : at, 0, task);
  }
}

const isElsewhere = ({ kind }: Place): boolean => kind !== 'waiting' && kind !== 'here' && kind !== 'ending';
