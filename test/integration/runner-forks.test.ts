// Processes that an app forks: they never answer, never serve, and hold nothing of the runner, however they leave the
// handler. The real runner against a fake agent.
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { FakeAgent } from '../helpers/fake-agent.ts';
import { waitFor } from '../helpers/programs.ts';
import { parsed, test } from './runner-started.ts';

/** How a child leaves the code that forked it, and the status that its parent sees. */
const WAYS = { program: 1 << 8, raise: 1 << 8, exit: 4 << 8, text: 1 << 8, return: 0, kill: 9, interrupt: 1 << 8 };

const FORKS = `
import atexit, os, pty, sys, threading, time
atexit.register(lambda: open('exits.txt', 'a').write('%d\\n' % os.getpid()))

def leave(way):
    print('child leaves by', way)
    if way == 'program':
        os.execvp('no-such-program', ['x'])
    if way == 'raise':
        raise ValueError('of the child')
    if way == 'exit':
        sys.exit(4)
    if way == 'text':
        sys.exit('a last word')
    if way == 'interrupt':
        raise KeyboardInterrupt()
    if way == 'kill':
        os.kill(os.getpid(), 9)
    return {'answered': 'by the child'}

def forked(way, terminal=False):
    """None in the child, once it is about to return."""
    if terminal:
        pid, fd = pty.fork()
    else:
        pid = os.fork()
    if not pid:
        leave(way)
        return None
    if terminal:
        try:
            while os.read(fd, 1000):
                pass
        except OSError:
            pass
        os.close(fd)
    return {'parent': os.getpid(), 'status': os.waitpid(pid, 0)[1]}
`;

const app = (text: string): Readonly<Record<string, string>> => ({ 'forks.py': FORKS, 'app.py': text });
const PLAIN = app('from forks import forked\ndef handler(**inputs): return forked(**inputs)\n');
const AWAITED = app('from forks import forked\nasync def handler(**inputs): return forked(**inputs)\n');

/** Calls with each way, and sees one answer each: of a process that serves, on connections of before. */
async function answersOnce(agent: FakeAgent, terminals = [false]): Promise<void> {
  await agent.slot();
  const before = agent.connections.length;
  let calls = 0;
  for (const terminal of terminals)
    for (const [way, status] of Object.entries(WAYS)) {
      const answer = await agent.call({ way, terminal });
      calls += 1;
      expect([way, answer.outcome, parsed(answer.body)]).toMatchObject([way, 'ok', { status }]);
      const { parent } = parsed(answer.body) as { parent: number };
      expect(agent.connections.filter((one) => one.open).map((one) => one.pid)).toContain(parent);
    }
  expect(agent.of('result')).toHaveLength(calls);
  expect(agent.connections).toHaveLength(before);
  expect(existsSync(join(agent.directory, 'code', 'exits.txt'))).toBe(false);
}

describe('a child that a handler forks', () => {
  const kinds: readonly (readonly [string, Readonly<Record<string, string>>, Readonly<Record<string, string>>])[] = [
    ['an endpoint', PLAIN, {}],
    ['a function', PLAIN, { STUB_TYPE: 'function/deployment' }],
    ['a task queue', PLAIN, { STUB_TYPE: 'taskqueue/deployment' }],
    ['a schedule', PLAIN, { STUB_TYPE: 'schedule/deployment' }],
    ['an endpoint with several slots', PLAIN, { CONCURRENT_REQUESTS: '2' }],
    ['an asynchronous endpoint', AWAITED, { CONCURRENT_REQUESTS: '2' }],
    ['an endpoint with forked workers', PLAIN, { WORKERS: '2' }],
    ['an asynchronous endpoint with forked workers', AWAITED, { WORKERS: '2' }],
    ['an endpoint with workers in threads', PLAIN, { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' }],
    ['an endpoint with spawned workers', PLAIN, { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }],
    ['a development server', PLAIN, { STUB_TYPE: 'endpoint/serve', CONTAINER_ID: `serve-${randomUUID()}` }],
  ];
  test.for(kinds)('of %s answers nothing and serves nothing, however it leaves', async ([, files, env], { start }) => {
    await answersOnce(await start({ files, env }));
  });

  test('with a terminal of its own answers nothing and serves nothing, however it leaves', async ({ start }) => {
    await answersOnce(await start({ files: PLAIN }), [true]);
  });

  test('shows what it printed and what it raised, each line once', async ({ start }) => {
    const text = `
import os, sys, time
def handler():
    print('unfinished', end=' ')
    if not os.fork():
        print('a', 'b')
        print('no end of a line', end='')
        sys.stdout.flush()
        os.write(1, b'|')
        raise ValueError('of the child')
    os.wait()
    print('line')
    return 'done'
`;
    const agent = await start({ files: app(text) });
    expect(await agent.call()).toMatchObject({ outcome: 'ok', body: '"done"' });
    expect(agent.lines()).toEqual(['stdout task-1 unfinished line']);
    await waitFor(() => agent.stderr.includes('ValueError: of the child'), 'the output of the child is there');
    expect(agent.stdout).toBe('a b\nno end of a line|');
    expect(agent.stderr).toMatch(/^Traceback .*\n {2}File .*app\.py", line 10, in handler\n/);
    expect(agent.stderr).not.toContain('longshore/runner');
  });

  test('of a generator answers nothing, between two items and behind the last', async ({ start }) => {
    const text = `
import os
def handler(last):
    yield 1
    if last:
        yield 2
    if os.fork():
        os.wait()
    elif not last:
        yield 'of the child'
    if not last:
        yield 2
async def later(last):
    for item in handler(last):
        yield item
`;
    for (const handler of ['app:handler', 'app:later'])
      for (const kind of ['endpoint', 'function']) {
        const agent = await start({ files: app(text), handler, env: { STUB_TYPE: `${kind}/deployment` } });
        for (const last of [false, true]) expect((await agent.call({ last })).outcome).toBe('ok');
        const said = agent.frames
          .filter(({ kind: one }) => one === 'chunk' || one === 'result')
          .map(({ body }) => body.toString());
        expect(said).toEqual(
          kind === 'function'
            ? ['[1,2]', '[1,2]']
            : ['data: {"data":1}\n\n', 'data: {"data":2}\n\n', '', 'data: {"data":1}\n\n', 'data: {"data":2}\n\n', ''],
        );
      }
  });

  test('that awaits something of its parent ends, and the parent serves on', async ({ start }) => {
    const text = `
import asyncio, os
async def handler(wait):
    pid = os.fork()
    await asyncio.sleep(wait)
    return {'parent': os.getpid(), 'status': os.waitpid(pid, 0)[1]}
`;
    const agent = await start({ files: app(text), env: { CONCURRENT_REQUESTS: '4' } });
    const on = await agent.slot();
    const tasks = await Promise.all([1, 2, 3, 4].map(() => agent.run({ on, input: { wait: 0 } })));
    for (const { taskId } of tasks) {
      const answer = await agent.answer(taskId);
      expect([answer.outcome, parsed(answer.body)]).toEqual(['ok', { parent: on.pid, status: 1 << 8 }]);
    }
    expect(parsed((await agent.call({ wait: 0.01 })).body)).toEqual({ parent: on.pid, status: 1 << 8 });
    expect(agent.of('result')).toHaveLength(5);
    expect(agent.stderr).toContain('a forked process cannot wait in the event loop of its parent');
  });

  test('has its own event loop where it makes one', async ({ start }) => {
    const text = `
import asyncio, os
async def own():
    await asyncio.sleep(0.01)
    os._exit(7)
async def handler():
    pid = os.fork()
    if not pid:
        asyncio.run(own())
    return os.waitpid(pid, 0)[1]
`;
    const agent = await start({ files: app(text) });
    expect((await agent.call()).body).toBe(String(7 << 8));
  });

  const outliving: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
    ['single', {}],
    ['slots', { CONCURRENT_REQUESTS: '2' }],
    ['fork', { WORKERS: '2' }],
    ['thread', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' }],
    ['spawn', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }],
    ['async', { LATER: '1' }],
  ];
  test.for(outliving)(
    'holds no connection, pipe or loop of the runner, and ends by SIGTERM: %s',
    async ([, env], { start }) => {
      const text = `
import os, signal, time
held = lambda: [os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2 and os.path.islink('/proc/self/fd/' + fd)]
before = held()
def plain():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        kept = [name for name in held() if name not in before and not name.startswith('/') and name not in map(name_of, (read, write))]
        for number in range(1, signal.NSIG):
            try:
                if callable(signal.getsignal(number)) and number != signal.SIGINT:
                    kept.append(number)
            except ValueError:
                pass
        os.write(write, repr([kept, signal.set_wakeup_fd(-1)]).encode())
        time.sleep(600)
    said = os.read(read, 10000).decode()
    os.close(read), os.close(write)
    return {'pid': pid, 'said': said}
def name_of(fd):
    return os.readlink('/proc/self/fd/%d' % fd)
def ends(pid):
    os.kill(pid, 15)
    return os.waitpid(pid, 0)[1]
if os.environ.get('LATER'):
    async def handler(pid=0): return ends(pid) if pid else plain()
else:
    def handler(pid=0): return ends(pid) if pid else plain()
`;
      const agent = await start({ files: app(text), env });
      const on = await agent.slot();
      const first = parsed((await agent.call({}, { on })).body) as { pid: number; said: string };
      expect(first.said).toBe('[[], -1]');
      expect((await agent.call({ pid: first.pid }, { on })).body).toBe('15');
      // A runner process that is killed is seen to be gone while its child lives on.
      const { pid } = parsed((await agent.call({}, { on })).body) as { pid: number };
      process.kill(on.pid, 'SIGKILL');
      await agent.until('the end of the connection', () => !on.open);
      expect(existsSync(`/proc/${pid}`)).toBe(true);
      process.kill(pid, 'SIGKILL');
      // A successor that is forked while the test ends would outlive it.
      if (on.pid !== agent.runner?.pid)
        await agent.until('its successor', () =>
          agent.connections.some(
            (one) => one !== on && one.process === on.process && one.open && Number(one.hello['slots']) > 0,
          ),
        );
    },
  );

  test("keeps the app's own handler of SIGTERM", async ({ start }) => {
    const text = `
import os, signal, time
def mine(*_): os._exit(9)
def handler():
    signal.signal(signal.SIGTERM, mine)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, b'.')
        time.sleep(600)
    os.read(read, 1)
    os.kill(pid, 15)
    return os.waitpid(pid, 0)[1]
`;
    const agent = await start({ files: app(text) });
    expect((await agent.call()).body).toBe(String(9 << 8));
  });

  test('in a thread of the app, or of its child, answers nothing', async ({ start }) => {
    const text = `
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from forks import forked
def handler():
    statuses = []
    def twice():
        pid = os.fork()
        if not pid:
            if os.fork():
                os.wait()
            sys.exit(5)
        statuses.append(os.waitpid(pid, 0)[1])
    thread = threading.Thread(target=twice)
    thread.start()
    thread.join()
    pid = os.fork()
    if not pid:
        if os.fork():
            os.wait()
        return 'of a child'
    with ThreadPoolExecutor(1) as pool:
        pooled = [pool.submit(forked, way).result()['status'] for way in ('raise', 'return', 'exit')]
    return statuses + [os.waitpid(pid, 0)[1]] + pooled
`;
    for (const env of [{}, { CONCURRENT_REQUESTS: '2' }]) {
      const agent = await start({ files: app(text), env });
      // A thread that ends by itself is the end of a process that has no other.
      expect((await agent.call()).body).toBe('[0,0,256,0,1024]');
      expect((await agent.call()).body).toBe('[0,0,256,0,1024]');
      expect(agent.of('result')).toHaveLength(2);
    }
  });
});

describe('multiprocessing', () => {
  const text = `
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
def square(x):
    print('squares', x)
    return x * x
def leaves(way, begun):
    begun.set()
    if way == 'raise': raise ValueError(way)
    if way == 'exit': sys.exit(3)
    if way == 'kill': os._exit(4)
    if way == 'sleep': time.sleep(600)
def handler(method):
    known = multiprocessing.get_context(method)
    codes = []
    for way in ('return', 'raise', 'exit', 'kill', 'sleep'):
        begun = known.Event()
        process = known.Process(target=leaves, args=(way, begun))
        process.start()
        if way == 'sleep':
            begun.wait()
            process.terminate()
        process.join()
        codes.append(process.exitcode)
    with known.Pool(2) as pool:
        squares = pool.map(square, range(4))
    with ProcessPoolExecutor(2, mp_context=known) as pool:
        return [codes, squares, list(pool.map(square, range(4)))]
async def later(method):
    return handler(method)
`;
  const kinds: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
    ['app:handler', {}],
    ['app:handler', { WORKERS: '2' }],
    ['app:later', {}],
  ];
  test.for(kinds)('works by every method, and the parent alone answers: %s %j', async ([handler, env], { start }) => {
    const agent = await start({ files: app(text), handler, env });
    for (const method of ['fork', 'forkserver', 'spawn']) {
      const { taskId } = await agent.run({ input: { method } });
      expect([method, parsed((await agent.answer(taskId, 40_000)).body)]).toEqual([
        method,
        [
          [0, 1, 3, 4, -15],
          [0, 1, 4, 9],
          [0, 1, 4, 9],
        ],
      ]);
    }
    expect(agent.of('result')).toHaveLength(3);
    expect(new Set(agent.of('hello').map(({ header }) => header['pid'])).size).toBe(agent.of('hello').length);
  });
});

describe('an application', () => {
  const text = `
import asyncio, json, os, sys, threading
from forks import forked
if os.environ.get('WORKERS_OF_ITS_OWN'):
    # As servers do that fork their workers ahead.
    import signal
    PIDS = []
    for number in range(2):
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(6))
            os.write(1, b'.')
            while True:
                signal.pause()
        PIDS.append(pid)
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        await receive()
        if os.environ.get('FROM_LIFESPAN'):
            forked(os.environ['FROM_LIFESPAN'])
        await send({'type': 'lifespan.startup.complete'})
        await receive()
        await send({'type': 'lifespan.shutdown.complete'})
        return
    if scope['type'] == 'websocket':
        await receive()
        await send({'type': 'websocket.accept'})
        said = forked((await receive())['text'])
        await send({'type': 'websocket.send', 'text': json.dumps(said)})
        return
    await receive()
    place, way = scope['path'].strip('/').split('/')
    if place == 'loop':
        said = forked(way)
    elif place == 'thread':
        said = await asyncio.get_event_loop().run_in_executor(None, forked, way)
    elif place == 'task':
        async def later(): return forked(way)
        said = await asyncio.get_event_loop().create_task(later())
    elif place == 'begun':
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})
        said = forked(way)
    else:
        for pid in PIDS: os.kill(pid, 15)
        said = [os.waitpid(pid, 0)[1] for pid in PIDS]
    if place != 'begun':
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    await send({'type': 'http.response.body', 'body': json.dumps(said).encode()})
`;
  const env = { STUB_TYPE: 'asgi/deployment', CONCURRENT_REQUESTS: '4' };
  const got = async (agent: FakeAgent, path: string): Promise<unknown> => {
    const call = await agent.request({ path });
    call.send('end');
    await call.ended();
    await call.over();
    return parsed(call.body().toString());
  };

  test('has one answer to each call, wherever it forked and however the child left', async ({ start }) => {
    const agent = await start({ files: app(text), handler: 'app:app', env });
    await agent.slot();
    let calls = 0;
    for (const place of ['loop', 'begun', 'thread', 'task'])
      for (const [way, status] of Object.entries(WAYS)) {
        // The end of a task is known to the loop alone, which says nothing of its outcome.
        const seen = place === 'task' && way === 'return' ? WAYS.raise : status;
        expect([place, way, await got(agent, `/${place}/${way}`)]).toMatchObject([place, way, { status: seen }]);
        calls += 1;
      }
    await agent.until('the results', () => agent.of('result').length >= calls);
    expect(agent.of('result').map(({ header }) => header['outcome'])).toEqual(Array(calls).fill('ok'));
    expect(agent.connections).toHaveLength(1);
    expect(agent.stderr).toContain('ValueError: of the child');
  });

  test('has one answer to a message of a WebSocket, and its child holds no connection', async ({ start }) => {
    const agent = await start({ files: app(text), handler: 'app:app', env });
    for (const way of ['raise', 'return', 'exit'] as const) {
      const call = await agent.request({ type: 'websocket' });
      call.send('message', way, { text: true });
      expect(parsed((await call.message(0)).slice('text '.length))).toMatchObject({ status: WAYS[way] });
      expect(await call.closed()).toMatchObject({ code: 1000 });
      await call.over();
      expect(call.messages()).toHaveLength(1);
    }
  });

  test.for(['raise', 'return', 'exit'])('starts once where a child leaves its startup: %s', async (way, { start }) => {
    for (const workers of ['1', '2']) {
      const agent = await start({
        files: app(text),
        handler: 'app:app',
        env: { ...env, FROM_LIFESPAN: way, WORKERS: workers },
      });
      expect(await got(agent, '/loop/exit')).toMatchObject({ status: WAYS.exit });
      expect(agent.of('failed')).toEqual([]);
      expect(agent.of('ready')).toHaveLength(1);
    }
  });

  test('may fork workers of its own ahead, which it ends as it likes', async ({ start }) => {
    const agent = await start({ files: app(text), handler: 'app:app', env: { ...env, WORKERS_OF_ITS_OWN: '1' } });
    await agent.ready();
    await waitFor(() => agent.stdout === '..', 'its workers run');
    expect(await got(agent, '/ends/workers')).toEqual([6 << 8, 6 << 8]);
    expect(agent.connections).toHaveLength(1);
  });

  test.for(['plain', 'later'])('of single messages answers each once: %s', async (name, { start }) => {
    const realtime = `
from longshore import realtime
from forks import forked
@realtime()
def plain(event): return forked(event)
@realtime()
async def later(event): return forked(event)
`;
    const agent = await start({ files: app(realtime), handler: `app:${name}`, env });
    const call = await agent.request({ type: 'websocket' });
    const ways = ['raise', 'return', 'exit', 'program', 'kill'] as const;
    for (const [number, way] of ways.entries()) {
      call.send('message', way, { text: true });
      expect([way, parsed((await call.message(number)).slice('text '.length))]).toMatchObject([
        way,
        { status: WAYS[way] },
      ]);
    }
    expect(call.messages()).toHaveLength(ways.length);
  });
});

describe('a child that is forked before the container is ready', () => {
  const text = (place: string): string => `
import os
from forks import forked
seen = [${place === 'import' ? "forked(way)['status'] for way in ('program', 'raise', 'exit', 'kill')" : ''}]
def load():
    way = os.environ['WAY']
    seen.append((forked(way) or {'status': -1})['status'])
def handler(): return seen
`;
  const modes: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
    ['single', {}],
    ['fork', { WORKERS: '2' }],
    ['spawn', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }],
    ['thread', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' }],
    ['serve', { STUB_TYPE: 'endpoint/serve' }],
  ];
  const cases = modes.flatMap(([mode, env]) =>
    (['program', 'return'] as const).map((way) => [mode, way, env] as const),
  );
  test.for(cases)('reports no failed start, and serves nothing: %s, %s', async ([, way, env], { start }) => {
    const id = { CONTAINER_ID: `forks-${randomUUID()}` };
    const agent = await start({ files: app(text('on_start')), onStart: 'app:load', env: { WAY: way, ...id, ...env } });
    expect((await agent.call()).body).toBe(JSON.stringify([WAYS[way]]));
    expect(agent.of('failed')).toEqual([]);
    expect(agent.of('ready')).toHaveLength(1);
    expect(
      agent.connections.filter((one) => one.open && one.pid > 0).every((one) => existsSync(`/proc/${one.pid}`)),
    ).toBe(true);
  });
});

describe('the end of the runner', () => {
  test('runs what the app registered, once, in the processes that served', async ({ start }) => {
    const agent = await start({ files: PLAIN });
    await agent.call({ way: 'exit' });
    process.kill((await agent.slot()).pid, 'SIGTERM');
    expect(await agent.exited()).toBe(0);
    const exits = await readFile(join(agent.directory, 'code', 'exits.txt'), 'utf8');
    expect(exits).toBe(`${agent.connections[0]?.pid}\n`);
  });
});
