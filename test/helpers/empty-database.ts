/**
 * An embedded database with its tables and without rows. Making one takes several
 * seconds of a processor, so a run of all tests makes one and copies it.
 */
import { cpSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { openDb } from '../../scheduler/stores/store/db.ts';
import { migrate } from '../../scheduler/stores/store/migrate.ts';
import { waitFor } from './programs.ts';

/** Time limit of the one file that makes the template, on a busy machine. */
const MAKING_MS = 60_000;

/**
 * Puts a copy into a data directory in which no scheduler was started yet. Does nothing without `LS_TEST_RUN`, whose
 * temporary directory goes away at the end of the run; the scheduler makes its own then.
 */
export async function seedDatabase(dataDir: string): Promise<void> {
  if (process.env['LS_TEST_RUN'] === undefined) return;
  const template = join(tmpdir(), 'ls-empty-database');
  if (!(await exists(template))) await makeTemplate(template);
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  // The asynchronous copy of these thousand files takes five times as much of a processor.
  cpSync(join(template, 'pglite'), join(dataDir, 'pglite'), { recursive: true });
}

/** Makes the template, or waits for the test file that makes it. */
async function makeTemplate(template: string): Promise<void> {
  const lock = `${template}.lock`;
  const isFirst = await mkdir(lock).then(
    () => true,
    () => false,
  );
  if (!isFirst) return void (await waitFor(() => exists(template), 'the template of databases is there', MAKING_MS));
  const made = await mkdtemp(`${template}-`);
  try {
    const log = pino({ level: 'silent' });
    const db = await openDb({ databaseUrl: undefined, dataDir: made, log });
    await migrate(db);
    await db.close();
    await rename(made, template);
  } catch (error) {
    await rm(made, { recursive: true, force: true });
    await rm(lock, { recursive: true });
    throw error;
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
