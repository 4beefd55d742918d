/** The published Python client, installed from its index and unchanged: its command line, and programs with it. */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { once } from './api-clients.ts';
import { ROOT } from './platform.ts';
import type { Platform } from './platform.ts';

export const TOOLS = join(ROOT, 'test', 'tools', 'python-client');
const REQUIREMENTS = readFileSync(join(TOOLS, 'requirements.txt'));
export const INSTALL_MS = 300_000;
const COMMAND_MS = 120_000;
const PROGRAM_MS = 600_000;

/** @returns the environment that has the client of the lock file */
export function installed(): Promise<string> {
  const version = createHash('sha256').update(REQUIREMENTS).digest('hex').slice(0, 12);
  return once(`python-client-${version}`, async (directory) => {
    await execa('python3', ['-m', 'venv', directory], { timeout: INSTALL_MS });
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps'];
    await execa(join(directory, 'bin', 'python'), [...pip, '-r', join(TOOLS, 'requirements.txt')], {
      timeout: INSTALL_MS,
    });
  });
}

export interface Ran {
  readonly code: number | undefined;
  readonly text: string;
  readonly json: () => unknown;
}

/**
 * A folder of a person with the client: its command line, and programs that import it.
 * @param address - where the client dials
 */
export async function aPerson(platform: Platform, token = platform.token, address = platform.grpcAddress) {
  const environment = await installed();
  const folder = join(platform.directory, `client-${Math.random().toString(36).slice(2, 8)}`);
  mkdirSync(folder);
  const [host = '', port = ''] = address.split(':');
  const env = {
    HOME: folder,
    CONFIG_PATH: join(folder, 'config.ini'),
    PATH: process.env['PATH'] ?? '',
    COLUMNS: '200',
    BETA9_TOKEN: token,
    BETA9_GATEWAY_HOST: host,
    BETA9_GATEWAY_PORT: port,
    // The client copies files in processes that it forks, which gRPC ends otherwise.
    GRPC_ENABLE_FORK_SUPPORT: '0',
  };
  writeFileSync(env.CONFIG_PATH, `[default]\ntoken = ${token}\ngateway_host = ${host}\ngateway_port = ${port}\n`);
  /** Runs the command line, or Python with the client, in a folder. */
  const run = async (
    program: 'beta9' | 'python',
    args: readonly string[],
    how: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>>; readonly timeout?: number } = {},
  ): Promise<Ran> => {
    const ran = await execa(join(environment, 'bin', program), args, {
      cwd: how.cwd ?? folder,
      stdin: 'ignore',
      env: { ...env, ...how.env },
      extendEnv: false,
      reject: false,
      timeout: how.timeout ?? COMMAND_MS,
    });
    const text = `${ran.stdout}\n${ran.stderr}`;
    return { code: ran.exitCode, text, json: () => JSON.parse(ran.stdout) as unknown };
  };
  const beta9 = (...args: readonly string[]): Promise<Ran> => run('beta9', ['--no-input', ...args]);
  /** Runs a program. @returns what it printed as JSON on its last line */
  const python = async (
    script: string,
    more: Readonly<Record<string, string>> = {},
    timeout = PROGRAM_MS,
  ): Promise<unknown> => {
    const file = join(folder, 'program.py');
    writeFileSync(file, script);
    const ran = await execa(join(environment, 'bin', 'python'), [file], {
      cwd: folder,
      env: { ...env, ...more },
      extendEnv: false,
      timeout,
    });
    return JSON.parse(ran.stdout.split('\n').at(-1) ?? '') as unknown;
  };
  /** Starts the command line, or a program, and leaves it running. */
  const start = (program: 'beta9' | 'python', ...args: readonly string[]) =>
    execa(join(environment, 'bin', program), args, {
      cwd: folder,
      env: { ...env, PYTHONUNBUFFERED: '1' },
      extendEnv: false,
      reject: false,
      all: true,
      timeout: PROGRAM_MS,
    });
  return { environment, folder, run, beta9, python, start };
}
