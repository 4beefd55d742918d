// Jobs that are back although their tasks are over: a Redis that came back older has them still. A queue is not fetched from before it was looked through once, and once more after each loss of data;
// what the database knows as ended leaves the queue unread.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskQueues } from './task-queues.ts';

export interface OlderJobsParts {
  readonly queues: Pick<TaskQueues, 'waitingIds' | 'remove'>;
  /** Those of the tasks that the database knows as ended. */
  readonly ended: (taskIds: readonly TaskId[]) => Promise<readonly TaskId[]>;
  /** Somebody here waits for it: it is not over. */
  readonly isWaitedFor: (taskId: TaskId) => boolean;
  /** Grows with each loss of Redis data. */
  readonly generation: () => number;
  readonly log: Log;
  readonly most?: number;
}

/** Jobs of tasks that are known here to be over leave their queue, also from under the lock of an attempt that Redis has forgotten the end of. */
export async function takeOutEnded(
  queues: Pick<TaskQueues, 'waitingIds' | 'activeIds' | 'remove' | 'lockOf' | 'fail'>,
  queue: QueueName,
  ended: ReadonlySet<TaskId>,
): Promise<void> {
  for (const taskId of await queues.waitingIds(queue)) if (ended.has(taskId)) await queues.remove(queue, taskId);
  for (const taskId of await queues.activeIds(queue, MOST_ACTIVE)) {
    const lock = ended.has(taskId) ? await queues.lockOf(queue, taskId) : undefined;
    if (lock !== undefined) await queues.fail(queue, taskId, lock, 'ended before');
  }
}

const BATCH = 500;
/** What else is active leaves its queue by the stall scan. */
const MOST_ACTIVE = 10_000;
/** Queues remembered as looked through; one that is forgotten is looked through again. */
const MOST_QUEUES = 20_000;

export class OlderJobs {
  readonly #parts: OlderJobsParts;
  readonly #done = new Map<QueueName, number>();

  constructor(parts: OlderJobsParts) {
    this.#parts = parts;
  }

  /** undefined: the queue may be fetched from. Else it may be when the promise has resolved. */
  before(queue: QueueName): Promise<void> | undefined {
    if (this.#done.get(queue) === this.#parts.generation()) return undefined;
    return this.sweep(queue).then(() => undefined);
  }

  /** @returns how many jobs left the queue @throws when Redis or the database does not answer */
  async sweep(queue: QueueName): Promise<number> {
    const { queues, ended, isWaitedFor, generation, log } = this.#parts;
    const now = generation();
    const ids = (await queues.waitingIds(queue)).filter((taskId) => !isWaitedFor(taskId));
    let removed = 0;
    for (let at = 0; at < ids.length; at += BATCH) {
      for (const taskId of await ended(ids.slice(at, at + BATCH))) {
        if (await queues.remove(queue, taskId)) removed += 1;
      }
    }
    if (removed > 0) log.warn({ queue, removed }, 'jobs of tasks that are over were taken out of their queue');
    if (this.#done.size >= (this.#parts.most ?? MOST_QUEUES)) {
      const oldest = this.#done.keys().next().value;
      if (oldest !== undefined) this.#done.delete(oldest);
    }
    this.#done.delete(queue);
    this.#done.set(queue, now);
    return removed;
  }
}
