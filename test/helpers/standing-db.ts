// A database as a process sees it that stands still at one of its statements for minutes, as one that was stopped: the
// statement comes late, or its answer does.
import type { Db, QueryOptions, QueryResult, Transaction } from '#scheduler/stores/store/queryable.ts';
import { WrappedDb } from './wrapped-db.ts';

export class StandingDb extends WrappedDb {
  readonly #at: number;
  readonly #isAfter: boolean;
  readonly #stands = Promise.withResolvers<undefined>();
  readonly #goesOn = Promise.withResolvers<undefined>();
  #statements = 0;

  /** @param at - statements and transactions before the one at which the process stands still */
  constructor(db: Db, at: number, isAfter: boolean) {
    super(db);
    this.#at = at;
    this.#isAfter = isAfter;
  }

  /** Resolves when the process stands still. */
  get stands(): Promise<undefined> {
    return this.#stands.promise;
  }

  goOn(): void {
    this.#goesOn.resolve(undefined);
  }

  override query<R>(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<QueryResult<R>> {
    return this.#pass(() => super.query<R>(sql, params, options));
  }

  override transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#pass(() => super.transaction(work));
  }

  async #pass<T>(work: () => Promise<T>): Promise<T> {
    if (this.#statements++ !== this.#at) return await work();
    const result = this.#isAfter ? await work() : undefined;
    this.#stands.resolve(undefined);
    await this.#goesOn.promise;
    return this.#isAfter ? (result as T) : await work();
  }
}
