// Facts about queues that a process without other replicas knows without asking Redis: which
// queues have no job, and how many entries of their local queues belong to an earlier process. Only this
// process can add to them. So a fact stays true until it adds a job itself, or Redis may have
// other data. With these facts a task is sure to be let in, and need not wait for the answer.
import type { QueueName } from '#shared/domain/ids.ts';
import type { AdmissionResult } from './store.ts';

/** Most queues remembered; a forgotten queue is asked about again. */
const MOST_QUEUES = 10_000;

export class DepthCache {
  readonly #isAlone: boolean;
  /** Upper bound of the entries of others in the local queue, for each queue without a job. */
  readonly #others = new Map<QueueName, number>();
  #jobs = 0;

  constructor(isAlone: boolean) {
    this.#isAlone = isAlone;
  }

  /** Counter that changes with every added job: an answer that spans such a change proves nothing. */
  get moment(): number {
    return this.#jobs;
  }

  jobComes(queue: QueueName): void {
    this.#jobs += 1;
    this.#others.delete(queue);
  }

  /**
   * @param moment - value of {@link moment} when Redis was asked
   * @param own - tasks of this local queue when Redis was asked, the asking one included;
   * some may have ended since, so the rest is an upper bound of the entries of others
   */
  learn(queue: QueueName, moment: number, { jobs, inLocalQueues }: AdmissionResult, own: number): void {
    if (!this.#isAlone) return;
    if (jobs > 0 || moment !== this.#jobs) {
      this.#others.delete(queue);
      return;
    }
    if (this.#others.size >= MOST_QUEUES) this.#others.clear();
    this.#others.set(queue, Math.max(0, inLocalQueues - own));
  }

  /** Depth of the queue with so many tasks of this local queue; undefined: Redis must be asked. */
  depthWith(queue: QueueName, own: number): number | undefined {
    const others = this.#others.get(queue);
    return others === undefined ? undefined : others + own;
  }

  forget(queue: QueueName): void {
    this.#jobs += 1;
    this.#others.delete(queue);
  }

  forgetAll(): void {
    this.#jobs += 1;
    this.#others.clear();
  }
}
