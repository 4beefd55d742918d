// Removal of jobs whose tasks are over: a Redis that came back with older data still
// has them. A queue is looked through before its first fetch, and again after each loss
// of data. Jobs of tasks that ended according to the database leave the queue unread.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskQueues } from './task-queues.ts';

export interface OlderJobsParts {
  readonly queues: Pick<TaskQueues, 'waitingIds' | 'activeIds' | 'remove' | 'lockOf' | 'fail'>;
  /** Filters the tasks to those that have ended according to the database. */
  readonly ended: (taskIds: readonly TaskId[]) => Promise<readonly TaskId[]>;
  /** Number that grows with each loss of Redis data. */
  readonly generation: () => number;
  readonly log: Log;
  readonly most?: number;
}

const BATCH = 500;
/** Most active jobs looked at; the stall scan returns or removes the rest. */
const MOST_ACTIVE = 10_000;
/** Most queues remembered as looked through; a forgotten queue is looked through again. */
const MOST_QUEUES = 20_000;

export class OlderJobs {
  readonly #parts: OlderJobsParts;
  readonly #done = new Map<QueueName, number>();

  constructor(parts: OlderJobsParts) {
    this.#parts = parts;
  }

  /**
   * Looks the queue through before a fetch, if needed. undefined:
   * fetching may begin; else once the promise has resolved.
   */
  before(queue: QueueName): Promise<void> | undefined {
    if (this.#done.get(queue) === this.#parts.generation()) return undefined;
    return this.sweep(queue).then(() => undefined);
  }

  /**
   * Removes the jobs of ended tasks.
   * @returns how many jobs left the queue
   * @throws when Redis or the database does not answer
   */
  async sweep(queue: QueueName): Promise<number> {
    const { queues, generation, log } = this.#parts;
    const now = generation();
    let removed = 0;
    for await (const taskId of this.#endedAmong(await queues.waitingIds(queue)))
      if (await queues.remove(queue, taskId)) removed += 1;
    if (now > 0) removed += await this.#takeOutActive(queue);
    if (removed > 0) log.warn({ queue, removed }, 'jobs of tasks that are over were taken out of their queue');
    if (this.#done.size >= (this.#parts.most ?? MOST_QUEUES)) {
      const oldest = this.#done.keys().next().value;
      if (oldest !== undefined) this.#done.delete(oldest);
    }
    this.#done.delete(queue);
    this.#done.set(queue, now);
    return removed;
  }

  /** Removes the jobs of ended tasks that are locked by attempts whose end Redis has forgotten. */
  async #takeOutActive(queue: QueueName): Promise<number> {
    const { queues } = this.#parts;
    let removed = 0;
    for await (const taskId of this.#endedAmong(await queues.activeIds(queue, MOST_ACTIVE))) {
      const lock = await queues.lockOf(queue, taskId);
      if (lock !== undefined && (await queues.fail(queue, taskId, lock, 'ended before')).kind === 'done') removed += 1;
    }
    return removed;
  }

  async *#endedAmong(taskIds: readonly TaskId[]): AsyncIterable<TaskId> {
    for (let at = 0; at < taskIds.length; at += BATCH) yield* await this.#parts.ended(taskIds.slice(at, at + BATCH));
  }
}
