// Destination of a task that arrives: this replica's local queue, another replica that has room for it (as a
// forwarded one), or its queue. Invariant: Redis let every task of a local queue in, within its bound, while no older
// job waited in its queue. The caller of `add` learns that the task is in, or that it is nowhere.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { BullmqQueues } from '../../stores/queues/bullmq.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Added } from '../../stores/queues/task-queues.ts';
import { DepthCache } from './depth-cache.ts';
import type { LocalQueue, LocalTask } from './local-queue.ts';
import { localTask } from './local-queue.ts';
import type { Forwarding } from './forwarding.ts';
import { mayEnter, mayForward } from './rules.ts';
import type { LocalQueueFacts } from './rules.ts';
import type { LocalQueueStore, AdmissionResult } from './store.ts';

export interface LocalQueueAdmissionParts {
  readonly inner: BullmqQueues;
  readonly store: LocalQueueStore;
  readonly localQueue: LocalQueue;
  readonly forwarding: Forwarding | undefined;
  readonly factsOf: (queue: QueueName) => Omit<LocalQueueFacts, 'sync' | 'jobsWait'>;
  /** Whether the local queue's tasks are moving to that queue just now. */
  readonly isOverflowing: (queue: QueueName) => boolean;
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

export class LocalQueueAdmission {
  readonly #parts: LocalQueueAdmissionParts;
  /**
   * Queues in which jobs waited a moment ago, and until when that counts
   * (monotonic milliseconds). Meanwhile nothing enters, and Redis is not asked.
   */
  readonly #closed = new Map<QueueName, number>();
  readonly #depths: DepthCache;

  constructor(parts: LocalQueueAdmissionParts) {
    this.#parts = parts;
    this.#depths = new DepthCache(parts.isAlone);
  }

  add(name: QueueName, job: TaskJob, bound: number): Promise<Added> {
    if (!job.sync || !this.#parts.isOn) return this.#addJob(name, job);
    const facts = this.#parts.factsOf(name);
    const jobsWait = this.#isClosed(name) || this.#parts.isOverflowing(name);
    if (mayEnter({ sync: job.sync, jobsWait, ...facts })) return this.#enter(name, job, bound);
    const { forwarding } = this.#parts;
    if (forwarding === undefined || !mayForward({ sync: job.sync, jobsWait, ...facts })) return this.#addJob(name, job);
    const receiver = forwarding.receiverFor(name, job);
    return receiver === undefined ? this.#addJob(name, job) : this.#forward(forwarding, name, job, bound, receiver);
  }

  /** Closes the local queue for a queue whose waiting jobs are older. */
  close(name: QueueName): void {
    if (this.#closed.size >= MOST_CLOSED) this.#closed.clear();
    this.#closed.set(name, performance.now() + CLOSED_MS);
  }

  /** Opens the local queue for a queue in which a fetch found no job. */
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
    this.#depths.jobComes(name);
  }

  forget(name: QueueName): void {
    this.#closed.delete(name);
    this.#depths.forget(name);
  }

  /** Forgets all that is known of queues, because Redis may have other data. */
  forgetAll(): void {
    this.#depths.forgetAll();
  }

  async #enter(name: QueueName, job: TaskJob, bound: number): Promise<Added> {
    const { localQueue, store } = this.#parts;
    const task = localTask(name, job);
    localQueue.push(task);
    const surely = this.#depths.depthWith(name, localQueue.count(name));
    if (surely !== undefined && surely <= bound && store.isReady) {
      void this.#stand(task, bound);
      return { depth: surely, isIn: true };
    }
    return await this.#judged(task, bound, () => localQueue.drop(task));
  }

  async #forward(forwarding: Forwarding, name: QueueName, job: TaskJob, bound: number, to: InstanceId): Promise<Added> {
    const task = localTask(name, job);
    forwarding.forward(task, to);
    return await this.#judged(task, bound, () => forwarding.forget(job.taskId), to);
  }

  /** @param leave - takes a task that was not let in out of the local queue, before anybody hears of it */
  async #judged(task: LocalTask, bound: number, leave: () => void, forwardedTo?: InstanceId): Promise<Added> {
    const { queue, job } = task;
    task.entering = this.#resultOf(task, bound, leave, forwardedTo);
    const { kind, depth } = await task.entering;
    switch (kind) {
      case 'in':
        return forwardedTo === undefined ? { depth, isIn: true } : { depth, isIn: true, isForwarded: true };
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
   * Enters a task that is sure to be let in, so nobody waits for the answer. Where the answer
   * fails or differs (Redis has other data), the task stays here and its entry is written again.
   */
  async #stand(task: LocalTask, bound: number): Promise<void> {
    const { queue, job } = task;
    const { localQueue, store, log } = this.#parts;
    try {
      if ((await this.#asked(task, bound)).kind === 'in') return;
    } catch (error) {
      log.info({ err: error, taskId: job.taskId }, 'a task in the local queue may not stand in Redis yet');
    }
    this.#depths.forget(queue);
    if (localQueue.get(job.taskId) !== task) return;
    await store.restore(queue, [job]).catch((error: unknown) => {
      log.warn({ err: error, taskId: job.taskId }, 'a task in the local queue does not stand in Redis');
    });
  }

  async #asked(task: LocalTask, bound: number, forwardedTo?: InstanceId): Promise<AdmissionResult> {
    const own = this.#parts.localQueue.count(task.queue);
    const moment = this.#depths.moment;
    const result = await this.#parts.store.enter(task.queue, task.job, bound, forwardedTo);
    this.#depths.learn(task.queue, moment, result, own);
    return result;
  }

  async #resultOf(
    task: LocalTask,
    bound: number,
    leave: () => void,
    forwardedTo: InstanceId | undefined,
  ): Promise<AdmissionResult> {
    try {
      const result = await this.#asked(task, bound, forwardedTo);
      if (result.kind !== 'in') leave();
      if (result.kind === 'jobs_wait') this.close(task.queue);
      return result;
    } catch (error) {
      leave();
      throw error;
    } finally {
      task.entering = undefined;
    }
  }
}
