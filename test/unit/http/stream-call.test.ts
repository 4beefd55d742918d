// Streamed calls over real HTTP, with a queue and runner processes that this test plays.
import { afterEach, describe, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { GET, OK, PATH, TOKEN, cleanUp, connected, serve, turned } from '../../helpers/played-streams.ts';

afterEach(cleanUp);

test('a caller is told once to send its body, however often the container asks', async () => {
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  socket.write(`POST ${PATH}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n`);
  const one = await task(1);
  one.begin();
  for (let asked = 0; asked < 100; asked += 1) one.send('reading');
  await turned(() => text().includes('100 Continue'));
  socket.write('ok');
  await turned(() => one.got.includes('end'));
  one.send('response', {}, OK);
  one.send('end');
  await turned(() => text().includes('200 OK'));
  expect(text().split('100 Continue')).toHaveLength(2);
});

test('a caller who did not ask is never told to send its body', async () => {
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  socket.write(GET);
  const one = await task(1);
  one.begin();
  one.send('reading');
  one.send('response', {}, OK);
  one.send('end');
  await turned(() => text().includes('200 OK'));
  expect(text()).not.toContain('100 Continue');
});

test('a caller who leaves the end of a response unread is cut off', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { address, task, active } = await serve();
  const { socket } = connected(address);
  socket.pause();
  socket.write(GET);
  const one = await task(1);
  one.begin();
  one.send('response', {}, OK);
  // More than the kernel takes, and the end right behind it.
  const pieces = Array.from({ length: 30 }, () => encodeFrame('data', {}, Buffer.alloc(1_000_000)));
  one.runner.write(Buffer.concat([...pieces, encodeFrame('end', {})]));
  await turned(() => one.isOver);
  vi.advanceTimersByTime(300_001);
  await turned(async () => (await active()) === '0');
});

test('a WebSocket ends with its task, also where its bytes do not', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { address, task } = await serve();
  const webSocket = new WebSocket(`ws://${address}${PATH}/`);
  const codes: number[] = [];
  webSocket.on('close', (code) => codes.push(code));
  webSocket.on('error', () => undefined);
  const one = await task(1);
  one.begin();
  one.send('response', {}, { accept: true, subprotocol: null, headers: [] });
  await turned(() => webSocket.readyState === WebSocket.OPEN);
  one.finish({ status: 'ERROR', reason: 'lost', body: '' });
  await turned(() => true);
  await new Promise((resolve) => setImmediate(resolve));
  vi.advanceTimersByTime(10_001);
  await turned(() => codes.length === 1);
  expect(codes).toEqual([1011]);
});

test('a task whose response cannot be passed on is ended', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  socket.write(GET);
  const one = await task(1);
  one.begin();
  one.send('response', {}, { status: 200, headers: [['x-bad', 'a\nb']] });
  await turned(() => one.isOver);
  vi.advanceTimersByTime(10_001);
  await turned(() => text().includes('502'));
  await turned(() => one.hasLeft);
});

test('a container that breaks off ends its task itself, if it does so soon', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { address, task } = await serve();
  for (const number of [1, 2]) {
    const { socket, text } = connected(address);
    socket.write(GET);
    const one = await task(number);
    one.begin();
    one.send('response', {}, OK);
    one.send('data', {}, 'a part');
    await turned(() => text().includes('a part'));
    one.runner.destroy();
    await turned(() => socket.destroyed);
    expect(one.hasLeft).toBe(false);
    if (number === 1) one.finish({ status: 'ERROR', reason: 'process_exited', body: '' });
    await turned(() => true);
    vi.advanceTimersByTime(5_001);
    if (number === 2) await turned(() => one.hasLeft);
    expect(one.hasLeft).toBe(number === 2);
  }
});

test.for([
  ['in the query', '/?a=1&auth_token=TOKEN', ''],
  ['in the query, escaped', '/?a=1&auth%5ftoken=TOKEN', ''],
  ['behind a number sign', '/a#auth_token=TOKEN', ''],
  ['in the address of the page before', '/', `Referer: http://x${PATH}/?a=1&auth_token=TOKEN`],
  ['in a header', '/', 'Authorization: Bearer TOKEN'],
] as const)('the platform’s token does not reach the container: %s', async ([, path, line]) => {
  const { address, task } = await serve();
  const { socket } = connected(address);
  const text = `GET ${PATH}${path} HTTP/1.1\r\nHost: x\r\n${line}${line === '' ? '' : '\r\n'}\r\n`;
  socket.write(text.replace('TOKEN', TOKEN));
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  expect(one.head).not.toContain(TOKEN);
  if (line.startsWith('Referer')) expect(one.head).toContain(`http://x${PATH}/?a=1"`);
});

test('the redirect of a page that brings its token never leads to another host', async () => {
  const { address } = await serve();
  for (const path of ['//other.test/a', '/\\other.test/a', '/\\/other.test/a', '/\\\\other.test/a']) {
    const { socket, text } = connected(address);
    const host = '00000000-0000-4000-8000-000000000000.apps.test';
    socket.write(`GET ${path}?auth_token=${TOKEN} HTTP/1.1\r\nHost: ${host}\r\nAccept: text/html\r\n\r\n`);
    await turned(() => text().includes('\r\n\r\n'));
    expect(text()).toContain('HTTP/1.1 303');
    const location = /^location: (.*)$/im.exec(text())?.[1] ?? '';
    expect(new URL(location, `http://${host}/`).host).toBe(host);
  }
});

test('a path of the application that ends like a warm-up is the application’s', async () => {
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  const authorization = `Authorization: Bearer ${TOKEN}`;
  socket.write(`POST /asgi/app/users/warmup HTTP/1.1\r\nHost: x\r\n${authorization}\r\nContent-Length: 0\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  expect(JSON.parse(one.head)).toMatchObject({ path: '/asgi/app/users/warmup', rootPath: '/asgi/app' });
  socket.write(`POST /asgi/app/v3/warmup HTTP/1.1\r\nHost: x\r\n${authorization}\r\nContent-Length: 0\r\n\r\n`);
  one.send('response', {}, OK);
  one.send('end');
  await turned(() => text().split('200 OK').length === 3);
});

test('a public application gets the credentials of its own users', async () => {
  const { address, task } = await serve();
  for (const [at, credential] of ['Basic dTpw', 'Bearer of.their.own'].entries()) {
    const { socket } = connected(address);
    socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\nAuthorization: ${credential}\r\n\r\n`);
    const one = await task(at + 1);
    one.begin();
    await turned(() => one.head !== '');
    expect(JSON.parse(one.head)).toMatchObject({ headers: expect.arrayContaining([['authorization', credential]]) });
  }
  // A kind with a JSON body, and an application that is not public, need a good token.
  for (const path of ['/endpoint/public/00000000-0000-4000-8000-000000000000', '/asgi/app']) {
    const { socket, text } = connected(address);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dTpw\r\n\r\n`);
    await turned(() => text().includes('401 Unauthorized'));
  }
});

test('two hosts in a request are refused', async () => {
  const { address } = await serve();
  const { socket, text } = connected(address);
  socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n`);
  await turned(() => text().includes('400 Bad Request'));
});

test('a browser whose token is good no more still reads a public application', async () => {
  const { address, task } = await serve();
  const { socket } = connected(address);
  const host = '00000000-0000-4000-8000-000000000000.apps.test';
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nCookie: a=1; longshore_token=revoked\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  expect(JSON.parse(one.head)).toMatchObject({ headers: expect.arrayContaining([['cookie', 'a=1']]) });
});

describe('a scheduler that stops', () => {
  const HANDSHAKE = `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`;

  test('refuses a WebSocket that waits for its container at once', async () => {
    const { address, task, server } = await serve();
    const { socket, text, isClosed } = connected(address);
    socket.write(HANDSHAKE);
    const one = await task(1);
    const stopped = server.stop(60_000);
    await turned(() => isClosed());
    expect(text()).toMatch(/^HTTP\/1\.1 503 /);
    expect(text()).toMatch(/retry-after: 5/i);
    expect(text()).toContain('{"error":"this scheduler is stopping: call again"}');
    expect(one.hasLeft).toBe(true);
    await stopped;
  });

  test('answers a call without a container at the end of its drain, with 503', async () => {
    const { address, task, server, active } = await serve();
    const { socket, text, isClosed } = connected(address);
    socket.write(GET);
    const one = await task(1);
    await server.stop(1_200);
    await turned(() => isClosed());
    expect(text()).toMatch(/^HTTP\/1\.1 503 .*\r\n[^]*this scheduler is stopping/);
    expect([one.hasLeft, await active()]).toEqual([true, '0']);
    // A container that comes now has nobody to serve.
    one.begin();
    await turned(() => one.isOver);
    expect(one.got).toEqual([]);
  });

  test('tells a call to come again whose container is at another replica', async () => {
    const { address, task, server } = await serve();
    const { socket, text, isClosed } = connected(address);
    socket.write(GET);
    const one = await task(1);
    const stopped = server.stop(60_000);
    // The other replica finds no way here: its runner process takes the caller for gone.
    one.finish({ status: 'CANCELLED', reason: 'request_cancelled', body: '{"error":"task cancelled"}' });
    await turned(() => isClosed());
    expect(text()).toMatch(/^HTTP\/1\.1 503 .*\r\n[^]*retry-after: 5\r\n[^]*this scheduler is stopping/i);
    await stopped;
  });

  test('answers a call whose application has not answered with 502: it may have done its work', async () => {
    const { address, task, server } = await serve();
    const { socket, text, isClosed } = connected(address);
    socket.write(GET);
    const one = await task(1);
    one.begin();
    await turned(() => one.got.includes('end'));
    await server.stop(1_200);
    await turned(() => isClosed());
    expect(text()).toMatch(/^HTTP\/1\.1 502 /);
    expect(text()).not.toMatch(/retry-after/i);
    expect([one.hasLeft, one.isOver]).toEqual([true, true]);
  });

  test('lets a call that is served within the drain end', async () => {
    const { address, task, server } = await serve();
    const { socket, text } = connected(address);
    socket.write(GET);
    const one = await task(1);
    const stopped = server.stop(5_000);
    one.begin();
    one.send('response', {}, OK);
    one.send('data', {}, 'late');
    one.send('end');
    one.finish({ status: 'COMPLETE', reason: 'completed', body: '' });
    await stopped;
    expect(text()).toMatch(/^HTTP\/1\.1 200 [^]*late/);
    expect(one.hasLeft).toBe(false);
  });
});
