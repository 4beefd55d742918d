// `longshore up` as a person meets it: from an empty directory to an
// answer, again, after kills of every kind, and when it cannot start.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect } from 'vitest';
import { seedDatabase } from '../helpers/empty-database.ts';
import { docker as openDocker, runProgram, tempDirectory, test, waitFor } from '../helpers/services.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const MAIN = join(ROOT, 'cli', 'main.ts');
const EXAMPLE = join(ROOT, 'examples', 'hello', 'app.py:handler');
const BACK_MS = 30_000;

interface Home {
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

function longshore(home: Home, args: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
  const child = spawn(process.execPath, [MAIN, ...args], {
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
async function up(home: Home, ...args: readonly string[]): Promise<Running> {
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

async function run(home: Home, ...args: readonly string[]): Promise<Ended> {
  return longshore(home, args).ended;
}

async function tokenOf(home: Home): Promise<string> {
  const shown = await run(home, 'context', 'show', '--json');
  return (JSON.parse(shown.stdout) as { token: string }).token;
}

/** Processes (zombies apart) that name this directory in their command line or environment. */
function processesOf(home: Home): { readonly pid: number; readonly command: string }[] {
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

function pidOf(home: Home, name: string): number {
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
async function expectNothingLeft(home: Home): Promise<void> {
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

/** `initialised`: the home has a database, which a start then need not make. */
async function home(state: 'empty' | 'initialised' = 'initialised'): Promise<Home> {
  const made = aHome();
  homes.push(made);
  if (state === 'initialised') await seedDatabase(made.dataDir);
  return made;
}

describe('longshore up', () => {
  test('brings the answer of the example, stops without a trace, and finds everything again', async () => {
    const here = await home('empty');
    const first = await up(here, '--example', EXAMPLE);
    expect(first.stdout()).toContain('{"greeting":"Hello, world!"}');
    expect(first.stderr()).toContain('hello is deployed (version 1)');
    const token = await tokenOf(here);
    expect(first.stdout()).toContain(`Token: ${token}`);
    expect(first.stdout().split('Next:\n')[1]?.trim().split('\n')).toHaveLength(3);
    const contextFile = join(here.env['HOME'] ?? '', '.config', 'longshore', 'contexts.json');
    expect(statSync(contextFile).mode & 0o777).toBe(0o600);

    const invoked = await run(here, 'invoke', 'hello', '--data', '{"name": "Ada"}');
    expect(invoked).toMatchObject({ code: 0, stdout: '{"greeting":"Hello, Ada!"}' });
    const logs = await waitFor(
      async () => {
        const shown = await run(here, 'logs', 'hello');
        return shown.stdout.includes('greeting Ada') && shown;
      },
      'the line the handler wrote is in the log',
      20_000,
    );
    expect(logs.code).toBe(0);
    const status = await run(here, 'status', '--json');
    expect(JSON.parse(status.stdout)).toMatchObject({
      scheduler: { status: 'ready' },
      machines: [{ poolName: 'default' }],
      deployments: [{ name: 'hello', version: 1, active: true }],
      containers: [{ status: 'RUNNING' }],
    });

    first.process.kill('SIGINT');
    expect((await first.ended).code).toBe(0);
    await expectNothingLeft(here);

    // The image that set-up found or built is found again without being told.
    const second = await up({ ...here, env: { ...here.env, LONGSHORE_BASE_IMAGE: '' } }, '--example', EXAMPLE);
    expect(second.stderr()).toContain('hello is deployed already (version 1)');
    expect(second.stdout()).toContain('{"greeting":"Hello, world!"}');
    expect(await tokenOf(here)).toBe(token);
    second.process.kill('SIGTERM');
    expect((await second.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('after kill -9 of the whole tree brings it all back', async () => {
    const here = await home();
    await up(here, '--example', EXAMPLE);
    const token = await tokenOf(here);
    const pids = processesOf(here).map((one) => one.pid);
    expect(pids.length).toBeGreaterThanOrEqual(4);
    for (const pid of pids) process.kill(pid, 'SIGKILL');

    const again = await up(here, '--example', EXAMPLE);
    expect(again.stdout()).toContain('{"greeting":"Hello, world!"}');
    expect(again.stderr()).toContain('hello is deployed already (version 1)');
    expect(await tokenOf(here)).toBe(token);
    again.process.kill('SIGTERM');
    expect((await again.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('killed alone is noticed by its children, and the next one starts at once', async () => {
    const here = await home();
    const first = await up(here);
    const scheduler = pidOf(here, 'main.ts scheduler');
    first.process.kill('SIGKILL');
    await first.ended;
    const second = await up(here);
    expect(processesOf(here).map((one) => one.pid)).not.toContain(scheduler);
    expect(processesOf(here).filter((one) => one.command.includes('redis-server'))).toHaveLength(1);
    second.process.kill('SIGTERM');
    expect((await second.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('starts a scheduler, an agent and a Redis that died again, at the same address', async () => {
    const here = await home();
    const running = await up(here, '--example', EXAMPLE);
    for (const name of ['main.ts scheduler', 'main.ts agent', 'redis-server']) {
      const pid = pidOf(here, name);
      process.kill(pid, 'SIGKILL');
      await waitFor(
        () => processesOf(here).some((one) => one.command.includes(name) && one.pid !== pid),
        `${name} is there again`,
        BACK_MS,
      );
      await waitFor(
        async () => (await run(here, 'invoke', 'hello')).code === 0,
        `a call is answered after the death of ${name}`,
        BACK_MS,
      );
    }
    running.process.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('takes its containers along also while a queue waits for more of them', async () => {
    const here = await home();
    const app = join(here.env['HOME'] ?? '', 'busy');
    mkdirSync(app);
    writeFileSync(
      join(app, 'app.py'),
      'import time\nfrom longshore import QueueDepthAutoscaler, task_queue\n\n@task_queue(name="busy", autoscaler=QueueDepthAutoscaler(max_containers=3))\ndef busy():\n    time.sleep(3)\n',
    );
    const running = await up(here);
    expect((await run(here, 'deploy', join(app, 'app.py'))).code).toBe(0);
    for (let put = 0; put < 6; put += 1)
      expect((await run(here, 'invoke', 'busy', '--kind', 'taskqueue')).code).toBe(0);
    await waitFor(
      async () => (await run(here, 'task', 'list', '--status', 'RUNNING', '--json')).stdout.includes('RUNNING'),
      'a task runs',
      BACK_MS,
    );
    running.process.kill('SIGINT');
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft(here);
  });

  test('shows a handler that raises, with exit code 1, and goes on', async () => {
    const here = await home();
    const app = join(here.env['HOME'] ?? '', 'app');
    mkdirSync(app);
    writeFileSync(
      join(app, 'app.py'),
      'from longshore import endpoint\n\n@endpoint(name="sad")\ndef sad():\n    raise KeyError("x")\n',
    );
    const running = await up(here);
    const deployed = await run(here, 'deploy', join(app, 'app.py'));
    expect(deployed).toMatchObject({ code: 0, stderr: expect.stringContaining('uploading') as string });
    expect(deployed.stdout).toContain('sad version 1 is deployed');
    const invoked = await run(here, 'invoke', 'sad');
    expect(invoked).toMatchObject({ code: 1, stdout: '' });
    expect(invoked.stderr).toContain("sad answered 500: KeyError: 'x'");
    expect((await run(here, 'invoke', 'nobody')).stderr).toContain('no deployment is named nobody');
    running.process.kill('SIGTERM');
    await running.ended;
    await expectNothingLeft(here);
  });
});

/** The block of the README below a heading, in a language. */
function readmeBlock(heading: string, language: string): string {
  const below = readFileSync(join(ROOT, 'README.md'), 'utf8').split(`## ${heading}\n`)[1] ?? '';
  return below.split(`\`\`\`${language}\n`)[1]?.split('\n```')[0] ?? '';
}

describe('the README', () => {
  test('has an app that can be deployed and commands that need nothing but curl', async () => {
    const here = await home();
    const app = join(here.env['HOME'] ?? '', 'app');
    mkdirSync(app);
    writeFileSync(join(app, 'app.py'), readmeBlock('Five minutes', 'python'));
    const running = await up(here);
    expect((await run(here, 'deploy', join(app, 'app.py'))).code).toBe(0);
    const invoked = await run(here, 'invoke', 'predict', '--data', '{"text": "hi"}');
    expect(invoked).toMatchObject({ code: 0, stdout: '{"text":"hi","model":"…"}' });

    const { url, token } = JSON.parse((await run(here, 'context', 'show', '--json')).stdout) as Record<string, string>;
    const commands = readmeBlock('With curl alone', 'sh').replace(/^URL=.*$/m, `URL=${url} TOKEN=${token}`);
    expect(commands).toContain(String(url));
    const folder = join(here.env['HOME'] ?? '', 'curl');
    mkdirSync(folder);
    expect(await runProgram('bash', ['-e', '-c', commands], { cwd: folder })).toMatch(/\{"greeting":"Hello, Ada!"\}$/);
    running.process.kill('SIGTERM');
    await running.ended;
    await expectNothingLeft(here);
  });
});

describe('longshore up that cannot start', () => {
  test('because its port is taken says so, and leaves nothing running', async () => {
    const here = await home();
    const blocker = createServer().listen(0, '127.0.0.1');
    await waitFor(() => blocker.listening, 'the port is taken');
    const address = blocker.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const ended = await run(here, 'up', '--port', String(port));
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain(String(port));
    expect(ended.stderr).toContain('LONGSHORE_HTTP_ADDRESS');
    expect(ended.stderr).not.toContain('starting');
    const metrics = { LONGSHORE_AGENT_METRICS_ADDRESS: `127.0.0.1:${port}` };
    expect((await longshore(here, ['up'], metrics).ended).stderr).toBe(
      `longshore: cannot listen on 127.0.0.1:${port}: another program has that port; stop it or set LONGSHORE_AGENT_METRICS_ADDRESS to a free one (port 0 picks one)\n`,
    );
    blocker.close();
    await expectNothingLeft(here);
  });

  test('because no Docker answers says so, and leaves nothing running', async () => {
    const here = await home();
    const ended = await longshore(here, ['up'], { DOCKER_HOST: 'unix:///nonexistent/docker.sock' }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('no Docker Engine answers at unix:///nonexistent/docker.sock');
    expect(ended.stderr).toContain('install and start Docker');
    // The engine is looked for first: nothing was started in vain.
    expect(ended.stderr).not.toContain('starting');
    await expectNothingLeft(here);
  });

  test('because its agent does not start leaves the context that commands use, and the next start has its own', async () => {
    const here = await home();
    const folder = join(here.env['HOME'] ?? '', '.config', 'longshore');
    mkdirSync(folder, { recursive: true });
    const other = { url: 'http://127.0.0.1:9', token: 'eyJ.other', workspaceId: 'w-1' };
    const before = JSON.stringify({ current: 'local', contexts: { local: other } });
    writeFileSync(join(folder, 'contexts.json'), before);
    // The agent's own directory cannot be made where a file is.
    mkdirSync(here.dataDir, { recursive: true });
    writeFileSync(join(here.dataDir, 'agent'), '');
    const ended = await run(here, 'up');
    rmSync(join(here.dataDir, 'agent'));
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('scheduler is ready');
    expect(ended.stderr).toContain(join(here.dataDir, 'agent'));
    expect(readFileSync(join(folder, 'contexts.json'), 'utf8')).toBe(before);
    expect((await run(here, 'status')).stderr).toContain('(ECONNREFUSED, context local;');

    const again = await up(here);
    const contexts = JSON.parse((await run(here, 'context', 'list', '--json')).stdout) as unknown;
    expect(contexts).toMatchObject([
      { name: 'local', current: false },
      { name: 'local-2', current: true },
    ]);
    expect((await run(here, 'status')).code).toBe(0);
    again.process.kill('SIGTERM');
    await again.ended;
    await expectNothingLeft(here);
  });

  test('because Redis is not installed says so', async () => {
    const here = await home();
    const path = (here.env['PATH'] ?? '').split(delimiter).filter((one) => !existsSync(join(one, 'redis-server')));
    const ended = await longshore(here, ['up'], { PATH: path.join(delimiter) }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('apt-get install redis-server');
    await expectNothingLeft(here);
  });

  test('because a setting is wrong names it', async () => {
    const here = await home();
    const ended = await longshore(here, ['up'], { LONGSHORE_LOG_LEVEL: 'loud', LONGSHORE_DTA_DIR: '/x' }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('LONGSHORE_LOG_LEVEL: must be one of');
    expect(ended.stderr).toContain('LONGSHORE_DTA_DIR: no such setting; did you mean LONGSHORE_DATA_DIR?');
    expect(ended.stderr).not.toContain('starting');
    const ofAgent = await longshore(here, ['up'], { LONGSHORE_DEFAULT_PYTHON: '2' }).ended;
    expect(ofAgent).toMatchObject({ code: 1, stdout: '' });
    expect(ofAgent.stderr).toContain('LONGSHORE_DEFAULT_PYTHON: must be');
    expect(ofAgent.stderr).not.toContain('starting');
    await expectNothingLeft(here);
  });

  test('because its data directory cannot be made says so', async () => {
    const ended = await run(await home(), 'up', '--data-dir', '/proc/longshore');
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('cannot write to the data directory /proc/longshore');
  });

  test('because another one runs on its directory says so, and does it no harm', async () => {
    const here = await home();
    const first = await up(here);
    const second = await run(here, 'up');
    expect(second.code).toBe(1);
    expect(second.stderr).toContain(`another \`longshore up\` runs with the data directory ${here.dataDir}`);
    expect((await run(here, 'status')).code).toBe(0);
    first.process.kill('SIGTERM');
    await first.ended;
    await expectNothingLeft(here);
  });
});
