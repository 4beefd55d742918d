// A database behind another one, which passes everything on. Databases of tests with faults change what they mean to.
import type { Db, QueryOptions, QueryResult, Transaction } from '#scheduler/stores/store/queryable.ts';

export class WrappedDb implements Db {
  protected readonly db: Db;

  constructor(db: Db) {
    this.db = db;
  }

  get kind(): Db['kind'] {
    return this.db.kind;
  }
  get reads(): Db['reads'] {
    return this.db.reads;
  }

  query<R>(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<QueryResult<R>> {
    return this.db.query<R>(sql, params, options);
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.db.transaction(work);
  }

  /** The one who opened the database closes it. */
  close(): Promise<void> {
    return Promise.resolve();
  }
}
