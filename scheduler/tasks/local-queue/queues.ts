// The local queue: a synchronous task does not go through the queue when its caller waits on this replica and a
// container linked to this replica can serve it. The task waits in this process, bounded and in order. Redis stores
// only what others need to count it and to end it without us (store.ts): when this process dies, its caller is gone,
// and the task must not run later. Where another replica has room for the task, it is forwarded to that one
// (forwarding.ts). All others see a task of its queue: this file implements the queues' own interface and passes on
// every task that is not in the local queue. admission.ts says which tasks are.
// Invariants:
// - A task enters only while no older job waits in the queue. A task waits here only while no other replica could serve
//   it; else it moves to the queue (overflow.ts).
// - The attempt's lock fences every end of the task.
// - The bound is judged where all replicas' tasks are counted.
// - A task that others may have ended while this process stood still is looked up before it is sent.
// - A received task is sent or ended here only under a lease that its forwarding allowed.
import type { Redis } from 'ioredis';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import { requireLock, unavailable } from '../../stores/queues/answers.ts';
import type { BullmqQueues } from '../../stores/queues/bullmq.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type {
  Added,
  Fence,
  Fetched,
  HeldLock,
  JobPlace,
  QueueDepth,
  TaskQueues,
} from '../../stores/queues/task-queues.ts';
import { turnWritten } from '../../stores/queues/turns.ts';
import { LocalQueueAdmission } from './admission.ts';
import { LocalQueue, localTask } from './local-queue.ts';
import type { LocalTask } from './local-queue.ts';
import { Forwarding } from './forwarding.ts';
import type { ForwardingPeers } from './forwarding.ts';
import { mayReceive, mayStay } from './rules.ts';
import type { LocalQueueFacts } from './rules.ts';
import { Overflow } from './overflow.ts';
import { isLetIn } from './store.ts';
import type { LocalQueueStore } from './store.ts';
import { LocalQueueView } from './view.ts';

export interface LocalQueuesParts {
  readonly inner: BullmqQueues;
  readonly store: LocalQueueStore;
  readonly client: Redis;
  readonly slots: Pick<SlotTable, 'of' | 'hasReady'>;
  /** Whether no other replica could serve the queue now. */
  readonly isOursAlone: (queue: QueueName) => boolean;
  /** Whether no other process can add to any queue. */
  readonly isAlone: boolean;
  /** False: nothing enters or is received, and every task goes through its queue. */
  readonly isOn: boolean;
  /** Absent: there are no other replicas, or nothing is forwarded to them. */
  readonly peers?: ForwardingPeers;
  readonly log: Log;
  /** Milliseconds for which a task counts as standing in Redis; tests shorten it. */
  readonly knownForMs?: number;
}

/**
 * A replica that is silent for 10 s counts as dead, and its tasks are ended.
 * So a task that waited longer than this is looked up before it is sent.
 */
const KNOWN_FOR_MS = 5_000;

export class LocalQueues implements TaskQueues {
  readonly #parts: LocalQueuesParts;
  readonly #inner: BullmqQueues;
  readonly #store: LocalQueueStore;
  readonly #localQueue = new LocalQueue();
  readonly #admission: LocalQueueAdmission;
  readonly #forwarding: Forwarding | undefined;
  readonly #overflow: Overflow;
  readonly #view: LocalQueueView;
  readonly #waiting = new Listeners<[QueueName]>();
  #wakeHere: (queue: QueueName, taskId: TaskId) => boolean = () => false;

  constructor(parts: LocalQueuesParts) {
    this.#parts = parts;
    this.#inner = parts.inner;
    this.#store = parts.store;
    const { inner, store, peers, isAlone, isOn, log } = parts;
    this.#forwarding =
      peers &&
      new Forwarding({
        ...peers,
        store,
        log,
        onReceived: (queue, job) => this.#receive(queue, job),
        isHere: (taskId) => this.#localQueue.get(taskId) !== undefined,
        onBack: (task) => this.#takeIn(task),
      });
    this.#admission = new LocalQueueAdmission({
      inner,
      store,
      localQueue: this.#localQueue,
      forwarding: this.#forwarding,
      factsOf: (queue) => this.#facts(queue),
      isOverflowing: (queue) => this.#overflow.isUnderWay(queue),
      isAlone,
      isOn,
      log,
    });
    this.#overflow = new Overflow({
      localQueue: this.#localQueue,
      store,
      addAgain: (queue, job) => this.addAgain(queue, job),
      returnReceived: (task) => this.#returnReceived(task),
      onMoved: (queue) => {
        this.#waiting.tell(queue);
        // Tasks that were given back meanwhile would wait here for the sweep, where nothing may serve them.
        this.check(queue);
      },
      log,
    });
    this.#view = new LocalQueueView(inner, store, this.#localQueue);
    // The connection may come back with other data.
    parts.client.on('close', () => this.#admission.forgetAll());
  }

  // ---- in -----------------------------------------------------------------------------------------------------------

  add(name: QueueName, job: TaskJob, bound = Number.MAX_SAFE_INTEGER): Promise<Added> {
    return this.#admission.add(name, job, bound);
  }

  #facts(name: QueueName): Omit<LocalQueueFacts, 'sync' | 'jobsWait'> {
    const isOursAlone = this.#parts.isOursAlone(name);
    const waiting = this.#localQueue.waiting(name);
    return {
      hasReady: this.#parts.slots.hasReady(name),
      isOursAlone,
      freeSlots: isOursAlone ? 0 : this.#free(name, waiting + 1),
      waiting,
    };
  }

  /** Counts free slots here, and stops once there are `enough`. */
  #free(name: QueueName, enough: number): number {
    let free = 0;
    for (const container of this.#parts.slots.of(name)) {
      if (container.accepting) free += Math.max(0, container.slots - container.inFlight);
      if (free >= enough) break;
    }
    return free;
  }

  /** Takes in a task that another replica forwards. @returns false: there is no room for it here */
  #receive(name: QueueName, job: TaskJob): boolean {
    if (!this.#parts.isOn) return false;
    const waiting = this.#localQueue.waiting(name);
    const freeSlots = this.#free(name, waiting + 1);
    const isKnown = this.#localQueue.get(job.taskId) !== undefined;
    if (isKnown || !mayReceive({ hasReady: this.#parts.slots.hasReady(name), freeSlots, waiting })) return false;
    const task = localTask(name, job, true);
    this.#localQueue.push(task);
    if (this.#wakeHere(name, job.taskId)) return true;
    this.#localQueue.drop(task);
    return false;
  }

  /** Takes in a forwarded task that came back: it is served here, or moves to the queue. */
  #takeIn(task: LocalTask): void {
    const { queue, job } = task;
    if (this.#localQueue.get(job.taskId) !== undefined) return;
    this.#localQueue.push(task);
    const overflowing = this.#overflow.underWay(queue);
    if (overflowing === undefined) this.#settle(queue);
    else void overflowing.then(() => this.#settle(queue));
  }

  #settle(queue: QueueName): void {
    this.check(queue);
    if (!this.#overflow.isUnderWay(queue)) this.#waiting.tell(queue);
  }

  // ---- out ----------------------------------------------------------------------------------------------------------

  async fetch(name: QueueName, lock: LockToken): Promise<Fetched> {
    requireLock(lock);
    for (let task = this.#localQueue.take(name, lock); task !== undefined; task = this.#localQueue.take(name, lock)) {
      if (task.entering !== undefined && !(await isLetIn(task.entering))) continue;
      try {
        if (task.leftLock !== undefined) await this.#store.dropLeft(task);
        if (task.mayBeJob && !(await this.#isOursAgain(task))) continue;
      } catch (error) {
        this.#localQueue.giveBack(task);
        throw error;
      }
      // Writing the lease tells whether the forwarding stands.
      if (task.isReceived) return { job: task.job, starts: task.starts, nextDueMs: undefined, isForwarded: true };
      // A task that may have been ended meanwhile is handed out as a repeated one, so that its receiver checks.
      const starts = (await this.#isStanding(task)) ? task.starts : Math.max(2, task.starts);
      return { job: task.job, starts, nextDueMs: undefined };
    }
    const fetched = await this.#inner.fetch(name, lock);
    if (fetched.job === undefined) this.#admission.open(name);
    else this.#dropReceived(fetched.job.taskId);
    return fetched;
  }

  /**
   * Drops a task that was forwarded here long ago and comes as a job now. The forwarding was
   * taken back long ago, and must not be mistaken for the job.
   */
  #dropReceived(taskId: TaskId): void {
    const task = this.#localQueue.get(taskId);
    if (task?.isReceived === true) this.#localQueue.drop(task);
  }

  /** Whether the task still stands in Redis: ending a task removes its entry, so one that stands was not ended. */
  async #isStanding(task: LocalTask): Promise<boolean> {
    const askedAtMs = performance.now();
    if (askedAtMs - task.knownAtMs < (this.#parts.knownForMs ?? KNOWN_FOR_MS)) return true;
    // Redis does not answer: the receiver of the task asks again.
    if (!(await this.#store.has(task.queue, task.job.taskId).catch(() => false))) return false;
    task.knownAtMs = askedAtMs;
    return true;
  }

  /**
   * Removes the job of a task that may be in both local queue and queue.
   * @returns false: another attempt has that job, and the task
   */
  async #isOursAgain(task: LocalTask): Promise<boolean> {
    const { queue, job } = task;
    const removed = await this.#inner.remove(queue, job.taskId);
    if (!removed && (await this.#inner.read(queue, job.taskId)) !== undefined) {
      this.#localQueue.drop(task);
      return false;
    }
    task.mayBeJob = false;
    // The task may have finished in the queue meanwhile.
    task.starts = Math.max(2, task.starts);
    return true;
  }

  complete(name: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence> {
    const task = this.#localQueue.get(taskId);
    if (task !== undefined) return this.#end(task, lock);
    return this.#endOfAnother(name, taskId, this.#inner.complete(name, taskId, lock));
  }

  async fail(name: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence> {
    const task = this.#localQueue.get(taskId);
    if (task === undefined) return this.#endOfAnother(name, taskId, this.#inner.fail(name, taskId, lock, reason));
    return await this.#end(task, lock);
  }

  /** Ends a task by its lock in memory; callers hear of it only after Redis was told. */
  async #end(task: LocalTask, lock: LockToken): Promise<Fence> {
    requireLock(lock);
    if (task.lock === undefined) return { kind: 'expired' };
    if (task.lock !== lock) return { kind: 'superseded' };
    if (!this.#store.isReady) throw unavailable(`end task ${task.job.taskId}`, new Error('Redis is not connected'));
    this.#localQueue.drop(task);
    this.#store.ended(task.queue, task.job.taskId);
    await turnWritten(this.#parts.client);
    return { kind: 'done' };
  }

  /** Ends a task of another replica's local queue, or of a dead one: removing its entry from Redis ends it. */
  async #endOfAnother(name: QueueName, taskId: TaskId, ending: Promise<Fence>): Promise<Fence> {
    const fence = await ending;
    if (fence.kind !== 'gone' || !(await this.#store.remove(name, taskId))) return fence;
    return { kind: 'done' };
  }

  async giveBack(name: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    const task = this.#localQueue.get(taskId);
    if (task === undefined) return await this.#giveBackOfAnother(name, taskId, lock, changed);
    requireLock(lock);
    if (task.lock !== lock) return { kind: task.lock === undefined ? 'expired' : 'superseded' };
    if (task.isReceived) {
      this.#returnReceived(task);
      return { kind: 'done' };
    }
    task.job = changed ?? task.job;
    this.#localQueue.giveBack(task);
    this.check(name);
    return { kind: 'done' };
  }

  letGo(name: QueueName, taskId: TaskId, lock: LockToken): boolean {
    const task = this.#localQueue.get(taskId);
    // The origin decides about a received task, by the lease.
    if (task === undefined || task.isReceived || task.lock !== lock) return false;
    task.leftLock = lock;
    this.#localQueue.giveBack(task);
    this.check(name);
    return true;
  }

  #returnReceived(task: LocalTask): void {
    this.#localQueue.drop(task);
    this.#forwarding?.giveBack(task.queue, task.job);
  }

  /**
   * Adds the unsent task of another local queue, whose replica gave it up or died, to its queue as a job. The
   * entry is removed first, and only if unsent: its origin may have taken it back meanwhile, and two
   * would have it. When the task is lost in between, the replica where its caller waits adds it again.
   */
  async #giveBackOfAnother(name: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    const fence = await this.#inner.giveBack(name, taskId, lock, changed);
    const job = fence.kind === 'gone' ? await this.#store.read(name, taskId) : undefined;
    if (job === undefined || !(await this.#store.removeUnsent(name, taskId))) return fence;
    await this.addAgain(name, { ...(changed ?? job), attempts: job.attempts + 1 });
    return { kind: 'done' };
  }

  delay(name: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence> {
    // A synchronous task has no retries to wait for.
    return this.#inner.delay(name, taskId, lock, untilMs, changed);
  }

  async remove(name: QueueName, taskId: TaskId): Promise<boolean> {
    const task = this.#localQueue.get(taskId);
    if (task === undefined && this.#forwarding?.has(taskId) === true)
      return await this.#removeForwarded(this.#forwarding, name, taskId);
    // The origin may have taken back a received task that waits here: Redis says whether it may be removed.
    const isWaitingHere = task?.isReceived === true && task.lock === undefined;
    if (isWaitingHere) this.#localQueue.drop(task);
    if (task === undefined || isWaitingHere) {
      return (await this.#inner.remove(name, taskId)) || (await this.#store.removeUnsent(name, taskId));
    }
    if (task.entering !== undefined && !(await isLetIn(task.entering))) return await this.remove(name, taskId);
    const overflowing = this.#overflow.underWay(name);
    if (overflowing !== undefined) {
      await overflowing;
      return await this.remove(name, taskId);
    }
    if (task.mayBeJob && !(await this.#isOursAgain(task))) return false;
    if (task.lock !== undefined || this.#localQueue.get(taskId) !== task) return false;
    this.#localQueue.drop(task);
    // The task is gone even where Redis does not answer: its last record removes the entry, else the sweep does.
    await this.#store.remove(name, taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'a task that was taken out is still in its local queue');
    });
    return true;
  }

  /** Removes the entry of a forwarded task: once it is out, the receiver can no longer send it. */
  async #removeForwarded(forwarding: Forwarding, name: QueueName, taskId: TaskId): Promise<boolean> {
    const entering = forwarding.get(taskId)?.entering;
    if (entering !== undefined && !(await isLetIn(entering))) return await this.remove(name, taskId);
    const returning = forwarding.returning(taskId);
    if (returning !== undefined) {
      await returning;
      return await this.remove(name, taskId);
    }
    const removed = await this.#store.removeUnsent(name, taskId);
    if (removed) forwarding.forget(taskId);
    return removed;
  }

  disown(_name: QueueName, taskId: TaskId): void {
    const task = this.#localQueue.get(taskId);
    if (task !== undefined) this.#localQueue.drop(task);
    else this.#forwarding?.forget(taskId);
  }

  /** Called when another replica said how the task ended: it no longer waits here. */
  answered(taskId: TaskId): void {
    const task = this.#localQueue.get(taskId);
    if (task !== undefined && task.lock === undefined) this.#localQueue.drop(task);
    this.#forwarding?.forget(taskId);
  }

  // ---- from the local queue to the queue ----------------------------------------------------------------------------

  /**
   * Moves waiting tasks to their queue when other replicas may be able to
   * serve it now. Called when containers or links change, and by the sweep.
   */
  check(name: QueueName): void {
    if (this.#overflow.isUnderWay(name) || this.#localQueue.waiting(name) === 0 || mayStay(this.#facts(name))) return;
    this.#admission.close(name);
    this.#overflow.start(name);
  }

  /** Checks every queue for which tasks wait here. */
  checkAll(): void {
    for (const name of this.#localQueue.queues()) this.check(name);
  }

  /** Called when tasks moved to a queue, or came back here: any replica with room for them may fetch. */
  onWaiting(listener: (queue: QueueName) => void): void {
    this.#waiting.add(listener);
  }

  /** Called with a received task. The handler wakes a container here that has room for it. @returns false: none has */
  onReceived(handler: (queue: QueueName, taskId: TaskId) => boolean): void {
    this.#wakeHere = handler;
  }

  // ---- what others ask ----------------------------------------------------------------------------------------------

  lockOf(name: QueueName, taskId: TaskId): Promise<LockToken | undefined> {
    return this.#view.lockOf(name, taskId);
  }
  read(name: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    return this.#view.read(name, taskId);
  }
  placeOf(name: QueueName, taskId: TaskId): Promise<JobPlace> {
    return this.#view.placeOf(name, taskId);
  }
  depth(name: QueueName): Promise<QueueDepth> {
    return this.#view.depth(name);
  }
  depths(names: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    return this.#view.depths(names);
  }
  renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]> {
    return this.#view.renew(held, ms);
  }
  held(name: QueueName, limit?: number): Promise<readonly HeldLock[]> {
    return this.#view.held(name, limit);
  }

  async reopenAll(): Promise<void> {
    this.#admission.forgetAll();
    await this.#inner.reopenAll();
    const byQueue = Map.groupBy(this.#localQueue.all(), ({ queue }) => queue);
    for (const [queue, tasks] of byQueue) {
      const still = tasks.filter(
        (task) => task.entering === undefined && this.#localQueue.get(task.job.taskId) === task,
      );
      const jobs = still.map(({ job }) => job);
      if (jobs.length > 0) await this.#store.restore(queue, jobs);
    }
    await this.#forwarding?.restore();
  }

  async obliterate(name: QueueName): Promise<void> {
    await this.#inner.obliterate(name);
    await this.#store.forget(name);
    this.#admission.forget(name);
  }

  /** Whether this local queue has the task, its own or received, or has forwarded it. */
  has(taskId: TaskId): boolean {
    return this.#localQueue.get(taskId) !== undefined || this.#forwarding?.has(taskId) === true;
  }

  /** Whether this replica is responsible for the task: a received task is its origin's until it is sent. */
  isResponsibleFor(taskId: TaskId): boolean {
    return this.has(taskId) && this.#localQueue.get(taskId)?.isReceived !== true;
  }

  /** Tasks that wait in this local queue, and forwarded tasks, of which some may run. */
  waiting(): readonly LocalTask[] {
    const own = this.#localQueue.queues().flatMap((queue) => this.#localQueue.line(queue));
    return [...own.filter(({ isReceived }) => !isReceived), ...(this.#forwarding?.all() ?? [])];
  }

  /**
   * Takes an entry of ours back into this local queue that no replica seems to have, and whose caller waits here.
   * @returns false: the task was sent, or is another replica's
   */
  async recover(name: QueueName, taskId: TaskId): Promise<boolean> {
    return (await this.#forwarding?.recover(name, taskId)) ?? false;
  }

  open(name: QueueName): Promise<void> {
    return this.#inner.open(name);
  }
  addAgain(name: QueueName, job: TaskJob): Promise<void> {
    this.#admission.jobComes(name);
    return this.#inner.addAgain(name, job);
  }
  activeIds(name: QueueName, limit?: number): Promise<readonly TaskId[]> {
    return this.#inner.activeIds(name, limit);
  }
  missing(tasks: Parameters<TaskQueues['missing']>[0]): Promise<readonly TaskId[]> {
    return this.#inner.missing(tasks);
  }
  waitingIds(name: QueueName, limit?: number): Promise<readonly TaskId[]> {
    return this.#inner.waitingIds(name, limit);
  }
  scanStalled(name: QueueName): Promise<readonly TaskId[]> {
    return this.#inner.scanStalled(name);
  }
  close(): Promise<void> {
    this.#forwarding?.close();
    return this.#inner.close();
  }
}
