// The lane: a synchronous task does not go through the queue when its caller waits on this replica and a container
// linked to this replica can serve it. The task waits in this process, bounded and in order. Redis stores only
// what others need to count it and to end it without us (store.ts): when this process dies, its caller is gone,
// and the task must not run later. Where another replica has room for the task, it is lent to that one (loans.ts).
// All others see a task of its queue: this file implements the queues' own interface
// and passes on every task that is not in the lane. entrance.ts says which tasks are.
// Invariants:
// - A task enters only while no older job waits in the queue. A task waits here only
//   while no other replica could serve it; else it moves to the queue (spill.ts).
// - The attempt's lock fences every end of the task.
// - The bound is judged where all replicas' tasks are counted.
// - A task that others may have ended while this process stood still is looked up before it is sent.
// - A borrowed task is sent or ended here only under a lease that its loan allowed.
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
import { Entrance } from './entrance.ts';
import { Lane, laneTask } from './lane.ts';
import type { LaneTask } from './lane.ts';
import { Loans } from './loans.ts';
import type { LendingParts } from './loans.ts';
import { mayBorrow, mayStay } from './rules.ts';
import type { LaneFacts } from './rules.ts';
import { Spill } from './spill.ts';
import { isLetIn } from './store.ts';
import type { LaneStore } from './store.ts';
import { LaneView } from './view.ts';

export interface LaneQueuesParts {
  readonly inner: BullmqQueues;
  readonly store: LaneStore;
  readonly client: Redis;
  readonly slots: Pick<SlotTable, 'of' | 'hasReady'>;
  /** Whether no other replica could serve the queue now. */
  readonly isOursAlone: (queue: QueueName) => boolean;
  /** Whether no other process can add to any queue. */
  readonly isAlone: boolean;
  /** False: nothing enters or is borrowed, and every task goes through its queue. */
  readonly isOn: boolean;
  /** Absent: there are no other replicas, or nothing is lent to them. */
  readonly lending?: LendingParts;
  readonly log: Log;
  /** Milliseconds for which a task counts as standing in Redis; tests shorten it. */
  readonly knownForMs?: number;
}

/**
 * A replica that is silent for 10 s counts as dead, and its tasks are ended.
 * So a task that waited longer than this is looked up before it is sent.
 */
const KNOWN_FOR_MS = 5_000;

export class LaneQueues implements TaskQueues {
  readonly #parts: LaneQueuesParts;
  readonly #inner: BullmqQueues;
  readonly #store: LaneStore;
  readonly #lane = new Lane();
  readonly #entrance: Entrance;
  readonly #loans: Loans | undefined;
  readonly #spill: Spill;
  readonly #view: LaneView;
  readonly #waiting = new Listeners<[QueueName]>();
  #wakeHere: (queue: QueueName, taskId: TaskId) => boolean = () => false;

  constructor(parts: LaneQueuesParts) {
    this.#parts = parts;
    this.#inner = parts.inner;
    this.#store = parts.store;
    const { inner, store, lending, isAlone, isOn, log } = parts;
    this.#loans =
      lending &&
      new Loans({
        ...lending,
        store,
        log,
        onBorrowed: (queue, job) => this.#borrow(queue, job),
        isHere: (taskId) => this.#lane.get(taskId) !== undefined,
        onBack: (task) => this.#takeIn(task),
      });
    this.#entrance = new Entrance({
      inner,
      store,
      lane: this.#lane,
      loans: this.#loans,
      factsOf: (queue) => this.#facts(queue),
      isSpilling: (queue) => this.#spill.isUnderWay(queue),
      isAlone,
      isOn,
      log,
    });
    this.#spill = new Spill({
      lane: this.#lane,
      store,
      addAgain: (queue, job) => this.addAgain(queue, job),
      returnLoan: (task) => this.#returnLoan(task),
      onMoved: (queue) => this.#waiting.tell(queue),
      log,
    });
    this.#view = new LaneView(inner, store, this.#lane);
    // The connection may come back with other data.
    parts.client.on('close', () => this.#entrance.forgetAll());
  }

  // ---- in -----------------------------------------------------------------------------------------------------------

  add(name: QueueName, job: TaskJob, bound = Number.MAX_SAFE_INTEGER): Promise<Added> {
    return this.#entrance.add(name, job, bound);
  }

  #facts(name: QueueName): Omit<LaneFacts, 'sync' | 'jobsWait'> {
    const isOursAlone = this.#parts.isOursAlone(name);
    const waiting = this.#lane.waiting(name);
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

  /** Takes in a task that another replica lends. @returns false: there is no room for it here */
  #borrow(name: QueueName, job: TaskJob): boolean {
    if (!this.#parts.isOn) return false;
    const waiting = this.#lane.waiting(name);
    const freeSlots = this.#free(name, waiting + 1);
    const isKnown = this.#lane.get(job.taskId) !== undefined;
    if (isKnown || !mayBorrow({ hasReady: this.#parts.slots.hasReady(name), freeSlots, waiting })) return false;
    const task = laneTask(name, job, true);
    this.#lane.push(task);
    if (this.#wakeHere(name, job.taskId)) return true;
    this.#lane.drop(task);
    return false;
  }

  /** Takes in a lent task that came back: it is served here, or moves to the queue. */
  #takeIn(task: LaneTask): void {
    const { queue, job } = task;
    if (this.#lane.get(job.taskId) !== undefined) return;
    this.#lane.push(task);
    const spilling = this.#spill.underWay(queue);
    if (spilling === undefined) this.#settle(queue);
    else void spilling.then(() => this.#settle(queue));
  }

  #settle(queue: QueueName): void {
    this.look(queue);
    if (!this.#spill.isUnderWay(queue)) this.#waiting.tell(queue);
  }

  // ---- out ----------------------------------------------------------------------------------------------------------

  async fetch(name: QueueName, lock: LockToken): Promise<Fetched> {
    requireLock(lock);
    for (let task = this.#lane.take(name, lock); task !== undefined; task = this.#lane.take(name, lock)) {
      if (task.entering !== undefined && !(await isLetIn(task.entering))) continue;
      try {
        if (task.leftLock !== undefined) await this.#store.dropLeft(task);
        if (task.mayBeJob && !(await this.#isOursAgain(task))) continue;
      } catch (error) {
        this.#lane.giveBack(task);
        throw error;
      }
      // Writing the lease tells whether the loan stands.
      if (task.isBorrowed) return { job: task.job, starts: task.starts, nextDueMs: undefined, isLent: true };
      // A task that may have been ended meanwhile is handed out as a repeated one, so that its receiver checks.
      const starts = (await this.#isStanding(task)) ? task.starts : Math.max(2, task.starts);
      return { job: task.job, starts, nextDueMs: undefined };
    }
    const fetched = await this.#inner.fetch(name, lock);
    if (fetched.job === undefined) this.#entrance.open(name);
    else this.#dropOldLoan(fetched.job.taskId);
    return fetched;
  }

  /**
   * Drops an old loan of a task that came as a job. The loan was
   * taken back long ago, and must not be mistaken for the job.
   */
  #dropOldLoan(taskId: TaskId): void {
    const task = this.#lane.get(taskId);
    if (task?.isBorrowed === true) this.#lane.drop(task);
  }

  /** Whether the task still stands in Redis: ending a task removes its entry, so one that stands was not ended. */
  async #isStanding(task: LaneTask): Promise<boolean> {
    const askedAtMs = performance.now();
    if (askedAtMs - task.knownAtMs < (this.#parts.knownForMs ?? KNOWN_FOR_MS)) return true;
    // Redis does not answer: the receiver of the task asks again.
    if (!(await this.#store.has(task.queue, task.job.taskId).catch(() => false))) return false;
    task.knownAtMs = askedAtMs;
    return true;
  }

  /**
   * Removes the job of a task that may be in both lane and queue.
   * @returns false: another attempt has that job, and the task
   */
  async #isOursAgain(task: LaneTask): Promise<boolean> {
    const { queue, job } = task;
    const removed = await this.#inner.remove(queue, job.taskId);
    if (!removed && (await this.#inner.read(queue, job.taskId)) !== undefined) {
      this.#lane.drop(task);
      return false;
    }
    task.mayBeJob = false;
    // The task may have finished in the queue meanwhile.
    task.starts = Math.max(2, task.starts);
    return true;
  }

  complete(name: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence> {
    const task = this.#lane.get(taskId);
    if (task !== undefined) return this.#end(task, lock);
    return this.#endOfAnother(name, taskId, this.#inner.complete(name, taskId, lock));
  }

  async fail(name: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence> {
    const task = this.#lane.get(taskId);
    if (task === undefined) return this.#endOfAnother(name, taskId, this.#inner.fail(name, taskId, lock, reason));
    const fence = await this.#end(task, lock);
    // The final record removes the entry from Redis; a task that was over before gets no such record.
    if (fence.kind === 'done') this.#dropLater(task);
    return fence;
  }

  /** Ends a task by its lock in memory; callers hear of it only after Redis was told. */
  async #end(task: LaneTask, lock: LockToken): Promise<Fence> {
    requireLock(lock);
    if (task.lock === undefined) return { kind: 'expired' };
    if (task.lock !== lock) return { kind: 'superseded' };
    if (!this.#store.isReady) throw unavailable(`end task ${task.job.taskId}`, new Error('Redis is not connected'));
    this.#lane.drop(task);
    await turnWritten(this.#parts.client);
    return { kind: 'done' };
  }

  #dropLater({ queue, job }: LaneTask): void {
    this.#store.remove(queue, job.taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId: job.taskId }, 'a task that is over is still in its lane');
    });
  }

  /** Ends a task of another replica's lane, or of a dead one: removing its entry from Redis ends it. */
  async #endOfAnother(name: QueueName, taskId: TaskId, ending: Promise<Fence>): Promise<Fence> {
    const fence = await ending;
    if (fence.kind !== 'gone' || !(await this.#store.remove(name, taskId))) return fence;
    return { kind: 'done' };
  }

  async giveBack(name: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    const task = this.#lane.get(taskId);
    if (task === undefined) return await this.#giveBackOfAnother(name, taskId, lock, changed);
    requireLock(lock);
    if (task.lock !== lock) return { kind: task.lock === undefined ? 'expired' : 'superseded' };
    if (task.isBorrowed) {
      this.#returnLoan(task);
      return { kind: 'done' };
    }
    task.job = changed ?? task.job;
    this.#lane.giveBack(task);
    this.look(name);
    return { kind: 'done' };
  }

  letGo(name: QueueName, taskId: TaskId, lock: LockToken): boolean {
    const task = this.#lane.get(taskId);
    // The lender decides about a loan, by the lease.
    if (task === undefined || task.isBorrowed || task.lock !== lock) return false;
    task.leftLock = lock;
    this.#lane.giveBack(task);
    this.look(name);
    return true;
  }

  #returnLoan(task: LaneTask): void {
    this.#lane.drop(task);
    this.#loans?.giveBack(task.queue, task.job);
  }

  /**
   * Adds the unsent task of another lane, whose replica gave it up or died, to its queue as a job. The
   * entry is removed first, and only if unsent: its lender may have taken it back meanwhile, and two
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
    const task = this.#lane.get(taskId);
    if (task === undefined && this.#loans?.has(taskId) === true)
      return await this.#removeLent(this.#loans, name, taskId);
    // The lender may have taken back a loan that waits here: Redis says whether it may be removed.
    const isLoan = task?.isBorrowed === true && task.lock === undefined;
    if (isLoan) this.#lane.drop(task);
    if (task === undefined || isLoan) {
      return (await this.#inner.remove(name, taskId)) || (await this.#store.removeUnsent(name, taskId));
    }
    if (task.entering !== undefined && !(await isLetIn(task.entering))) return await this.remove(name, taskId);
    const spilling = this.#spill.underWay(name);
    if (spilling !== undefined) {
      await spilling;
      return await this.remove(name, taskId);
    }
    if (task.mayBeJob && !(await this.#isOursAgain(task))) return false;
    if (task.lock !== undefined || this.#lane.get(taskId) !== task) return false;
    this.#lane.drop(task);
    // The task is gone even where Redis does not answer: its last record removes the entry, else the sweep does.
    await this.#store.remove(name, taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'a task that was taken out is still in its lane');
    });
    return true;
  }

  /** Removes the entry of a lent task: once it is out, the borrower can no longer send it. */
  async #removeLent(loans: Loans, name: QueueName, taskId: TaskId): Promise<boolean> {
    const entering = loans.get(taskId)?.entering;
    if (entering !== undefined && !(await isLetIn(entering))) return await this.remove(name, taskId);
    const returning = loans.returning(taskId);
    if (returning !== undefined) {
      await returning;
      return await this.remove(name, taskId);
    }
    const removed = await this.#store.removeUnsent(name, taskId);
    if (removed) loans.forget(taskId);
    return removed;
  }

  disown(_name: QueueName, taskId: TaskId): void {
    const task = this.#lane.get(taskId);
    if (task !== undefined) this.#lane.drop(task);
    else this.#loans?.forget(taskId);
  }

  /** Called when another replica said how the task ended: it no longer waits here. */
  answered(taskId: TaskId): void {
    const task = this.#lane.get(taskId);
    if (task !== undefined && task.lock === undefined) this.#lane.drop(task);
    this.#loans?.forget(taskId);
  }

  // ---- from the lane to the queue -----------------------------------------------------------------------------------

  /**
   * Moves waiting tasks to their queue when other replicas may be able to
   * serve it now. Called when containers or links change, and by the sweep.
   */
  look(name: QueueName): void {
    if (this.#spill.isUnderWay(name) || this.#lane.waiting(name) === 0 || mayStay(this.#facts(name))) return;
    this.#entrance.close(name);
    this.#spill.start(name);
  }

  /** Looks at every queue for which tasks wait here. */
  lookAll(): void {
    for (const name of this.#lane.queues()) this.look(name);
  }

  /** Called when tasks moved to a queue, or came back into the lane: any replica with room for them may fetch. */
  onWaiting(listener: (queue: QueueName) => void): void {
    this.#waiting.add(listener);
  }

  /** Called with a borrowed task. The handler wakes a container here that has room for it. @returns false: none has */
  onBorrowed(handler: (queue: QueueName, taskId: TaskId) => boolean): void {
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
    this.#entrance.forgetAll();
    await this.#inner.reopenAll();
    const byQueue = Map.groupBy(this.#lane.all(), ({ queue }) => queue);
    for (const [queue, tasks] of byQueue) {
      const still = tasks.filter((task) => task.entering === undefined && this.#lane.get(task.job.taskId) === task);
      const jobs = still.map(({ job }) => job);
      if (jobs.length > 0) await this.#store.restore(queue, jobs);
    }
    await this.#loans?.restore();
  }

  async obliterate(name: QueueName): Promise<void> {
    await this.#inner.obliterate(name);
    await this.#store.forget(name);
    this.#entrance.forget(name);
  }

  /** Whether this lane has the task, its own or borrowed, or has lent it. */
  has(taskId: TaskId): boolean {
    return this.#lane.get(taskId) !== undefined || this.#loans?.has(taskId) === true;
  }

  /** Whether this replica is responsible for the task: a borrowed task is its lender's until it is sent. */
  seesTo(taskId: TaskId): boolean {
    return this.has(taskId) && this.#lane.get(taskId)?.isBorrowed !== true;
  }

  /** Tasks that wait in this lane, and lent tasks, of which some may run. */
  waiting(): readonly LaneTask[] {
    const own = this.#lane.queues().flatMap((queue) => this.#lane.line(queue));
    return [...own.filter(({ isBorrowed }) => !isBorrowed), ...(this.#loans?.all() ?? [])];
  }

  /**
   * Takes an entry of ours back into this lane that no replica seems to have, and whose caller waits here.
   * @returns false: the task was sent, or is another replica's
   */
  async recover(name: QueueName, taskId: TaskId): Promise<boolean> {
    return (await this.#loans?.recover(name, taskId)) ?? false;
  }

  open(name: QueueName): Promise<void> {
    return this.#inner.open(name);
  }
  addAgain(name: QueueName, job: TaskJob): Promise<void> {
    this.#entrance.jobComes(name);
    return this.#inner.addAgain(name, job);
  }
  activeIds(name: QueueName, limit?: number): Promise<readonly TaskId[]> {
    return this.#inner.activeIds(name, limit);
  }
  waitingIds(name: QueueName, limit?: number): Promise<readonly TaskId[]> {
    return this.#inner.waitingIds(name, limit);
  }
  scanStalled(name: QueueName): Promise<readonly TaskId[]> {
    return this.#inner.scanStalled(name);
  }
  close(): Promise<void> {
    this.#loans?.close();
    return this.#inner.close();
  }
}
