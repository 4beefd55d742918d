// Published clients of the OpenAI API, unmodified, at pinned versions. Each is installed once for a version, beside
// set-up's state, and runs in a process of its own as a program of test/fixtures/openai-clients.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { execa } from 'execa';
import { once } from './api-clients.ts';
import { ROOT } from './platform.ts';

const PROGRAMS = join(ROOT, 'test', 'fixtures', 'openai-clients');
const PYTHON_PACKAGES = ['openai==3.57.0', 'pydantic-ai-slim[openai]==2.68.0'];
const INSTALL_MS = 300_000;

export const CLIENTS = ['npm', 'PyPI'] as const;
export type ClientName = (typeof CLIENTS)[number];

/** A call of the client, as the programs take it. */
export interface Step {
  readonly kind: 'chat' | 'stream' | 'streams' | 'completion' | 'embeddings' | 'models' | 'retrieve';
  readonly args?: Readonly<Record<string, unknown>>;
  /** Key instead of the installation's token. */
  readonly key?: string;
  /** Times that the client may try again; 2 when absent, as the clients themselves have it. */
  readonly retries?: number;
  /** Chunks of a stream after which the program leaves it. */
  readonly leave_after?: number;
  /** Streams side by side. */
  readonly count?: number;
}

export interface ClientError {
  readonly name: string;
  readonly status: number | null;
  readonly code: string | null;
  readonly type: string | null;
  readonly param: string | null;
  readonly message: string;
}
export interface Outcome {
  readonly value?: unknown;
  readonly error?: ClientError;
  /** Requests that the client sent. */
  readonly requests: number;
  /** When the program was done with it; epoch milliseconds. */
  readonly atMs: number;
}

export interface Address {
  readonly url: string;
  readonly token: string;
}

/** Runs the steps in turn with a client. */
export async function runSteps(client: ClientName, at: Address, steps: readonly Step[]): Promise<readonly Outcome[]> {
  const [program, ...args] = client === 'npm' ? await npmProgram() : await pythonProgram('calls.py');
  return JSON.parse(await said(program ?? '', args, at, {}, JSON.stringify(steps))) as readonly Outcome[];
}

/** Runs the agent of a published framework with a model. @returns the JSON that it prints */
export async function runAgent(at: Address, model: string): Promise<unknown> {
  const [program, ...args] = await pythonProgram('agent.py');
  return JSON.parse(await said(program ?? '', args, at, { MODEL: model }, '')) as unknown;
}

async function said(
  program: string,
  args: readonly string[],
  { url, token }: Address,
  more: NodeJS.ProcessEnv,
  input: string,
): Promise<string> {
  const env = { PATH: process.env['PATH'], API_URL: `${url}/v1`, API_TOKEN: token, ...more };
  const child = spawn(program, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin.end(input);
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  if (stdout === '') throw new Error(`${program} ${args.join(' ')} said nothing:\n${stderr.slice(-4000)}`);
  return stdout;
}

async function npmProgram(): Promise<readonly string[]> {
  const from = join(ROOT, 'test', 'tools', 'openai-clients');
  const lock = readFileSync(join(from, 'package-lock.json'));
  const version = createHash('sha256').update(lock).digest('hex').slice(0, 12);
  const directory = await once(`openai-npm-${version}`, async (folder) => {
    cpSync(from, folder, { recursive: true });
    await execa('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: folder, timeout: INSTALL_MS });
  });
  // The program finds the package beside it.
  const program = join(directory, 'calls.mjs');
  copyFileSync(join(PROGRAMS, 'calls.mjs'), program);
  return [process.execPath, program];
}

async function pythonProgram(name: string): Promise<readonly string[]> {
  const version = createHash('sha256').update(PYTHON_PACKAGES.join(' ')).digest('hex').slice(0, 12);
  const directory = await once(`openai-python-${version}`, async (folder) => {
    await execa('python3', ['-m', 'venv', folder], { timeout: INSTALL_MS });
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
    await execa(join(folder, 'bin', 'python'), [...pip, ...PYTHON_PACKAGES], { timeout: INSTALL_MS });
  });
  return [join(directory, 'bin', 'python'), join(PROGRAMS, name)];
}
