// Destination of a task that arrives: this replica's lane, another replica that has room for it (as a
// loan), or its queue. Invariant: Redis let every task of a lane in, within its bound, while no older
// job waited in its queue. The caller of `add` learns that the task is in, or that it is nowhere.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { BullmqQueues } from '../../stores/queues/bullmq.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Added } from '../../stores/queues/task-queues.ts';
import { KnownQueues } from './known.ts';
import type { Lane, LaneTask } from './lane.ts';
import { laneTask } from './lane.ts';
import type { Loans } from './loans.ts';
import { mayEnter, mayLend } from './rules.ts';
import type { LaneFacts } from './rules.ts';
import type { LaneStore, Verdict } from './store.ts';

export interface EntranceParts {
  readonly inner: BullmqQueues;
  readonly store: LaneStore;
  readonly lane: Lane;
  readonly loans: Loans | undefined;
  readonly factsOf: (queue: QueueName) => Omit<LaneFacts, 'sync' | 'jobsWait'>;
  /** Whether the lane's tasks are moving to that queue just now. */
  readonly isSpilling: (queue: QueueName) => boolean;
  readonly isAlone: boolean;
  readonly isOn: boolean;
  readonly log: Log;
}

/**
 * Milliseconds for which a queue with jobs counts as closed. A fetch that finds no job
 * opens it at once; while every fetch finds a job, Redis is asked again after this time.
 */
const CLOSED_MS = 100;
const MOST_CLOSED = 10_000;

export class Entrance {
  readonly #parts: EntranceParts;
  /**
   * Queues in which jobs waited a moment ago, and until when that counts
   * (monotonic milliseconds). Meanwhile nothing enters, and Redis is not asked.
   */
  readonly #closed = new Map<QueueName, number>();
  readonly #known: KnownQueues;

  constructor(parts: EntranceParts) {
    this.#parts = parts;
    this.#known = new KnownQueues(parts.isAlone);
  }

  add(name: QueueName, job: TaskJob, bound: number): Promise<Added> {
    if (!job.sync || !this.#parts.isOn) return this.#addJob(name, job);
    const facts = this.#parts.factsOf(name);
    const jobsWait = this.#isClosed(name) || this.#parts.isSpilling(name);
    if (mayEnter({ sync: job.sync, jobsWait, ...facts })) return this.#enter(name, job, bound);
    const { loans } = this.#parts;
    if (loans === undefined || !mayLend({ sync: job.sync, jobsWait, ...facts })) return this.#addJob(name, job);
    const borrower = loans.borrowerFor(name, job);
    return borrower === undefined ? this.#addJob(name, job) : this.#lend(loans, name, job, bound, borrower);
  }

  /** Closes the lane for a queue whose waiting jobs are older. */
  close(name: QueueName): void {
    if (this.#closed.size >= MOST_CLOSED) this.#closed.clear();
    this.#closed.set(name, performance.now() + CLOSED_MS);
  }

  /** Opens the lane for a queue in which a fetch found no job. */
  open(name: QueueName): void {
    this.#closed.delete(name);
  }

  #isClosed(name: QueueName): boolean {
    const untilMs = this.#closed.get(name);
    if (untilMs === undefined) return false;
    if (performance.now() < untilMs) return true;
    this.#closed.delete(name);
    return false;
  }

  /** Notes that the queue has a job from now on. */
  jobComes(name: QueueName): void {
    this.#known.jobComes(name);
  }

  forget(name: QueueName): void {
    this.#closed.delete(name);
    this.#known.forget(name);
  }

  /** Forgets all that is known of queues, because Redis may have other data. */
  forgetAll(): void {
    this.#known.forgetAll();
  }

  async #enter(name: QueueName, job: TaskJob, bound: number): Promise<Added> {
    const { lane, store } = this.#parts;
    const task = laneTask(name, job);
    lane.push(task);
    const surely = this.#known.depthWith(name, lane.count(name));
    if (surely !== undefined && surely <= bound && store.isReady) {
      void this.#stand(task, bound);
      return { depth: surely, isIn: true };
    }
    return await this.#judged(task, bound, () => lane.drop(task));
  }

  async #lend(loans: Loans, name: QueueName, job: TaskJob, bound: number, to: InstanceId): Promise<Added> {
    const task = laneTask(name, job);
    loans.lend(task, to);
    return await this.#judged(task, bound, () => loans.forget(job.taskId), to);
  }

  /** @param leave - takes a task that was not let in out of the lane, before anybody hears of it */
  async #judged(task: LaneTask, bound: number, leave: () => void, lentTo?: InstanceId): Promise<Added> {
    const { queue, job } = task;
    task.entering = this.#verdictOn(task, bound, leave, lentTo);
    const { kind, depth } = await task.entering;
    switch (kind) {
      case 'in':
        return lentTo === undefined ? { depth, isIn: true } : { depth, isIn: true, isLent: true };
      case 'full':
        return { depth, isIn: false };
      case 'jobs_wait':
        return await this.#addJob(queue, job);
    }
  }

  #addJob(name: QueueName, job: TaskJob): Promise<Added> {
    this.jobComes(name);
    return this.#parts.inner.add(name, job);
  }

  /**
   * Enters a task that is sure to be let in, so nobody waits for the verdict. Where the verdict
   * fails or differs (Redis has other data), the task stays here and its entry is written again.
   */
  async #stand(task: LaneTask, bound: number): Promise<void> {
    const { queue, job } = task;
    const { lane, store, log } = this.#parts;
    try {
      if ((await this.#asked(task, bound)).kind === 'in') return;
    } catch (error) {
      log.info({ err: error, taskId: job.taskId }, 'a task in the lane may not stand in Redis yet');
    }
    this.#known.forget(queue);
    if (lane.get(job.taskId) !== task) return;
    await store.restore(queue, [job]).catch((error: unknown) => {
      log.warn({ err: error, taskId: job.taskId }, 'a task in the lane does not stand in Redis');
    });
  }

  async #asked(task: LaneTask, bound: number, lentTo?: InstanceId): Promise<Verdict> {
    const own = this.#parts.lane.count(task.queue);
    const moment = this.#known.moment;
    const verdict = await this.#parts.store.enter(task.queue, task.job, bound, lentTo);
    this.#known.learn(task.queue, moment, verdict, own);
    return verdict;
  }

  async #verdictOn(task: LaneTask, bound: number, leave: () => void, lentTo: InstanceId | undefined): Promise<Verdict> {
    try {
      const verdict = await this.#asked(task, bound, lentTo);
      if (verdict.kind !== 'in') leave();
      if (verdict.kind === 'jobs_wait') this.close(task.queue);
      return verdict;
    } catch (error) {
      leave();
      throw error;
    } finally {
      task.entering = undefined;
    }
  }
}
