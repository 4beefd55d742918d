// A program: makes the template of this code's database (template.ts), unless it is there. The template appears in one
// step, so nobody copies half of it.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createLog } from '#shared/log.ts';
import { openDb } from './db.ts';
import { migrate } from './migrate.ts';
import { TEMPLATES, templatePath } from './template.ts';

/** Folders below this age may belong to another run, which is at work. */
const LEFT_BEHIND_MS = 600_000;

async function make(template: string): Promise<void> {
  await mkdir(TEMPLATES, { recursive: true });
  await removeOld();
  const work = await mkdtemp(join(TEMPLATES, '.making-'));
  try {
    const db = await openDb({ dataDir: work, log: createLog({ name: 'template' }) });
    await migrate(db);
    await db.close();
    await rename(join(work, 'pglite'), template).catch((error: unknown) => {
      // Another run may have been first.
      if (!existsSync(template)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Removes templates of other schemas, and what killed runs left. */
async function removeOld(): Promise<void> {
  for (const name of await readdir(TEMPLATES)) {
    const path = join(TEMPLATES, name);
    if (Date.now() - (await stat(path)).mtimeMs > LEFT_BEHIND_MS) await rm(path, { recursive: true, force: true });
  }
}

const template = await templatePath();
if (!existsSync(template)) await make(template);
