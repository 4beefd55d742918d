// A folder with an app file in it, as a person has one who deploys and calls it from there.
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MAIN, ROOT } from './platform.ts';
import type { Platform } from './platform.ts';
import { runProgram, tempDirectory } from './services.ts';

export interface AppFolder {
  readonly remove: () => void;
  /** Runs the command line there. @returns what it printed */
  readonly longshore: (...args: readonly string[]) => Promise<string>;
  /** Runs the file as a program. @returns what it printed */
  readonly python: () => Promise<string>;
}

/** @param source - a file below the root, or the app's text */
export function appFolder(platform: Platform, name: string, source: string): AppFolder {
  const folder = tempDirectory(name);
  const cwd = join(folder.path, 'app');
  mkdirSync(cwd);
  if (source.endsWith('.py')) copyFileSync(join(ROOT, source), join(cwd, 'app.py'));
  else writeFileSync(join(cwd, 'app.py'), source);
  const env = {
    PATH: process.env['PATH'],
    HOME: folder.path,
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
    PYTHONPATH: join(ROOT, 'python'),
    PYTHONDONTWRITEBYTECODE: '1',
  };
  const options = { cwd, env };
  return {
    remove: () => folder.remove(),
    longshore: (...args) => runProgram(process.execPath, [MAIN, ...args], options),
    python: () => runProgram('python3', ['app.py'], options),
  };
}
