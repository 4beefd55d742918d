/**
 * An embedded database with its tables and without rows. Making one takes several
 * seconds of a processor, so a run of all tests makes one and copies it.
 */
import { cpSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pino } from 'pino';
import { openDb } from '../../scheduler/stores/store/db.ts';
import { migrate } from '../../scheduler/stores/store/migrate.ts';
import { madeOnce } from './made-once.ts';

/**
 * Puts a copy into a data directory in which no scheduler was started yet. Does nothing without `LS_TEST_RUN`; the
 * scheduler makes its own then.
 */
export async function seedDatabase(dataDir: string): Promise<void> {
  const template = await madeOnce('ls-empty-database', async (directory) => {
    const log = pino({ level: 'silent' });
    const db = await openDb({ databaseUrl: undefined, dataDir: directory, log });
    await migrate(db);
    await db.close();
  });
  if (template === undefined) return;
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  // The asynchronous copy of these thousand files takes five times as much of a processor.
  cpSync(join(template, 'pglite'), join(dataDir, 'pglite'), { recursive: true });
}
