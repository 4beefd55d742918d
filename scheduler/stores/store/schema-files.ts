// The files that make the schema, in their order. Read by migrate.ts, and by template.ts in the database's thread.
import { readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly file: string;
}

const DIRECTORY = fileURLToPath(new URL('./migrations/', import.meta.url));
const NAME = /^(\d{4})_([a-z0-9_]+)\.sql$/;

export async function listMigrations(directory: string = DIRECTORY): Promise<readonly Migration[]> {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.sql')).toSorted();
  return files.map((file, index) => {
    const match = NAME.exec(file);
    const version = Number(match?.[1]);
    if (match === null || version !== index + 1) throw new Error(`migration ${file} is misnamed or leaves a gap`);
    return { version, name: match[2] ?? '', file: `${directory}/${file}` };
  });
}
