// From the lane to the queue: what waits here and others could serve, too, moves there, in order. What must stay true: a task is added to its queue before its entry leaves the lane, so it counts all the time; one
// whose add was not answered may be in both, and counts as somebody else's until its job is looked up.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Lane, LaneTask } from './lane.ts';
import { isLetIn } from './store.ts';
import type { LaneStore } from './store.ts';

export interface SpillParts {
  readonly lane: Lane;
  readonly store: LaneStore;
  readonly addAgain: (queue: QueueName, job: TaskJob) => Promise<void>;
  readonly returnLoan: (task: LaneTask) => void;
  /** Whoever has room for them may fetch. */
  readonly onMoved: (queue: QueueName) => void;
  readonly log: Log;
}

export class Spill {
  readonly #parts: SpillParts;
  readonly #underWay = new Map<QueueName, Promise<void>>();

  constructor(parts: SpillParts) {
    this.#parts = parts;
  }

  isUnderWay(name: QueueName): boolean {
    return this.#underWay.has(name);
  }

  /** Resolves when it is over; undefined: it is. */
  underWay(name: QueueName): Promise<void> | undefined {
    return this.#underWay.get(name);
  }

  /** All that wait for that queue move to it; not while others of it do. */
  start(name: QueueName): void {
    const moving = this.#move(name).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, moving);
  }

  async #move(name: QueueName): Promise<void> {
    const { lane, store, addAgain, returnLoan, onMoved, log } = this.#parts;
    const moving = lane.unlinkAll(name);
    for (const [index, task] of moving.entries()) {
      if (task.isBorrowed) {
        returnLoan(task);
        continue;
      }
      if (task.entering !== undefined && !(await isLetIn(task.entering))) continue;
      if (lane.get(task.job.taskId) !== task) continue;
      try {
        await store.dropLeft(task);
        // Numbers of attempts never go back; and one that was added before may be over: whoever fetches it looks.
        const attempts = task.job.attempts + task.starts + (task.mayBeJob ? 1 : 0);
        task.mayBeJob = true;
        await addAgain(name, { ...task.job, attempts });
        lane.drop(task);
        await store.remove(name, task.job.taskId);
      } catch (error) {
        log.warn({ err: error, queue: name }, 'tasks of the lane are not in their queue yet, trying again');
        // In the order they had; the entry of one that is a job now is found unknown.
        for (const left of moving.slice(index).toReversed()) {
          if (lane.get(left.job.taskId) === left) lane.giveBack(left);
        }
        return;
      }
    }
    onMoved(name);
  }
}
