// The lane: a synchronous task whose caller waits on this replica, and which a container linked to this replica can serve, does not go through the queue. It waits in this process, bounded and in order,
// and stands in Redis only with what counting it and ending it without us takes (store.ts): when this process dies its caller is gone, and the task must not run later anyway. To everybody else it is a
// task of its queue: this file is the queues' own interface, and passes on what is not of the lane.
// What must stay true: a task enters only while no older job waits in the queue, and waits here only while no other replica could serve it (else it moves to the queue, spill); the attempt's lock fences
// whoever ends it; its bound is judged where all replicas' tasks are counted; and what may have been ended for us, because this process stood still, is looked up before it is sent.
import type { Redis } from 'ioredis';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import { requireLock, unavailable } from '../queues/answers.ts';
import type { BullmqQueues } from '../queues/bullmq.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Added, Fence, Fetched, HeldLock, JobPlace, QueueDepth, TaskQueues } from '../queues/task-queues.ts';
import { turnWritten } from '../queues/turns.ts';
import { Lane } from './lane.ts';
import type { LaneTask } from './lane.ts';
import { KnownQueues } from './known.ts';
import { mayEnter, mayStay } from './rules.ts';
import type { LaneFacts } from './rules.ts';
import { isLetIn } from './store.ts';
import type { LaneStore, Verdict } from './store.ts';

export interface LaneQueuesParts {
  readonly inner: BullmqQueues;
  readonly store: LaneStore;
  readonly client: Redis;
  readonly slots: Pick<SlotTable, 'of' | 'hasReady'>;
  /** Whether no other replica could serve the queue now. */
  readonly isOursAlone: (queue: QueueName) => boolean;
  /** No other process can add to any queue. */
  readonly isAlone: boolean;
  readonly log: Log;
  /** Tests shorten it. */
  readonly knownForMs?: number;
}

/** A fetch that finds no job opens a queue at once; where each finds the one it came for, it is asked about again after this. */
const CLOSED_MS = 100;
const MOST_CLOSED = 10_000;
/** Whoever is not heard of for 10 s counts as dead, and its tasks are ended: one that waited for longer than this is looked up before it is sent. */
const KNOWN_FOR_MS = 5_000;

export class LaneQueues implements TaskQueues {
  readonly #parts: LaneQueuesParts;
  readonly #inner: BullmqQueues;
  readonly #store: LaneStore;
  readonly #lane = new Lane();
  /** Queues in which jobs waited a moment ago, and until when that counts (monotonic milliseconds): nothing enters, and Redis is not asked. Whether it may is said there. */
  readonly #closed = new Map<QueueName, number>();
  /** Queues to which the lane moves just now. */
  readonly #spilling = new Map<QueueName, Promise<void>>();
  readonly #known: KnownQueues;
  #onSpilled: ((queue: QueueName) => void) | undefined;

  constructor(parts: LaneQueuesParts) {
    this.#parts = parts;
    this.#inner = parts.inner;
    this.#store = parts.store;
    this.#known = new KnownQueues(parts.isAlone);
    // It may come back with other data.
    parts.client.on('close', () => this.#known.forgetAll());
  }

  // ---- in -------------------------------------------------------------------------------------------------------------------------

  add(name: QueueName, job: TaskJob, bound = Number.MAX_SAFE_INTEGER): Promise<Added> {
    return this.#mayEnter(name, job) ? this.#enter(name, job, bound) : this.#addJob(name, job);
  }

  #mayEnter(name: QueueName, job: TaskJob): boolean {
    if (!job.sync) return false;
    const jobsWait = this.#isClosed(name) || this.#spilling.has(name);
    return mayEnter({ sync: job.sync, jobsWait, ...this.#facts(name) });
  }

  #close(name: QueueName): void {
    if (this.#closed.size >= MOST_CLOSED) this.#closed.clear();
    this.#closed.set(name, performance.now() + CLOSED_MS);
  }

  #isClosed(name: QueueName): boolean {
    const untilMs = this.#closed.get(name);
    if (untilMs === undefined) return false;
    if (performance.now() < untilMs) return true;
    this.#closed.delete(name);
    return false;
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

  /** Free slots here, counted as far as anybody asks. */
  #free(name: QueueName, enough: number): number {
    let free = 0;
    for (const container of this.#parts.slots.of(name)) {
      if (container.accepting) free += Math.max(0, container.slots - container.inFlight);
      if (free >= enough) break;
    }
    return free;
  }

  async #enter(name: QueueName, job: TaskJob, bound: number): Promise<Added> {
    const task: LaneTask = {
      queue: name,
      job,
      starts: 0,
      lock: undefined,
      mayBeJob: false,
      knownAtMs: performance.now(),
      entering: undefined,
    };
    this.#lane.push(task);
    const surely = this.#known.depthWith(name, this.#lane.count(name));
    if (surely !== undefined && surely <= bound && this.#store.isReady) {
      void this.#stand(task, bound);
      return { depth: surely, isIn: true };
    }
    task.entering = this.#verdictOn(task, bound);
    const { kind, depth } = await task.entering;
    switch (kind) {
      case 'in':
        return { depth, isIn: true };
      case 'full':
        return { depth, isIn: false };
      case 'jobs_wait':
        return await this.#addJob(name, job);
    }
  }

  #addJob(name: QueueName, job: TaskJob): Promise<Added> {
    this.#known.jobComes(name);
    return this.#inner.add(name, job);
  }

  /** Nobody waits for the verdict on a task that is sure to be let in. One that does not come, or is another one (Redis has other data), leaves it where it is: it stands there again. */
  async #stand(task: LaneTask, bound: number): Promise<void> {
    const { queue, job } = task;
    try {
      if ((await this.#asked(task, bound)).kind === 'in') return;
    } catch (error) {
      this.#parts.log.info({ err: error, taskId: job.taskId }, 'a task in the lane may not stand in Redis yet');
    }
    this.#known.forget(queue);
    if (this.#lane.get(job.taskId) !== task) return;
    await this.#store.restore(queue, [job]).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, taskId: job.taskId }, 'a task in the lane does not stand in Redis');
    });
  }

  async #asked(task: LaneTask, bound: number): Promise<Verdict> {
    const own = this.#lane.count(task.queue);
    const moment = this.#known.moment;
    const verdict = await this.#store.enter(task.queue, task.job, bound);
    this.#known.learn(task.queue, moment, verdict, own);
    return verdict;
  }

  /** Where it may not stay it leaves the lane before anybody hears of it. */
  async #verdictOn(task: LaneTask, bound: number): Promise<Verdict> {
    try {
      const verdict = await this.#asked(task, bound);
      if (verdict.kind !== 'in') this.#lane.drop(task);
      if (verdict.kind === 'jobs_wait') this.#close(task.queue);
      return verdict;
    } catch (error) {
      this.#lane.drop(task);
      throw error;
    } finally {
      task.entering = undefined;
    }
  }

  // ---- out ------------------------------------------------------------------------------------------------------------------------

  async fetch(name: QueueName, lock: LockToken): Promise<Fetched> {
    requireLock(lock);
    for (let task = this.#lane.take(name, lock); task !== undefined; task = this.#lane.take(name, lock)) {
      if (task.entering !== undefined && !(await isLetIn(task.entering))) continue;
      if (task.mayBeJob) {
        try {
          if (!(await this.#isOursAgain(task))) continue;
        } catch (error) {
          this.#lane.giveBack(task);
          throw error;
        }
      }
      // To whoever takes it, one that may have been ended meanwhile comes like one that comes again.
      const starts = (await this.#isStanding(task)) ? task.starts : Math.max(2, task.starts);
      return { job: task.job, starts, nextDueMs: undefined };
    }
    const fetched = await this.#inner.fetch(name, lock);
    if (fetched.job === undefined) this.#closed.delete(name);
    return fetched;
  }

  /** Whoever ends a task takes its entry out: one that stands there was not ended. */
  async #isStanding(task: LaneTask): Promise<boolean> {
    const askedAtMs = performance.now();
    if (askedAtMs - task.knownAtMs < (this.#parts.knownForMs ?? KNOWN_FOR_MS)) return true;
    // Redis does not answer: whoever takes it asks again.
    if (!(await this.#store.has(task.queue, task.job.taskId).catch(() => false))) return false;
    task.knownAtMs = askedAtMs;
    return true;
  }

  /** The job of one that may be in both leaves its queue. @returns false: somebody has that job, and the task with it */
  async #isOursAgain(task: LaneTask): Promise<boolean> {
    const { queue, job } = task;
    const removed = await this.#inner.remove(queue, job.taskId);
    if (!removed && (await this.#inner.read(queue, job.taskId)) !== undefined) {
      this.#lane.drop(task);
      return false;
    }
    task.mayBeJob = false;
    // It may have been one, and be over.
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
    // Its final record takes it out of Redis; it may have none, because it was over before.
    if (fence.kind === 'done') this.#dropLater(task);
    return fence;
  }

  /** Decided here; whoever hears of it hears it after Redis was told. */
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

  /** Of another replica's lane, or of one that died: whoever takes it out of Redis has ended it. */
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
    task.job = changed ?? task.job;
    this.#lane.giveBack(task);
    this.look(name);
    return { kind: 'done' };
  }

  /** Whose lane it was in did not send it, or is gone: it goes on as a job. */
  async #giveBackOfAnother(name: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    const fence = await this.#inner.giveBack(name, taskId, lock, changed);
    const job = fence.kind === 'gone' ? await this.#store.read(name, taskId) : undefined;
    if (job === undefined) return fence;
    await this.addAgain(name, { ...(changed ?? job), attempts: job.attempts + 1 });
    await this.#store.remove(name, taskId);
    return { kind: 'done' };
  }

  delay(name: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence> {
    // A synchronous task has no retries to wait for.
    return this.#inner.delay(name, taskId, lock, untilMs, changed);
  }

  async remove(name: QueueName, taskId: TaskId): Promise<boolean> {
    const task = this.#lane.get(taskId);
    if (task === undefined) {
      return (await this.#inner.remove(name, taskId)) || (await this.#store.removeUnsent(name, taskId));
    }
    if (task.entering !== undefined && !(await isLetIn(task.entering))) return await this.remove(name, taskId);
    const spilling = this.#spilling.get(name);
    if (spilling !== undefined) {
      await spilling;
      return await this.remove(name, taskId);
    }
    if (task.mayBeJob && !(await this.#isOursAgain(task))) return false;
    if (task.lock !== undefined || this.#lane.get(taskId) !== task) return false;
    this.#lane.drop(task);
    // It is nobody's any more, also where Redis does not answer: its last record takes the entry out, else the sweep does.
    await this.#store.remove(name, taskId).catch((error: unknown) => {
      this.#parts.log.info({ err: error, taskId }, 'a task that was taken out is still in its lane');
    });
    return true;
  }

  disown(_name: QueueName, taskId: TaskId): void {
    const task = this.#lane.get(taskId);
    if (task !== undefined) this.#lane.drop(task);
  }

  // ---- from the lane to the queue -----------------------------------------------------------------------------------------------------

  /** Other replicas may be able to serve that queue now: what waits here moves to it. Asked when containers or links change, and now and then. */
  look(name: QueueName): void {
    if (this.#lane.waiting(name) === 0 || this.#spilling.has(name)) return;
    if (mayStay(this.#facts(name))) return;
    this.#close(name);
    const spilling = this.#spill(name).finally(() => this.#spilling.delete(name));
    this.#spilling.set(name, spilling);
  }

  /** Every queue in which something waits here. */
  lookAll(): void {
    for (const name of this.#lane.queues()) this.look(name);
  }

  async #spill(name: QueueName): Promise<void> {
    const moving = this.#lane.unlinkAll(name);
    for (const [index, task] of moving.entries()) {
      if (task.entering !== undefined && !(await isLetIn(task.entering))) continue;
      if (this.#lane.get(task.job.taskId) !== task) continue;
      try {
        // Numbers of attempts never go back; and one that was added before may be over: whoever fetches it looks.
        const attempts = task.job.attempts + task.starts + (task.mayBeJob ? 1 : 0);
        task.mayBeJob = true;
        await this.addAgain(name, { ...task.job, attempts });
        this.#lane.drop(task);
        await this.#store.remove(name, task.job.taskId);
      } catch (error) {
        this.#parts.log.warn({ err: error, queue: name }, 'tasks of the lane are not in their queue yet, trying again');
        // In the order they had; the entry of one that is a job now is found unknown.
        for (const left of moving.slice(index).toReversed()) {
          if (this.#lane.get(left.job.taskId) === left) this.#lane.giveBack(left);
        }
        return;
      }
    }
    this.#onSpilled?.(name);
  }

  /** Told when tasks moved to a queue: whoever has room for them may fetch. */
  onSpilled(listener: (queue: QueueName) => void): void {
    this.#onSpilled = listener;
  }

  // ---- what others ask ----------------------------------------------------------------------------------------------------------------

  async lockOf(name: QueueName, taskId: TaskId): Promise<LockToken | undefined> {
    const task = this.#lane.get(taskId);
    if (task !== undefined) {
      if (await this.#store.has(name, taskId)) return task.lock;
      // Ended for us, or gone with the data of Redis.
      this.#lane.drop(task);
      return undefined;
    }
    const lock = await this.#inner.lockOf(name, taskId);
    if (lock !== undefined || !(await this.#store.has(name, taskId))) return lock;
    return (await this.#store.locks(name, [taskId])).get(taskId);
  }

  async read(name: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    const job = this.#lane.get(taskId)?.job ?? (await this.#inner.read(name, taskId));
    return job ?? (await this.#store.read(name, taskId));
  }

  async placeOf(name: QueueName, taskId: TaskId): Promise<JobPlace> {
    const task = this.#lane.get(taskId);
    if (task !== undefined) {
      if (task.lock !== undefined) return { kind: 'active' };
      const position = this.#lane.line(name).indexOf(task) + 1;
      return { kind: 'waiting', position: position === 0 ? undefined : position };
    }
    const place = await this.#inner.placeOf(name, taskId);
    if (place.kind !== 'gone' || !(await this.#store.has(name, taskId))) return place;
    const isSent = (await this.#store.locks(name, [taskId])).has(taskId);
    return isSent ? { kind: 'active' } : { kind: 'waiting', position: undefined };
  }

  async depth(name: QueueName): Promise<QueueDepth> {
    return this.#split(name, await this.#inner.depth(name));
  }

  async depths(names: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    const depths = await this.#inner.depths(names);
    return depths.map((depth, index) => this.#split(names[index], depth));
  }

  /** The queue's count has lanes among what is active; what waits here does not run. */
  #split(name: QueueName | undefined, depth: QueueDepth): QueueDepth {
    const waiting = name === undefined ? 0 : Math.min(this.#lane.waiting(name), depth.active);
    return waiting === 0 ? depth : { ...depth, active: depth.active - waiting, waiting: depth.waiting + waiting };
  }

  async renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]> {
    // What stands in a lane lapses with its replica, not by itself.
    const queued = held.filter(({ taskId, lock }) => this.#lane.get(taskId)?.lock !== lock);
    const lost = queued.length === 0 ? [] : await this.#inner.renew(queued, ms);
    const inLane = await Promise.all(lost.map(({ queue, taskId }) => this.#store.has(queue, taskId)));
    return lost.filter((_one, index) => inLane[index] !== true);
  }

  async held(name: QueueName, limit?: number): Promise<readonly HeldLock[]> {
    const [held, locks] = await Promise.all([this.#inner.held(name, limit), this.#store.locks(name)]);
    return [...held, ...[...locks].map(([taskId, lock]) => ({ queue: name, taskId, lock }))];
  }

  async reopenAll(): Promise<void> {
    this.#known.forgetAll();
    await this.#inner.reopenAll();
    const byQueue = Map.groupBy(this.#lane.all(), ({ queue }) => queue);
    for (const [queue, tasks] of byQueue) {
      const still = tasks.filter((task) => task.entering === undefined && this.#lane.get(task.job.taskId) === task);
      const jobs = still.map(({ job }) => job);
      if (jobs.length > 0) await this.#store.restore(queue, jobs);
    }
  }

  async obliterate(name: QueueName): Promise<void> {
    await this.#inner.obliterate(name);
    await this.#store.forget(name);
    this.#closed.delete(name);
    this.#known.forget(name);
  }

  /** Whether this lane has it. */
  has(taskId: TaskId): boolean {
    return this.#lane.get(taskId) !== undefined;
  }

  /** Everything that waits in this lane. */
  waiting(): readonly LaneTask[] {
    return this.#lane.queues().flatMap((queue) => this.#lane.line(queue));
  }

  open(name: QueueName): Promise<void> {
    return this.#inner.open(name);
  }
  addAgain(name: QueueName, job: TaskJob): Promise<void> {
    this.#known.jobComes(name);
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
    return this.#inner.close();
  }
}
