// A database as a process sees it whose statements meet planted faults, on any driver: nothing of it was done, it was
// done and nobody answered, or it is done after its caller has gone on.
import type { Db, QueryOptions, QueryResult, Transaction } from '#scheduler/stores/store/queryable.ts';
import { databaseOutcomeUnknown, databaseTimeout, databaseUnavailable } from '#scheduler/stores/store/limits.ts';
import { WrappedDb } from './wrapped-db.ts';

/** `late`: a statement alone comes with {@link DoubtfulDb.letGo}, a commit a moment after its caller gave up. */
export const DOUBTS = ['refused', 'unanswered', 'late'] as const;
export type Doubt = (typeof DOUBTS)[number];

/** Time after which a late commit is made. Until then its locks are held. */
const LATE_COMMIT_MS = 20;

export class DoubtfulDb extends WrappedDb {
  readonly #next: () => Doubt | undefined;
  #held: (() => Promise<unknown>)[] = [];
  readonly #commits = new Set<Promise<unknown>>();
  /** Faults that were met. */
  met = 0;

  /** @param next - the fault of the next statement alone, or of the next transaction */
  constructor(db: Db, next: () => Doubt | undefined) {
    super(db);
    this.#next = next;
  }

  override async query<R>(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<QueryResult<R>> {
    const doubt = this.#meet();
    if (doubt === undefined) return await this.db.query<R>(sql, params, options);
    if (doubt === 'refused') throw databaseUnavailable();
    if (doubt === 'late') this.#held.push(() => this.db.query(sql, params, options).catch(() => undefined));
    else await this.db.query(sql, params, options);
    throw databaseTimeout();
  }

  override async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const doubt = this.#meet();
    if (doubt === undefined) return await this.db.transaction(work);
    const isSent = Promise.withResolvers<undefined>();
    const committed = this.db.transaction(async (tx) => {
      await work(tx);
      if (doubt === 'refused') throw databaseUnavailable();
      isSent.resolve(undefined);
      if (doubt === 'late') await new Promise((resolve) => setTimeout(resolve, LATE_COMMIT_MS));
    });
    const settled = committed.then(
      () => undefined,
      (error: unknown) => isSent.reject(error),
    );
    this.#commits.add(settled);
    void settled.finally(() => this.#commits.delete(settled));
    await (doubt === 'unanswered' ? committed : isSent.promise);
    throw databaseOutcomeUnknown();
  }

  #meet(): Doubt | undefined {
    const doubt = this.#next();
    if (doubt !== undefined) this.met += 1;
    return doubt;
  }

  /** The server gets what was held, and all of it is over. */
  async letGo(): Promise<void> {
    for (const statement of this.#held.splice(0)) await statement();
    await Promise.all(this.#commits);
  }

  override close(): Promise<void> {
    return this.letGo();
  }
}

/** Plants one fault: a story shows most when a single statement is in doubt. @param at - statements before it */
export function doubtAt(doubt: Doubt, at: number): () => Doubt | undefined {
  let statements = 0;
  return () => (statements++ === at ? doubt : undefined);
}
