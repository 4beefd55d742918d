// Brings the schema to the version that this code expects. Migrations go forward only.
// Each one commits together with its record. Replicas that start together take turns.
import { readFile } from 'node:fs/promises';
import { StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { sqlStateOf } from './db.ts';
import type { Db, Queryable } from './db.ts';
import { listMigrations } from './schema-files.ts';

/** The lock's name among all users of the server: any constant of ours. */
const LOCK_KEY = 719_885_386_001;
const UNDEFINED_TABLE = '42P01';

/**
 * Applies the migrations that the database lacks; one query when there are none.
 * @throws StartupError `database_newer` when a later version of Longshore has written the schema
 */
export async function migrate(db: Db, log?: Log, directory?: string): Promise<void> {
  const migrations = await listMigrations(directory);
  let current = await currentVersion(db);
  refuseNewer(current, migrations.length);
  for (const migration of migrations.slice(current)) {
    const sql = await readFile(migration.file, 'utf8');
    const applied = await db.transaction(async (tx) => {
      // Run as a script, because the replica that has the lock may take as long as a migration may.
      if (db.kind === 'postgres') await tx.script(`select pg_advisory_xact_lock(${LOCK_KEY})`);
      await tx.script(
        'create table if not exists schema_migrations (version integer primary key, name text not null, applied_at timestamptz not null default now())',
      );
      // Another replica may have migrated while this one waited for the lock.
      current = await currentVersion(tx);
      refuseNewer(current, migrations.length);
      if (current >= migration.version) return false;
      await tx.script(sql);
      await tx.query('insert into schema_migrations (version, name) values ($1, $2)', [
        migration.version,
        migration.name,
      ]);
      return true;
    });
    if (applied) log?.info({ version: migration.version, migration: migration.name }, 'database migrated');
  }
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
