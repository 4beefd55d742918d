// Bounds of the gRPC port on a real scheduler: silent connections, half messages, large headers, and many connections
// of one workspace. Neighbours are served meanwhile.
import { connect as connectHttp2 } from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { MOST_CALLS } from '#scheduler/api/grpc/binder.ts';
import { MOST_CONNECTIONS_OF_WORKSPACE } from '#scheduler/api/grpc/server.ts';
import { GrpcClient } from '../helpers/grpc-client.ts';
import { waitFor } from '../helpers/programs.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

const LIST = '/gateway.GatewayService/ListTasks';
const RESOURCE_EXHAUSTED = '8';
/** Types of HTTP/2 frames that answers consist of: DATA and HEADERS. */
const OF_ANSWERS: ReadonlySet<number> = new Set([0, 1]);
/** Where the type stands in a frame. */
const TYPE_AT = 3;
const CALLS = 20;
/** Time for the effect of many connections or calls on a busy machine. */
const EFFECT_MS = 40_000;

let platform: Platform;
let neighbour: GrpcClient;
const sockets: Socket[] = [];
const sessions: ClientHttp2Session[] = [];
beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  neighbour = new GrpcClient(platform.grpcAddress);
}, 120_000);
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const session of sessions.splice(0)) session.destroy();
});
afterAll(async () => {
  neighbour.close();
  await platform.stop();
});

/** A call of another workspace. */
const isServed = async (): Promise<boolean> =>
  (await neighbour.call(LIST.slice(1), {}, { token: platform.other.token })).code === 0;

function session(): ClientHttp2Session {
  const opened = connectHttp2(`http://${platform.grpcAddress}`);
  opened.on('error', () => undefined);
  sessions.push(opened);
  return opened;
}

const headersOf = (token: string) => ({
  ':method': 'POST',
  ':path': LIST,
  'content-type': 'application/grpc',
  te: 'trailers',
  authorization: `Bearer ${token}`,
});

/** Begins a call. @param bytes - what is sent of its message; the message is not ended */
function begin(on: ClientHttp2Session, bytes: Buffer, token = platform.own.token): ClientHttp2Stream {
  const stream = on.request(headersOf(token));
  stream.on('error', () => undefined);
  stream.resume();
  stream.write(bytes);
  return stream;
}

/** The status of a call, and its text. */
async function statusOf(stream: ClientHttp2Stream): Promise<readonly [string, string]> {
  const found = Promise.withResolvers<readonly [string, string]>();
  const see = (headers: IncomingHttpHeaders): void => {
    const { 'grpc-status': status, 'grpc-message': text } = headers;
    if (typeof status === 'string') found.resolve([status, typeof text === 'string' ? decodeURIComponent(text) : '']);
  };
  stream.on('response', see);
  stream.on('trailers', see);
  stream.on('close', () => found.resolve(['closed', '']));
  return found.promise;
}

/** Waits for the end of a stream, which may end with an error. */
const closed = (stream: ClientHttp2Stream): Promise<void> =>
  new Promise((resolve) => stream.once('close', () => resolve()));

/** A message of a thousand bytes, of which ten are sent. */
const HALF = Buffer.concat([Buffer.from([0, 0, 0, 3, 232]), Buffer.alloc(10)]);
const EMPTY = Buffer.alloc(5);

test('silent connections give way to others, and a neighbour is served', { timeout: 120_000 }, async () => {
  const [host, port] = platform.grpcAddress.split(':');
  let gone = 0;
  for (let at = 0; at < 600; at += 1) {
    const socket = connect(Number(port), host);
    socket.on('error', () => undefined);
    socket.on('close', () => (gone += 1));
    socket.resume();
    sockets.push(socket);
  }
  // An address has a bounded number of silent ones; its oldest go.
  await waitFor(() => Promise.resolve(gone >= 300), 'silent connections are closed', EFFECT_MS);
  expect(await isServed()).toBe(true);
});

test(
  'half messages hold places of their workspace alone, until their connection ends',
  { timeout: 120_000 },
  async () => {
    const one = session();
    for (let at = 0; at < MOST_CALLS; at += 1) begin(one, HALF);
    const ask = async () => {
      const stream = begin(session(), EMPTY);
      stream.end();
      return statusOf(stream);
    };
    const more = session();
    const areTaken = async (): Promise<boolean> => {
      if ((await ask())[0] === RESOURCE_EXHAUSTED) return true;
      // The call may have had a place in the moment in which a half message asked for it.
      begin(more, HALF);
      return false;
    };
    await waitFor(areTaken, 'the places are taken', EFFECT_MS);
    expect((await ask())[1]).toContain('calls in progress');
    expect(await isServed()).toBe(true);
    one.destroy();
    more.destroy();
    await waitFor(async () => (await ask())[0] === '0', 'the places are free again', EFFECT_MS);
  },
);

test('a message that says to be large is refused before it comes', async () => {
  const stream = begin(session(), Buffer.from([0, 0xc0, 0, 0, 0]));
  expect((await statusOf(stream))[0]).toBe(RESOURCE_EXHAUSTED);
  expect(await isServed()).toBe(true);
});

test('headers beyond the bound end their stream or connection, and a neighbour is served', async () => {
  const opened = session();
  const stream = opened.request({ ...headersOf(platform.own.token), 'x-large': 'x'.repeat(1_000_000) });
  stream.on('error', () => undefined);
  await closed(stream);
  const many = session();
  const names = Array.from({ length: 5_000 }, (_none, at) => [`x-${at}`, 'y'] as const);
  const second = many.request({ ...headersOf(platform.own.token), ...Object.fromEntries(names) });
  second.on('error', () => undefined);
  second.end();
  await closed(second);
  expect(await isServed()).toBe(true);
});

test('a workspace has a bounded number of connections, and others theirs', { timeout: 120_000 }, async () => {
  const ask = async (on: ClientHttp2Session) => {
    const stream = begin(on, EMPTY);
    stream.end();
    return statusOf(stream);
  };
  const held: ClientHttp2Session[] = [];
  for (let at = 0; at < MOST_CONNECTIONS_OF_WORKSPACE; at += 1) {
    const opened = session();
    held.push(opened);
    expect((await ask(opened))[0]).toBe('0');
  }
  const [code, text] = await ask(session());
  expect([code, text]).toEqual([RESOURCE_EXHAUSTED, expect.stringContaining('connections')]);
  // Older connections go on, and a neighbour comes in.
  const [first] = held;
  if (first === undefined) throw new Error('no connection');
  expect((await ask(first))[0]).toBe('0');
  const other = new GrpcClient(platform.grpcAddress);
  expect((await other.call(LIST.slice(1), {}, { token: platform.other.token })).code).toBe(0);
  other.close();
  first.destroy();
  await waitFor(async () => (await ask(session()))[0] === '0', 'a place is free again', EFFECT_MS);
});

test('an answer leaves in two packets: with its head, and its status', async () => {
  let packets = 0;
  const relay = createServer((socket) => {
    const [host = '', port = ''] = platform.grpcAddress.split(':');
    const server = connect(Number(port), host);
    server.on('data', (bytes: Buffer) => {
      if (OF_ANSWERS.has(bytes[TYPE_AT] ?? -1)) packets += 1;
    });
    for (const one of [socket, server]) {
      sockets.push(one);
      one.on('error', () => undefined);
    }
    socket.pipe(server).pipe(socket);
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  const client = new GrpcClient(`127.0.0.1:${(relay.address() as AddressInfo).port}`);
  // A call that asks the database: its answer is not there when it begins.
  const ask = () => client.call(LIST.slice(1), {}, { token: platform.own.token });
  expect(await ask()).toMatchObject({ code: 0, answer: { ok: true } });
  packets = 0;
  for (let call = 0; call < CALLS; call += 1) await ask();
  client.close();
  relay.close();
  expect(packets).toBe(2 * CALLS);
});
