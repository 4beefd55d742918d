// The real runner (the host's python3, no Docker) against a fake agent:
// every frame kind, and the effects that a handler can have on it.
import { describe, expect } from 'vitest';
import { app, errorOf, parsed, test } from './runner-started.ts';

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
    const missing = await agent.call({});
    expect([missing.outcome, missing.body]).toMatchObject([
      'invalid',
      expect.stringMatching(/^\{"error": "d: is missing", "detail": "the handler takes .*d/),
    ]);
    expect(agent.lines().at(-1)).toBe('stderr task-2 invalid input: d: is missing');
    const open = await start({ files, env: { LONGSHORE_TRACEBACKS: '1' } });
    expect(errorOf((await open.call({ d: {} })).body)).toMatch(/^KeyError: 'x'\n\nTraceback[^]*app\.py/);
  });

  test('an input that is not an object is an error, not a crash', async ({ start }) => {
    const agent = await start({ files: echo });
    expect(errorOf((await agent.call([1])).body)).toBe('the input must be a JSON object');
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
    expect(errorOf((await agent.call({ m: 1 })).body)).toBe('m: is no input of the handler');
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

describe('interruption', () => {
  const watching = app(`
import asyncio, time
from longshore import interruption
def handler():
    before = [interruption.is_set(), interruption.seconds_left()]
    print('begun')
    interruption.wait()
    left = interruption.seconds_left()
    print('saved')
    while interruption.is_set():
        time.sleep(0.01)
    return before + [0 < left <= 20, interruption.seconds_left()]
async def coroutine():
    before = [interruption.is_set(), interruption.seconds_left()]
    print('begun')
    while not interruption.is_set():
        await asyncio.sleep(0.01)
    left = interruption.seconds_left()
    print('saved')
    while interruption.is_set():
        await asyncio.sleep(0.01)
    return before + [0 < left <= 20, interruption.seconds_left()]
`);

  test.for([
    ['app:handler', {}],
    ['app:handler', { CONCURRENT_REQUESTS: '2' }],
    ['app:handler', { WORKERS: '2' }],
    ['app:handler', { WORKERS: '2', WORKER_MODE: 'thread' }],
    ['app:coroutine', {}],
  ] as const)(
    'is told to a running handler (%s, %j), and so is that its container stays',
    async ([handler, env], { start }) => {
      const agent = await start({ files: watching, handler, env });
      const { taskId, connection } = await agent.run({ input: {} });
      await agent.until('the handler begins', () => agent.lines().some((line) => line.endsWith('begun')));
      connection.send('interrupt', { noticeMs: 20_000 });
      await agent.until('the handler saves', () => agent.lines().some((line) => line.endsWith('saved')));
      connection.send('interrupt', { noticeMs: 0 });
      expect(parsed((await agent.answer(taskId)).body)).toEqual([false, null, true, null]);
    },
  );
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
