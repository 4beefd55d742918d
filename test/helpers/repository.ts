// Paths of this repository, for tests that hold documents against the code.
import { readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';

export const ROOT = resolve(import.meta.dirname, '..', '..');
const TOPS = [
  'agent',
  'bench',
  'bin',
  'cli',
  'console',
  'deploy',
  'docs',
  'examples',
  'python',
  'scheduler',
  'scripts',
  'shared',
  'systemd',
  'test',
];

/** Files and folders below the folders of the project, from its root; a folder ends with a slash. */
export const repositoryPaths = (): string[] =>
  TOPS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => !entry.parentPath.includes('node_modules'))
      .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)) + (entry.isDirectory() ? '/' : ''))
      .concat(`${folder}/`),
  );
