/**
 * Programs that tests start: each in a directory of its own, ended by the file
 * that started it. Nothing here trusts a pid. Where process 1 reaps late, a dead
 * child keeps its number for seconds, so ends are seen by events and connections.
 */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, chmodSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const KEPT_OUTPUT = 16 * 1024;
/** Programs that end when this process exits, so that an interrupted run leaves none. */
const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** Names what this run makes in shared places (labels, database names); `npm test` gives one for all its projects. */
export const testRunId: string = process.env['LS_TEST_RUN'] ?? `run-${randomBytes(4).toString('hex')}`;

/** The error for a missing service that this machine could have; the run fails instead of skipping. */
export function missingService(what: string): Error {
  return new Error(`${what} is missing on this machine. Install it with: node scripts/setup.mjs --tests`);
}

/** The full path of a program, or undefined. */
export function findProgram(name: string): string | undefined {
  for (const folder of [...(process.env['PATH'] ?? '').split(delimiter), '/usr/local/bin', '/usr/bin', '/usr/sbin']) {
    if (folder === '') continue;
    try {
      accessSync(join(folder, name), constants.X_OK);
      return join(folder, name);
    } catch {
      // The program is not in this folder.
    }
  }
  return undefined;
}

/** A short directory (socket paths end at 107 bytes) that other users may enter, and the way to remove it. */
export function tempDirectory(prefix = 't'): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), `ls-${prefix}-`));
  chmodSync(path, 0o755);
  return { path, remove: () => rmSync(path, { recursive: true, force: true, maxRetries: 3 }) };
}

/** A port that was free a moment ago, for programs that cannot ask the kernel themselves; callers retry. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port was given');
  return address.port;
}

/** A wait bounds a test that hangs. It is no measurement, so it is long enough for a busy, slow machine. */
const WAIT_MS = 20_000;

/**
 * Waits until `condition` gives something other than undefined or false, and returns that.
 * @param what - completes "… did not happen within 20 s: "
 */
export async function waitFor<T>(
  condition: () => Promise<T | undefined | false> | T | undefined | false,
  what: string,
  timeoutMs = WAIT_MS,
): Promise<T> {
  const untilMs = Date.now() + timeoutMs;
  for (let pauseMs = 5; ; pauseMs = Math.min(pauseMs * 1.5, 100)) {
    const value = await condition();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > untilMs) throw new Error(`did not happen within ${timeoutMs / 1000} s: ${what}`);
    await sleep(pauseMs);
  }
}

/** A started program with its output so far. */
export interface Program {
  readonly pid: number;
  readonly output: () => string;
  /** False from the moment its end was seen. */
  readonly isRunning: () => boolean;
  /** Sends the signal and waits for the end; after `graceMs` it is killed. */
  readonly end: (signal?: NodeJS.Signals, graceMs?: number) => Promise<void>;
}

/** Starts a program that runs until it is ended. */
export async function startProgram(
  command: string,
  args: readonly string[],
  options: SpawnOptions = {},
): Promise<Program> {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString('utf8')).slice(-KEPT_OUTPUT);
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);
  let isRunning = true;
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => {
      isRunning = false;
      running.delete(child);
      resolve();
    });
  });
  await once(child, 'spawn');
  running.add(child);
  return {
    pid: child.pid ?? 0,
    output: () => output,
    isRunning: () => isRunning,
    end: async (signal = 'SIGTERM', graceMs = 10_000) => {
      if (!isRunning) return;
      child.kill(signal);
      const timer = setTimeout(() => child.kill('SIGKILL'), graceMs);
      await ended;
      clearTimeout(timer);
    },
  };
}

/** The end of a program. */
export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end, whatever that is. */
export async function endOf(command: string, args: readonly string[], options: SpawnOptions = {}): Promise<Ended> {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, stdout, stderr };
}

/** Runs a program to its end; throws with its output when it fails. */
export async function runProgram(
  command: string,
  args: readonly string[],
  options: SpawnOptions = {},
  timeoutMs = 60_000,
): Promise<string> {
  const child = spawn(command, args, {
    ...options,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString('utf8')).slice(-KEPT_OUTPUT);
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code ?? 'a signal'}:\n${output}`);
  return output;
}
