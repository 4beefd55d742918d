// Output on descriptors 1 and 2 beside prints, in the real runner as the first process of a container: it is found
// under the task that runs, in its place among the prints, and no end of a process loses it.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { FakeAgent } from '../helpers/fake-agent.ts';
import { firstProcess } from '../helpers/first-process.ts';
import { waitFor } from '../helpers/programs.ts';
import { app, test } from './runner-started.ts';

const python = await firstProcess();
/** Lines of frames, and those that the first process wrote to the engine's log, in the same form. */
const allLines = (agent: FakeAgent): readonly string[] => [
  ...agent.lines(),
  // oxlint-disable-next-line no-control-regex
  ...agent.stdout
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [`stdout ${line.replace(/^\0task ([^\0]+)\0|^/, '$1 ')}`])),
];

const EVERY_KIND = `
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None)
def handler():
    print('a print')
    subprocess.run(['echo', 'from a child'])
    print('another', end=' ')
    subprocess.run('echo to errors >&2', shell=True)
    print('print')
    os.write(1, b'written\\n')
    libc.printf(b'by C %d\\n', 1)
    if not os.fork():
        print('forked')
        os._exit(0)
    os.wait()
    subprocess.run('echo opened anew > /dev/stdout', shell=True)
    print('errors', file=sys.stderr)
    libc.printf(b'by C without an end')
    return 'done'
async def later(): return handler()
`;
const LINES = [
  'stdout TASK a print',
  'stdout TASK from a child',
  'stderr TASK to errors',
  'stdout TASK another print',
  'stdout TASK written',
  'stdout TASK by C 1',
  'stdout TASK forked',
  'stdout TASK opened anew',
  'stderr TASK errors',
  'stdout TASK by C without an end',
];

describe('output of child processes and C code', () => {
  const kinds: readonly (readonly [string, Readonly<Record<string, string>>, string?])[] = [
    ['an endpoint', {}],
    ['a function', { STUB_TYPE: 'function/deployment' }],
    ['several slots', { CONCURRENT_REQUESTS: '2' }],
    ['an asynchronous handler', { CONCURRENT_REQUESTS: '2' }, 'app:later'],
    ['forked workers', { WORKERS: '2' }],
    ['spawned workers', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }],
    ['workers in threads', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' }],
    ['a development server', { STUB_TYPE: 'endpoint/serve' }],
  ];
  test.for(kinds)(
    'is found under its task, in its place, and before the result: %s',
    async ([, env, handler], { start }) => {
      const agent = await start({ files: app(EVERY_KIND), python, env, ...(handler === undefined ? {} : { handler }) });
      for (const task of ['task-1', 'task-2']) {
        expect(await agent.call()).toMatchObject({ outcome: 'ok', body: '"done"' });
        expect(agent.lines().filter((line) => line.includes(task))).toEqual(
          LINES.map((line) => line.replace('TASK', task)),
        );
      }
      expect(agent.stdout).toBe('');
    },
  );

  test('is cut into lines as prints are, whole characters and with no end', async ({ start }) => {
    const text = `
import os, subprocess, sys
def handler():
    for piece in (b'caf\\xc3', b'\\xa9\\r\\n', b'bad \\xff\\n', b'\\n', b'10%\\r20%\\r', b'100%\\n', 'é'.encode() * 100000 + b'\\n', b'last'):
        os.write(2, piece)
        subprocess.run(['true'])
    return None
`;
    const agent = await start({ files: app(text), python });
    await agent.call();
    const lines = agent.lines().map((line) => line.replace('stderr task-1 ', ''));
    expect(lines.slice(0, 4)).toEqual(['café', 'bad \ufffd', '', '10%\r20%\r100%']);
    const long = lines.slice(4, -1);
    expect([long.join(''), lines.at(-1)]).toEqual(['é'.repeat(100_000), 'last']);
    expect(long.map((line) => Buffer.byteLength(line) <= 64 * 1024)).toEqual([true, true, true, true]);
  });

  test('of a child that outlives its task is found under the one that runs then, or under none', async ({ start }) => {
    const text = `
import os, subprocess, time
child = None
def handler(step):
    global child
    if step == 1:
        child = subprocess.Popen(['sh', '-c', 'while read line; do echo $line; done'], stdin=subprocess.PIPE)
        return
    say('two')
    return
def say(word):
    child.stdin.write(word.encode() + b'\\n')
    child.stdin.flush()
    time.sleep(0.3)
`;
    const agent = await start({ files: app(text), python });
    await agent.call({ step: 1 });
    await agent.call({ step: 2 });
    expect(agent.lines()).toEqual(['stdout task-2 two']);
  });

  test('while several tasks run is in the log without a task, which says so once', async ({ start }) => {
    const text = `
import os, subprocess, time
def together(file, others):
    with open(file, 'a') as one: one.write('.')
    while os.path.getsize(file) < others: time.sleep(0.01)
def handler(name, others):
    together('begun', others)
    subprocess.run(['echo', name])
    together('ended', others)
    return name
`;
    const agent = await start({ files: app(text), python, env: { CONCURRENT_REQUESTS: '2' } });
    const on = await agent.slot();
    const both = await Promise.all(['a', 'b'].map((name) => agent.run({ on, input: { name, others: 2 } })));
    for (const { taskId } of both) await agent.answer(taskId);
    await agent.call({ name: 'alone', others: 1 });
    const note =
      'stderr  longshore: several tasks ran at once, so output of child processes and C code is shown without a task';
    expect(agent.lines().toSorted()).toEqual([note, 'stdout  a', 'stdout  b', 'stdout task-3 alone'].toSorted());
  });

  test('of threads that a handler starts is found under its task, beside other tasks', async ({ start }) => {
    const text = `
import asyncio, os, threading, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
import longshore
shared = ThreadPoolExecutor(2)
def together(file):
    with open(file, 'a') as one: one.write('.')
    while os.path.getsize(file) < 2: time.sleep(0.01)
def say(name, what):
    print(name, what, longshore.context.task_id[-1])
def nested(name):
    thread = threading.Thread(target=say, args=(name, 'nested'))
    thread.start()
    thread.join()
class Own(threading.Thread):
    def run(self):
        say(self.name, 'class')
def handler(name):
    together('begun')
    threads = [threading.Thread(target=say, args=(name, 'thread')), threading.Thread(target=nested, args=(name,)),
        Own(name=name), threading.Timer(0.01, say, (name, 'timer'))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for at in range(6): shared.submit(say, name, 'shared %d' % at).result()
    with ThreadPoolExecutor(2) as own: list(own.map(lambda what: say(name, what), ['own']))
    with ThreadPool(1) as pool: pool.map(lambda what: say(name, what), ['pool'])
    async def inside():
        await asyncio.get_running_loop().run_in_executor(None, say, name, 'loop')
        await asyncio.get_running_loop().run_in_executor(shared, say, name, 'loop shared')
    asyncio.run(inside())
    together('ended')
    return shared.submit(print, name, 'bare').result()
`;
    const agent = await start({ files: app(text), python, env: { CONCURRENT_REQUESTS: '2' } });
    const on = await agent.slot();
    const both = await Promise.all(['1', '2'].map((name) => agent.run({ on, input: { name } })));
    for (const { taskId } of both) await agent.answer(taskId);
    const words = ['thread', 'nested', 'class', 'timer', ...Array.from({ length: 6 }, (_, at) => `shared ${at}`)];
    for (const [at, name] of ['1', '2'].entries()) {
      const id = both[at]?.taskId ?? '';
      const said = [...words, 'own', 'pool', 'loop', 'loop shared'].map((what) => `${name} ${what} ${id.at(-1)}`);
      const own = agent.lines().filter((line) => line.startsWith(`stdout ${id} `));
      expect(own.toSorted()).toEqual([...said, `${name} bare`].map((line) => `stdout ${id} ${line}`).toSorted());
    }
  });

  test('of a thread that outlives its task is shown without one', async ({ start }) => {
    const text = `
import threading
go, gone = threading.Event(), threading.Event()
def late():
    go.wait()
    print('late')
    gone.set()
def handler(begins):
    if begins:
        threading.Thread(target=late, daemon=True).start()
    else:
        go.set()
        gone.wait()
`;
    const agent = await start({ files: app(text), python, env: { CONCURRENT_REQUESTS: '2' } });
    await agent.call({ begins: true });
    await agent.call({ begins: false });
    expect(agent.lines()).toEqual(['stdout  late']);
  });

  test('comes whole and in order from a child that prints much', async ({ start }) => {
    const text = `
import subprocess
def handler(): return subprocess.run(['seq', '1', '30000']).returncode
`;
    const agent = await start({ files: app(text), python });
    await agent.call();
    expect(agent.lines()).toEqual(Array.from({ length: 30_000 }, (_, at) => `stdout task-1 ${at + 1}`));
  });

  const modes: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
    ['the only process', {}],
    ['one of two', { WORKERS: '2' }],
    ['one that was spawned', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }],
  ];
  test.for(modes)(
    'never waits for a process that holds its interpreter, nor is lost with one: %s',
    async ([, env], { start }) => {
      const source = `
import ctypes, os, subprocess
def handler(ends):
    held = ctypes.PyDLL(None)  # calls that keep the interpreter
    for number in range(4):
        data = b''.join(b'%d-%05d %s\\n' % (number, at, b'x' * 90) for at in range(1000))
        while data: data = data[held.write(1, data, len(data)):]
    subprocess.run(['echo', 'the last'])
    os.write(1, b'words')
    if ends: os._exit(9)
`;
      const length = 4000 * 98 + 'the lastwords'.length;
      for (const ends of [false, true]) {
        const agent = await start({ files: app(source), python, env });
        const { connection } = await agent.run({ input: { ends } });
        await (ends ? agent.until('its end', () => !connection.open) : agent.answer('task-1'));
        if (ends && agent.connections.length === 1) expect(await agent.exited()).toBe(9);
        // The lines at which the reader changes may be in two pieces, and out of their place.
        const said = (): string =>
          allLines(agent)
            .filter((line) => line.startsWith('stdout '))
            .map((line) => line.replace(/^stdout task-1 /, ''))
            .join('');
        await waitFor(() => said().length >= length, 'all of it is there', 20_000);
        const text = said();
        expect(text).toHaveLength(length);
        expect(text).not.toContain('stdout');
        expect(text.match(/\d-\d{5} x{90}/g)?.length).toBeGreaterThan(3950);
      }
    },
  );

  test.for(modes)(
    'loses nothing that an agent does not read, with a process that ends: %s',
    async ([, env], { start }) => {
      const source = `
import os, time
def handler(begins):
    while not os.path.exists(begins): time.sleep(0.01)
    # Less than the connection and the pipe have room for: the rest of it waits in the process.
    data = b''.join(b'%05d %s\\n' % (at, b'x' * 93) for at in range(1600))
    while data: data = data[os.write(1, data):]
    os._exit(9)
`;
      const agent = await start({ files: app(source), python, env });
      const begins = join(agent.directory, 'begins');
      const { connection } = await agent.run({ input: { begins } });
      connection.socket.pause();
      await writeFile(begins, '');
      const numbers = (): readonly number[] =>
        allLines(agent)
          .filter((line) => line.startsWith('stdout task-1 '))
          .map((line) => Number(line.split(' ')[2]));
      await waitFor(() => numbers().includes(1599), 'its parent tells what it left', 20_000);
      connection.socket.resume();
      await agent.until('its end', () => !connection.open);
      expect(numbers().toSorted((a, b) => a - b)).toEqual(Array.from({ length: 1600 }, (_none, at) => at));
    },
  );

  test.for([
    ['one process', {}],
    ['forked workers', { WORKERS: '2' }],
    ['spawned workers', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }],
  ] as const)('a print without a line end is not lost with its process: %s', async ([, env], { start }) => {
    const source = `
import os, sys, signal
print('begin', end='')
print()
def handler(how):
    print('whole')
    print('par', end='')
    print('tial', end='', flush=True)
    print('errors', end='', file=sys.stderr)
    if how == 'exit': os._exit(4)
    if how == 'kill': os.kill(os.getpid(), signal.SIGKILL)
    if how == 'child':
        if not os.fork():
            print('of a child', end='')
            os._exit(5)
        os.wait()
`;
    for (const how of ['exit', 'kill', 'child', 'return']) {
      const agent = await start({ files: app(source), python, env });
      const { connection } = await agent.run({ input: { how } });
      const ends = how === 'exit' || how === 'kill';
      await (ends ? agent.until('its end', () => !connection.open) : agent.answer('task-1'));
      const said = (): readonly string[] =>
        [
          ...allLines(agent),
          ...agent.stderr.split('\n').map((line) => line.replace(/^\0task ([^\0]+)\0/, 'stderr $1 ')),
        ]
          .filter((line) => line.includes(' task-1 '))
          .toSorted();
      await waitFor(() => said().length === 3, 'each line once');
      expect(said(), how).toEqual(['stderr task-1 errors', 'stdout task-1 partial', 'stdout task-1 whole']);
    }
  });

  test('of a crash in C code is found under its task, with the place', async ({ start }) => {
    const agent = await start({
      files: app('import ctypes\ndef handler():\n    print("before")\n    ctypes.string_at(0)\n'),
      python,
    });
    await agent.run();
    expect(await agent.exited()).toBe(139);
    expect(agent.lines()).toEqual(['stdout task-1 before']);
    expect(agent.stderr).toMatch(
      /\0task task-1\0Fatal Python error: Segmentation fault\n[^]*app\.py", line 4 in handler/,
    );
  });

  test('before the container is ready, and of a start that fails, is shown at once', async ({ start }) => {
    const text = `
import os, subprocess, sys, time
subprocess.run(['echo', 'loading'])
def load():
    while not os.path.exists('go'): time.sleep(0.02)
    subprocess.run('echo it failed >&2; exit 3', shell=True, check=True)
def handler(): pass
`;
    const agent = await start({ files: app(text), python, onStart: 'app:load' });
    await waitFor(() => agent.stdout === 'loading\n', 'it is shown');
    await agent.until('on_start', () => agent.of('starting').length === 2);
    await import('node:fs/promises').then(({ writeFile }) => writeFile(`${agent.directory}/code/go`, ''));
    expect(await agent.exited()).toBe(1);
    expect(agent.stderr).toContain('it failed\n');
  });
});

describe('the first process of a container', () => {
  test('passes SIGTERM on, waits for running tasks, and ends as the runner does', async ({ start }) => {
    const text = `
import os, signal, time
def handler():
    open('begun', 'w').close()
    while not os.path.exists('go'): time.sleep(0.02)
    return os.getpid() != 1 and os.getppid() == 1
`;
    const agent = await start({ files: app(text), python });
    const { taskId } = await agent.run();
    await agent.until('the start', () => agent.of('started').length === 1);
    const { execa } = await import('execa');
    const { stdout: first } = await execa('pgrep', ['-P', String(agent.runner?.pid)]);
    process.kill(Number(first), 'SIGTERM');
    await import('node:fs/promises').then(({ writeFile }) => writeFile(`${agent.directory}/code/go`, ''));
    expect((await agent.answer(taskId)).body).toBe('true');
    expect(await agent.exited()).toBe(0);
  });
});
