/**
 * An embedded database that is initialised and empty. Making one takes two
 * seconds of a processor, so a run of all tests makes one and copies it.
 */
import { cp, mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { openPglite } from '../../scheduler/stores/store/pglite.ts';

/**
 * Puts a copy into a data directory in which no scheduler was started yet. Does nothing without `LS_TEST_RUN`, whose
 * temporary directory goes away at the end of the run; the scheduler makes its own then.
 */
export async function seedDatabase(dataDir: string): Promise<void> {
  if (process.env['LS_TEST_RUN'] === undefined) return;
  const template = join(tmpdir(), 'ls-empty-database');
  if (!(await exists(template))) await makeTemplate(template);
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  await cp(join(template, 'pglite'), join(dataDir, 'pglite'), { recursive: true });
}

/** Makes the template. Two test files that make it at once both succeed, and one of their folders stays. */
async function makeTemplate(template: string): Promise<void> {
  const made = await mkdtemp(`${template}-`);
  const db = await openPglite({ dataDir: made, log: pino({ level: 'silent' }) });
  await db.close();
  await rename(made, template).catch(() => rm(made, { recursive: true, force: true }));
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
