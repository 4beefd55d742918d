// ASGI applications and WebSockets in the real runner (python3 of the host, no Docker), over sockets of a fake agent.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { appFiles, test } from '../helpers/asgi-runner.ts';
import type { FakeAgent } from '../helpers/fake-agent.ts';

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

async function pause(milliseconds: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Bytes of memory that the runner uses now. */
async function memory(agent: FakeAgent): Promise<number> {
  const status = await readFile(`/proc/${agent.runner?.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}
