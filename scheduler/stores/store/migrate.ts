// Brings the schema to the version that this code expects. Migrations go forward only.
// Each one commits together with its record. Replicas that start together take turns.
// A large index is built beside writers and outside of a transaction, and recorded after it.
import { readFile } from 'node:fs/promises';
import { sleep } from '#shared/backoff.ts';
import { StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { sqlStateOf } from './db.ts';
import type { Db, Queryable } from './db.ts';
import { largeIndexIn } from './large-index.ts';
import type { LargeIndex } from './large-index.ts';
import { listMigrations } from './schema-files.ts';
import type { Migration } from './schema-files.ts';

/** The lock's name among all users of the server: any constant of ours. */
const LOCK_KEY = 719_885_386_001;
const UNDEFINED_TABLE = '42P01';
const AGAIN_MS = 200;

/** `busy`: another replica changes the schema now. `known`: another one has applied it. */
type Outcome = 'applied' | 'known' | 'busy';

/**
 * Applies the migrations that the database lacks; one query when there are none.
 * @throws StartupError `database_newer` when a later version of Longshore has written the schema
 */
export async function migrate(db: Db, log?: Log, directory?: string): Promise<void> {
  const migrations = await listMigrations(directory);
  const current = await currentVersion(db);
  refuseNewer(current, migrations.length);
  for (const migration of migrations.slice(current)) {
    const sql = await readFile(migration.file, 'utf8');
    const index = largeIndexIn(migration.name, sql);
    const { version, name } = migration;
    let outcome: Outcome = 'busy';
    for (let tries = 0; outcome === 'busy'; tries += 1) {
      // A statement that waited for the lock would be a snapshot that the build of an index waits for.
      if (tries > 0) await sleep(AGAIN_MS);
      if (tries === 1) log?.info({ version, migration: name }, 'another scheduler migrates the database, waiting');
      outcome =
        index === undefined || db.session === undefined
          ? await applyScript(db, migration, sql, migrations.length)
          : await db.session((session) => buildIndex(session, migration, index, migrations.length));
    }
    if (outcome === 'applied') log?.info({ version, migration: name }, 'database migrated');
  }
}

function applyScript(db: Db, migration: Migration, sql: string, known: number): Promise<Outcome> {
  return db.transaction(async (tx) => {
    if (db.kind === 'postgres' && !(await isLocked(tx, 'pg_try_advisory_xact_lock'))) return 'busy';
    await tx.script(
      'create table if not exists schema_migrations (version integer primary key, name text not null, applied_at timestamptz not null default now())',
    );
    if (await isApplied(tx, migration, known)) return 'known';
    await tx.script(sql);
    await record(tx, migration);
    return 'applied';
  });
}

/** Builds an index while others write. One that a crash left invalid is dropped first; a valid one may be there. */
async function buildIndex(
  session: Queryable,
  migration: Migration,
  index: LargeIndex,
  known: number,
): Promise<Outcome> {
  // The lock ends with the connection, and the server ends that of a process that died.
  if (!(await isLocked(session, 'pg_try_advisory_lock'))) return 'busy';
  if (await isApplied(session, migration, known)) return 'known';
  const { rows } = await session.query<{ valid: boolean }>(
    'select indisvalid as valid from pg_index where indexrelid = to_regclass($1)',
    [index.name],
  );
  const valid = rows[0]?.valid;
  if (valid === false) await session.query(`drop index concurrently ${index.name}`);
  if (valid !== true) await session.query(index.build);
  await record(session, migration);
  return 'applied';
}

async function isLocked(on: Queryable, how: 'pg_try_advisory_lock' | 'pg_try_advisory_xact_lock'): Promise<boolean> {
  const { rows } = await on.query<{ locked: boolean }>(`select ${how}(${LOCK_KEY}) as locked`);
  return rows[0]?.locked === true;
}

/** Whether another replica has applied it since this one looked. */
async function isApplied(on: Queryable, { version }: Migration, known: number): Promise<boolean> {
  const current = await currentVersion(on);
  refuseNewer(current, known);
  return current >= version;
}

async function record(on: Queryable, { version, name }: Migration): Promise<void> {
  await on.query('insert into schema_migrations (version, name) values ($1, $2)', [version, name]);
}

async function currentVersion(db: Queryable): Promise<number> {
  try {
    const { rows } = await db.query<{ version: number | null }>(
      'select max(version) as version from schema_migrations',
    );
    return rows[0]?.version ?? 0;
  } catch (error) {
    if (sqlStateOf(error) === UNDEFINED_TABLE) return 0;
    throw error;
  }
}

function refuseNewer(current: number, known: number): void {
  if (current <= known) return;
  throw new StartupError(
    'database_newer',
    `the database has schema version ${current}, this Longshore knows ${known}: start the version that was here last, or a newer one`,
  );
}
