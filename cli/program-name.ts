import { existsSync } from 'node:fs';
import { delimiter, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder that holds bin/, cli/ and the rest. */
const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** The main module, which Node runs for `longshore`. */
export const PROGRAM = fileURLToPath(new URL('./main.ts', import.meta.url));

/** The command as the person can type it in a hint: `longshore` when that is on their path, else a path from here. */
export function programName(env: Readonly<Record<string, string | undefined>>, root: string = ROOT): string {
  const isOnPath = (env['PATH'] ?? '')
    .split(delimiter)
    .some((directory) => !directory.includes('node_modules') && existsSync(join(directory, 'longshore')));
  if (isOnPath) return 'longshore';
  const launchers = ['longshore.mjs', 'longshore'].map((name) => join(root, 'bin', name));
  const program = launchers.find((path) => existsSync(path));
  // The npm package has no such file: npx ran it.
  if (program === undefined) return 'longshore';
  const path = relative(process.cwd(), program);
  return path.startsWith('..') ? program : `./${path}`;
}
