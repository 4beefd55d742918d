// A folder with an app file in it, as a person has one who deploys and calls it from there.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
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
  /** Runs a program's text there. @param env - variables beside the usual ones */
  readonly program: (text: string, env?: Readonly<Record<string, string>>) => Promise<Ended>;
  /** Starts it. */
  readonly started: (text: string) => Running;
  /** Replaces a text in the app's file, which must have it. */
  readonly edit: (from: string, to: string) => void;
}

/** A program that has ended. */
export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
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
  const started = (text: string, more: Readonly<Record<string, string>> = {}): Running => {
    const child = spawn('python3', ['-c', text], { cwd, env: { ...env, ...more }, stdio: ['ignore', 'pipe', 'pipe'] });
    const ended = async (): Promise<Ended> => {
      const said = { stdout: '', stderr: '' };
      child.stdout.on('data', (data: Buffer) => (said.stdout += data.toString('utf8')));
      child.stderr.on('data', (data: Buffer) => (said.stderr += data.toString('utf8')));
      const [code] = (await once(child, 'close')) as [number | null];
      return { code, ...said };
    };
    return { child, ended: ended() };
  };
  return {
    program: (text, more) => started(text, more).ended,
    started,
    edit: (from, to) => {
      const path = join(cwd, 'app.py');
      const text = readFileSync(path, 'utf8');
      if (!text.includes(from)) throw new Error(`the app has no ${from}`);
      writeFileSync(path, text.replace(from, to));
    },
    remove: () => folder.remove(),
    longshore: (...args) => runProgram(process.execPath, [MAIN, ...args], options),
    python: () => runProgram('python3', ['app.py'], options),
  };
}
