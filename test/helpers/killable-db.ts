/** A database as a process sees it that is killed at one of its statements, before or after the statement's effect. */
import type { Queryable, QueryResult, Transaction } from '#scheduler/stores/store/db.ts';
import { WrappedDb } from './wrapped-db.ts';

export class KillableDb extends WrappedDb {
  #left = Infinity;
  #isAfter = false;
  isDead = false;
  /** Statements and transactions under way. */
  running = 0;

  /** Dies at the statement that comes after so many others. */
  killAt(statements: number, isAfter: boolean): void {
    this.#left = statements;
    this.#isAfter = isAfter;
  }

  override async query<R>(sql: string, params?: readonly unknown[]): Promise<QueryResult<R>> {
    return await this.#counted(() => this.#one<R>(this.db, sql, params));
  }

  override async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return await this.#counted(async () => {
      const result = await this.db.transaction((tx) =>
        work({ query: (sql, params) => this.#one(tx, sql, params), script: (sql) => tx.script(sql) }),
      );
      if (this.#isAfter) this.#die();
      return result;
    });
  }

  async #one<R>(on: Queryable, sql: string, params?: readonly unknown[]): Promise<QueryResult<R>> {
    if (this.isDead) throw new Error('the process is dead');
    this.#left -= 1;
    if (this.#left < 0 && !this.#isAfter) this.isDead = true;
    this.#die();
    const result = await on.query<R>(sql, params);
    if (this.#left < 0) this.isDead = true;
    this.#die();
    return result;
  }

  #die(): void {
    if (this.isDead) throw new Error('the process is dead');
  }

  async #counted<T>(work: () => Promise<T>): Promise<T> {
    this.running += 1;
    try {
      return await work();
    } finally {
      this.running -= 1;
    }
  }
}
