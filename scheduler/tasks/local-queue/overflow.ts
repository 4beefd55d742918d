// Move of waiting tasks from the local queue to the queue, in order, when other replicas could serve them, too.
// Invariant: a task is added to its queue before its entry leaves the local queue, so it counts all the time. A
// task whose add was not answered may be in both, and counts as somebody else's until its job is looked up.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { LocalQueue, LocalTask } from './local-queue.ts';
import { isLetIn } from './store.ts';
import type { LocalQueueStore } from './store.ts';

export interface OverflowParts {
  readonly localQueue: LocalQueue;
  readonly store: LocalQueueStore;
  readonly addAgain: (queue: QueueName, job: TaskJob) => Promise<void>;
  readonly returnReceived: (task: LocalTask) => void;
  /** Called when the move is over and all are moved: any replica with room for them may fetch. */
  readonly onMoved: (queue: QueueName) => void;
  readonly log: Log;
}

export class Overflow {
  readonly #parts: OverflowParts;
  readonly #underWay = new Map<QueueName, Promise<void>>();

  constructor(parts: OverflowParts) {
    this.#parts = parts;
  }

  isUnderWay(name: QueueName): boolean {
    return this.#underWay.has(name);
  }

  /** Resolves when the move is over; undefined: none is under way. */
  underWay(name: QueueName): Promise<void> | undefined {
    return this.#underWay.get(name);
  }

  /** Moves all tasks that wait for that queue to it; must not be called while such a move is under way. */
  start(name: QueueName): void {
    const moving = this.#move(name)
      .finally(() => this.#underWay.delete(name))
      .then((isMoved) => {
        if (isMoved) this.#parts.onMoved(name);
      });
    this.#underWay.set(name, moving);
  }

  /** @returns false: tasks are left, which the sweep moves */
  async #move(name: QueueName): Promise<boolean> {
    const { localQueue, store, addAgain, returnReceived, log } = this.#parts;
    const moving = localQueue.unlinkAll(name);
    for (const [index, task] of moving.entries()) {
      if (task.isReceived) {
        returnReceived(task);
        continue;
      }
      if (task.entering !== undefined && !(await isLetIn(task.entering))) continue;
      if (localQueue.get(task.job.taskId) !== task) continue;
      try {
        await store.dropLeft(task);
        // Attempt numbers never go back. A task that was added before may be over: its next fetch checks that.
        const attempts = task.job.attempts + task.starts + (task.mayBeJob ? 1 : 0);
        task.mayBeJob = true;
        await addAgain(name, { ...task.job, attempts });
        localQueue.drop(task);
        await store.remove(name, task.job.taskId);
      } catch (error) {
        log.warn({ err: error, queue: name }, 'tasks of the local queue are not in their queue yet, trying again');
        // Tasks return to the local queue in the order they had. A local queue entry
        // whose task is a job by now is found unknown by the sweep.
        for (const left of moving.slice(index).toReversed()) {
          if (localQueue.get(left.job.taskId) === left) localQueue.giveBack(left);
        }
        return false;
      }
    }
    return true;
  }
}
