// The database, whichever it is: PGlite under the data directory, or the Postgres that DATABASE_URL names. Says what both promise; pglite.ts and postgres.ts keep it, and
// are the only importers of their drivers. Knows no table. Called by main.ts to open and by `queries/` through Queryable. Both kinds answer the same rows for the same SQL.
import type { Log } from '#shared/log.ts';
import { AppError } from '#shared/errors.ts';
import { openPglite } from './pglite.ts';
import { openPostgres } from './postgres.ts';

export interface QueryResult<R> {
  readonly rows: R[];
  /** Rows returned or changed. */
  readonly rowCount: number;
}

/** What a statement needs; a transaction and the database itself are both one. */
export interface Queryable {
  /**
   * int8 arrives as a number when safe (else a bigint), timestamptz as Date, json parsed, bytea as Uint8Array. A json parameter is given as JSON text.
   * @throws AppError `database_error` (details.sqlState), `database_timeout`, `database_unavailable`
   */
  query<R>(sql: string, params?: readonly unknown[]): Promise<QueryResult<R>>;
}

/** One connection between begin and commit. */
export interface Transaction extends Queryable {
  /** Several statements without parameters or rows (migrations). */
  script(sql: string): Promise<void>;
}

export interface Db extends Queryable {
  readonly kind: 'pglite' | 'postgres';
  /** Runs `work` on one connection; a throw rolls back and is rethrown. Statements of others must not be awaited inside: PGlite has one connection. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Ends what runs, flushes, lets go of the files. Safe to call twice. */
  close(): Promise<void>;
}

export interface OpenDbOptions {
  /** Absent: PGlite in `<dataDir>/pglite`. */
  readonly databaseUrl?: string | undefined;
  readonly dataDir: string;
  readonly log: Log;
}

/** @throws StartupError `data_dir_in_use`, `data_dir_unusable`, `database_unreachable`, with the cure in the sentence */
export function openDb(options: OpenDbOptions): Promise<Db> {
  return options.databaseUrl === undefined
    ? openPglite(options)
    : openPostgres({ url: options.databaseUrl, log: options.log });
}

/** A unique constraint or index that the statement ran into. */
export const isUniqueViolation = (error: unknown): boolean => sqlStateOf(error) === '23505';

export function sqlStateOf(error: unknown): string | undefined {
  const state = error instanceof AppError ? error.details['sqlState'] : undefined;
  return typeof state === 'string' ? state : undefined;
}
