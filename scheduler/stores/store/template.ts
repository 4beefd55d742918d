// A prepared database with its tables and without rows, which a first start copies. The engine takes seconds of a
// processor to make a database, so set-up makes one beforehand (make-template.ts). The template's name is a digest of
// its schema and engine, so that code with another schema or engine never finds it.
import { createHash } from 'node:crypto';
import { cpSync, existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { listMigrations } from './schema-files.ts';

/** Templates of this checkout; git ignores the folder. A release has none. */
export const TEMPLATES = fileURLToPath(new URL('../../../dist/database/', import.meta.url));
const ENGINE = new URL('../../../node_modules/@electric-sql/pglite/package.json', import.meta.url);

/**
 * The template of this code, whether it exists or not.
 * @param migrations - the folder of the schema's files, where it is another one
 */
export async function templatePath(migrations?: string): Promise<string> {
  const { version } = JSON.parse(await readFile(ENGINE, 'utf8')) as { readonly version: string };
  const hash = createHash('sha256').update(version);
  for (const { file } of await listMigrations(migrations))
    hash.update(`\n${basename(file)}\n`).update(await readFile(file));
  return join(TEMPLATES, hash.digest('hex').slice(0, 32));
}

/**
 * Copies the template to a path at which nothing is.
 * @returns false: no template was prepared
 */
export async function copyTemplate(to: string): Promise<boolean> {
  const template = await templatePath();
  if (!existsSync(template)) return false;
  // The asynchronous copy of these thousand files takes five times as much of a processor.
  cpSync(template, to, { recursive: true });
  return true;
}
