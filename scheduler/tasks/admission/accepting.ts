// Group commit: writes of single tasks reach the database many in one statement. A write that arrives during
// a commit joins the next one. Asynchronous tasks are committed this way before their ids are returned.
import { encodeTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { GroupedWrites } from '../../stores/store/grouped-writes.ts';
import { MAX_TASK_BATCH, updateAcceptedJobs } from '../../stores/store/queries/tasks.ts';

/** Most writes that wait, twenty batches: a database that is further behind takes no more. */
const MOST_WAITING = 20 * MAX_TASK_BATCH;

export class GroupCommit<T> {
  readonly #writes: GroupedWrites<T, undefined>;

  constructor(write: (tasks: readonly T[]) => Promise<void>, mostWaiting = MOST_WAITING) {
    this.#writes = new GroupedWrites({
      write: async (tasks) => {
        await write(tasks);
        return tasks.map(() => undefined);
      },
      mostAtOnce: MAX_TASK_BATCH,
      mostWaiting,
      what: 'tasks',
    });
  }

  /**
   * Resolves once the task's row is committed.
   * @throws the error of `write`; AppError `database_unavailable` when too many wait
   */
  commit(task: T): Promise<void> {
    return this.#writes.write(task);
  }
}

/** Writes changed queue entries to the rows of their tasks, keeping the last one of each. */
export function keptJobs(db: Queryable): (job: TaskJob) => Promise<void> {
  const commits = new GroupCommit<TaskJob>((batch) =>
    updateAcceptedJobs(
      db,
      batch.map((job) => ({ taskId: job.taskId, job: encodeTaskJob(job) })),
    ),
  );
  return (job) => commits.commit(job);
}
