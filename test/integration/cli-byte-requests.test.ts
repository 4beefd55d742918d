// Requests with large bodies, as copies of volumes send them, against small servers.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Server, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test as base } from 'vitest';
import { BodyFailure, ByteRequests, readWhole } from '#cli/byte-request.ts';
import type { ByteSource } from '#cli/byte-request.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';

const MIB = 1024 * 1024;
const never = new AbortController().signal;
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

interface World {
  readonly requests: ByteRequests;
  /** Has a server listen. @returns its URL */
  readonly listen: (server: Server) => Promise<string>;
  /** Serves HTTP. @returns the URL */
  readonly serve: (answer: RequestListener) => Promise<string>;
  /** Serves bytes as they are, once the head of a request has come. */
  readonly serveRaw: (answer: (socket: Socket) => void) => Promise<string>;
  /** Connections that came. */
  readonly connections: () => number;
}

const test = base.extend<{ world: World }>({
  world: async ({ task: _task }, use) => {
    const requests = new ByteRequests({});
    const servers: Server[] = [];
    const sockets = new Set<Socket>();
    let connections = 0;
    const listen = async (server: Server): Promise<string> => {
      servers.push(server);
      server.on('connection', (socket: Socket) => {
        connections += 1;
        sockets.add(socket);
        socket.on('error', () => undefined);
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}/p?q=1`;
    };
    await use({
      requests,
      listen,
      serve: (answer) => listen(createHttpServer(answer)),
      serveRaw: (answer) => listen(createTcpServer((socket) => socket.once('data', () => answer(socket.resume())))),
      connections: () => connections,
    });
    requests.close();
    for (const socket of sockets) socket.destroy();
    for (const server of servers) server.close();
  },
});

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  return Buffer.concat((await request.toArray()) as Buffer[]);
}

const echo = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
  response.end(await bodyOf(request));
};

const post = (body: Buffer | AsyncIterable<Buffer>) => ({ method: 'POST', contentType: 'text/plain', body }) as const;
const textOf = async (body: ByteSource): Promise<string> => (await readWhole(body, 64 * MIB)).toString();

describe('a request', () => {
  test('and its answer carry bytes of any number, one after the other on a connection', async ({ world }) => {
    const seen: unknown[] = [];
    const url = await world.serve(async (request, response) => {
      seen.push([request.method, request.url, request.headers['content-type']]);
      const body = await bodyOf(request);
      // Once with a length, once in chunks.
      if (seen.length % 2 === 0) response.setHeader('content-length', body.length);
      else response.flushHeaders();
      response.end(body);
    });
    for (const size of [0, 1, 70_000, 5 * MIB + 1]) {
      const bytes = randomBytes(size);
      for (let twice = 0; twice < 2; twice += 1) {
        const { status, body } = await world.requests.send(url, post(bytes), never);
        expect([status, sha256(await readWhole(body, 64 * MIB))]).toEqual([200, sha256(bytes)]);
      }
    }
    expect(new Set(seen.map(String))).toEqual(new Set(['POST,/p?q=1,text/plain']));
    expect(world.connections()).toBe(1);
  });

  test('sends parts from memory that is used again two parts later', async ({ world }) => {
    const url = await world.serve((request, response) => void echo(request, response));
    const rooms = [Buffer.alloc(512 * 1024), Buffer.alloc(512 * 1024)] as const;
    const sent = createHash('sha256');
    const parts = async function* (): AsyncGenerator<Buffer> {
      for (let at = 0; at < 64; at += 1) {
        const room = rooms[at % 2 === 0 ? 0 : 1].fill(at + 1);
        sent.update(room);
        yield room;
      }
    };
    const { body } = await world.requests.send(url, post(parts()), never);
    expect(sha256(await readWhole(body, 64 * MIB))).toBe(sent.digest('hex'));
  });

  test('whose body fails ends with what the body threw, and the server sees no end of it', async ({ world }) => {
    const ends: string[] = [];
    const begun = Promise.withResolvers<void>();
    const url = await world.serve((request) => {
      request.on('error', () => ends.push('cut'));
      request.on('end', () => ends.push('whole'));
      request.on('data', () => begun.resolve());
    });
    const cause = new Error('the file is gone');
    const parts = async function* (): AsyncGenerator<Buffer> {
      yield Buffer.from('a');
      await begun.promise;
      throw cause;
    };
    const failing = world.requests.send(url, post(parts()), never);
    await expect(failing).rejects.toThrow(BodyFailure);
    await expect(failing).rejects.toMatchObject({ cause });
    await expect.poll(() => ends).toEqual(['cut']);
  });

  test('that is answered before it is out sends no more, and its connection is not used again', async ({ world }) => {
    const url = await world.serve((_request, response) => void response.writeHead(507).end('full'));
    let asked = 0;
    const endless = async function* (): AsyncGenerator<Buffer> {
      for (;;) {
        asked += 1;
        yield Buffer.alloc(64 * 1024);
        await new Promise(setImmediate);
      }
    };
    const { status, body } = await world.requests.send(url, post(endless()), never);
    expect([status, await textOf(body)]).toEqual([507, 'full']);
    const then = asked;
    await sleep(50);
    expect(asked - then).toBeLessThanOrEqual(2);
    await readWhole((await world.requests.send(url, post(Buffer.from('b')), never)).body, 100);
    expect(world.connections()).toBe(2);
  });

  test('is ended by its signal, before the answer and within it', async ({ world }) => {
    const url = await world.serve((request, response) => {
      if (request.headers['content-length'] === '1') return;
      response.write('begin');
    });
    for (const sent of ['a', 'bc']) {
      const stop = new AbortController();
      const answer = world.requests.send(url, post(Buffer.from(sent)), stop.signal).then(({ body }) => textOf(body));
      setTimeout(() => stop.abort(new Error('stopped')), 50);
      await expect(answer).rejects.toThrow('stopped');
    }
    const stopped = world.requests.send(url, post(Buffer.from('a')), AbortSignal.abort(new Error('never')));
    await expect(stopped).rejects.toThrow('never');
  });

  test('to a port where nobody listens fails with the code of the system', async ({ world }) => {
    const refused = world.requests.send('http://127.0.0.1:1/', post(Buffer.from('a')), never);
    await expect(refused).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
});

test('HTTPS carries the same, and a certificate that nobody vouches for ends it', async ({ world }) => {
  const ca = await makeCertificateAuthority(Date.now());
  const made = await issueServerCertificate(ca, Date.now());
  const server = createHttpsServer({ cert: made.chainPem, key: made.keyPem }, (request, response) => {
    void echo(request, response);
  });
  const url = (await world.listen(server)).replace('http:', 'https:');
  const trusting = new ByteRequests({ ca: [ca.certPem] });
  try {
    const bytes = randomBytes(9 * MIB + 1);
    const parts = async function* (): AsyncGenerator<Buffer> {
      for (let at = 0; at < bytes.length; at += MIB) yield bytes.subarray(at, at + MIB);
    };
    for (const sent of [bytes, parts()]) {
      const { body } = await trusting.send(url, post(sent), never);
      expect(sha256(await readWhole(body, 64 * MIB))).toBe(sha256(bytes));
    }
    expect(world.connections()).toBe(1);
    const refused = world.requests.send(url, post(Buffer.from('a')), never);
    await expect(refused).rejects.toMatchObject({ code: expect.stringMatching(/SIGNATURE|CERT/) });
  } finally {
    trusting.close();
  }
});

describe('an answer', () => {
  test.for([
    ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab'],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n'],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab'],
    ['HTTP/1.1 200 OK\r\ncontent-le'],
    [''],
  ] as const)('that is cut fails: %j', async ([text], { world }) => {
    const url = await world.serveRaw((socket) => void socket.end(text));
    const answer = world.requests.send(url, post(Buffer.from('x')), never).then(({ body }) => textOf(body));
    await expect(answer).rejects.toMatchObject({ code: 'ECONNRESET' });
  });

  test.for([
    ['SSH-2.0-x\r\n\r\n'],
    ['HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n'],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxy\r\n'],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n'],
    [`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}\r\n\r\n`],
    [`HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(20_000)}\r\n`],
  ] as const)('that is none fails: %#', async ([text], { world }) => {
    const url = await world.serveRaw((socket) => void socket.write(text));
    const answer = world.requests.send(url, post(Buffer.from('x')), never).then(({ body }) => textOf(body));
    await expect(answer).rejects.toMatchObject({ code: 'EPROTO' });
  });

  test('comes in pieces of a byte, behind an interim one, with trailers', async ({ world }) => {
    const text =
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nt: 1\r\n\r\n';
    const url = await world.serveRaw(async (socket) => {
      socket.setNoDelay(true);
      for (const letter of text) {
        socket.write(letter);
        await new Promise(setImmediate);
      }
    });
    const { status, body } = await world.requests.send(url, post(Buffer.from('x')), never);
    expect([status, await textOf(body)]).toEqual([201, 'abc0123456789']);
  });

  test('without a length lasts to the end of its connection', async ({ world }) => {
    const url = await world.serveRaw((socket) => void socket.end('HTTP/1.0 200 OK\r\n\r\nto the end'));
    const { body } = await world.requests.send(url, post(Buffer.from('x')), never);
    expect(await textOf(body)).toBe('to the end');
  });

  test('that nobody reads is not read ahead beyond a bound', async ({ world }) => {
    let sent = 0;
    const url = await world.serve(async (_request, response) => {
      response.on('error', () => undefined);
      for (let at = 0; at < 256 && !response.destroyed; at += 1) {
        if (!response.write(Buffer.alloc(MIB))) await once(response, 'drain');
        sent += 1;
      }
      response.end();
    });
    const { body } = await world.requests.send(url, post(Buffer.from('x')), never);
    await sleep(300);
    // The kernel's buffers of a connection hold some MiB.
    expect(sent).toBeLessThan(64);
    let bytes = 0;
    do {
      for (let piece = body.next(); piece !== undefined; piece = body.next()) bytes += piece.length;
    } while (await body.more());
    expect([sent, bytes]).toEqual([256, 256 * MIB]);
  });

  test('beyond what is wanted of it is refused', async ({ world }) => {
    const url = await world.serve((_request, response) => void response.end(Buffer.alloc(1000)));
    const { body } = await world.requests.send(url, post(Buffer.from('x')), never);
    await expect(readWhole(body, 999)).rejects.toThrow('larger than 999 bytes');
  });
});
