// Answers that are not whole are never taken for whole ones, and whole ones reach their callers. Queue and runner
// processes are played.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, expect, test, vi } from 'vitest';
import { encodeFrame } from '#shared/protocol/frames.ts';
import type { Finished } from '../../../scheduler/tasks/dispatch/replies.ts';
import { GET, OK, PATH, cleanUp, connected, serve, turned } from '../../helpers/played-streams.ts';

afterEach(cleanUp);

/** The end of its connection is all that shows the end of an answer without a length. */
const GET_1_0 = `GET ${PATH}/ HTTP/1.0\r\nHost: x\r\n\r\n`;

const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

function ends(socket: Socket): string[] {
  const seen: string[] = [];
  socket.on('error', (error: NodeJS.ErrnoException) => seen.push(error.code ?? 'error'));
  socket.on('end', () => seen.push('end'));
  return seen;
}

/** A caller of HTTP/1.0 who has got a part of its answer. */
async function withPart() {
  const served = await serve();
  const caller = connected(served.address);
  const seen = ends(caller.socket);
  caller.socket.write(GET_1_0);
  const one = await served.task(1);
  one.begin();
  one.send('response', {}, OK);
  one.send('data', {}, 'part');
  await turned(() => caller.text().includes('part'));
  return { ...served, ...caller, seen, one };
}

test.for([
  ['its application fails', ({ one }) => void one.runner.end()],
  ['the scheduler stops', ({ server }) => server.stop(1_200)],
  ['it closes its side', ({ socket }) => void socket.end()],
  ['it sends bytes that are no request', ({ socket }) => void socket.write('garbage\r\n\r\n')],
] as const satisfies readonly (readonly [
  string,
  (caller: Awaited<ReturnType<typeof withPart>>) => void | Promise<void>,
])[])('a caller of HTTP/1.0 gets no clean end of a part when %s', async ([, happen]) => {
  const caller = await withPart();
  await happen(caller);
  await turned(() => caller.isClosed());
  expect(caller.seen).toEqual(['ECONNRESET']);
});

test('an answer without a length is cut over TLS, too, and the scheduler goes on', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'ls-cuts-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', [...made, '-subj', '/CN=x', '-keyout', key, '-out', cert], { stdio: 'ignore' });
  const { address, task, active } = await serve({ cert: readFileSync(cert), key: readFileSync(key) });
  await rm(folder, { recursive: true });
  const [host, port] = address.split(':');
  const socket = connectTls({ host, port: Number(port), rejectUnauthorized: false }, () => socket.write(GET_1_0));
  let text = '';
  let isClosed = false;
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  socket.on('close', () => (isClosed = true));
  const one = await task(1);
  one.begin();
  one.send('response', {}, OK);
  one.send('data', {}, 'part');
  await turned(() => text.includes('part'));
  one.runner.end();
  await turned(() => isClosed);
  expect(await active()).toBe('0');
});

test('bytes that are no request, behind one whose answer goes on, put nothing into it', async () => {
  const { address, task } = await serve();
  const { socket, text, isClosed } = connected(address);
  socket.write(GET);
  const one = await task(1);
  one.begin();
  one.send('response', {}, { status: 200, headers: [['content-length', '1000']] });
  one.send('data', {}, 'part');
  await turned(() => text().includes('part'));
  socket.write('garbage\r\n\r\n');
  await turned(() => isClosed());
  expect(text()).toMatch(/\r\n\r\npart$/);
});

test.for(['keep-alive', 'close'])(
  'an early answer reaches a caller that sends all of its body first: %s',
  async (how) => {
    const { address, task } = await serve();
    const { socket } = connected(address);
    socket.removeAllListeners('data');
    socket.pause();
    const bodyBytes = 20_000_000;
    const lines = ['Host: x', `Connection: ${how}`, `Content-Length: ${bodyBytes}`];
    socket.write(`POST ${PATH}/ HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
    const one = await task(1);
    one.begin();
    await turned(() => one.got.includes('request'));
    one.send('response', {}, { status: 200, headers: [['content-length', '800000']] });
    for (let piece = 0; piece < 8; piece += 1) one.send('data', {}, 'x'.repeat(100_000));
    one.send('end');
    await turned(() => one.isOver);
    const piece = Buffer.alloc(500_000);
    for (let sent = 0; sent < bodyBytes; sent += piece.length)
      await new Promise<void>((resolve, reject) => {
        socket.write(piece, (error) => (error ? reject(error) : resolve()));
      });
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length));
    socket.resume();
    await turned(() => bytes > 800_000);
  },
);

/** A caller who reads nothing yet of an answer of 30 MB, which has come whole from its runner process. */
async function heldUp() {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { address, task } = await serve();
  const { socket, isClosed } = connected(address);
  socket.removeAllListeners('data');
  socket.pause();
  socket.write(GET);
  const one = await task(1);
  one.begin();
  one.send('response', {}, { status: 200, headers: [['content-length', '30000000']] });
  one.runner.write(Buffer.concat(Array.from({ length: 30 }, () => encodeFrame('data', {}, Buffer.alloc(1_000_000)))));
  one.runner.end(encodeFrame('end', {}));
  await turns(100);
  const later = async (status: Finished['status'], ms: number): Promise<number> => {
    one.finish({ status, reason: 'x', body: '' } as unknown as Finished);
    for (let gone = 0; gone < ms; gone += 10_001) {
      await turns(10);
      vi.advanceTimersByTime(10_001);
    }
    await turns(10);
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length));
    socket.resume();
    await turned(() => isClosed() || bytes > 30_000_000);
    return bytes;
  };
  return later;
}

test('a slow caller gets the whole answer of an application that raised behind it', async () => {
  const later = await heldUp();
  expect(await later('ERROR', 60_000)).toBeGreaterThan(30_000_000);
});

test('a task that is stopped cuts the answer of a slow caller', async () => {
  const later = await heldUp();
  expect(await later('CANCELLED', 10_000)).toBeLessThan(30_000_000);
});
