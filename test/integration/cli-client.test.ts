// The commands about the program itself, against a real scheduler: login, logout, version, init.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';
import { ROOT } from '../helpers/repository.ts';
import { freePort, tempDirectory } from '../helpers/programs.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

const MAIN = join(ROOT, 'cli', 'main.ts');
const VERSION = (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version;

let platform: Platform;
let url = '';
let directory: ReturnType<typeof tempDirectory>;
beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  url = `http://${platform.address}`;
});
afterAll(() => platform.stop());
beforeEach(() => {
  directory = tempDirectory('cli-client');
  return () => directory.remove();
});

const contextFile = (): string => join(directory.path, 'config', 'contexts.json');
const contexts = (): unknown => JSON.parse(readFileSync(contextFile(), 'utf8'));

const run = (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ended> =>
  runCommand(args, { LONGSHORE_CONTEXT_FILE: contextFile(), ...env });

/** A process, whose stdin is a pipe. */
async function piped(
  args: readonly string[],
  stdin: string,
): Promise<{ readonly code: number | null } & Omit<Ended, 'code'>> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: process.env['PATH'], LONGSHORE_CONTEXT_FILE: contextFile() },
    stdio: 'pipe',
  });
  child.stdin.on('error', () => {}).end(stdin);
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, stdout, stderr };
}

describe('login', () => {
  test('tries a token from stdin, keeps it for its owner alone, and commands use it', async () => {
    const { token, workspaceId } = platform.own;
    const ended = await piped(['login', `${url}/`], `${token}\n`);
    expect(ended).toEqual({
      code: 0,
      stdout: `logged in to ${url}, workspace own; commands now use the context 127.0.0.1\n`,
      stderr: '',
    });
    expect(contexts()).toEqual({ current: '127.0.0.1', contexts: { '127.0.0.1': { url, token, workspaceId } } });
    expect(statSync(contextFile()).mode & 0o777).toBe(0o600);
    expect(await run(['token', 'list'])).toMatchObject({ code: 0, stdout: expect.stringContaining('(this one)') });
  });

  test('keeps nothing when the token is refused', async () => {
    const ended = await run(['login', url, '--token', platform.revoked]);
    expect(ended).toMatchObject({ stdout: '', stderr: expect.stringContaining('does not accept the token') });
    expect(ended.code).not.toBe(0);
    expect(() => contexts()).toThrow(/ENOENT/);
  });

  test('keeps a context for each workspace, and another one by name', async () => {
    await run(['login', url, '--token', platform.own.token]);
    await run(['login', '--token', platform.other.token]);
    await run(['login', '--token', platform.own.token]);
    await run(['login', url, '--context', 'admin', '--token', platform.admin.token, '--json']);
    expect(contexts()).toMatchObject({
      current: 'admin',
      contexts: {
        '127.0.0.1': { url, token: platform.own.token, workspaceId: platform.own.workspaceId },
        other: { url, token: platform.other.token, workspaceId: platform.other.workspaceId },
        admin: { url, token: platform.admin.token },
      },
    });
  });

  test.for([
    [[], 'which installation?'],
    [['longshore.example.com'], 'must start with http:// or https://'],
  ] as const)('%j is refused with the next step', async ([args, text]) => {
    const ended = await run(['login', ...args]);
    expect(ended).toMatchObject({ stdout: '', stderr: expect.stringContaining(text) });
    expect(ended.code).not.toBe(0);
  });

  test('says where a token may come from when none does', async () => {
    expect(await piped(['login', url], '\n')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no token came'),
    });
  });

  test('says that variables win over what it keeps', async () => {
    const ended = await run(['login', url, '--token', platform.own.token], { LONGSHORE_TOKEN: 'old' });
    expect(ended).toMatchObject({ code: 0, stderr: expect.stringContaining('LONGSHORE_TOKEN is set, and wins') });
  });
});

test('logout forgets a context with its token; the token stays good', async () => {
  await run(['login', url, '--token', platform.own.token]);
  await run(['login', url, '--context', 'second', '--token', platform.own.token]);
  const ended = await run(['logout']);
  expect(ended.stdout).toBe(`logged out of ${url}: the context second and its token are forgotten here\n`);
  expect(contexts()).toMatchObject({ current: '', contexts: { '127.0.0.1': { token: platform.own.token } } });
  expect((await run(['logout'])).stderr).toContain('no context is current');
  expect(await run(['logout', '--context', '127.0.0.1', '--json'])).toMatchObject({ code: 0 });
  expect(contexts()).toEqual({ current: '', contexts: {} });
  expect((await platform.call('GET /api/v1/workspace/current')).status).toBe(200);
});

describe('version', () => {
  test('tells this program and the scheduler', async () => {
    await run(['login', url, '--token', platform.own.token]);
    expect(await run(['version'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        new RegExp(`^longshore ${VERSION} \\(Node .+\\)\nscheduler ${VERSION} at ${url}\n$`),
      ),
    });
    expect(JSON.parse((await run(['version', '--json'])).stdout)).toMatchObject({
      client: { version: VERSION },
      server: { url, version: VERSION },
    });
  });

  test('needs no scheduler', async () => {
    const away = `http://127.0.0.1:${await freePort()}`;
    const ended = await run(['version', '--url', away, '--token', 'x', '--json']);
    expect(ended).toMatchObject({ code: 0, stderr: expect.stringContaining(`cannot reach ${away}`) });
    expect(JSON.parse(ended.stdout)).toMatchObject({ client: { version: VERSION }, server: null });
    for (const args of [['--version'], ['-V'], ['--url', away, '--version']])
      expect(await run(args)).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' });
  });
});

describe('init', () => {
  test('copies a template, names its deployment after the folder, and tells the next steps', async () => {
    const ended = await run(['init', join(directory.path, 'My Shop')]);
    expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(ended.stdout).toContain("My Shop'\n  longshore deploy app.py\n  longshore invoke my-shop --data ");
    const app = readFileSync(join(directory.path, 'My Shop', 'app.py'), 'utf8');
    expect(app).toContain("@endpoint(name='my-shop'");
  });

  test('sets the variables that next steps use, unless they are set', async () => {
    const made = await run(['init', join(directory.path, 'a'), '--template', 'text_generator']);
    const line = /\n {2}export LONGSHORE_URL=http:\/\/\S+ LONGSHORE_TOKEN=\$\(longshore context token\)\n/;
    expect(made.stdout).toMatch(line);
    const set = { LONGSHORE_URL: url, LONGSHORE_TOKEN: platform.own.token };
    expect((await run(['init', join(directory.path, 'b'), '--template', 'text_generator'], set)).stdout).not.toMatch(
      line,
    );
    expect((await run(['init', join(directory.path, 'c')])).stdout).not.toMatch(line);
    // A program of the template finds the module.
    const program = await run(['init', join(directory.path, 'd'), '--template', 'add']);
    expect(program.stdout).toMatch(
      /^ {2}export PYTHONPATH=\S+\/python {2}# has the module longshore; [^]*^ {2}python3 app\.py/m,
    );
  });

  test('never overwrites a file, and writes nothing then', async () => {
    mkdirSync(join(directory.path, 'site'));
    writeFileSync(join(directory.path, 'site', 'app.py'), 'mine');
    const ended = await run(['init', join(directory.path, 'site'), '--template', 'site']);
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringContaining('has app.py already') });
    expect(readdirSync(join(directory.path, 'site'))).toEqual(['app.py']);
    expect(readFileSync(join(directory.path, 'site', 'app.py'), 'utf8')).toBe('mine');
  });

  test('copies into a folder that has files of other names', async () => {
    writeFileSync(join(directory.path, 'notes.txt'), 'mine');
    const { stdout, code } = await run(['init', directory.path, '--template', 'site', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      template: 'site',
      files: ['app.py', 'pages/index.html', 'pages/style.css'],
    });
    expect(readdirSync(directory.path).toSorted()).toEqual(['app.py', 'notes.txt', 'pages']);
  });

  test('lists templates, and refuses others', async () => {
    const { stdout } = await run(['init', '--list', '--json']);
    expect(JSON.parse(stdout)).toContainEqual({ name: 'hello', shows: 'the smallest endpoint' });
    expect(await run(['init', 'x', '--template', '../docs'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('`longshore init --list` shows them'),
    });
  });
});

describe('names for completion', () => {
  test('are those of the installation, of the contexts and of the templates', async () => {
    await platform.deploy('greeter');
    await run(['login', url, '--context', 'prod', '--token', platform.own.token]);
    expect(await run(['complete-names', 'deployments'])).toEqual({ code: 0, stdout: 'greeter\n', stderr: '' });
    expect((await run(['complete-names', 'contexts'])).stdout).toBe('prod\n');
    expect((await run(['complete-names', 'templates'])).stdout).toContain('hello\n');
  });

  test('are none, and nothing is said, where nobody answers', async () => {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const address = silent.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    for (const at of [`http://127.0.0.1:${port}`, `http://127.0.0.1:${await freePort()}`])
      expect(await piped(['complete-names', 'pools', '--url', at, '--token', 'x'], '')).toEqual({
        code: 0,
        stdout: '',
        stderr: '',
      });
    silent.closeAllConnections();
    silent.close();
  });
});
