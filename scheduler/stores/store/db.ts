// The database: PGlite under the data directory, or the Postgres that DATABASE_URL names.
// This file says what both promise. pglite.ts and postgres.ts implement it, and are the
// only importers of their drivers. The file knows no table. main.ts calls it to open the
// database, `queries/` through Queryable. Both kinds return the same rows for the same SQL.
import type { Log } from '#shared/log.ts';
import { AppError } from '#shared/errors.ts';
import type { Db } from './queryable.ts';

export type { Db, Queryable, QueryResult, TenantReads, Transaction } from './queryable.ts';

export interface OpenDbOptions {
  /** Absent: PGlite in `<dataDir>/pglite`. */
  readonly databaseUrl?: string | undefined;
  /** Connections to a Postgres server: those of the platform, and those of tenants' reads. */
  readonly connections?: { readonly platform: number; readonly reads: number } | undefined;
  readonly dataDir: string;
  readonly log: Log;
  /** Called once the work is elsewhere: PGlite's thread runs, or the server was asked. */
  readonly onBegun?: (() => void) | undefined;
}

/**
 * @throws StartupError `data_dir_in_use`, `data_dir_unusable`,
 * `database_unreachable`, each with its cure in the message
 */
export async function openDb(options: OpenDbOptions): Promise<Db> {
  // Loads only the driver that is used.
  if (options.databaseUrl === undefined) {
    const { openPglite } = await import('./pglite.ts');
    return openPglite(options);
  }
  const { openPostgres } = await import('./postgres.ts');
  options.onBegun?.();
  return openPostgres({ url: options.databaseUrl, connections: options.connections, log: options.log });
}

/** Whether the error is a violated unique constraint or index. */
export const isUniqueViolation = (error: unknown): boolean => sqlStateOf(error) === '23505';

export function sqlStateOf(error: unknown): string | undefined {
  const state = error instanceof AppError ? error.details['sqlState'] : undefined;
  return typeof state === 'string' ? state : undefined;
}
