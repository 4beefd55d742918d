// Combines single writes into one statement: writes that arrive while a commit is under way go into the next one.
import { databaseNotReached, isRefusedByDatabase } from './limits.ts';

interface Entry<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

export interface GroupedWritesOptions<T, R> {
  /** Runs one statement. The results are in the order of the items. */
  readonly write: (items: readonly T[]) => Promise<readonly R[]>;
  /** Most items in one statement. */
  readonly mostAtOnce: number;
  /** Most waiting items: a database that is so far behind takes no more. */
  readonly mostWaiting: number;
  /** Name of the items in the plural, for the error's sentence. */
  readonly what: string;
}

export class GroupedWrites<T, R> {
  readonly #options: GroupedWritesOptions<T, R>;
  #waiting: Entry<T, R>[] = [];
  #running = false;

  constructor(options: GroupedWritesOptions<T, R>) {
    this.#options = options;
  }

  /**
   * Writes the item; resolves once it is committed.
   * @throws the error of `write`; AppError `database_unavailable` when too many wait
   */
  write(item: T): Promise<R> {
    const { mostWaiting, what } = this.#options;
    if (this.#waiting.length >= mostWaiting) {
      return Promise.reject(databaseNotReached(undefined, `more than ${mostWaiting} ${what} wait for the database`));
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#running = true;
    // Writes of the same turn of the event loop share a statement.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) await this.#writeTogether(this.#waiting.splice(0, this.#options.mostAtOnce));
    this.#running = false;
  }

  async #writeTogether(batch: readonly Entry<T, R>[]): Promise<void> {
    try {
      const results = await this.#options.write(batch.map((entry) => entry.item));
      for (const [index, entry] of batch.entries()) entry.resolve(results[index] as R);
    } catch (error) {
      // An item that the database refuses fails alone: each is written again by itself.
      if (batch.length > 1 && isRefusedByDatabase(error)) for (const entry of batch) await this.#writeTogether([entry]);
      else for (const entry of batch) entry.reject(error);
    }
  }
}
