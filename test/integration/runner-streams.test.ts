// ASGI applications and WebSockets in the real runner (python3 of the host, no Docker), over sockets of a fake agent.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { appFiles, test } from '../helpers/asgi-runner.ts';
import type { FakeAgent } from '../helpers/fake-agent.ts';
import { KIND, packFrame } from '../helpers/fake-agent.ts';

const parsed = (text: string): unknown => JSON.parse(text) as unknown;
const errorOf = (text: string): string => String((parsed(text) as { error: unknown }).error);
const MIB = 1024 * 1024;
const bytes = (size: number): Buffer => Buffer.from(Uint8Array.from({ length: size }, (_, at) => (at * 31) % 251));

const ECHO = appFiles(`
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'X-One', b'1'), (b'x-one', b'\\xe9')]})
    more = True
    while more:
        message = await receive()
        more = message.get('more_body', False)
        await send({'type': 'http.response.body', 'body': message['body'], 'more_body': more})
`);

const COUNTED = appFiles(`
import os
sent = 0
async def app(scope, receive, send):
    global sent
    assert scope['type'] == 'http'
    if scope['path'] == '/sent':
        await send({'type': 'http.response.start', 'status': 200})
        await send({'type': 'http.response.body', 'body': b'%d' % sent})
        return
    await send({'type': 'http.response.start', 'status': 200})
    for _ in range(64):
        await send({'type': 'http.response.body', 'body': bytes(1024 * 1024), 'more_body': True})
        sent += 1
    await send({'type': 'http.response.body'})
`);

describe('a request', () => {
  test('is a scope, and its answer a head, data and an end', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
import json
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    print('asked for', scope['path'])
    shown = {name: value for name, value in scope.items() if name not in ('headers', 'state')}
    shown['headers'] = [[name.decode(), value.decode('latin-1')] for name, value in scope['headers']]
    shown['raw_path'], shown['query_string'] = scope['raw_path'].decode(), scope['query_string'].decode()
    shown['body'] = (await receive())['more_body']
    await send({'type': 'http.response.start', 'status': 201, 'headers': []})
    await send({'type': 'http.response.body', 'body': json.dumps(shown).encode()})
`),
    });
    const call = await agent.request({
      method: 'PUT',
      path: '/asgi/site/a%20b/%C3%A4',
      rootPath: '/asgi/site',
      query: 'q=%20',
      headers: [
        ['Host', 'x'],
        ['a', 'é'],
      ],
    });
    call.send('end');
    await call.over();
    expect(await call.head()).toEqual({ status: 201, headers: [] });
    expect(parsed(call.body().toString())).toEqual({
      type: 'http',
      asgi: { version: '3.0', spec_version: '2.3' },
      http_version: '1.1',
      method: 'PUT',
      scheme: 'http',
      path: '/asgi/site/a b/ä',
      raw_path: '/asgi/site/a%20b/%C3%A4',
      root_path: '/asgi/site',
      query_string: 'q=%20',
      headers: [
        ['host', 'x'],
        ['a', 'é'],
      ],
      client: ['10.0.0.9', 5000],
      server: ['test', 80],
      extensions: { 'http.response.trailers': {} },
      body: false,
    });
    expect(call.frames.map((frame) => frame.kind)).toEqual(['stream', 'response', 'data', 'end']);
    expect(call.frames[0]?.header).toEqual({ version: 1, taskId: 'task-1', token: 'token-1' });
    const answer = await agent.answer('task-1');
    expect([answer.outcome, parsed(answer.body)]).toEqual(['ok', { status: 201 }]);
    expect(agent.lines()).toEqual(['stdout task-1 asked for /asgi/site/a b/ä']);
    expect(agent.of('started')).toHaveLength(1);
  });

  test('bodies larger than the windows come back unchanged', async ({ start }) => {
    const agent = await start({ files: ECHO });
    const call = await agent.request({ method: 'POST' });
    const body = bytes(9 * MIB + 77);
    await call.sendBody(body, 100_000);
    call.send('end');
    await call.ended();
    expect(call.body().equals(body)).toBe(true);
    expect(await call.head()).toEqual({
      status: 200,
      headers: [
        ['x-one', '1'],
        ['x-one', 'é'],
      ],
    });
    expect(Math.max(...call.of('data').map((frame) => frame.body.length))).toBeLessThanOrEqual(256 * 1024);
    expect((await agent.answer(call.taskId)).body).toBe('{"status": 200}');
  });

  test('frames may be cut at every byte', async ({ start }) => {
    const agent = await start({ files: ECHO });
    const call = await agent.request({ method: 'POST' });
    await call.connection.sendByteByByte('data', {}, Buffer.from('slow'));
    await call.connection.sendByteByByte('data', {}, Buffer.from(' bytes'));
    await call.connection.sendByteByByte('end', {});
    await call.ended();
    expect(call.body().toString()).toBe('slow bytes');
  });

  test('an application that does not read is not sent more than its window', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
import asyncio, os
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    while not os.path.exists('go'):
        await asyncio.sleep(0.01)
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message['body']), message['more_body']
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': b'%d' % size})
`),
    });
    const call = await agent.request({ method: 'POST' });
    const sent = call.sendBody(bytes(8 * MIB));
    const first = await Promise.race([sent.then(() => 'all'), pause(700).then(() => 'waits')]);
    expect(first).toBe('waits');
    expect(call.connection.socket.bytesWritten).toBeLessThan(3 * MIB);
    await writeFile(join(agent.directory, 'code', 'go'), '');
    await sent;
    call.send('end');
    await call.ended();
    expect(call.body().toString()).toBe(String(8 * MIB));
  });

  test('an application whose reader stops waits, and does not grow', async ({ start }) => {
    const agent = await start({ files: COUNTED, env: { CONCURRENT_REQUESTS: '2' } });
    const call = await agent.request();
    call.send('end');
    await call.head();
    call.connection.socket.pause();
    await pause(700);
    const count = async (): Promise<number> => {
      const question = await agent.request({ path: '/sent' });
      question.send('end');
      await question.ended();
      return Number(question.body().toString());
    };
    const then = await count();
    expect(then).toBeLessThan(30);
    await pause(300);
    expect(await count()).toBe(then);
    expect(await memory(agent)).toBeLessThan(80 * MIB);
    call.connection.socket.resume();
    await call.ended();
    expect(call.body().length).toBe(64 * MIB);
  });

  test('an early answer reaches a caller that goes on sending', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    await send({'type': 'http.response.start', 'status': 413})
    await send({'type': 'http.response.body', 'body': b'too large'})
    assert (await receive())['type'] == 'http.disconnect'
`),
    });
    const call = await agent.request({ method: 'POST' });
    const sent = call.sendBody(bytes(4 * MIB));
    await call.ended();
    expect([await call.head(), call.body().toString()]).toEqual([{ status: 413, headers: [] }, 'too large']);
    await sent;
    expect((await agent.answer(call.taskId)).body).toBe('{"status": 413}');
    await call.over();
  });

  test('an early answer waits for a slow caller whose body goes on', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    await receive()
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': bytes(100_000)})
`),
    });
    const call = await agent.request({ method: 'POST' });
    call.connection.socket.pause();
    call.send('data', 'first');
    await agent.answer(call.taskId);
    await pause(6_000);
    // A connection that is closed by then refuses it, and loses what lies unread.
    for (let piece = 0; piece < 20; piece += 1) {
      call.send('data', 'more');
      await pause(10);
    }
    call.connection.socket.resume();
    await call.ended();
    expect(call.body().length).toBe(100_000);
  }, 30_000);

  test('the frame `reading` comes when a caller that waits for it is first read', async ({ start }) => {
    const agent = await start({ files: ECHO });
    const call = await agent.request({ method: 'POST', expectsContinue: true });
    await agent.until('reading', () => call.of('reading')[0]);
    expect(call.frames.map((frame) => frame.kind)).toEqual(['stream', 'response', 'reading']);
    call.send('data', 'x');
    call.send('end');
    await call.ended();
    expect(call.of('reading')).toHaveLength(1);
  });

  test('trailers are sent with the end', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    await send({'type': 'http.response.start', 'status': 200, 'trailers': True})
    await send({'type': 'http.response.body', 'body': b'x'})
    await send({'type': 'http.response.trailers', 'headers': [(b'A', b'1')], 'more_trailers': True})
    await send({'type': 'http.response.trailers', 'headers': [(b'b', b'2')]})
`),
    });
    const call = await agent.request();
    call.send('end');
    expect(await call.ended()).toEqual([
      ['a', '1'],
      ['b', '2'],
    ]);
    expect((await call.head())['trailers']).toBe(true);
  });

  test('a caller that leaves is http.disconnect, and sending goes on without effect', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    await send({'type': 'http.response.start', 'status': 200})
    await receive()
    print((await receive())['type'])
    await send({'type': 'http.response.body', 'body': bytes(1000000), 'more_body': True})
    print((await receive())['type'])
`),
    });
    const call = await agent.request();
    call.send('end');
    await call.head();
    call.connection.socket.destroy();
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body]).toEqual(['cancelled', '{"error": "the caller left"}']);
    expect(agent.lines()).toEqual(['stdout task-1 http.disconnect', 'stdout task-1 http.disconnect']);
  });

  test('one that leaves before its request came is a cancelled task', async ({ start }) => {
    const agent = await start({ files: ECHO });
    const { taskId } = await agent.run({ stream: true });
    (await agent.stream(taskId)).connection.socket.destroy();
    expect((await agent.answer(taskId)).outcome).toBe('cancelled');
  });

  test('as many as there are slots run side by side', async ({ start }) => {
    const agent = await start({
      env: { CONCURRENT_REQUESTS: '3' },
      files: appFiles(`
import asyncio
here = 0
async def app(scope, receive, send):
    global here
    assert scope['type'] == 'http'
    here += 1
    while here < 3:
        await asyncio.sleep(0.005)
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': scope['path'].encode()})
`),
    });
    expect((await agent.ready()).header).toMatchObject({ mode: 'single', slots: 3 });
    const calls = await Promise.all(['/a', '/b', '/c'].map((path) => agent.request({ path })));
    for (const call of calls) call.send('end');
    await Promise.all(calls.map((call) => call.ended()));
    expect(calls.map((call) => call.body().toString())).toEqual(['/a', '/b', '/c']);
  });
});

describe('an application that fails', () => {
  const files = appFiles(`
async def app(scope, receive, send):
    assert scope['type'] == 'http'
    path = scope['path']
    if path != '/before':
        await send({'type': 'http.response.start', 'status': 200})
    if path == '/twice':
        await send({'type': 'http.response.start', 'status': 200})
    if path in ('/late', '/unread'):
        await send({'type': 'http.response.body', 'body': b'all'})
    if path == '/text':
        await send({'type': 'http.response.body', 'body': 'text'})
    if path != '/short':
        raise KeyError(path)
`);

  test.for([
    ['/before', "KeyError: '/before'", []],
    ['/after', "KeyError: '/after'", ['response?']],
    ['/late', "KeyError: '/late'", ['response', 'data', 'end']],
    ['/unread', "KeyError: '/unread'", ['response', 'data', 'end']],
    ['/short', 'RuntimeError: the ASGI application returned before the end of its response', ['response?']],
    [
      '/twice',
      "RuntimeError: expected ASGI message 'http.response.body', but got 'http.response.start'",
      ['response?'],
    ],
    ['/text', 'TypeError: a body or a message must be bytes, not str', ['response?']],
  ] as const)('%s: %s', async ([path, text, frames], { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ path });
    if (path === '/unread') {
      // More than the runner takes unread. A connection that it closes with unread input loses what is not read here.
      call.connection.socket.pause();
      for (let sent = 0; sent < 4; sent += 1) call.send('data', Buffer.alloc(256 * 1024));
    }
    call.send('end');
    const answer = await agent.answer(call.taskId);
    call.connection.socket.resume();
    expect([answer.outcome, errorOf(answer.body)]).toEqual(['error', text]);
    await call.over();
    const kinds = call.frames.map((frame) => frame.kind).slice(1);
    if (frames[0] === 'response?') expect(kinds.filter((kind) => kind !== 'response')).toEqual([]);
    else expect(kinds).toEqual(frames);
    expect(agent.lines().some((line) => line.startsWith('stderr task-1') && line.includes(text))).toBe(true);
  });

  test('without any answer says so', async ({ start }) => {
    const agent = await start({ files: appFiles('async def app(scope, receive, send):\n    pass\n') });
    const call = await agent.request();
    expect(errorOf((await agent.answer(call.taskId)).body)).toBe(
      'RuntimeError: the ASGI application returned without a response',
    );
  });

  test('tracebacks are in the error when the stub asks for them', async ({ start }) => {
    const agent = await start({ files, env: { LONGSHORE_TRACEBACKS: '1' } });
    const call = await agent.request({ path: '/before' });
    expect(errorOf((await agent.answer(call.taskId)).body)).toMatch(/^KeyError: '\/before'\n\nTraceback[^]*app\.py/);
  });

  test('sys.exit ends the process', async ({ start }) => {
    const agent = await start({
      files: appFiles(
        'import sys\nasync def app(scope, receive, send):\n    if scope["type"] == "http":\n        sys.exit(3)\n',
      ),
    });
    await agent.request();
    expect(await agent.exited()).toBe(3);
  });

  test('a bad frame from the other side ends the connection', async ({ start }) => {
    const agent = await start({ files: ECHO });
    const call = await agent.request({ method: 'POST' });
    await call.head();
    call.connection.socket.write(Buffer.from([0x7f, 0xff, 0xff, 0xff, 6, 0, 0]));
    expect((await agent.answer(call.taskId)).outcome).toBe('error');
    await call.over();
  });
});

describe('tasks of the wrong sort', () => {
  test('an input for an application is an error that says so', async ({ start }) => {
    const agent = await start({ files: ECHO });
    expect(errorOf((await agent.call({})).body)).toContain('an ASGI application is called by HTTP requests');
  });

  test('so is a stream for any other handler', async ({ start }) => {
    const files = appFiles('def app():\n    return 1\n');
    const agent = await start({ files, env: { STUB_TYPE: 'endpoint/deployment' } });
    const { taskId } = await agent.run({ stream: true });
    expect(errorOf((await agent.answer(taskId)).body)).toContain('needs an ASGI application');
    expect((await agent.call({})).body).toBe('1');
  });
});

describe('the application', () => {
  const files = appFiles(`
from longshore import asgi
def load():
    return 'loaded'
made = []
@asgi(name='site')
def factory(context):
    made.append(context.on_start_value)
    async def inner(scope, receive, send):
        assert scope['type'] == 'http'
        from longshore import context as current
        await send({'type': 'http.response.start', 'status': 200})
        await send({'type': 'http.response.body', 'body': repr([made[-1], current.task_id]).encode()})
    return inner
@asgi
async def direct(scope, receive, send):
    await factory.local(type('C', (), {'on_start_value': 'direct'}))(scope, receive, send)
class App:
    async def __call__(self, scope, receive, send):
        await direct(scope, receive, send)
instance = App()
decorated = asgi(name='x')(instance)
async def later():
    return instance
def none():
    return 5
`);

  test.for([
    ['factory', 'loaded'],
    ['direct', 'direct'],
    ['instance', 'direct'],
    ['decorated', 'direct'],
    ['later', 'direct'],
  ] as const)('may be a %s', async ([name, made], { start }) => {
    const agent = await start({ files, handler: `app:${name}`, onStart: 'app:load' });
    const call = await agent.request();
    call.send('end');
    await call.ended();
    expect(call.body().toString()).toBe(`['${made}', 'task-1']`);
  });

  test('must be one', async ({ start }) => {
    const agent = await start({ files, handler: 'app:none' });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({
      phase: 'on_start',
      error: 'app:none returned a int, not an ASGI application',
    });
  });

  test('is not served by threads', async ({ start }) => {
    const agent = await start({ files, env: { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' } });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header['error']).toContain("'thread' does not suit an ASGI application");
  });
});

describe('lifespan', () => {
  const files = appFiles(`
import os
HOW = os.environ.get('HOW', '')
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        message = await receive()
        assert message['type'] == 'lifespan.startup', message
        print('starting')
        if HOW == 'raises':
            raise OSError('no database')
        if HOW == 'failed':
            await send({'type': 'lifespan.startup.failed', 'message': 'not today'})
            return
        scope['state']['value'] = [os.getpid()]
        await send({'type': 'lifespan.startup.complete'})
        assert (await receive())['type'] == 'lifespan.shutdown'
        open('stopped', 'a').write('stopped\\n')
        if HOW == 'hangs':
            import asyncio
            await asyncio.sleep(100)
        await send({'type': 'lifespan.shutdown.complete'})
        return
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': repr(scope['state'].get('value')).encode()})
    scope['state']['value'] = 'changed'
`);
  const modes = [
    ['one process', {}, 'single'],
    ['forked', { WORKERS: '2' }, 'fork'],
    ['spawned', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }, 'spawn'],
  ] as const;

  test.for(modes)(
    '%s: starts before ready, its state is in each scope, and it stops',
    async ([, env, mode], { start }) => {
      const agent = await start({ files, env });
      expect((await agent.ready()).header['mode']).toBe(mode);
      const workers = mode === 'single' ? 1 : 2;
      for (let process = 0; process < workers; process += 1) {
        for (let round = 0; round < 2; round += 1) {
          const slot = await agent.slot(process);
          const call = await agent.request({}, slot);
          call.send('end');
          await call.ended();
          expect(call.body().toString()).toBe(`[${slot.pid}]`);
        }
      }
      agent.runner?.kill('SIGTERM');
      expect(await agent.exited()).toBe(0);
      expect(await readFile(join(agent.directory, 'code', 'stopped'), 'utf8')).toBe('stopped\n'.repeat(workers));
      expect(agent.lines().filter((line) => line.endsWith('starting'))).toHaveLength(workers);
    },
  );

  test.for(modes)('%s: a startup that raises is a start that failed', async ([, env], { start }) => {
    const agent = await start({ files, env: { ...env, HOW: 'raises' } });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({ phase: 'on_start', error: 'OSError: no database' });
    expect(agent.of('failed')[0]?.body.toString()).toMatch(/app\.py", line 10/);
    expect(agent.of('ready')).toHaveLength(0);
  });

  test.for(modes)('%s: a startup that says that it failed is one, too', async ([, env], { start }) => {
    const agent = await start({ files, env: { ...env, HOW: 'failed' } });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({ phase: 'on_start', error: 'LifespanError: not today' });
  });

  test('an application without it is served without it', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    await receive()
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body'})
`),
    });
    const call = await agent.request();
    call.send('end');
    await call.ended();
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(0);
  });

  test('a drain lets running requests end, then stops the application', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        await receive()
        await send({'type': 'lifespan.startup.complete'})
        await receive()
        print('stopping')
        await send({'type': 'lifespan.shutdown.complete'})
        return
    body = (await receive())['body']
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': body})
`),
    });
    const call = await agent.request({ method: 'POST' });
    (await agent.slot()).send('drain', { graceMs: 5000 });
    await pause(200);
    call.send('data', 'late');
    call.send('end');
    await call.ended();
    expect(call.body().toString()).toBe('late');
    expect((await agent.answer(call.taskId)).outcome).toBe('ok');
    expect(await agent.exited()).toBe(0);
    expect(agent.lines()).toEqual(['stdout  stopping']);
  });
});

describe('cancel', () => {
  const files = appFiles(`
import asyncio
async def app(scope, receive, send):
    assert scope['type'] != 'lifespan'
    await send({'type': 'websocket.accept'} if scope['type'] == 'websocket' else {'type': 'http.response.start', 'status': 200})
    await receive()
    if scope['path'] == '/done':
        await send({'type': 'http.response.body', 'body': b''})
        await asyncio.sleep(6)
        print('went on')
        return
    if scope['path'] == '/deaf':
        try:
            await asyncio.sleep(100)
        finally:
            print('ended')
    print((await receive())['type'])
`);

  test.for([
    ['timeout', 'timeout'],
    ['stopped by its owner', 'cancelled'],
  ] as const)('with reason %s is a disconnect at once', async ([reason, outcome], { start }) => {
    const agent = await start({ files });
    const call = await agent.request();
    call.send('end');
    await call.head();
    (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason });
    const answer = await agent.answer(call.taskId, 3000);
    expect([answer.outcome, agent.lines()]).toEqual([outcome, ['stdout task-1 http.disconnect']]);
    await call.over();
  });

  test('ends an application that takes no notice 5 s later', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request({ path: '/deaf' });
    call.send('end');
    await call.head();
    const began = Date.now();
    (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason: 'x' });
    await call.over();
    expect(Date.now() - began).toBeLessThan(2000);
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, agent.lines()]).toEqual(['cancelled', ['stdout task-1 ended']]);
    expect(Date.now() - began).toBeGreaterThan(4500);
  });

  test.for(['http', 'websocket'])(
    'is not needed where the caller of a %s call leaves and the application takes no notice',
    async (type, { start }) => {
      const agent = await start({ files });
      const call = await agent.request({ type, path: '/deaf' });
      if (type === 'http') call.send('end');
      await call.head();
      const began = Date.now();
      call.connection.socket.destroy();
      const answer = await agent.answer(call.taskId, 10_000);
      expect([answer.outcome, agent.lines()]).toEqual(['cancelled', ['stdout task-1 ended']]);
      expect(Date.now() - began).toBeGreaterThan(4500);
    },
  );

  test('does not come for an application that goes on after its response', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request({ path: '/done' });
    call.send('end');
    await call.ended();
    call.connection.socket.destroy();
    const answer = await agent.answer(call.taskId, 10_000);
    expect([answer.outcome, agent.lines()]).toEqual(['ok', ['stdout task-1 went on']]);
  });

  test('of a task whose request has not come ends it', async ({ start }) => {
    const agent = await start({ files });
    const { taskId, token, connection } = await agent.run({ stream: true });
    await agent.stream(taskId);
    connection.send('cancel', { taskId, token, reason: 'x' });
    expect((await agent.answer(taskId)).outcome).toBe('cancelled');
  });
});

describe('a WebSocket', () => {
  const SOCKET = { type: 'websocket', scheme: 'ws', path: '/', subprotocols: ['a', 'b'] };
  const files = appFiles(`
import asyncio
async def app(scope, receive, send):
    assert scope['type'] == 'websocket'
    assert (await receive()) == {'type': 'websocket.connect'}
    path = scope['path']
    if path == '/refused':
        await send({'type': 'websocket.close'})
        return
    if path == '/answered':
        await send({'type': 'websocket.http.response.start', 'status': 401, 'headers': [(b'a', b'b')]})
        await send({'type': 'websocket.http.response.body', 'body': b'no', 'more_body': True})
        await send({'type': 'websocket.http.response.body', 'body': b'!'})
        return
    if path == '/nothing':
        return
    await send({'type': 'websocket.accept', 'subprotocol': scope['subprotocols'][1], 'headers': [(b'X', b'y')]})
    if path == '/raises':
        raise KeyError('x')
    if path == '/returns':
        return
    while True:
        message = await receive()
        if message['type'] == 'websocket.disconnect':
            print(message['code'], message['reason'])
            if path == '/on':
                await send({'type': 'websocket.close'})
                await send({'type': 'websocket.send', 'text': 'nobody'})
            return
        if message.get('text') == 'close':
            await send({'type': 'websocket.close', 'code': 4001, 'reason': 'asked to'})
            print((await receive())['code'])
            return
        await send({'type': 'websocket.send', **{key: message[key] for key in ('text', 'bytes') if key in message}})
`);

  test('is accepted, echoes text and bytes of any size, and ends with the code of its peer', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    expect(await call.head()).toEqual({ accept: true, subprotocol: 'b', headers: [['x', 'y']] });
    call.send('message', 'hällo', { text: true });
    expect(await call.message(0)).toBe('text hällo');
    call.send('message', 'a', { text: false, more: true });
    call.send('message', 'b', { text: false, more: true });
    call.send('message', '', { text: false });
    expect(await call.message(1)).toBe('bytes ab');
    const large = 'ö'.repeat(1_500_000);
    const data = Buffer.from(large);
    for (let at = 0; at < data.length; at += 250_001) {
      call.send('message', data.subarray(at, at + 250_001), { text: true, more: at + 250_001 < data.length });
    }
    expect((await call.message(2)) === `text ${large}`).toBe(true);
    expect(Math.max(...call.of('message').map((frame) => frame.body.length))).toBeLessThanOrEqual(256 * 1024);
    call.send('message', '', { text: true });
    expect(await call.message(3)).toBe('text ');
    call.send('close', '', { code: 4002, reason: 'done' });
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body, agent.lines()]).toEqual(['ok', '{"code": 4002}', ['stdout task-1 4002 done']]);
    await call.over();
  });

  test('is closed by the application', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    await call.connection.sendByteByByte('message', { text: true }, Buffer.from('close'));
    expect(await call.closed()).toEqual({ code: 4001, reason: 'asked to' });
    expect((await agent.answer(call.taskId)).body).toBe('{"code": 4001}');
    expect(agent.lines()).toEqual(['stdout task-1 4001']);
    await call.over();
  });

  test.for([
    ['/refused', 'ok', '{"status": 403}', 403, ''],
    ['/answered', 'ok', '{"status": 401}', 401, 'no!'],
  ] as const)('%s: is refused by an answer', async ([path, outcome, body, status, text], { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ ...SOCKET, path });
    await call.ended();
    expect((await call.head())['status']).toBe(status);
    expect(call.body().toString()).toBe(text);
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body]).toEqual([outcome, body]);
  });

  test.for([
    ['/nothing', 'error', undefined],
    ['/raises', 'error', 1011],
    ['/returns', 'ok', 1000],
  ] as const)('%s: ends as %s with code %s', async ([path, outcome, code], { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ ...SOCKET, path });
    expect((await agent.answer(call.taskId)).outcome).toBe(outcome);
    await call.over();
    expect(call.of('close')[0]?.header['code']).toBe(code);
  });

  test.for(['/', '/on'])('%s: a peer that goes without a word is code 1006', async (path, { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ ...SOCKET, path });
    await call.head();
    call.connection.socket.destroy();
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body, agent.lines()]).toEqual(['ok', '{"code": 1006}', ['stdout task-1 1006 ']]);
  });

  test('a message above 16 MiB is closed with 1009, text that is not UTF-8 with 1007', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    await call.head();
    const part = packFrame(KIND.message, { text: false, more: true }, bytes(256 * 1024));
    for (let number = 0; number < 65; number += 1) call.connection.socket.write(part);
    expect((await call.closed())['code']).toBe(1009);
    expect((await agent.answer(call.taskId)).body).toBe('{"code": 1009}');
    const other = await agent.request(SOCKET);
    other.send('message', Buffer.from([0xc3]), { text: true });
    expect((await other.closed())['code']).toBe(1007);
  });

  test('a cancel is a disconnect', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    await call.head();
    (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason: 'x' });
    expect((await agent.answer(call.taskId)).outcome).toBe('cancelled');
    expect(agent.lines()).toEqual(['stdout task-1 1006 ']);
  });
});

async function pause(milliseconds: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Bytes of memory that the runner uses now. */
async function memory(agent: FakeAgent): Promise<number> {
  const status = await readFile(`/proc/${agent.runner?.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}
