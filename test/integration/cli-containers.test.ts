// `longshore container exec`, `shell`, `attach`, `cp` and `port-forward`: most as processes; terminals are real ones.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  closeSync,
  openSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { HANDLER, POD, aContainerWorld } from '../helpers/containers.ts';
import { expectOutput } from '../helpers/golden.ts';
import { terminal as terminalProgram } from '../helpers/terminal.ts';
import type { ContainerWorld } from '../helpers/containers.ts';

const PROGRAM = join(import.meta.dirname, '../../bin/longshore.mjs');
let world: ContainerWorld;
let home: string;
beforeAll(async () => {
  world = await aContainerWorld();
  home = mkdtempSync(join(tmpdir(), 'cli-'));
});
afterAll(async () => {
  await world.stop();
  rmSync(home, { recursive: true, force: true });
});

class Run {
  readonly child: ChildProcess;
  out = '';
  err = '';
  readonly code: Promise<number | null>;

  /** @param options.input - descriptor of an open file; absent: a pipe */
  constructor(
    args: readonly string[],
    {
      terminal = false,
      input,
      token = 'own',
    }: { readonly terminal?: boolean; readonly input?: number; readonly token?: string } = {},
  ) {
    const line = [process.execPath, PROGRAM, 'container', ...args];
    const env = {
      PATH: process.env['PATH'],
      HOME: home,
      TERM: 'xterm',
      LONGSHORE_URL: world.url,
      LONGSHORE_TOKEN: token,
    };
    const [file = '', ...rest] = terminal ? ['python3', '-c', terminalProgram(90), ...line] : line;
    this.child = spawn(file, rest, { env, stdio: [input ?? 'pipe', 'pipe', 'pipe'] });
    if (input !== undefined) closeSync(input);
    this.child.stdout?.on('data', (data: Buffer) => (this.out += data.toString()));
    this.child.stderr?.on('data', (data: Buffer) => (this.err += data.toString()));
    this.code = new Promise((resolve) => this.child.once('close', resolve));
  }

  say(text: string): void {
    this.child.stdin?.write(text);
  }

  seen(text: string): Promise<void> {
    return vi.waitFor(() => expect(this.out + this.err).toContain(text), { timeout: 30_000 });
  }
}

const ended = async (
  args: readonly string[],
  input = '',
): Promise<{ out: string; err: string; code: number | null }> => {
  if (args[0] === 'cp' && !args.includes('-')) {
    // Reads no input, so it needs no process.
    const env = { LONGSHORE_CONTEXT_FILE: join(home, 'none.json'), LONGSHORE_URL: world.url, LONGSHORE_TOKEN: 'own' };
    const { stdout, stderr, code } = await runCommand(['container', ...args], env);
    return { out: stdout, err: stderr, code };
  }
  const run = new Run(args);
  run.child.stdin?.end(input);
  const code = await run.code;
  return { out: run.out, err: run.err, code };
};

test('exec passes input, output, errors, variables and the exit code', async () => {
  const words = ['sh', '-c', 'cat; echo "$A $PWD" >&2; exit 9'];
  const args = ['exec', POD, '--env', 'A=b', '--cwd', '/tmp', '--', ...words];
  const { out: stdout, err: stderr, code } = await ended(args, 'one\n');
  expect({ stdout, stderr, code }).toEqual({ stdout: 'one\n', stderr: 'b /tmp\n', code: 9 });
  expectOutput('container exec', { stdout, stderr });
});

test('exec takes its input from a file', async () => {
  const file = join(home, 'input');
  writeFileSync(file, 'of a file\n');
  const run = new Run(['exec', POD, '--', 'sh', '-c', 'cat; exit 4'], { input: openSync(file, 'r') });
  expect([await run.code, run.out, run.err]).toEqual([4, 'of a file\n', '']);
});

/** Tells the hash of its input, and on stderr how much has come. */
const HASHES = `
import hashlib, os, sys
seen, total = hashlib.sha256(), 0
for piece in iter(lambda: os.read(0, 1 << 16), b''):
    seen.update(piece)
    if total // (8 << 20) < (total + len(piece)) // (8 << 20):
        print('came', (total + len(piece)) // (8 << 20), file=sys.stderr, flush=True)
    total += len(piece)
print(seen.hexdigest(), total)
`;

test('input that was on its way when the connection broke reaches the program once', async () => {
  const file = join(home, 'large');
  const bytes = randomBytes(64 * 1024 * 1024);
  writeFileSync(file, bytes);
  const run = new Run(['exec', POD, '--', 'python3', '-c', HASHES], { input: openSync(file, 'r') });
  for (const part of [1, 3, 5]) {
    await run.seen(`came ${part}\n`);
    world.supervisor.cut();
  }
  expect(await run.code, run.err).toBe(0);
  expect(run.err.match(/connected again/g)).toHaveLength(3);
  expect(run.out).toBe(`${createHash('sha256').update(bytes).digest('hex')} ${bytes.length}\n`);
});

test('exec says what is wrong, and what to do', async () => {
  expect(await ended(['exec', 'no-such', '--', 'true'])).toMatchObject({
    code: 4,
    err: expect.stringContaining('container list'),
  });
  expect(await ended(['exec', POD, '--', '/no/such'])).toMatchObject({
    code: 127,
    err: expect.stringContaining('/no/such'),
  });
  expect(await ended(['exec', POD, '--', '/etc/passwd'])).toMatchObject({
    code: 126,
    err: expect.stringContaining('/etc/passwd'),
  });
  // A file that may be run, in no format of a program.
  const formless = join(world.supervisor.directory, 'formless');
  writeFileSync(formless, 'text', { mode: 0o755 });
  expect(await ended(['exec', POD, '--', formless])).toMatchObject({
    code: 126,
    err: expect.stringContaining('formless') as string,
  });
  expect(await ended(['exec', POD, '--', ''])).toMatchObject({
    code: 1,
    err: expect.stringContaining('name a program'),
  });
  expect(await ended(['exec', POD, '--env', 'A', '--', 'true'])).toMatchObject({ code: 2 });
  expect(await ended(['exec', POD, 'ls', '-l'])).toMatchObject({ code: 2, err: expect.stringContaining('behind --') });
  expect(await ended(['shell', POD])).toMatchObject({ code: 2, err: expect.stringContaining('terminal') });
});

test('a terminal has its size, Ctrl-C reaches the program, and a lost connection is made again', async () => {
  const run = new Run(['exec', POD, '--', 'bash', '--norc'], { terminal: true });
  run.say('stty size; echo $((40+2))\n');
  await run.seen('30 90');
  await run.seen('42');
  // The program has the terminal once it prints a word itself; a Ctrl-C before that reaches the shell.
  run.say("sh -c 'echo begun-$((3+4)); exec sleep 1000'\n");
  await run.seen('begun-7');
  run.say('\u0003');
  run.say('echo still-$((1+1))\n');
  await run.seen('still-2');
  world.supervisor.cut();
  await run.seen('connected again');
  run.say('echo back-$((2+3)); exit 6\n');
  await run.seen('back-5');
  expect(await run.code).toBe(6);
  expect(run.out.match(/still-2/g)).toHaveLength(1);
});

test('a shell ends with its exit code', async () => {
  const run = new Run(['shell', POD], { terminal: true });
  run.say('echo in-$((3*3)); exit 4\n');
  await run.seen('in-9');
  expect(await run.code).toBe(4);
});

test('attach prints the output of a container, and ends with its exit code', async () => {
  world.logLines.push({ seq: 1, line: 'printed' });
  const run = new Run(['attach', HANDLER]);
  await run.seen('printed');
  world.rows.set(HANDLER, { ...world.rows.get(HANDLER), state: 'STOPPED', exitCode: 3 } as never);
  expect(await run.code).toBe(3);
  expect(run.out).toBe('printed\n');
  expectOutput('container attach', { stdout: run.out, stderr: run.err });
});

test('cp takes files and folders both ways, and standard input and output', async () => {
  const inside = (name: string): string => join(world.supervisor.directory, name);
  const here = (name: string): string => join(home, name);
  mkdirSync(here('tree/sub'), { recursive: true });
  writeFileSync(here('tree/sub/one'), 'first');
  symlinkSync('sub/one', here('tree/link'));
  const copied = async (from: string, to: string, input = ''): Promise<string> => {
    const { out, err, code } = await ended(['cp', from, to], input);
    expect([from, to, code, err]).toEqual([from, to, 0, '']);
    return out;
  };
  await copied(here('tree/sub/one'), `${POD}:${inside('a')}`);
  expect(readFileSync(inside('a'), 'utf8')).toBe('first');
  await copied('-', `${POD}:${inside('b')}`, 'typed');
  const typed = await copied(`${POD}:${inside('b')}`, '-');
  expect(typed).toBe('typed');
  expectOutput('container cp', { stdout: typed, stderr: '' });
  await copied(here('tree'), `${POD}:${inside('new')}`);
  expect(readlinkSync(inside('new/link'))).toBe('sub/one');
  await copied(here('tree'), `${POD}:${inside('new')}/`);
  expect(readFileSync(inside('new/tree/sub/one'), 'utf8')).toBe('first');
  mkdirSync(here('-v'));
  await copied(here('-v'), `${POD}:${inside('new')}/`);
  expect(existsSync(inside('new/-v'))).toBe(true);
  await copied(`${POD}:${inside('new')}`, here('out'));
  expect([readFileSync(here('out/tree/sub/one'), 'utf8'), readlinkSync(here('out/link'))]).toEqual([
    'first',
    'sub/one',
  ]);
  await copied(`${POD}:${inside('a')}`, here('out'));
  expect(readFileSync(here('out/a'), 'utf8')).toBe('first');
  for (const again of [1, 2]) {
    writeFileSync(inside('new/tree/sub/one'), `time ${again}`);
    await copied(`${POD}:${inside('new/tree')}`, here('out'));
    expect([readFileSync(here('out/tree/sub/one'), 'utf8'), readdirSync(here('out')).toSorted()]).toEqual([
      `time ${again}`,
      ['-v', 'a', 'link', 'sub', 'tree'],
    ]);
  }
  chmodSync(inside('a'), 0o6755);
  await copied(`${POD}:${inside('a')}`, here('plain'));
  expect(statSync(here('plain')).mode & 0o7777).toBe(0o755);
  const missing = await ended(['cp', `${POD}:${inside('no-such')}`, here('x')]);
  expect([missing.code, existsSync(here('x'))]).toEqual([1, false]);
  const nowhere = await ended(['cp', `${POD}:${inside('b')}`, here('no-such/x')]);
  expect([nowhere.code, nowhere.err]).toEqual([
    1,
    expect.stringContaining(`cannot write ${here('no-such/x')} (ENOENT)`),
  ]);
  expect((await ended(['cp', here('a'), here('b')])).code).toBe(2);
}, 120_000);

test('cp says what a container does not have, cannot give, or cannot take', async () => {
  const target = join(home, 'got');
  const refusals: readonly (readonly [readonly string[], string])[] = [
    [[`${POD}:/proc/no-such`, '-'], 'the container has no /proc/no-such'],
    [[`${POD}:/proc/no-such`, target], 'the container has no /proc/no-such'],
    [[`${POD}:/tmp`, '-'], '/tmp is a folder'],
    [[`${POD}:/proc/self/mem`, '-'], '/proc/self/mem'],
    [[PROGRAM, `${POD}:/proc/no-such`], 'cannot write /proc/no-such'],
    [['C:/dir', '-'], 'a single letter is a drive'],
  ];
  for (const [sides, text] of refusals) {
    const { err, code } = await ended(['cp', ...sides]);
    expect(err).toContain(text);
    expect(err).not.toMatch(/no such thing|was lost|longshore-[0-9a-f]{16}/);
    expect(code).toBeGreaterThan(0);
  }
  expect(existsSync(target)).toBe(false);
});

test('port-forward tells of a token that may not reach into containers before it listens', async () => {
  const run = new Run(['port-forward', POD, '0:8000'], { token: 'restricted' });
  expect(await run.code).toBe(3);
  expect([run.out, run.err]).toEqual(['', expect.stringContaining('token')]);
});

test('port-forward leads to ports of a container, and ends by Ctrl-C', async () => {
  const server = createServer((request, response) => response.end(`path ${String(request.url)}`));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const run = new Run(['port-forward', POD, `0:${port}`, '0:9']);
  await run.seen('leads to port 9');
  const [first = '', second = ''] = [...run.out.matchAll(/127\.0\.0\.1:(\d+) leads/g)].map(([, local]) => local ?? '');
  expect(await (await fetch(`http://127.0.0.1:${first}/x`)).text()).toBe('path /x');
  await expect(fetch(`http://127.0.0.1:${second}/`)).rejects.toThrow();
  await run.seen('port 9:');
  run.child.kill('SIGINT');
  expect(await run.code).toBe(130);
  expectOutput('container port-forward', { stdout: run.out, stderr: '' }, [[`port ${port} `, 'port <remote> ']]);
  server.close();
  expect((await ended(['port-forward', POD, '80:'])).code).toBe(2);
});
