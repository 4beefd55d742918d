// Synchronous tasks of this replica, in its memory alone: those whose callers wait here (line.ts), and orders, which
// this replica sent or is about to send, for callers here and elsewhere. Redis knows nothing of them. Other rooms end,
// find and count tasks by the interface of the queues, so this file passes on every task that it does not have.
// Invariants (I26, I27): a task waits in one replica's line, or has one order at one replica, and the lock of the order
// fences its end. A task whose order may have been sent waits again only after its row was read.
import type { InstanceId, LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { QueueControl } from '../../domain/flow.ts';
import { requireLock } from '../../stores/queues/answers.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { FetchedJob, JobPlace, Fence, QueueDepth, TaskQueues } from '../../stores/queues/task-queues.ts';
import { chooseNext } from './choose.ts';
import type { Head } from './choose.ts';
import { KnownAttempts } from './known.ts';
import { Line } from './line.ts';
import type { LineTask } from './line.ts';
import { afterStall, heard, isOut, sentHere } from './offers.ts';
import type { Place, Word } from './offers.ts';
import type { Known } from './owner.ts';

/** A task that this replica has: it is about to be sent, or was sent. */
export interface Order {
  readonly queue: QueueName;
  /** Without its input where the order was adopted. */
  readonly job: TaskJob;
  readonly attempt: number;
  readonly lock: LockToken;
  /** Whether the replica of its caller was gone when it was adopted, so that no line counts it. */
  readonly isCallerless: boolean;
}

/** Lines of other replicas, as they told them. */
export interface OtherLines {
  /** Tasks of the queue whose callers wait there: all of them, and those that wait for a slot. */
  counts(queue: QueueName): { readonly count: number; readonly waiting: number };
  /** Replicas where tasks of the queue wait, with the age of the oldest one. */
  heads(queue: QueueName): Iterable<Head>;
  /** @throws AppError `queues_unavailable` while a present replica is silent */
  requireFresh(): void;
}

const NO_OTHERS: OtherLines = {
  counts: () => ({ count: 0, waiting: 0 }),
  heads: () => [],
  requireFresh: () => undefined,
};

export interface LinesParts {
  readonly queues: TaskQueues;
  readonly instance: InstanceId;
  readonly isPresent: (replica: InstanceId) => boolean;
  /** Monotonic milliseconds at which this process last went on after it stood still; null: it never did. */
  readonly stalledAtMs: () => number | null;
}

export type Next =
  | { readonly kind: 'own'; readonly task: LineTask }
  | { readonly kind: 'room'; readonly replica: InstanceId }
  | { readonly kind: 'nobody' };

export class Lines implements Pick<
  TaskQueues,
  | 'complete'
  | 'fail'
  | 'giveBack'
  | 'delay'
  | 'remove'
  | 'lockOf'
  | 'locksOf'
  | 'read'
  | 'placeOf'
  | 'depth'
  | 'depths'
  | 'obliterate'
> {
  readonly #parts: LinesParts;
  readonly #queues: TaskQueues;
  readonly #changed = new Listeners<[QueueName]>();
  readonly #waiting = new Listeners<[QueueName]>();
  readonly #unsure = new Listeners<[]>();
  readonly #dropped = new Listeners<[TaskId, LockToken]>();
  readonly #orders = new Map<TaskId, Order>();
  /** Number of orders by queue whose callers are gone with their replicas: no replica's line counts them. */
  readonly #callerless = new Map<QueueName, number>();
  #others: OtherLines = NO_OTHERS;
  #say: (to: InstanceId, job: TaskJob, word: Word) => void = () => undefined;
  #stalledAtMs: number | null = null;
  /** Tasks whose callers wait here. */
  readonly line = new Line((queue) => this.#changed.tell(queue));
  readonly known = new KnownAttempts();

  constructor(parts: LinesParts) {
    this.#parts = parts;
    this.#queues = parts.queues;
  }

  /** Connects the lines of the other replicas. @param say - tells a caller's replica about an attempt */
  connect(others: OtherLines, say: (to: InstanceId, job: TaskJob, word: Word) => void): void {
    this.#others = others;
    this.#say = say;
  }

  /** Told of a queue whose counts here may be others now. */
  onChange(listener: (queue: QueueName) => void): void {
    this.#changed.add(listener);
  }

  /** Told of a queue for which a task waits again. */
  onWaiting(listener: (queue: QueueName) => void): void {
    this.#waiting.add(listener);
  }

  /** Told when rows must be read before some tasks are sent. */
  onUnsure(listener: () => void): void {
    this.#unsure.add(listener);
  }

  /** Told of an order of this replica that it handed over, and that never began. */
  onDropped(listener: (taskId: TaskId, lock: LockToken) => void): void {
    this.#dropped.add(listener);
  }

  // ---- in -----------------------------------------------------------------------------------------------------------

  /**
   * Takes in a task whose caller waits here.
   * @param bound - most tasks that may be open with this one: exact for those here, those elsewhere as last told
   * @returns tasks of the queue with this one; undefined: there are too many, and it is not in
   */
  enter(queue: QueueName, job: TaskJob, bound: number): number | undefined {
    const depth = this.line.count(queue) + this.#others.counts(queue).count;
    if (depth >= bound) return undefined;
    this.line.add(queue, job, performance.now());
    return depth + 1;
  }

  /** Forgets a task: its caller is answered, or was not accepted. */
  leave(taskId: TaskId): void {
    const task = this.line.drop(taskId);
    // The replica that had it has a slot for another one.
    if (task !== undefined && 'to' in task.place) this.#waiting.tell(task.queue);
  }

  // ---- out ----------------------------------------------------------------------------------------------------------

  /** Whether any replica's task may want a slot of that queue here. */
  mayHave(queue: QueueName): boolean {
    this.#lookForStall();
    if (this.line.waitingCount(queue) > 0) return true;
    for (const _head of this.#others.heads(queue)) return true;
    return false;
  }

  /** Who gets a slot that is free here. */
  next(queue: QueueName): Next {
    this.#lookForStall();
    const task = this.line.first(queue);
    const next = chooseNext(task && performance.now() - task.sinceMs, this.#others.heads(queue));
    if (next.kind === 'own' && task !== undefined) return { kind: 'own', task };
    return next.kind === 'room' ? next : { kind: 'nobody' };
  }

  /** Hands out a task that waits here; the lock holds it from now on. */
  begin({ queue, job, place }: LineTask, lock: LockToken): FetchedJob {
    const here = sentHere(place);
    this.line.move(job.taskId, here);
    this.#add({ queue, job, attempt: here.attempt, lock });
    return { job, starts: here.attempt, nextDueMs: undefined };
  }

  /** Takes an offered task for a slot here. */
  take(queue: QueueName, job: TaskJob, attempt: number, lock: LockToken): FetchedJob {
    this.known.remember(job.taskId, { attempt, what: { kind: 'taken' } });
    this.#add({ queue, job, attempt, lock });
    return { job, starts: attempt, nextDueMs: undefined };
  }

  /** Notes that the order of a task leaves now. */
  sent(taskId: TaskId): void {
    const order = this.#orders.get(taskId);
    if (order !== undefined) this.#remember(order, { kind: 'sent' });
  }

  /** Takes over the order of another process, which its agent named. */
  adopt(order: Omit<Order, 'isCallerless'>): void {
    const { instance, isPresent } = this.#parts;
    const { taskId, replica } = order.job;
    this.#add(order, replica !== instance && !isPresent(replica));
    this.#remember(order, { kind: 'sent' });
    const word = { kind: 'has', attempt: order.attempt, owner: instance } as const;
    if (replica !== instance) this.#say(replica, order.job, word);
    else {
      const place = this.line.get(taskId)?.place;
      if (place !== undefined && isOut(place) && place.attempt === order.attempt)
        this.line.move(taskId, { kind: 'here', attempt: order.attempt });
    }
  }

  /** The order here, or about to leave; undefined: this replica does not have the task. */
  order(taskId: TaskId): Order | undefined {
    return this.#orders.get(taskId);
  }

  /**
   * Gives a task back that was not sent, or that never began.
   * @param wasSent - an order left, and its agent never had it
   */
  return(taskId: TaskId, lock: LockToken, wasSent: boolean): void {
    const order = this.#orders.get(taskId);
    if (order?.lock !== lock) return;
    this.#delete(order);
    this.#remember(order, { kind: 'back', wasSent });
    this.returned(order.job, order.attempt, wasSent);
  }

  /** Tells the caller's replica, which may be this one, that the attempt is over without having begun. */
  returned(job: TaskJob, attempt: number, wasSent: boolean): void {
    const { instance } = this.#parts;
    const { taskId, replica } = job;
    const word = { kind: 'returned', attempt, wasSent } as const;
    if (replica === instance) this.heard(taskId, word, instance);
    else this.#say(replica, job, word);
  }

  /** Drops a task that was taken and not sent: its caller's replica has it again. Whoever is about to send it looks. */
  dropTaken(taskId: TaskId, attempt: number): void {
    const order = this.#orders.get(taskId);
    if (order?.attempt === attempt && order.job.replica !== this.#parts.instance) this.#delete(order);
  }

  /** Leaves an order to the replica to which its machine is linked now. */
  movedTo(taskId: TaskId, lock: LockToken, to: InstanceId): void {
    const { instance } = this.#parts;
    const order = this.#orders.get(taskId);
    if (order?.lock !== lock) return;
    this.#delete(order);
    this.known.remember(taskId, { attempt: order.attempt, what: { kind: 'moved', to } });
    const word = { kind: 'has', attempt: order.attempt, owner: to } as const;
    if (order.job.replica === instance) this.heard(taskId, word, instance);
  }

  #add(order: Omit<Order, 'isCallerless'>, isCallerless = false): void {
    const before = this.#orders.get(order.job.taskId);
    if (before !== undefined) this.#delete(before);
    this.#orders.set(order.job.taskId, { ...order, isCallerless });
    if (isCallerless) this.#callerless.set(order.queue, (this.#callerless.get(order.queue) ?? 0) + 1);
  }

  #delete(order: Order): void {
    if (!this.#orders.delete(order.job.taskId) || !order.isCallerless) return;
    const left = (this.#callerless.get(order.queue) ?? 0) - 1;
    if (left > 0) this.#callerless.set(order.queue, left);
    else this.#callerless.delete(order.queue);
  }

  /** Only another replica asks about an attempt again. */
  #remember({ job, attempt }: Pick<Order, 'job' | 'attempt'>, what: Known['what']): void {
    if (job.replica !== this.#parts.instance) this.known.remember(job.taskId, { attempt, what });
  }

  // ---- places of the tasks whose callers wait here ------------------------------------------------------------------

  /** Takes the word of an owner, which may be this replica. */
  heard(taskId: TaskId, word: Word, from: InstanceId): void {
    const task = this.line.get(taskId);
    if (task === undefined) return;
    this.#lookForStall();
    const place = heard(task.place, word, from, {
      nowMs: performance.now(),
      stalledAtMs: this.#stalledAtMs ?? -Infinity,
    });
    // The replica to which this process handed its own order over says that it never began.
    const order = this.#orders.get(taskId);
    if (word.kind === 'returned' && order?.attempt === word.attempt) {
      this.#delete(order);
      this.#dropped.tell(taskId, order.lock);
    }
    this.moveTo(task, place);
  }

  moveTo({ queue, job, place: before }: LineTask, place: Place): void {
    if (place === before) return;
    this.line.move(job.taskId, place);
    if (place.kind === 'waiting') this.#waiting.tell(queue);
    else if (place.kind === 'unsure') this.#unsure.tell();
  }

  /** After this process stood still, the leader may have ended its tasks: their rows are read before they are sent. */
  #lookForStall(): void {
    const stalledAtMs = this.#parts.stalledAtMs();
    if (stalledAtMs === this.#stalledAtMs) return;
    this.#stalledAtMs = stalledAtMs;
    for (const task of [...this.line.all()]) this.line.move(task.job.taskId, afterStall(task.place));
    this.#unsure.tell();
  }

  // ---- the queues' interface ----------------------------------------------------------------------------------------

  complete(name: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence> {
    const fence = this.#end(taskId, lock);
    return fence === undefined ? this.#queues.complete(name, taskId, lock) : Promise.resolve(fence);
  }

  fail(name: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence> {
    const fence = this.#end(taskId, lock);
    return fence === undefined ? this.#queues.fail(name, taskId, lock, reason) : Promise.resolve(fence);
  }

  /** @returns undefined: the task is not here */
  #end(taskId: TaskId, lock: LockToken): Fence | undefined {
    const order = this.#orders.get(taskId);
    if (order === undefined) return this.line.get(taskId) === undefined ? undefined : { kind: 'gone' };
    requireLock(lock);
    if (order.lock !== lock) return { kind: 'superseded' };
    this.#delete(order);
    this.#remember(order, { kind: 'sent' });
    const task = this.line.get(taskId);
    if (task !== undefined) this.line.move(taskId, { kind: 'ending', attempt: order.attempt });
    return { kind: 'done' };
  }

  giveBack(name: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    return this.#queues.giveBack(name, taskId, lock, changed);
  }

  delay(name: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence> {
    return this.#queues.delay(name, taskId, lock, untilMs, changed);
  }

  obliterate(name: QueueName): Promise<void> {
    return this.#queues.obliterate(name);
  }

  control(name: QueueName, control: QueueControl): Promise<void> {
    return this.#queues.control(name, control);
  }

  /** Takes a task out that waits here: whoever calls ends it. */
  remove(name: QueueName, taskId: TaskId, isRunning?: boolean): Promise<boolean> {
    const task = this.line.get(taskId);
    if (task === undefined)
      return this.#orders.has(taskId) ? Promise.resolve(false) : this.#queues.remove(name, taskId, isRunning);
    const { kind, attempt } = task.place;
    if (kind !== 'waiting' && kind !== 'unsure') return Promise.resolve(false);
    this.line.move(taskId, { kind: 'ending', attempt });
    return Promise.resolve(true);
  }

  /** Lets a task wait again that was taken out, and did not end. */
  putBack(taskId: TaskId): void {
    const task = this.line.get(taskId);
    if (task?.place.kind === 'ending') this.moveTo(task, { kind: 'unsure', attempt: task.place.attempt });
  }

  lockOf(name: QueueName, taskId: TaskId): Promise<LockToken | undefined> {
    const order = this.#orders.get(taskId);
    if (order !== undefined || this.line.get(taskId) !== undefined) return Promise.resolve(order?.lock);
    return this.#queues.lockOf(name, taskId);
  }

  /** Locks of jobs in Redis, and of orders here. */
  async locksOf(
    tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[],
  ): Promise<readonly (LockToken | undefined)[]> {
    const isHere = (taskId: TaskId): boolean => this.#orders.has(taskId) || this.line.get(taskId) !== undefined;
    const there = tasks.filter(({ taskId }) => !isHere(taskId));
    const locks = await this.#queues.locksOf(there);
    const found = new Map(there.map(({ taskId }, at) => [taskId, locks[at]]));
    return tasks.map(({ taskId }) => (found.has(taskId) ? found.get(taskId) : this.#orders.get(taskId)?.lock));
  }

  /** The job of a task that is here; a task that is being ended is not. */
  read(name: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    const task = this.line.get(taskId);
    if (task !== undefined) return Promise.resolve(task.place.kind === 'ending' ? undefined : task.job);
    const order = this.#orders.get(taskId);
    return order === undefined ? this.#queues.read(name, taskId) : Promise.resolve(order.job);
  }

  placeOf(name: QueueName, taskId: TaskId): Promise<JobPlace> {
    const task = this.line.get(taskId);
    if (task === undefined)
      return this.#orders.has(taskId) ? Promise.resolve({ kind: 'active' }) : this.#queues.placeOf(name, taskId);
    if (task.place.kind === 'unsure') return Promise.resolve({ kind: 'waiting', position: undefined });
    if (task.place.kind !== 'waiting') return Promise.resolve({ kind: 'active' });
    let position = 1;
    for (const other of this.line.waiting(name)) {
      if (other === task) return Promise.resolve({ kind: 'waiting', position });
      position += 1;
    }
    return Promise.resolve({ kind: 'waiting', position: undefined });
  }

  async depth(name: QueueName): Promise<QueueDepth> {
    const depth = await this.#queues.depth(name);
    return this.#with(name, depth);
  }

  /** @throws AppError `queues_unavailable` also while a present replica does not tell its counts */
  async depths(names: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    const depths = await this.#queues.depths(names);
    this.#others.requireFresh();
    return depths.map((depth, at) => this.#with(names[at] as QueueName, depth));
  }

  /** Adds the synchronous tasks of all replicas. */
  #with(name: QueueName, depth: QueueDepth): QueueDepth {
    const elsewhere = this.#others.counts(name);
    const waiting = this.line.waitingCount(name) + elsewhere.waiting;
    const count = this.count(name) + elsewhere.count;
    return { ...depth, waiting: depth.waiting + waiting, active: depth.active + Math.max(0, count - waiting) };
  }

  /** Tasks of the queue that this replica counts: its callers', and those that it has of replicas that are gone. */
  count(queue: QueueName): number {
    return this.line.count(queue) + (this.#callerless.get(queue) ?? 0);
  }
}
