// Move of waiting tasks from the lane to the queue, in order, when other replicas could serve them, too.
// Invariant: a task is added to its queue before its entry leaves the lane, so it counts all the time. A
// task whose add was not answered may be in both, and counts as somebody else's until its job is looked up.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Lane, LaneTask } from './lane.ts';
import { isLetIn } from './store.ts';
import type { LaneStore } from './store.ts';

export interface SpillParts {
  readonly lane: Lane;
  readonly store: LaneStore;
  readonly addAgain: (queue: QueueName, job: TaskJob) => Promise<void>;
  readonly returnLoan: (task: LaneTask) => void;
  /** Called when all are moved: any replica with room for them may fetch. */
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

  /** Resolves when the move is over; undefined: none is under way. */
  underWay(name: QueueName): Promise<void> | undefined {
    return this.#underWay.get(name);
  }

  /** Moves all tasks that wait for that queue to it; must not be called while such a move is under way. */
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
        // Attempt numbers never go back. A task that was added before may be over: its next fetch checks that.
        const attempts = task.job.attempts + task.starts + (task.mayBeJob ? 1 : 0);
        task.mayBeJob = true;
        await addAgain(name, { ...task.job, attempts });
        lane.drop(task);
        await store.remove(name, task.job.taskId);
      } catch (error) {
        log.warn({ err: error, queue: name }, 'tasks of the lane are not in their queue yet, trying again');
        // Tasks return to the lane in the order they had. A lane entry
        // whose task is a job by now is found unknown by the sweep.
        for (const left of moving.slice(index).toReversed()) {
          if (lane.get(left.job.taskId) === left) lane.giveBack(left);
        }
        return;
      }
    }
    onMoved(name);
  }
}
