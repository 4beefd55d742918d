/** Child processes of set-up: bounded in time, with output in a log file whose end is shown after a failure. */
import { spawn } from 'node:child_process';
import { createWriteStream, mkdirSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { accessSync, constants } from 'node:fs';
import { SetupError } from './log.mjs';
import { stateDir } from './paths.mjs';

const TAIL_LINES = 15;
const KEPT_BYTES = 64 * 1024;
/** @type {Set<import('node:child_process').ChildProcess>} */
const children = new Set();
let stopping = false;

/**
 * Makes an interrupted set-up end its children (apt-get, npm) and
 * exit as the shell expects. @returns a function that undoes it
 */
export function endChildrenOnSignals() {
  const end = (signal) => {
    if (stopping) return;
    stopping = true;
    process.stderr.write(`\nset-up interrupted by ${signal}\n`);
    for (const child of children) child.kill('SIGTERM');
    const code = signal === 'SIGINT' ? 130 : 143;
    if (children.size === 0) process.exit(code);
    // A child that still writes would spoil the next set-up, so
    // this program waits for its end, and kills it if necessary.
    setTimeout(() => children.forEach((child) => child.kill('SIGKILL')), 5000).unref();
    setTimeout(() => process.exit(code), 30_000).unref();
    for (const child of children)
      child.once('close', () => setImmediate(() => children.size === 0 && process.exit(code)));
  };
  const onInt = () => end('SIGINT');
  const onTerm = () => end('SIGTERM');
  process.on('SIGINT', onInt);
  process.on('SIGTERM', onTerm);
  return () => {
    process.off('SIGINT', onInt);
    process.off('SIGTERM', onTerm);
  };
}

/**
 * Runs a command to its end, without standard input, so that it never asks anything.
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{
 *   name?: string, timeoutMs?: number, env?: NodeJS.ProcessEnv, cwd?: string, allowFailure?: boolean,
 * }} [options]
 *   `name`: the log file's; without it no log is written
 * @returns {Promise<{ code: number, stdout: string, output: string }>}
 * @throws SetupError with the end of the output, when it fails, is missing or takes too long
 */
export async function run(command, args, options = {}) {
  const { name, timeoutMs = 60_000, env = process.env, cwd, allowFailure = false } = options;
  const logFile = name === undefined ? undefined : join(stateDir(), `${name}.log`);
  if (logFile !== undefined) mkdirSync(dirname(logFile), { recursive: true });
  const log = logFile === undefined ? undefined : createWriteStream(logFile);
  const child = spawn(command, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  let stdout = '';
  let output = '';
  const keep = (text, chunk) => (text + chunk).slice(-KEPT_BYTES);
  child.stdout.on('data', (chunk) => {
    stdout = keep(stdout, chunk);
    output = keep(output, chunk);
    log?.write(chunk);
  });
  child.stderr.on('data', (chunk) => {
    output = keep(output, chunk);
    log?.write(chunk);
  });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGKILL');
  }, timeoutMs);
  const ended = await new Promise((resolve) => {
    child.once('error', (error) => resolve({ code: 127, error }));
    child.once('close', (code, signal) => resolve({ code: code ?? 128, signal }));
  });
  clearTimeout(timer);
  children.delete(child);
  log?.end();
  // The program is about to exit, and an error about the child that it ended would only confuse.
  if (stopping) await new Promise(() => undefined);
  if ((ended.code === 0 && !late) || allowFailure) return { code: ended.code, stdout, output };
  const why = late
    ? `took longer than ${Math.round(timeoutMs / 1000)} s`
    : (ended.error?.message ?? (ended.signal ? `was ended by ${ended.signal}` : `exited with ${ended.code}`));
  const tail = output.trimEnd().split('\n').slice(-TAIL_LINES).join('\n  ');
  const where = logFile === undefined ? '' : `\nThe whole output is in ${logFile}.`;
  throw new SetupError(`\`${[command, ...args].join(' ').slice(0, 300)}\` ${why}:\n  ${tail}${where}`);
}

/** The path of a program, on the PATH or where Debian keeps daemons (a user's PATH lacks `sbin`). */
export function findProgram(name, more = []) {
  const places = [
    ...(process.env.PATH ?? '').split(delimiter),
    '/usr/local/sbin',
    '/usr/sbin',
    '/sbin',
    '/usr/bin',
    ...more,
  ];
  for (const place of places) {
    if (place === '') continue;
    const path = join(place, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      continue;
    }
  }
  return undefined;
}
