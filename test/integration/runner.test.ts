// The real runner (the host's python3, no Docker) against a fake agent:
// every frame kind, and the effects that a handler can have on it.
import { existsSync } from 'node:fs';
import { access, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test as base, describe, expect } from 'vitest';
import { FakeAgent, type RunnerConnection, type RunnerOptions } from '../helpers/fake-agent.ts';

const test = base.extend<{ start: (options: RunnerOptions) => Promise<FakeAgent> }>({
  // oxlint-disable-next-line no-empty-pattern
  start: async ({}, use) => {
    const agents: FakeAgent[] = [];
    await use(async (options) => {
      const agent = await FakeAgent.start(options);
      agents.push(agent);
      return agent;
    });
    await Promise.all(agents.map((agent) => agent.stop()));
  },
});

const app = (text: string): Readonly<Record<string, string>> => ({ 'app.py': text });
const parsed = (text: string): unknown => JSON.parse(text) as unknown;
const errorOf = (text: string): string => String((parsed(text) as { error: unknown }).error);

describe('a start', () => {
  test('hello comes before user code is imported, then the phases, then ready', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return 1\n') });
    await agent.ready();
    expect(agent.frames.map((frame) => frame.kind)).toEqual(['hello', 'starting', 'starting', 'ready']);
    expect(agent.of('starting').map((frame) => frame.header['phase'])).toEqual(['import', 'on_start']);
    expect(agent.of('hello')[0]?.header).toMatchObject({
      version: 1,
      containerId: 'endpoint-test-00000001',
      process: 0,
      slots: 0,
      pid: agent.runner?.pid,
      holding: [],
    });
    expect(agent.of('ready')[0]?.header).toEqual({ mode: 'single', slots: 1, onStartMs: 0 });
  });

  test('a frame longer than the limit ends the connection and the runner dials again', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return 1\n') });
    const first = await agent.slot();
    first.socket.write(Buffer.from([0x7f, 0xff, 0xff, 0xff, 6, 0, 0]));
    const again = await agent.until('a second connection', () =>
      agent.connections.find((one) => one !== first && one.pid > 0),
    );
    expect((await agent.call({}, { on: again })).body).toBe('1');
  });

  test('kinds and header fields that nobody knows are ignored', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return 1\n') });
    const slot = await agent.slot();
    slot.send('welcome', { version: 1, later: true });
    slot.socket.write(Buffer.from([0, 0, 0, 5, 99, 0, 2, 0x7b, 0x7d]));
    expect((await agent.call({})).body).toBe('1');
    expect(agent.connections).toHaveLength(1);
  });

  test('an import that fails is told with its phase, its last line and its traceback, and the runner exits 1', async ({
    start,
  }) => {
    const agent = await start({ files: app('import no_such_library\n') });
    expect(await agent.exited()).toBe(1);
    const failed = agent.of('failed')[0];
    expect(failed?.header).toEqual({
      phase: 'import',
      error: "ModuleNotFoundError: No module named 'no_such_library'",
    });
    expect(failed?.body.toString()).toMatch(/^Traceback[^]*app\.py", line 1[^]*no_such_library/);
    expect(failed?.body.toString()).not.toContain('longshore/runner');
    expect(agent.lines().join('\n')).toContain("ModuleNotFoundError: No module named 'no_such_library'");
    expect(agent.stdout + agent.stderr).toBe('');
  });

  test.for([
    ['app:nothing', /app has no nothing/],
    ['app:value', /value in app is a int, not a function/],
    ['nowhere:handler', /No module named 'nowhere'/],
    ['app', /HANDLER must be module:function, not 'app'/],
  ] as const)('a handler that is not there is named: %s', async ([handler, text], { start }) => {
    const agent = await start({ handler, files: app('value = 1\n') });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toMatchObject({
      phase: 'import',
      error: expect.stringMatching(text) as string,
    });
  });

  test('a bad WORKERS is named', async ({ start }) => {
    const agent = await start({ env: { WORKERS: 'many' }, files: app('def handler():\n    return 1\n') });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header['error']).toContain(
      "WORKERS must be a whole number from 1 to 1024, not 'many'",
    );
  });

  test('an on_start that raises is told with its phase', async ({ start }) => {
    const agent = await start({
      onStart: 'app:load',
      files: app('def load():\n    raise OSError("no weights")\ndef handler():\n    return 1\n'),
    });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({ phase: 'on_start', error: 'OSError: no weights' });
  });

  test("user files named like the standard library's do not break the runner", async ({ start }) => {
    const agent = await start({
      files: {
        ...app('import queue\ndef handler():\n    return queue.mine\n'),
        'queue.py': 'mine = 7\n',
        'select.py': 'raise OSError\n',
      },
    });
    expect((await agent.call({})).body).toBe('7');
  });
});

describe('an agent that is away', () => {
  const files = app(`
import os, time
def load():
    open('loading', 'w').close()
    while not os.path.exists('go'):
        time.sleep(0.005)
    return 6
def handler(context):
    return context.on_start_value
`);

  test('at the start is waited for, and nothing of the user is imported before', async ({ start }) => {
    const agent = await start({
      files: app('open("imported", "w").close()\ndef handler():\n    return 1\n'),
      listenLater: true,
    });
    await agent.until('the process', () => agent.runner?.pid);
    await agent.listen();
    await agent.until('hello', () => agent.of('hello')[0]);
    expect((await agent.call({})).body).toBe('1');
  });

  test.for(['1', '2'])(
    'during on_start is told that it is ready when it is back (workers %s)',
    async (WORKERS, { start }) => {
      const agent = await start({ files, onStart: 'app:load', env: { WORKERS } });
      await agent.until('on_start', () => agent.of('starting')[1]);
      await agent.hangUp();
      await writeFile(join(agent.directory, 'code', 'go'), '');
      await agent.listen();
      expect((await agent.call({})).body).toBe('6');
      expect(agent.of('starting')).toHaveLength(2);
    },
  );

  test('SIGTERM during on_start ends the container', async ({ start }) => {
    const agent = await start({ files, onStart: 'app:load' });
    await agent.until('on_start', () => agent.of('starting')[1]);
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(143);
  });
});

describe('on_start', () => {
  const files = app(`
import os, uuid
def load():
    print('loading')
    with open('starts.txt', 'a') as file:
        file.write('started\\n')
    return str(uuid.uuid4())
def handler(context):
    return [context.on_start_value, os.getpid()]
`);

  test('runs once for four forked processes that share its value, also after one of them is killed', async ({
    start,
  }) => {
    const agent = await start({ files, onStart: 'app:load', env: { WORKERS: '4' } });
    const ready = await agent.ready();
    expect(ready.header).toMatchObject({ mode: 'fork', slots: 4 });
    // The first process sends one hello, and the four serving ones
    // send one each, on connections of their own and so in any order.
    await agent.until('five hellos', () => agent.of('hello').length === 5);
    const ask = async (slot: RunnerConnection): Promise<[string, number]> =>
      parsed((await agent.call({}, { on: slot })).body) as [string, number];
    const slots = await Promise.all([0, 1, 2, 3].map((process) => agent.slot(process)));
    const answers = await Promise.all(slots.map(ask));
    expect(new Set(answers.map(([value]) => value)).size).toBe(1);
    expect(new Set(answers.map(([, pid]) => pid)).size).toBe(4);

    const victim = slots[2]?.pid;
    agent.connections[0]?.send('kill', { process: 2 });
    const exited = await agent.until('exited', () => agent.of('exited')[0]);
    expect(exited.header).toEqual({ process: 2, pid: victim, code: null, signal: 9 });
    const fresh = await agent.until('the process started again', () =>
      agent.connections.find((one) => one.process === 2 && one.pid !== victim),
    );
    const [value, pid] = await ask(fresh);
    expect(value).toBe(answers[0]?.[0]);
    expect(pid).toBe(fresh.pid);
    expect(await readFile(join(agent.directory, 'code', 'starts.txt'), 'utf8')).toBe('started\n');
    expect(agent.lines().filter((line) => line.endsWith('loading'))).toEqual(['stdout  loading']);
    expect(agent.of('ready')).toHaveLength(1);
  });

  const counts = app(`
import os
NAMES = ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'RAYON_NUM_THREADS']
at_import = [os.environ.get(name) for name in NAMES]
def handler():
    return at_import
`);
  const six = { LONGSHORE_CORES: '6' };

  test.for([
    ["one process has its container's cores", six, ['6', '6', '6', '6']],
    ['what is set wins', { ...six, MKL_NUM_THREADS: '3' }, ['6', '6', '3', '6']],
    [
      'processes that are forked have one thread at import, and share the cores',
      { ...six, WORKERS: '2', MKL_NUM_THREADS: '3' },
      ['1', '1', '3', '3'],
    ],
    ['a GPU forks nothing', { ...six, LONGSHORE_GPU: '1', WORKERS: '2' }, ['6', '6', '6', '6']],
    ['threads', { ...six, LONGSHORE_WORKER_MODE: 'thread', WORKERS: '2' }, ['6', '6', '6', '6']],
    ['spawned processes', { ...six, LONGSHORE_WORKER_MODE: 'spawn', WORKERS: '2' }, ['3', '3', '3', '3']],
    ['more workers than cores', { ...six, WORKERS: '9' }, ['1', '1', '1', '1']],
    ['an older agent tells no cores', {}, [null, null, null, null]],
    ['an older agent, two processes', { WORKERS: '2' }, ['1', '1', '1', null]],
  ] as const)('numeric libraries: %s', async ([, env, wanted], { start }) => {
    const agent = await start({ files: counts, env });
    expect(parsed((await agent.call({})).body)).toEqual(wanted);
  });

  test('with worker_mode thread the workers are threads, whatever runs after on_start', async ({ start }) => {
    const agent = await start({
      onStart: 'app:load',
      env: { WORKERS: '3', LONGSHORE_WORKER_MODE: 'thread' },
      files: app(`
import os, threading
def load():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return 5
def handler(context):
    print('in thread')
    return [context.on_start_value, os.getpid(), threading.current_thread().name]
`),
    });
    expect((await agent.ready()).header).toMatchObject({ mode: 'thread', slots: 3 });
    const slots = await Promise.all([0, 1, 2].map((process) => agent.slot(process)));
    const answers = await Promise.all(slots.map((slot) => agent.call({}, { on: slot })));
    const values = answers.map((answer) => parsed(answer.body) as [number, number, string]);
    expect(values.map(([value, pid]) => [value, pid])).toEqual(Array(3).fill([5, agent.runner?.pid]));
    expect(new Set(values.map(([, , name]) => name)).size).toBe(3);
    expect(agent.lines().filter((line) => line.endsWith('in thread'))).toHaveLength(3);
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(0);
  });

  test('threads that are stopped finish what runs, leave what waits, and end at once', async ({ start }) => {
    const agent = await start({
      env: { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' },
      files: app(`
import os, time
def handler(n):
    if n == 1:
        open('running', 'w').close()
        while not os.path.exists('end'):
            time.sleep(0.01)
    return n
`),
    });
    await agent.ready();
    const slot = await agent.slot(0);
    const running = agent.call({ n: 1 }, { on: slot });
    await expect.poll(() => existsSync(join(agent.directory, 'code', 'running'))).toBe(true);
    const waiting = agent.call({ n: 2 }, { on: slot });
    waiting.catch(() => undefined);
    agent.runner?.kill('SIGTERM');
    await writeFile(join(agent.directory, 'code', 'end'), '');
    expect(parsed((await running).body)).toBe(1);
    // Fifteen seconds is the bound of this wait; a process that waits for its own bound takes 25.
    expect(await agent.exited()).toBe(0);
  });
});

describe('inputs and results', () => {
  const echo = app('def handler(*args, **kwargs):\n    return {"args": args, "kwargs": kwargs}\n');

  test.for([
    [{ a: 1, b: [2] }, {}, { args: [], kwargs: { a: 1, b: [2] } }],
    [undefined, {}, { args: [], kwargs: {} }],
    [{ args: [1], b: 2 }, {}, { args: [1], kwargs: { b: 2 } }],
    [{ args: [1], kwargs: { c: 3 }, b: 2 }, {}, { args: [1], kwargs: { c: 3 } }],
    [
      { a: 1 },
      { n: '12', f: '1.5', s: 'x', z: '007', l: ['1', 'b'], o: ['3'] },
      { args: [], kwargs: { a: 1, n: 12, f: 1.5, s: 'x', z: '007', l: [1, 'b'], o: 3 } },
    ],
  ] as const)('%j with query %j', async ([input, query, expected], { start }) => {
    const agent = await start({ files: echo });
    const answer = await agent.call(input, { query });
    expect(answer.outcome).toBe('ok');
    expect(parsed(answer.body)).toEqual(expected);
    expect(agent.of('started')[0]?.header).toEqual({ taskId: 'task-1', token: 'token-1' });
  });

  test('a run cut at every byte is one run', async ({ start }) => {
    const agent = await start({ files: echo });
    const slot = await agent.slot();
    await slot.sendByteByByte(
      'run',
      { taskId: 't', token: 'k', timeoutMs: 0, query: {}, part: 0, last: true },
      Buffer.from('{"ä":1}'),
    );
    expect(parsed((await agent.answer('t')).body)).toEqual({ args: [], kwargs: { ä: 1 } });
    expect(agent.of('started')).toHaveLength(1);
  });

  test('large inputs come in parts, large results go in chunks', async ({ start }) => {
    const agent = await start({ files: app('def handler(text):\n    return text + "!"\n') });
    const slot = await agent.slot();
    const text = 'abcdefgh'.repeat(200_000);
    const input = Buffer.from(JSON.stringify({ text }));
    const half = 700_000;
    slot.send('run', { taskId: 't', token: 'k', part: 0, last: false }, input.subarray(0, half));
    slot.send('run', { taskId: 't', token: 'k', part: 1, last: false }, input.subarray(half, 2 * half));
    slot.send('run', { taskId: 't', token: 'k', part: 2, last: true }, input.subarray(2 * half));
    const answer = await agent.answer('t');
    expect(answer.header['chunks']).toBe(4);
    expect(parsed(answer.body)).toBe(`${text}!`);
  });

  test('a result is the bytes of its JSON', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return {"ä": [1, None, "\\ud800"], "n": 1.5}\n') });
    const answer = await agent.call({});
    expect(parsed(answer.body)).toEqual({ ä: [1, null, '\ud800'], n: 1.5 });
  });

  test.for([
    ['float("nan")', /^ValueError: the handler returned a value that is not JSON: Out of range float values/],
    [
      '{1, 2}',
      /^TypeError: the handler returned a value that is not JSON: Object of type set is not JSON serializable/,
    ],
    ['object()', /^TypeError: .*Object of type object/],
    ['loop', /^ValueError: .*Circular/],
    ['b"bytes"', /^TypeError: .*Object of type bytes .*base64.b64encode/],
    ['type("ndarray", (), {})()', /Object of type ndarray .*tolist/],
    ['type("float32", (), {})()', /Object of type float32 .*\.item/],
    ['{(1, 2): 3}', /keys must be str.*not tuple; return dictionaries/],
  ] as const)('%s is no JSON: an error that says so', async ([value, text], { start }) => {
    const agent = await start({ files: app(`loop = []\nloop.append(loop)\ndef handler():\n    return ${value}\n`) });
    const answer = await agent.call({});
    expect(answer.outcome).toBe('error');
    expect(errorOf(answer.body)).toMatch(text);
    expect(agent.lines().some((line) => line.startsWith('stderr task-1 ') && line.includes('not JSON'))).toBe(true);
  });

  test('a handler that raises: type and message to the caller, the traceback to the log', async ({ start }) => {
    const files = app('def handler(d):\n    return d["x"]\n');
    const agent = await start({ files });
    const answer = await agent.call({ d: {} });
    expect([answer.outcome, answer.body]).toEqual(['error', '{"error": "KeyError: \'x\'"}']);
    const lines = agent.lines();
    expect(lines[0]).toBe('stderr task-1 Traceback (most recent call last):');
    expect(lines[1]).toMatch(/^stderr task-1 {3}File ".*app\.py", line 2, in handler$/);
    expect(lines.at(-1)).toBe("stderr task-1 KeyError: 'x'");
    expect(errorOf((await agent.call({})).body)).toMatch(
      /^TypeError: handler\(\) missing 1 required positional argument: 'd'$/,
    );
    const open = await start({ files, env: { LONGSHORE_TRACEBACKS: '1' } });
    expect(errorOf((await open.call({ d: {} })).body)).toMatch(/^KeyError: 'x'\n\nTraceback[^]*app\.py/);
  });

  test('an input that is not an object is an error, not a crash', async ({ start }) => {
    const agent = await start({ files: echo });
    expect(errorOf((await agent.call([1])).body)).toBe('InputError: the input must be a JSON object');
    expect((await agent.call({})).outcome).toBe('ok');
  });

  test('asynchronous handlers share one loop, and run side by side', async ({ start }) => {
    const agent = await start({
      env: { CONCURRENT_REQUESTS: '3' },
      files: app(`
import asyncio
arrived = []
async def handler(context, n):
    arrived.append(n)
    while len(arrived) < 3:
        await asyncio.sleep(0.005)
    print('all here', n)
    return [n, id(asyncio.get_running_loop()), context.task_id]
`),
    });
    expect((await agent.ready()).header).toMatchObject({ mode: 'single', slots: 3 });
    const tasks = await Promise.all([1, 2, 3].map((n) => agent.run({ input: { n } })));
    const answers = await Promise.all(tasks.map(({ taskId }) => agent.answer(taskId)));
    const values = answers.map((answer) => parsed(answer.body) as [number, number, string]);
    expect(values.map(([n, , taskId]) => `${n} ${taskId}`)).toEqual(['1 task-1', '2 task-2', '3 task-3']);
    expect(new Set(values.map(([, loop]) => loop)).size).toBe(1);
    expect(agent.lines().toSorted()).toEqual([1, 2, 3].map((n) => `stdout task-${n} all here ${n}`));
    expect(errorOf((await agent.call({ m: 1 })).body)).toMatch(/unexpected keyword argument 'm'/);
  });

  test('plain handlers with concurrentRequests run side by side in threads', async ({ start }) => {
    const agent = await start({
      env: { CONCURRENT_REQUESTS: '3' },
      files: app(`
import threading
barrier = threading.Barrier(3, timeout=10)
def handler(n):
    barrier.wait()
    print('n is', n)
    return n
`),
    });
    const tasks = await Promise.all([1, 2, 3].map((n) => agent.run({ input: { n } })));
    const answers = await Promise.all(tasks.map(({ taskId }) => agent.answer(taskId)));
    expect(answers.map((answer) => answer.body)).toEqual(['1', '2', '3']);
    expect(agent.lines().toSorted()).toEqual([1, 2, 3].map((n) => `stdout task-${n} n is ${n}`));
  });

  test.for([
    ['a generator', 'def handler():\n    for n in range(3):\n        yield {"n": n}\n'],
    ['an asynchronous generator', 'async def handler():\n    for n in range(3):\n        yield {"n": n}\n'],
  ] as const)('the items of %s are events, each a chunk', async ([, text], { start }) => {
    const agent = await start({ files: app(text) });
    const answer = await agent.call({});
    expect(answer.header).toMatchObject({ outcome: 'ok', chunks: 3, items: 3 });
    expect(agent.of('chunk').map((frame) => [frame.header['seq'], frame.body.toString()])).toEqual([
      [0, 'data: {"n":0}\n\n'],
      [1, 'data: {"n":1}\n\n'],
      [2, 'data: {"n":2}\n\n'],
    ]);
  });

  test('a decorated handler is the function itself, and sees its context from anywhere', async ({ start }) => {
    const agent = await start({
      files: app(`
from beta9 import endpoint
from longshore import context
@endpoint(name='x', cpu='nonsense is not checked here')
def handler(a):
    return [a, context.task_id, context.container_id]
`),
    });
    expect(parsed((await agent.call({ a: 1 })).body)).toEqual([1, 'task-1', 'endpoint-test-00000001']);
  });
});

describe('a process that ends', () => {
  test.for([
    ['sys.exit(3)', 3],
    ['os._exit(4)', 4],
    ['sys.exit()', 0],
    ['sys.exit("so long")', 1],
  ] as const)('%s in single mode ends the container with code %i', async ([call, code], { start }) => {
    const agent = await start({ files: app(`import os, sys\ndef handler():\n    print("last words")\n    ${call}\n`) });
    await agent.run({ input: {} });
    expect(await agent.exited()).toBe(code);
    expect(agent.lines()).toContain('stdout task-1 last words');
    expect(agent.of('result')).toHaveLength(0);
  });

  test('a forked process that exits is named with its code and started again', async ({ start }) => {
    const agent = await start({
      env: { WORKERS: '2' },
      files: app('import sys\ndef handler(code=None):\n    if code: sys.exit(code)\n    return 1\n'),
    });
    const slot = await agent.slot(1);
    await agent.run({ input: { code: 3 }, on: slot });
    const exited = await agent.until('exited', () => agent.of('exited')[0]);
    expect(exited.header).toEqual({ process: 1, pid: slot.pid, code: 3, signal: null });
    const fresh = await agent.until('the new process', () =>
      agent.connections.find((one) => one.process === 1 && one.pid !== slot.pid),
    );
    expect((await agent.call({}, { on: fresh })).body).toBe('1');
    expect(agent.exitCode).toBeUndefined();
  });
});

describe('cancel', () => {
  const sleeping = app(`
import time, asyncio
def handler(seconds=60):
    print('sleeping')
    try:
        time.sleep(seconds)
    finally:
        print('cleaned up')
async def waiting():
    try:
        await asyncio.sleep(60)
    finally:
        print('cleaned up')
def stubborn():
    try:
        time.sleep(60)
    except BaseException:
        return 'went on'
def spinning():
    while True:
        time.sleep(0.01)
`);

  test.for([
    ['a sleeping handler', 'app:handler', {}, 'timeout', 'timeout'],
    ['a sleeping handler', 'app:handler', {}, 'stopped by its owner', 'cancelled'],
    ['a coroutine', 'app:waiting', {}, 'timeout', 'timeout'],
    ['a handler that swallows it', 'app:stubborn', {}, 'stopped', 'cancelled'],
    ['a handler in a thread', 'app:spinning', { CONCURRENT_REQUESTS: '2' }, 'stopped', 'cancelled'],
  ] as const)(
    '%s (%s, %j) with reason %s ends as %s, and the slot goes on',
    async ([, handler, env, reason, outcome], { start }) => {
      const agent = await start({ files: sleeping, handler, env });
      const { taskId, token, connection } = await agent.run({ input: {} });
      await agent.until('started', () => agent.of('started')[0]);
      connection.send('cancel', { taskId, token: 'of another attempt', reason });
      connection.send('cancel', { taskId, token, reason });
      const answer = await agent.answer(taskId);
      expect(answer.outcome).toBe(outcome);
      expect(errorOf(answer.body)).toMatch(outcome === 'timeout' ? 'task ran out of time' : 'task was cancelled');
      if (handler !== 'app:stubborn' && handler !== 'app:spinning') {
        expect(agent.lines().at(-1)).toBe('stdout task-1 cleaned up');
      }
      const second = await agent.run({ input: handler === 'app:handler' ? { seconds: 0 } : {} });
      await agent.until('the next one to start', () =>
        agent.of('started').find((frame) => frame.header['taskId'] === second.taskId),
      );
      if (handler === 'app:handler') expect((await agent.answer(second.taskId)).outcome).toBe('ok');
    },
  );

  test('a cancel that comes at any moment never reaches anything but its own task', async ({ start }) => {
    const agent = await start({
      files: app('def handler(n):\n    for i in range(n):\n        print(i)\n    return n\n'),
    });
    const slot = await agent.slot();
    for (let n = 0; n < 150; n += 1) {
      const { taskId, token } = await agent.run({ input: { n: (n * 7) % 60 }, on: slot });
      slot.send('cancel', { taskId, token, reason: 'stopped' });
      expect(['ok', 'cancelled']).toContain((await agent.answer(taskId)).outcome);
    }
    expect((await agent.call({ n: 2 })).body).toBe('2');
    expect(agent.connections).toHaveLength(1);
  });
});

describe('connections', () => {
  const slow = app(
    'import os, time\ndef handler(file):\n    while not os.path.exists(file):\n        time.sleep(0.005)\n    return "done"\n',
  );
  const go = async (agent: FakeAgent): Promise<void> => {
    await writeFile(join(agent.directory, 'code', 'go'), '');
  };

  test('the task in hand goes on while the agent is away, is named in the next hello, and is answered there', async ({
    start,
  }) => {
    const agent = await start({ files: slow });
    const { taskId, token } = await agent.run({ input: { file: 'go' } });
    await agent.until('started', () => agent.of('started')[0]);
    await agent.hangUp();
    await agent.listen();
    const hello = await agent.until('the second hello', () => agent.of('hello')[1]);
    expect(hello.header['holding']).toEqual([{ taskId, token }]);
    await agent.until('ready again', () => agent.of('ready')[1]);
    // A repeated order of the same attempt does not run again.
    hello.connection.send('run', { taskId, token, part: 0, last: true }, Buffer.from('{"file": "go"}'));
    await go(agent);
    expect((await agent.answer(taskId)).body).toBe('"done"');
    expect(agent.of('started')).toHaveLength(1);
  });

  test('a result that was not acknowledged is sent again after every hello until it is', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    return "x" * 300000\n'), acknowledge: false });
    const { taskId, token } = await agent.run({ input: {} });
    const first = await agent.answer(taskId);
    await agent.hangUp();
    await agent.listen();
    const hello = await agent.until('the second hello', () => agent.of('hello')[1]);
    expect(hello.header['holding']).toEqual([{ taskId, token }]);
    const again = await agent.until('the result again', () => agent.of('result')[1]);
    expect(again.header).toEqual(first.header);
    expect(agent.of('chunk').map((frame) => frame.body.length)).toEqual([300_002, 300_002]);
    agent.acked(again);
    // The next answer shows that the acknowledgement was read.
    agent.acknowledge = true;
    await agent.call({});
    await agent.hangUp();
    await agent.listen();
    const third = await agent.until('the third hello', () => agent.of('hello')[2]);
    expect(third.header['holding']).toEqual([]);
  });

  test('a result made while nobody listens waits for the next connection', async ({ start }) => {
    const agent = await start({ files: slow, env: { WORKERS: '2' } });
    const { taskId } = await agent.run({ input: { file: 'go' }, on: await agent.slot(1) });
    await agent.until('started', () => agent.of('started')[0]);
    await agent.hangUp();
    await go(agent);
    await agent.listen();
    expect((await agent.answer(taskId)).body).toBe('"done"');
    await agent.until('all three back', () => agent.of('hello').length >= 6);
  });

  test.for(['1', '2'])(
    'drain lets what runs finish, takes no more, and exits 0 (workers %s)',
    async (workers, { start }) => {
      const agent = await start({ files: slow, env: { WORKERS: workers } });
      const { taskId } = await agent.run({ input: { file: 'go' } });
      await agent.until('started', () => agent.of('started')[0]);
      agent.connections[0]?.send('drain', { graceMs: 20_000 });
      agent.connections[0]?.send(
        'run',
        { taskId: 'late', token: 'late', part: 0, last: true },
        Buffer.from('{"file": "go"}'),
      );
      await go(agent);
      expect((await agent.answer(taskId)).outcome).toBe('ok');
      expect(await agent.exited()).toBe(0);
      expect(agent.of('started')).toHaveLength(1);
    },
  );

  test.for([
    ['1', {}, 143],
    ['1', { CONCURRENT_REQUESTS: '2' }, 143],
    ['2', {}, 137],
  ] as const)('a task that outlasts the drain is left (workers %s %j)', async ([WORKERS, env, code], { start }) => {
    const agent = await start({ files: slow, env: { WORKERS, ...env } });
    await agent.run({ input: { file: 'never' } });
    await agent.until('started', () => agent.of('started')[0]);
    agent.connections[0]?.send('drain', { graceMs: 200 });
    expect(await agent.exited()).toBe(code);
    expect(agent.of('result')).toHaveLength(0);
  });

  test.for([
    ['1', {}],
    ['1', { CONCURRENT_REQUESTS: '2' }],
    ['3', {}],
  ] as const)(
    'SIGTERM ends an idle container at once, a busy one when its task is over (workers %s %j)',
    async ([workers, env], { start }) => {
      const idle = await start({ files: slow, env: { WORKERS: workers, ...env } });
      await idle.ready();
      const busy = await start({ files: slow, env: { WORKERS: workers, ...env } });
      const { taskId } = await busy.run({ input: { file: 'go' } });
      await busy.until('started', () => busy.of('started')[0]);
      idle.runner?.kill('SIGTERM');
      busy.runner?.kill('SIGTERM');
      expect(await idle.exited()).toBe(0);
      expect(busy.exitCode).toBeUndefined();
      await go(busy);
      expect((await busy.answer(taskId)).outcome).toBe('ok');
      expect(await busy.exited()).toBe(0);
    },
  );

  test('a kill frame ends a container that serves by itself', async ({ start }) => {
    const agent = await start({ files: slow });
    await agent.run({ input: { file: 'go' } });
    await agent.until('started', () => agent.of('started')[0]);
    agent.connections[0]?.send('kill', { process: 0 });
    expect(await agent.exited()).toBe(137);
  });
});

describe('logs', () => {
  test('lines are tagged with their task and numbered, and none goes to fd 1 or 2', async ({ start }) => {
    const agent = await start({
      files: app(`
import sys, subprocess, threading
print('while importing')
def handler(n):
    print('one\\ntwo ', end='')
    print('halves')
    print('to stderr', file=sys.stderr)
    sys.stdout.buffer.write(b'bytes\\n')
    thread = threading.Thread(target=print, args=('from a thread',))
    thread.start()
    thread.join()
    print('no line end', end='')
    if n == 1:
        subprocess.run(['echo', 'a subprocess'], check=True)
    return n
`),
    });
    await agent.call({ n: 1 });
    await agent.call({ n: 2 });
    const of = (task: string): string[] => [
      `stdout ${task} one`,
      `stdout ${task} two halves`,
      `stderr ${task} to stderr`,
      `stdout ${task} bytes`,
      `stdout ${task} from a thread`,
      `stdout ${task} no line end`,
    ];
    expect(agent.lines()).toEqual(['stdout  while importing', ...of('task-1'), ...of('task-2')]);
    agent.runner?.kill('SIGTERM');
    await agent.exited();
    expect(agent.stdout).toBe('a subprocess\n');
    expect(agent.stderr).toBe('');
  });

  test('a line of 150 KB is cut at 64 KiB', async ({ start }) => {
    const agent = await start({ files: app('def handler():\n    print("é" * 75000)\n') });
    await agent.call({});
    const sizes = agent.of('log').map((frame) => frame.body.length);
    expect(sizes).toEqual([65_536, 65_536, 150_000 - 2 * 65_536]);
    expect(Buffer.concat(agent.of('log').map((frame) => frame.body)).toString()).toBe('é'.repeat(75_000));
  });

  test('an agent that does not read loses log lines, counted, but never a result, and printing does not wait', async ({
    start,
  }) => {
    const agent = await start({
      files: app(
        'import os\ndef handler():\n    for n in range(40000):\n        print("x" * 100)\n    open("printed", "w").close()\n    return 1\n',
      ),
    });
    const slot = await agent.slot();
    slot.socket.pause();
    const { taskId } = await agent.run({ input: {} });
    await expect
      .poll(
        () =>
          access(join(agent.directory, 'code', 'printed')).then(
            () => true,
            () => false,
          ),
        { timeout: 20_000 },
      )
      .toBe(true);
    slot.socket.resume();
    expect((await agent.answer(taskId)).body).toBe('1');
    const kept = agent.lines().filter((line) => line.endsWith('xxx')).length;
    const marker = agent.lines().find((line) => line.includes('log lines dropped'));
    expect(marker).toBeDefined();
    expect(Number(/(\d+) log lines dropped/.exec(marker ?? '')?.[1])).toBe(40_000 - kept);
  });
});
