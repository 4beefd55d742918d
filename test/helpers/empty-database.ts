/** An embedded database that is initialised and empty, made once for a run of all tests and copied from then on: to make one takes two seconds of a processor. */
import { cp, mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { openPglite } from '../../scheduler/store/pglite.ts';

/**
 * Puts one into a data directory in which no scheduler was started yet. Without `LS_TEST_RUN`, whose temporary directory
 * goes away at the end of the run, it does nothing, and the scheduler makes its own.
 */
export async function seedDatabase(dataDir: string): Promise<void> {
  if (process.env['LS_TEST_RUN'] === undefined) return;
  const template = join(tmpdir(), 'ls-empty-database');
  if (!(await exists(template))) await makeTemplate(template);
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  await cp(join(template, 'pglite'), join(dataDir, 'pglite'), { recursive: true });
}

/** Two files that make it at once both succeed; one of theirs stays. */
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
