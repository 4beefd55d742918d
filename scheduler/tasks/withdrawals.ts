// Tasks that were not accepted although their job, or their row, may be there all the same: an add or a commit that timed out may have happened. None of them runs later unseen: it leaves its queue and its row
// says CANCELLED, or, where a container has it already, it gets its row. Tried again while the stores are away; what is given up after that finds nobody waiting at its fetch, or shows up in its row there.
import type { QueueName } from '#shared/domain/ids.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { TaskJob } from '../queues/jobs.ts';
import { encodeTaskJob } from '../queues/jobs.ts';
import { finalOf, recordOf } from './recording.ts';
import type { TaskContext } from './task-parts.ts';

const TRIES = 10;
const BACKOFF = { baseMs: 200, capMs: 10_000, floorMs: 50 };
/** Beyond this the stores are away for good, and nothing is remembered of what was refused. */
const MOST_UNDER_WAY = 1_000;

export class Withdrawals {
  readonly #tasks: TaskContext;
  #underWay = 0;

  constructor(tasks: TaskContext) {
    this.#tasks = tasks;
  }

  /** @param committing - its row may have been committed */
  withdraw(queue: QueueName, job: TaskJob, committing: boolean): void {
    if (this.#underWay >= MOST_UNDER_WAY) return;
    this.#underWay += 1;
    void this.#withdraw(queue, job, committing).finally(() => (this.#underWay -= 1));
  }

  async #withdraw(queue: QueueName, job: TaskJob, committing: boolean): Promise<void> {
    const { signal, log } = this.#tasks;
    for (let tries = 1; tries <= TRIES; tries += 1) {
      try {
        await this.#once(queue, job, committing);
        return;
      } catch (error) {
        log.info({ err: error, taskId: job.taskId }, 'a task that was not accepted could not be taken out yet');
      }
      if (!(await sleep(backoffMs(tries, BACKOFF), signal))) return;
    }
  }

  async #once(queue: QueueName, job: TaskJob, committing: boolean): Promise<void> {
    const { queues, records, changes, accepting, clock, ender } = this.#tasks;
    const removed = await queues.remove(queue, job.taskId);
    if (!committing) {
      if (removed) ender.dropInput(job);
      return;
    }
    const known = await records.read(job.taskId);
    if (removed || known === undefined) {
      // Whether or not the row is there, or comes yet: it is over.
      const record = finalOf(job, queue, 0, 'CANCELLED', clock.nowMs(), { failureReason: 'not_accepted' });
      await changes.applied(known?.status ?? 'PENDING', 'cancel', record);
      ender.dropInput(job);
      return;
    }
    // A container has it: it gets the row it was to have, with what it can be rebuilt from.
    await accepting.commit({ record: recordOf(job, queue, 'PENDING', 0), job: encodeTaskJob(job) });
  }
}
