// What a process that is alone with its stores knows of its queues without asking: which have no job, and how many entries of their lanes are not its own (of a process before it). Only it can add to
// them, so what it learned stays true until it adds a job itself, or Redis may have other data. With this a task is sure to be let in, and need not wait for the answer.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Verdict } from './store.ts';

/** Queues remembered; one that is forgotten is asked about again. */
const MOST_QUEUES = 10_000;

export class KnownQueues {
  readonly #isAlone: boolean;
  /** Queues without a job: entries of others in their lanes, at most. */
  readonly #others = new Map<QueueName, number>();
  #jobs = 0;

  constructor(isAlone: boolean) {
    this.#isAlone = isAlone;
  }

  /** Changes with every job that is added: what was asked before it and answered after it says nothing. */
  get moment(): number {
    return this.#jobs;
  }

  jobComes(queue: QueueName): void {
    this.#jobs += 1;
    this.#others.delete(queue);
  }

  /**
   * @param moment - when it was asked
   * @param own - tasks of this lane when it was asked, that one included; some of them may have ended since, so the rest counts as others' at most
   */
  learn(queue: QueueName, moment: number, { jobs, inLanes }: Verdict, own: number): void {
    if (!this.#isAlone) return;
    if (jobs > 0 || moment !== this.#jobs) {
      this.#others.delete(queue);
      return;
    }
    if (this.#others.size >= MOST_QUEUES) this.#others.clear();
    this.#others.set(queue, Math.max(0, inLanes - own));
  }

  /** The depth with so many tasks of this lane; undefined: it has to be asked. */
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
