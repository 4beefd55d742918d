// `longshore up` in homes of its own, for the tests of its starts and of its refusals.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { TEST_NODE_FLAGS } from '../helpers/node-flags.ts';
import { docker as openDocker, tempDirectory, waitFor } from '../helpers/services.ts';

export const ROOT = resolve(import.meta.dirname, '..', '..');
const MAIN = join(ROOT, 'cli', 'main.ts');
export const EXAMPLE = join(ROOT, 'examples', 'hello', 'app.py:handler');

export interface Home {
  readonly dataDir: string;
  readonly env: NodeJS.ProcessEnv;
  remove(): void;
}

/** A home directory of its own; every port is picked by the kernel. */
function aHome(): Home {
  const directory = tempDirectory('up');
  const own = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('LONGSHORE_') && name !== 'DATABASE_URL' && name !== 'REDIS_URL',
  );
  return {
    dataDir: join(directory.path, 'data'),
    env: {
      ...Object.fromEntries(own),
      HOME: directory.path,
      XDG_CONFIG_HOME: '',
      XDG_DATA_HOME: '',
      LONGSHORE_DATA_DIR: join(directory.path, 'data'),
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_BASE_IMAGE: baseImage,
    },
    remove: () => directory.remove(),
  };
}

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface Running {
  readonly process: ChildProcess;
  readonly ended: Promise<Ended>;
  stdout(): string;
  stderr(): string;
}

const started = new Set<ChildProcess>();
let baseImage = '';
let homes: Home[] = [];

export function longshore(home: Home, args: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
  const child = spawn(process.execPath, [...TEST_NODE_FLAGS, MAIN, ...args], {
    env: { ...home.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  started.add(child);
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = new Promise<Ended>((done) => {
    child.once('close', (code) => {
      started.delete(child);
      done({ code, stdout, stderr });
    });
  });
  return { process: child, ended, stdout: () => stdout, stderr: () => stderr };
}

/** Starts `up` and waits for its last line. */
export async function up(home: Home, ...args: readonly string[]): Promise<Running> {
  const running = longshore(home, ['up', ...args]);
  await waitFor(
    () => {
      if (running.process.exitCode !== null) throw new Error(`up ended:\n${running.stderr()}`);
      return running.stderr().includes('Ctrl-C stops everything.');
    },
    'longshore up is ready',
    90_000,
  );
  return running;
}

export async function run(home: Home, ...args: readonly string[]): Promise<Ended> {
  return longshore(home, args).ended;
}

export async function tokenOf(home: Home): Promise<string> {
  const shown = await run(home, 'context', 'show', '--json');
  return (JSON.parse(shown.stdout) as { token: string }).token;
}

/** Processes (zombies apart) that name this directory in their command line or environment. */
export function processesOf(home: Home): { readonly pid: number; readonly command: string }[] {
  const found: { pid: number; command: string }[] = [];
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry) || Number(entry) === process.pid) continue;
    try {
      readlinkSync(`/proc/${entry}/exe`);
      const command = readFileSync(`/proc/${entry}/cmdline`, 'utf8').replaceAll('\0', ' ');
      const text = command + readFileSync(`/proc/${entry}/environ`, 'utf8');
      if (text.includes(home.dataDir)) found.push({ pid: Number(entry), command });
    } catch {
      // The process ended meanwhile, or waits to be reaped.
    }
  }
  return found;
}

export function pidOf(home: Home, name: string): number {
  const found = processesOf(home).find((one) => one.command.includes(name));
  if (found === undefined) throw new Error(`no process ${name}`);
  return found.pid;
}

async function containersOf(home: Home): Promise<string[]> {
  const identity = join(home.dataDir, 'agent', 'machine.json');
  if (!existsSync(identity)) return [];
  const { machineId } = JSON.parse(readFileSync(identity, 'utf8')) as { machineId: string };
  const engine = await openDocker();
  const filters = { label: [`io.longshore.machine=${machineId}`] };
  const containers = await engine.client.listContainers({ all: true, filters });
  const { Volumes: volumes } = await engine.client.listVolumes({ filters });
  return [...containers.map((one) => one.Names[0] ?? one.Id), ...(volumes ?? []).map((one) => one.Name)];
}

/** Expects that no process, container or volume of this home is left. */
export async function expectNothingLeft(home: Home): Promise<void> {
  await waitFor(() => processesOf(home).length === 0, 'every process has ended', 20_000).catch(() => undefined);
  expect(processesOf(home)).toEqual([]);
  expect(await containersOf(home)).toEqual([]);
}

beforeAll(async () => {
  const engine = await openDocker();
  baseImage = process.env['LONGSHORE_BASE_IMAGE'] ?? engine.baseImage.replace(/:3\.\d+/, ':{version}');
});

afterEach(async () => {
  for (const child of started) {
    child.kill('SIGTERM');
  }
  for (const home of homes) {
    await waitFor(() => processesOf(home).length === 0, 'stopped', 25_000).catch(() => undefined);
    for (const { pid } of processesOf(home)) process.kill(pid, 'SIGKILL');
    home.remove();
  }
  homes = [];
});
afterAll(() => {
  for (const child of started) child.kill('SIGKILL');
});

export function home(): Home {
  const made = aHome();
  homes.push(made);
  return made;
}
