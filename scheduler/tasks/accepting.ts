// Writes of single tasks are committed to the database many in one statement: what arrives while one commit is under way goes into the next. Asynchronous tasks are committed so before their ids are returned.
import { AppError } from '#shared/errors.ts';
import { encodeTaskJob } from '../queues/jobs.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Queryable } from '../store/db.ts';
import { MAX_TASK_BATCH, updateAcceptedJobs } from '../store/queries/tasks.ts';

interface Entry<T> {
  readonly task: T;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Twenty batches: a database that is so far behind takes no more. */
const MOST_WAITING = 20 * MAX_TASK_BATCH;

export class GroupCommit<T> {
  readonly #write: (tasks: readonly T[]) => Promise<void>;
  readonly #mostWaiting: number;
  #waiting: Entry<T>[] = [];
  #running = false;

  constructor(write: (tasks: readonly T[]) => Promise<void>, mostWaiting = MOST_WAITING) {
    this.#write = write;
    this.#mostWaiting = mostWaiting;
  }

  /** Resolves once the task's row is committed. @throws what `write` threw; AppError `database_unavailable` when too many wait */
  commit(task: T): Promise<void> {
    if (this.#waiting.length >= this.#mostWaiting) {
      return Promise.reject(
        new AppError('database_unavailable', `more than ${this.#mostWaiting} tasks wait for the database`),
      );
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ task, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#running = true;
    // Those of the same turn of the event loop go together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_TASK_BATCH);
      try {
        await this.#write(batch.map((entry) => entry.task));
        for (const entry of batch) entry.resolve();
      } catch (error) {
        for (const entry of batch) entry.reject(error);
      }
    }
    this.#running = false;
  }
}

/** Keeps changed queue entries in the rows of their tasks, the last one of each. */
export function keptJobs(db: Queryable): (job: TaskJob) => Promise<void> {
  const commits = new GroupCommit<TaskJob>((batch) =>
    updateAcceptedJobs(
      db,
      batch.map((job) => ({ taskId: job.taskId, job: encodeTaskJob(job) })),
    ),
  );
  return (job) => commits.commit(job);
}
