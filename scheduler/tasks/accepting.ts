// Asynchronous tasks are committed to the database before their ids are returned, many in one statement: what arrives while one commit is under way goes into the next.
import { MAX_TASK_BATCH } from '../store/queries/tasks.ts';
import type { AcceptedTask } from '../store/queries/tasks.ts';

interface Entry {
  readonly task: AcceptedTask;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class GroupCommit {
  readonly #write: (tasks: readonly AcceptedTask[]) => Promise<void>;
  #waiting: Entry[] = [];
  #running = false;

  constructor(write: (tasks: readonly AcceptedTask[]) => Promise<void>) {
    this.#write = write;
  }

  /** Resolves once the task's row is committed. */
  commit(task: AcceptedTask): Promise<void> {
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
