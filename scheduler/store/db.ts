// The database, whichever it is: PGlite under the data directory, or the Postgres that DATABASE_URL names. Owns the drivers (nobody else imports them), deadlines and
// the meaning of types; knows no table. Called by main.ts to open and by `queries/` through Queryable. Both kinds must answer the same rows for the same SQL.
import type { Log } from '#shared/log.ts';

export interface QueryResult<R> {
  readonly rows: R[];
  /** Rows returned or changed. */
  readonly rowCount: number;
}

/** What a statement needs; a transaction and the database itself are both one. */
export interface Queryable {
  /** int8 arrives as a number when safe (else a bigint), timestamptz as Date, jsonb parsed, bytea as Uint8Array. A jsonb parameter is given as JSON text. */
  query<R>(sql: string, params?: readonly unknown[]): Promise<QueryResult<R>>;
}

export interface Db extends Queryable {
  readonly kind: 'pglite' | 'postgres';
  /** Runs `work` on one connection between begin and commit; a throw rolls back and is rethrown. */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

export interface OpenDbOptions {
  readonly databaseUrl?: string | undefined;
  readonly dataDir: string;
  readonly log: Log;
}
