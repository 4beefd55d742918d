// Task queues with flow control (flow-book.ts). A job whose control is full is held: added as a job that is delayed to
// its deadline, and made ready by the end of another one. The slot is taken first and the job added then; a slot is
// freed when its task ended or waits for a retry. Whatever else makes a job ready (a retry that is due, a repair), its
// fetch asks for its slots again, so that no more tasks of a key run than may. Invariants: a task that was given back,
// or whose lock ran out, keeps its slots, because it is still handed to its queue. A kill between two steps, and a slot
// that could not be freed, are left to the leader's sweep (tasks/maintenance/flow-sweep.ts).
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { QueueControl } from '../../domain/flow.ts';
import type { FlowBook, Taken } from './flow-book.ts';
import type { TaskJob } from './jobs.ts';
import type {
  Fence,
  Fetched,
  FlowTask,
  FlowUpkeep,
  HeldBy,
  HeldLock,
  JobPlace,
  JobState,
  QueueDepth,
  TaskQueues,
} from './task-queues.ts';

/** Most queues of which is known whether they have controls. */
const MOST_SEEN = 20_000;

type Book = Pick<FlowBook, 'inTurn' | 'begun' | 'take' | 'free' | 'fill' | 'look' | 'page' | 'counts' | 'controls'>;

/** Asked of each fetched job with flow control. @returns undefined: the job is handed on */
export type Gate = (job: TaskJob) => Promise<Hold | undefined>;

/** A job that may not be handed on is delayed. */
export interface Hold {
  readonly untilMs: number;
  readonly changed?: TaskJob;
  /** Called when it is delayed. */
  readonly after: () => Promise<void>;
}

/** Queues that know nothing of controls. */
export interface PlainQueues extends Omit<
  TaskQueues,
  | 'add'
  | 'remove'
  | 'fetch'
  | 'onReleased'
  | 'onDelayed'
  | 'mayBegin'
  | 'release'
  | 'countRunning'
  | 'controls'
  | 'controlsNamed'
  | 'flow'
> {
  /** @param heldToMs - the job is not ready before, unless it is promoted */
  add(queue: QueueName, job: TaskJob, heldToMs?: number): Promise<void>;
  remove(queue: QueueName, taskId: TaskId): Promise<boolean>;
  fetch(queue: QueueName, lock: LockToken, gate: Gate): Promise<Fetched>;
  /** Makes a delayed job ready. @returns false: it is not delayed, or not there */
  promote(queue: QueueName, taskId: TaskId): Promise<boolean>;
  jobsOf(tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[]): Promise<readonly JobState[]>;
}

export class FlowQueues implements TaskQueues {
  readonly #plain: PlainQueues;
  readonly #book: Book;
  readonly #log: Log;
  readonly #released = new Listeners<[QueueName, TaskId]>();
  readonly #delayed = new Listeners<[QueueName, number]>();
  /** Queues that have, or may have, tasks under flow control; false: none was seen here. */
  readonly #seen = new Map<QueueName, boolean>();
  /** Keys of queues that were full when they were asked last. */
  readonly #full = new Set<string>();
  readonly #freeing = new Set<Promise<void>>();
  readonly #upkeep: FlowUpkeep;

  constructor(plain: PlainQueues, book: Book, log: Log) {
    this.#plain = plain;
    this.#book = book;
    this.#log = log;
    this.#upkeep = {
      page: (cursor) => book.page(cursor),
      jobsOf: (tasks) => plain.jobsOf(tasks),
      promote: (queue, taskId) => this.#promote({ queue, taskId }),
      fill: async (controls) => this.#promoteAll(await book.fill(controls)),
      restore: (queue, job, isActive) => this.#restore(queue, job, isActive),
    };
  }

  onReleased(listener: (queue: QueueName, taskId: TaskId) => void): void {
    this.#released.add(listener);
  }

  onDelayed(listener: (queue: QueueName, dueMs: number) => void): void {
    this.#delayed.add(listener);
  }

  async add(queue: QueueName, given: TaskJob): Promise<void> {
    if (given.flow === undefined) return await this.#plain.add(queue, given);
    this.#see(queue, true);
    const job = given.flow.fair === undefined ? given : await this.#book.inTurn(queue, given);
    const { atMs = 0 } = given.flow;
    if (atMs > Date.now()) {
      // The job asks for its slots at its turn.
      await this.#plain.add(queue, job, atMs);
      this.#delayed.tell(queue, atMs);
      return;
    }
    const control = `${queue}\0${job.flow?.key ?? ''}`;
    const taking = this.#book.take(queue, job, 'add');
    // Where the key had room when it was asked last, the job goes out with the question.
    const isAdded = !this.#full.has(control);
    const [taken] = await Promise.all([taking, ...(isAdded ? [this.#plain.add(queue, job)] : [])]);
    this.#note(control, taken);
    if (taken !== 'held') return isAdded ? undefined : await this.#plain.add(queue, job);
    // A job that was fetched meanwhile is delayed by its fetch.
    if (isAdded && !(await this.#plain.remove(queue, job.taskId))) return;
    await this.#plain.add(queue, job, job.deadlineMs);
    await this.#settle(queue, job);
  }

  #note(control: string, taken: Taken): void {
    if (taken !== 'held') this.#full.delete(control);
    else if (this.#full.size < MOST_SEEN) this.#full.add(control);
  }

  /** A slot may have come free before the held job was there to be promoted. */
  async #settle(queue: QueueName, job: TaskJob): Promise<void> {
    if ((await this.#book.take(queue, job, 'add')) !== 'held') await this.#promote({ queue, taskId: job.taskId });
  }

  async #restore(queue: QueueName, job: TaskJob, isActive: boolean): Promise<void> {
    this.#see(queue, true);
    // An active job may be on its way to the held ones.
    if (isActive && (await this.#book.look(job.taskId)) !== undefined) return;
    const taken = await this.#book.take(queue, job, isActive ? 'force' : 'add');
    if (taken === 'yes' && !isActive) await this.#promote({ queue, taskId: job.taskId });
  }

  fetch(queue: QueueName, lock: LockToken): Promise<Fetched> {
    return this.#plain.fetch(queue, lock, this.#gateOf(queue));
  }

  #gateOf(queue: QueueName): Gate {
    return async (job) => {
      this.#see(queue, true);
      // A task that is fetched past its deadline is ended.
      const taken = job.deadlineMs <= Date.now() ? 'yes' : await this.#book.take(queue, job, 'start');
      if (taken === 'yes' || job.flow === undefined) {
        this.#begun(queue, job);
        return undefined;
      }
      if (taken === 'held') return { untilMs: job.deadlineMs, after: () => this.#settle(queue, job) };
      const { turnMs } = taken;
      return {
        untilMs: turnMs,
        changed: { ...job, flow: { ...job.flow, atMs: turnMs, isDue: true } },
        // Others may have its slots meanwhile.
        after: async () => {
          this.#delayed.tell(queue, turnMs);
          await this.release(job.taskId);
        },
      };
    };
  }

  /** Tells that a task of a queue with turns has begun; nobody waits for that. */
  #begun(queue: QueueName, { flow, taskId }: TaskJob): void {
    if (flow?.turn === undefined) return;
    this.#book.begun(queue, flow.turn).catch((error: unknown) => {
      this.#log.info({ err: error, taskId }, 'the turn of a task is not counted');
    });
  }

  putOff(queue: QueueName, job: TaskJob, untilMs: number): Promise<boolean> {
    return this.#plain.putOff(queue, job, untilMs).then((isPutOff) => {
      if (isPutOff) this.#delayed.tell(queue, untilMs);
      return isPutOff;
    });
  }

  async complete(queue: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence> {
    return this.#ended(queue, taskId, await this.#plain.complete(queue, taskId, lock));
  }

  async fail(queue: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence> {
    return this.#ended(queue, taskId, await this.#plain.fail(queue, taskId, lock, reason), true);
  }

  async delay(queue: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence> {
    return this.#ended(queue, taskId, await this.#plain.delay(queue, taskId, lock, untilMs, changed));
  }

  async remove(queue: QueueName, taskId: TaskId, isRunning = false): Promise<boolean> {
    const isRemoved = await this.#plain.remove(queue, taskId);
    if (isRemoved && !isRunning) this.#free(taskId);
    return isRemoved;
  }

  flow(): FlowUpkeep {
    return this.#upkeep;
  }

  async mayBegin(queue: QueueName, job: TaskJob): Promise<boolean> {
    return (await this.#book.take(queue, job, 'ask')) === 'yes';
  }

  async release(taskId: TaskId): Promise<void> {
    this.#promoteAll(await this.#book.free(taskId));
  }

  async countRunning(tasks: readonly { readonly queue: QueueName; readonly job: TaskJob }[]): Promise<void> {
    await Promise.all(
      tasks
        .filter(({ job }) => job.flow !== undefined)
        .map(async ({ queue, job }) => {
          this.#see(queue, true);
          await this.#book.take(queue, job, 'force');
        }),
    );
  }

  controls(prefix: string, limit: number): Promise<readonly Omit<HeldBy, 'most'>[]> {
    return this.#book.controls(prefix, limit);
  }

  controlsNamed(names: readonly string[]): ReturnType<TaskQueues['controlsNamed']> {
    return this.#book.counts(names);
  }

  async placeOf(queue: QueueName, taskId: TaskId): Promise<JobPlace> {
    const place = await this.#plain.placeOf(queue, taskId);
    if (place.kind !== 'delayed') return place;
    const task = await this.#book.look(taskId);
    if (task?.heldBy === undefined) return place;
    const [counts = { running: 0, waiting: 0 }] = await this.#book.counts([task.heldBy]);
    return { kind: 'held', control: { name: task.heldBy, most: task.most, ...counts } };
  }

  /** @param isSure - the end may be that of a task which this process never fetched */
  #ended(queue: QueueName, taskId: TaskId, fence: Fence, isSure = false): Fence {
    if (fence.kind !== 'done' && fence.kind !== 'gone') return fence;
    // A queue of which no job with a control was seen here is asked once: an attempt may have been adopted.
    const isSeen = this.#seen.get(queue);
    if (isSeen === undefined) this.#see(queue, false);
    if (isSure || isSeen !== false) this.#free(taskId);
    return fence;
  }

  #see(queue: QueueName, hasFlow: boolean): void {
    if (this.#seen.size >= MOST_SEEN) this.#seen.clear();
    this.#seen.set(queue, hasFlow);
  }

  /** Frees the slots of a task behind its end; nobody waits for that. */
  #free(taskId: TaskId): void {
    const freeing: Promise<void> = this.release(taskId)
      .catch((error: unknown) => {
        this.#log.info({ err: error, taskId }, 'slots of a task that ended are left to the sweep');
      })
      .finally(() => this.#freeing.delete(freeing));
    this.#freeing.add(freeing);
  }

  #promoteAll(tasks: readonly Pick<FlowTask, 'queue' | 'taskId'>[]): void {
    for (const task of tasks)
      this.#promote(task).catch((error: unknown) => {
        this.#log.info({ err: error, taskId: task.taskId }, 'a task that has its slots is left to the sweep');
      });
  }

  async #promote({ queue, taskId }: Pick<FlowTask, 'queue' | 'taskId'>): Promise<void> {
    if (await this.#plain.promote(queue, taskId)) {
      this.#released.tell(queue, taskId);
      return;
    }
    const [job] = await this.#plain.jobsOf([{ queue, taskId }]);
    // The add may be under way, and asks again; else the task ended meanwhile.
    if (job?.exists !== true) this.#promoteAll(await this.#book.free(taskId));
  }

  async close(): Promise<void> {
    await Promise.all(this.#freeing);
    await this.#plain.close();
  }

  // ---- as they are --------------------------------------------------------------------------------------------------

  open(queue: QueueName): Promise<void> {
    return this.#plain.open(queue);
  }

  reopenAll(): Promise<void> {
    return this.#plain.reopenAll();
  }

  renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]> {
    return this.#plain.renew(held, ms);
  }

  giveBack(queue: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    return this.#plain.giveBack(queue, taskId, lock, changed);
  }

  lockOf(queue: QueueName, taskId: TaskId): Promise<LockToken | undefined> {
    return this.#plain.lockOf(queue, taskId);
  }

  locksOf(
    tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[],
  ): Promise<readonly (LockToken | undefined)[]> {
    return this.#plain.locksOf(tasks);
  }

  missing(tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[]): Promise<readonly TaskId[]> {
    return this.#plain.missing(tasks);
  }

  read(queue: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    return this.#plain.read(queue, taskId);
  }

  depth(queue: QueueName): Promise<QueueDepth> {
    return this.#plain.depth(queue);
  }

  depths(queues: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    return this.#plain.depths(queues);
  }

  activeIds(queue: QueueName, limit?: number): Promise<readonly TaskId[]> {
    return this.#plain.activeIds(queue, limit);
  }

  held(queue: QueueName, limit?: number): Promise<readonly HeldLock[]> {
    return this.#plain.held(queue, limit);
  }

  waitingIds(queue: QueueName, limit?: number): Promise<readonly TaskId[]> {
    return this.#plain.waitingIds(queue, limit);
  }

  scanStalled(queue: QueueName): Promise<readonly TaskId[]> {
    return this.#plain.scanStalled(queue);
  }

  control(queue: QueueName, control: QueueControl): Promise<void> {
    return this.#plain.control(queue, control);
  }

  obliterate(queue: QueueName): Promise<void> {
    return this.#plain.obliterate(queue);
  }
}
