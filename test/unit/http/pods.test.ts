// Calls to ports of pods and sandboxes, with programs that this test plays byte by byte.
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { OTHER_TOKEN, SANDBOX, STUB, TOKEN, aProgram, cleanUp, connected, serve } from '../../helpers/played-ports.ts';
import { turned } from '../../helpers/played-streams.ts';
import { waitFor } from '../../helpers/programs.ts';

afterEach(cleanUp);

const PATH = `/pod/public/${STUB}`;

/** Waits until a count that has begun stands still: the bytes have filled their way. */
async function stopped(count: () => number): Promise<void> {
  let before = 0;
  let times = 0;
  await waitFor(
    () => {
      const now = count();
      times = now === before && now > 0 ? times + 1 : 0;
      before = now;
      return times >= 10;
    },
    'the bytes stop on their way',
    20_000,
  );
}

/** A program that answers each connection with the same bytes, once it has the head of a request. */
async function answering(bytes: string, then: (socket: Socket) => void = (socket) => void socket.end()) {
  const got: string[] = [];
  const { port } = await aProgram((socket) => {
    let text = '';
    let isAnswered = false;
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      got[0] = text;
      if (isAnswered || !text.includes('\r\n\r\n')) return;
      isAnswered = true;
      socket.write(bytes, 'latin1');
      then(socket);
    });
  });
  return { port, got };
}

/** Sends bytes as they are, and gives all that comes until the connection ends or the text is there. */
async function exchanged(address: string, request: string, until: string): Promise<string> {
  const { socket, text, isClosed } = connected(address);
  socket.write(request, 'latin1');
  await turned(() => text().includes(until) || isClosed());
  return text();
}

describe('the request', () => {
  test('reaches the program as it was sent, below the port, with who sent it, and without the platform’s token', async () => {
    const { port, got } = await answering('HTTP/1.1 204 No Content\r\n\r\n');
    const { address } = await serve({ ports: [port] });
    const head = `PROPFIND ${PATH}/${port}/a%2Fb//c?x=1&auth_token=${TOKEN}&y=%20 HTTP/1.1\r\nHost: x.test\r\nX-Odd: a,  b\r\nX-Odd: c\r\nCookie: a=1; longshore_token=${TOKEN}\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nX-Forwarded-For: 6.6.6.6\r\nContent-Length: 3\r\n\r\nabc`;
    expect(await exchanged(address, head, '204')).toContain('HTTP/1.1 204');
    const [lines = '', body] = (got[0] ?? '').split('\r\n\r\n');
    expect(lines.split('\r\n')).toEqual([
      'PROPFIND /a%2Fb//c?x=1&y=%20 HTTP/1.1',
      'Host: x.test',
      'X-Odd: a,  b',
      'X-Odd: c',
      'Cookie: a=1',
      'Content-Length: 3',
      'x-forwarded-for: 127.0.0.1',
      'x-forwarded-host: x.test',
      'x-forwarded-proto: http',
      `x-forwarded-prefix: ${PATH}/${port}`,
      'connection: close',
    ]);
    expect(body).toBe('abc');
  });

  test.for([
    ['POST without a body', 'POST', '', '', 'content-length: 0', ''],
    ['GET without a body', 'GET', '', '', undefined, ''],
    ['GET with a body', 'GET', 'Content-Length: 2', 'ab', 'content-length: 2', 'ab'],
    [
      'a body whose length is said to be of this connection',
      'GET',
      'Connection: content-length\r\nContent-Length: 2',
      'ab',
      'content-length: 2',
      'ab',
    ],
    [
      'chunks with trailers',
      'PUT',
      'Transfer-Encoding: chunked',
      '2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n',
      'transfer-encoding: chunked',
      '2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n',
    ],
  ] as const)('%s is framed once', async ([, method, line, body, framing, passed]) => {
    const { port, got } = await answering('HTTP/1.1 204 No Content\r\n\r\n', () => undefined);
    const { address } = await serve({ ports: [port] });
    const extra = line === '' ? '' : `${line}\r\n`;
    await exchanged(address, `${method} ${PATH}/ HTTP/1.1\r\nHost: x\r\n${extra}\r\n${body}`, '204');
    await turned(() => (got[0] ?? '').endsWith(passed));
    const [head = '', ...rest] = (got[0] ?? '').split('\r\n\r\n');
    const framed = head.split('\r\n').filter((one) => /^(?:content-length|transfer-encoding)/i.test(one));
    expect(framed.map((one) => one.toLowerCase())).toEqual(framing === undefined ? [] : [framing]);
    expect(rest.join('\r\n\r\n')).toBe(passed);
  });

  test.for([
    ['both framings', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n'],
    ['two lengths', 'Content-Length: 1\r\nContent-Length: 2\r\n\r\nab'],
    ['a name with a blank', 'Content-Length : 1\r\n\r\na'],
    ['two hosts', 'Host: y\r\n\r\n'],
  ] as const)('with %s never reaches the program', async ([, lines]) => {
    const { port, got } = await answering('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
    const { address } = await serve({ ports: [port] });
    expect(await exchanged(address, `POST ${PATH}/ HTTP/1.1\r\nHost: x\r\n${lines}`, '400')).toContain('HTTP/1.1 400');
    expect(got).toEqual([]);
  });

  test('waits for the program’s 100 Continue, or gets its answer without a body', async () => {
    const { port } = await aProgram((socket) => {
      socket.once('data', (head: Buffer) => {
        expect(head.toString()).toContain('expect: 100-continue');
        if (head.includes('/no'))
          return void socket.end('HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno');
        socket.write('HTTP/1.1 100 Continue\r\n\r\n');
        socket.once('data', (body: Buffer) =>
          socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body.toString()}`),
        );
      });
    });
    const { address } = await serve({ ports: [port] });
    const head = (path: string): string =>
      `POST ${PATH}${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n`;
    const { socket, text } = connected(address);
    socket.write(head('/'));
    await turned(() => text().includes('100 Continue'));
    socket.write('body');
    await turned(() => text().endsWith('body'));
    const early = await exchanged(address, head('/no'), '417');
    expect(early).not.toContain('100 Continue');
  });

  test('has a body of any size, which is sent no faster than the program takes it', async () => {
    const hash = createHash('sha256');
    let taken = 0;
    let waiting: Socket | undefined;
    const { port } = await aProgram((socket) => {
      waiting = socket;
      socket.pause();
      socket.on('data', (chunk: Buffer) => {
        hash.update(chunk);
        taken += chunk.length;
      });
    });
    const { address } = await serve({ ports: [port] });
    const { socket, text } = connected(address);
    const piece = Buffer.alloc(1024 * 1024, 'x');
    socket.write(`POST ${PATH}/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${32 * piece.length}\r\n\r\n`);
    for (let at = 0; at < 32; at += 1) socket.write(piece);
    await turned(() => waiting !== undefined);
    await stopped(() => socket.bytesWritten);
    expect(socket.writableLength).toBeGreaterThan(4 * 1024 * 1024);
    waiting?.resume();
    await waitFor(() => taken >= 32 * piece.length, 'the program has it', 20_000);
    waiting?.end('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone');
    await turned(() => text().endsWith('done'));
  }, 60_000);
});

describe('the response', () => {
  test('reaches its caller as the program gave it: status, headers, chunks, trailers', async () => {
    const { port } = await answering(
      'HTTP/1.1 299 Odd\r\nX-A: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nKeep-Alive: timeout=5\r\nConnection: x-own\r\nX-Own: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n',
    );
    const { address } = await serve({ ports: [port] });
    const text = await exchanged(address, `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`, 'X-Sum');
    expect(text).toMatch(/^HTTP\/1\.1 299 /);
    for (const line of ['X-A: 1', `Set-Cookie: a; Path=${PATH}`, `Set-Cookie: b; Path=${PATH}`, 'x-task-id: task-1'])
      expect(text).toContain(`\r\n${line}\r\n`);
    expect(text).not.toMatch(/x-own|timeout=5/i);
    expect(text).toContain('3\r\nabc\r\n0\r\nX-Sum: 7\r\n');
  });

  test.for([
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n', 'HEAD', 'Content-Length: 10'],
    // The head of the answer has random ids, in which the digits alone may be.
    ['204', 'HTTP/1.1 204 No Content\r\n\r\n', 'GET', 'HTTP/1.1 204 '],
    ['304', 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', 'GET', 'ETag: "a"'],
  ] as const)('to %s has no body, and its connection serves on', async ([, answer, method, line]) => {
    const { port } = await answering(answer, () => undefined);
    const { address } = await serve({ ports: [port] });
    const { socket, text } = connected(address);
    for (let one = 1; one <= 2; one += 1) {
      socket.write(`${method} ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
      await turned(() => text().split(line).length === one + 1);
    }
    expect(text().match(/HTTP\/1\.1/g)).toHaveLength(2);
  });

  test.for([
    ['bytes that are no HTTP', 'hello\r\n\r\n', 'gave no HTTP response'],
    ['a line that breaks its head', 'HTTP/1.1 200 OK\r\nX-A : 1\r\n\r\n', 'gave no HTTP response'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab', 'gave no HTTP response'],
    ['nothing', '', 'closed the connection without an answer'],
    [
      'a protocol that nobody asked for',
      'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n',
      'a protocol that nobody asked for',
    ],
  ] as const)('that is %s becomes 502 with the port in it', async ([, bytes, says]) => {
    const { port } = await answering(bytes);
    const { address, state } = await serve({ ports: [port] });
    const text = await exchanged(address, `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`, '"}');
    expect(text).toContain('HTTP/1.1 502');
    expect(text).toContain(String(port));
    expect(text).toContain(says);
    await turned(() => state.open === 0);
  });

  test('whose head smuggles a second response is one response', async () => {
    const { port } = await answering(
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond',
    );
    const { address } = await serve({ ports: [port] });
    const { socket, text } = connected(address);
    socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await turned(() => text().includes('\r\n\r\nok'));
    socket.write(`GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n`);
    await turned(() => text().includes('404'));
    expect(text()).not.toContain('second');
  });

  test.for([
    ['before its length', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc'],
    ['before its last chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'],
  ] as const)('that ends %s is cut', async ([, bytes]) => {
    const { port } = await answering(bytes);
    const { address } = await serve({ ports: [port] });
    const { socket, text, isClosed } = connected(address);
    socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await turned(() => isClosed());
    expect(text()).toContain('abc');
    expect(text()).not.toMatch(/\r\n0\r\n/);
  });

  test('is cut when the container is gone', async () => {
    const { port } = await answering('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc', () => undefined);
    const { address, state } = await serve({ ports: [port] });
    const { socket, text, isClosed } = connected(address);
    socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await turned(() => text().includes('abc'));
    state.bytes[0]?.destroy();
    await turned(() => isClosed());
  });

  test('may begin before the request is there', async () => {
    const { port } = await answering('HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig', () => undefined);
    const { address } = await serve({ ports: [port] });
    const { socket, text } = connected(address);
    socket.write(`POST ${PATH}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n${'x'.repeat(10_000)}`);
    await turned(() => text().endsWith('big'));
    expect(text()).toContain('HTTP/1.1 413');
  });

  test('has early hints before it', async () => {
    const { port } = await answering(
      'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload; as=style\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
    );
    const { address } = await serve({ ports: [port] });
    const text = await exchanged(address, `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`, '\r\n\r\nok');
    expect(text).toMatch(/^HTTP\/1\.1 103 [\s\S]*a\.css[\s\S]*HTTP\/1\.1 200/);
  });

  test('has a bounded number of them: a caller who does not read holds no more', async () => {
    const hint = `HTTP/1.1 103 Early Hints\r\nLink: </${'a'.repeat(8_000)}>; rel=preload\r\n\r\n`;
    const { port } = await answering(`${hint.repeat(100)}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok`);
    const { address } = await serve({ ports: [port] });
    const text = await exchanged(address, `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`, '\r\n\r\nok');
    expect(text.split('HTTP/1.1 103')).toHaveLength(17);
  });

  test('comes before ten thousand others, or the program counts as broken', async () => {
    const { port } = await answering('HTTP/1.1 102 Processing\r\n\r\n'.repeat(10_001), () => undefined);
    const { address, state } = await serve({ ports: [port] });
    const text = await exchanged(address, `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`, '"}');
    expect(text).toContain('HTTP/1.1 502');
    expect(text).toContain('gave 10000 responses before the final one');
    await turned(() => state.open === 0);
  });

  test('of any size is read no faster than its caller takes it', async () => {
    let written = 0;
    const total = 32 * 1024 * 1024;
    const server = createServer((_request, response) => {
      const piece = Buffer.alloc(256 * 1024);
      const more = (): void => {
        while (written < total) {
          written += piece.length;
          if (!response.write(piece)) return void response.once('drain', more);
        }
        response.end();
      };
      more();
    });
    const { port } = await aProgram((socket) => server.emit('connection', socket));
    const { address } = await serve({ ports: [port] });
    const { socket } = connected(address);
    socket.pause();
    socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    await stopped(() => written);
    expect(written).toBeLessThan(total);
    let read = 0;
    socket.on('data', (chunk: Buffer) => (read += chunk.length));
    socket.resume();
    await waitFor(() => read > total, 'the caller has it', 20_000);
  }, 60_000);
});

describe('a caller who leaves', () => {
  test.for([
    ['while the program thinks', ''],
    ['in the middle of the response', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc'],
  ] as const)('%s ends the program’s connection', async ([, bytes]) => {
    let isGone = false;
    const { port, got } = await answering(bytes, (socket) => {
      socket.on('close', () => (isGone = true));
      socket.on('end', () => socket.end());
    });
    const { address, state } = await serve({ ports: [port] });
    const { socket, text } = connected(address);
    socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await turned(() => got.length > 0 && (bytes === '' || text().includes('abc')));
    socket.destroy();
    await turned(() => isGone && state.open === 0);
  });
});

describe('another protocol', () => {
  test('a WebSocket is the program’s own: subprotocol, extensions, pings, its close', async () => {
    const echo = new WebSocketServer({ noServer: true, handleProtocols: () => 'b' });
    const pings: string[] = [];
    echo.on('connection', (socket) => {
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
      socket.on('ping', (data) => pings.push(data.toString()));
      socket.on('message', (data) => {
        if ((data as Buffer).toString() === 'bye') socket.close(4321, 'done');
      });
    });
    const server = createServer();
    server.on('upgrade', (request, socket, head) =>
      echo.handleUpgrade(request, socket, head, (one) => echo.emit('connection', one)),
    );
    const { port } = await aProgram((socket) => server.emit('connection', socket));
    const { address, state } = await serve({ ports: [port] });
    const socket = new WebSocket(`ws://${address}${PATH}/${port}/chat`, ['a', 'b']);
    const got: string[] = [];
    const pongs: string[] = [];
    let closed: unknown;
    socket.on('message', (data, isBinary) => got.push(`${isBinary} ${(data as Buffer).length}`));
    socket.on('pong', (data) => pongs.push(data.toString()));
    socket.on('close', (code, reason) => (closed = [code, reason.toString()]));
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    expect(socket.protocol).toBe('b');
    socket.send('hello');
    socket.send(Buffer.alloc(3 * 1024 * 1024));
    socket.ping('p');
    await turned(() => got.length === 2 && pongs.length === 1);
    expect([got, pings, pongs]).toEqual([['false 5', 'true 3145728'], ['p'], ['p']]);
    socket.send('bye');
    await turned(() => closed !== undefined && state.open === 0);
    expect(closed).toEqual([4321, 'done']);
  });

  test('a program that refuses one answers as to any request', async () => {
    const { port } = await answering('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno');
    const { address } = await serve({ ports: [port] });
    const socket = new WebSocket(`ws://${address}${PATH}/`);
    const status = await new Promise((resolve) =>
      socket
        .on('unexpected-response', (_request, response) => resolve(response.statusCode))
        .on('error', () => undefined),
    );
    expect(status).toBe(403);
  });

  test('an upgrade that is no WebSocket is refused with what to do, but an offer of HTTP/2 is none', async () => {
    let calls = 0;
    const { port } = await answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok', () => (calls += 1));
    const { address } = await serve({ ports: [port] });
    const ask = async (headers: string): Promise<string> => {
      const { socket, text } = connected(address);
      socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n${headers}\r\n\r\n`);
      await turned(() => /\r\n\r\n.+/s.test(text()));
      socket.destroy();
      return text();
    };
    const refused = await ask('Connection: keep-alive, Upgrade\r\nUpgrade: tcp');
    expect(refused).toMatch(/^HTTP\/1\.1 501 .*container port-forward/s);
    expect(calls).toBe(0);
    expect(await ask('Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA')).toMatch(/ 200 /);
    // Without `Connection: upgrade` the header asks for nothing.
    expect(await ask('Upgrade: tcp')).toMatch(/ 200 /);
  });

  test('a caller who is gone ends the program’s side, and the other way round', async () => {
    const open: Socket[] = [];
    let gone = 0;
    const { port } = await answering(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nearly',
      (socket) => {
        open.push(socket);
        socket.on('close', () => (gone += 1));
        socket.on('end', () => socket.end());
      },
    );
    const { address, state } = await serve({ ports: [port] });
    const ask = `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n`;
    const [one, other] = [connected(address), connected(address)];
    for (const { socket, text } of [one, other]) {
      socket.write(ask);
      await turned(() => text().endsWith('early'));
    }
    one.socket.destroy();
    await turned(() => gone === 1);
    open[1]?.destroy();
    await turned(() => other.isClosed() && state.open === 0);
  });
});

describe('the port', () => {
  test('where nothing listens is 502 with its number', async () => {
    const { port } = await aProgram(() => undefined);
    await cleanUp();
    const { address } = await serve({ ports: [port] });
    const text = await exchanged(address, `GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`, '"}');
    expect(text).toContain('HTTP/1.1 502');
    expect(text).toContain(`nothing listens on port ${port}`);
  });

  const told = `x-path: PATH\r\n`;
  /** A program that tells the path it was asked for. */
  const telling = async () =>
    aProgram((socket) =>
      socket.once('data', (head: Buffer) => {
        const [, path = ''] = head.toString().split(' ');
        socket.end(`HTTP/1.1 200 OK\r\nContent-Length: 0\r\n${told.replace('PATH', path)}\r\n`);
      }),
    );
  const pathOf = (text: string): string | undefined => /x-path: (.*)\r/.exec(text)?.[1];
  const asked = (address: string, path: string, host = 'x'): Promise<string> =>
    exchanged(address, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`, '\r\n\r\n');

  test('is chosen by the path, which ends at it; a pod with one needs none', async () => {
    const [first, second] = [await telling(), await telling()];
    const one = await serve({ ports: [first.port] });
    const two = await serve({ ports: [first.port, second.port] });
    for (const base of [`/pod/name/v1`, '/pod/name', '/pod/name/latest', `/pod/id/${STUB}`, PATH]) {
      expect(pathOf(await asked(one.address, base)), base).toBe('/');
      expect(pathOf(await asked(one.address, `${base}/a/b?c=d`)), base).toBe('/a/b?c=d');
      expect(pathOf(await asked(one.address, `${base}/${first.port}/a`)), base).toBe('/a');
      expect(pathOf(await asked(two.address, `${base}/${second.port}`)), base).toBe('/');
      // A number there is a port, also where the pod has one alone; behind the port it is the program's.
      const wrong = await asked(one.address, `${base}/1/a`);
      expect(wrong, base).toContain('404');
      expect(wrong).toContain(`port 1 is not a port of this stub: it has ${first.port}`);
      expect(pathOf(await asked(one.address, `${base}/${first.port}/1/a`)), base).toBe('/1/a');
      for (const path of ['/0/a', '/01/a', '/65536', '/1x', '/a/1', '/%31/a'])
        expect(pathOf(await asked(one.address, `${base}${path}`)), path).toBe(path);
      const without = await asked(two.address, `${base}/a`);
      expect(without).toContain('404');
      const unlisted = await asked(two.address, `${base}/1/a`);
      expect(unlisted).toContain('404');
      expect(unlisted).toContain(`port 1 is not a port of this stub: it has ${first.port}, ${second.port}`);
    }
  });

  test('is chosen by the host, whose path is the program’s own', async () => {
    const [first, second] = [await telling(), await telling()];
    const { address } = await serve({ ports: [first.port, second.port] });
    for (const label of [STUB, 'hello-1a2b3c4d5e6f7081-v3']) {
      expect(pathOf(await asked(address, '/a', `${label}-${second.port}.apps.test`)), label).toBe('/a');
      expect(await asked(address, '/a', `${label}.apps.test`)).toContain('404');
      expect(await asked(address, '/a', `${label}-1.apps.test`)).toContain('404');
    }
  });

  test('of a sandbox is reached by its container’s id, when it is listed or was exposed', async () => {
    const [listed, exposed, neither] = [await telling(), await telling(), await telling()];
    const options = { kind: 'sandbox', ports: [listed.port], exposedPorts: [exposed.port] } as const;
    const { address, state } = await serve(options);
    const base = `/sandbox/container/${STUB}/${SANDBOX}`;
    for (const { port } of [listed, exposed]) {
      expect(pathOf(await asked(address, `${base}/${port}/a?b`))).toBe('/a?b');
      expect(pathOf(await asked(address, '/a', `${SANDBOX}-${port}.apps.test`))).toBe('/a');
    }
    expect(await asked(address, `${base}/${neither.port}/`)).toContain('404');
    expect(await asked(address, `/sandbox/container/${STUB}/sandbox-${STUB}-ffffffff/${listed.port}`)).toContain('404');
    await turned(() => state.holds === 0 && state.open === 0);
    expect(state.calls).toBe(0);
  });

  test('of a sandbox takes a WebSocket, and counts as used for as long', async () => {
    const echo = new WebSocketServer({ noServer: true });
    const server = createServer();
    server.on('upgrade', (request, socket, head) =>
      echo.handleUpgrade(request, socket, head, (one) => one.on('message', (data) => one.send(data))),
    );
    const { port } = await aProgram((socket) => server.emit('connection', socket));
    const { address, state } = await serve({ kind: 'sandbox', ports: [port] });
    const socket = new WebSocket(`ws://${address}/sandbox/container/${STUB}/${SANDBOX}/${port}`);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const echoed = new Promise((resolve) => socket.once('message', resolve));
    socket.send('x');
    await echoed;
    expect(state.holds).toBe(1);
    socket.close();
    await turned(() => state.holds === 0 && state.open === 0);
  });

  test('has a bound on connections into a workspace’s containers: 429', async () => {
    const { port } = await aProgram(() => undefined);
    const { address, state } = await serve({ kind: 'sandbox', ports: [port], mostConnections: 1 });
    const path = `/sandbox/container/${STUB}/${SANDBOX}/${port}`;
    const { socket } = connected(address);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await turned(() => state.holds === 1);
    expect(await asked(address, path)).toContain('HTTP/1.1 429');
    socket.destroy();
    await turned(() => state.holds === 0);
  });

  test('of a pod whose containers are made by hand is 503 while there is none', async () => {
    const { port } = await telling();
    const none = await serve({ ports: [port], stubType: 'pod/run', hasContainers: false });
    expect(await asked(none.address, PATH)).toContain('HTTP/1.1 503');
    const some = await serve({ ports: [port], stubType: 'pod/run' });
    expect(pathOf(await asked(some.address, PATH))).toBe('/');
  });
});

describe('a pod or sandbox that is not public', () => {
  test('wants a good token of its workspace, in every form', async () => {
    const { port, got } = await answering('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
    const pod = await serve({ ports: [port], isPublic: false });
    const sandbox = await serve({ kind: 'sandbox', ports: [port], isPublic: false });
    const forms = [
      [pod.address, `/pod/name/v1/${port}`, 'x'],
      [pod.address, `/pod/id/${STUB}/${port}`, 'x'],
      [pod.address, '/', `${STUB}-${port}.apps.test`],
      [sandbox.address, `/sandbox/container/${STUB}/${SANDBOX}/${port}`, 'x'],
      [sandbox.address, '/', `${SANDBOX}-${port}.apps.test`],
    ] as const;
    for (const [address, path, host] of forms) {
      for (const line of ['', 'Authorization: Bearer revoked', `Authorization: Bearer ${OTHER_TOKEN}`]) {
        const text = await exchanged(
          address,
          `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${line}${line === '' ? '' : '\r\n'}\r\n`,
          '\r\n\r\n',
        );
        // Another workspace does not learn which names there are.
        expect(text, `${path} ${line}`).toMatch(/^HTTP\/1\.1 40[01] /);
      }
      expect(got).toEqual([]);
    }
    for (const [address, path, host] of forms) {
      const lines = `Host: ${host}\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`;
      expect(await exchanged(address, `GET ${path} HTTP/1.1\r\n${lines}`, '200'), path).toContain('200 OK');
      expect(got[0]).not.toContain(TOKEN);
    }
    expect(await exchanged(pod.address, `GET ${PATH}/${port} HTTP/1.1\r\nHost: x\r\n\r\n`, '\r\n\r\n')).toContain(
      '400',
    );
  });

  test('gives a browser a cookie of its host alone, and takes no page of another origin', async () => {
    const { port, got } = await answering('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
    const { address } = await serve({ ports: [port], isPublic: false });
    const host = `Host: ${STUB}-${port}.apps.test\r\n`;
    const page = await exchanged(
      address,
      `GET /a?b=1&auth_token=${TOKEN} HTTP/1.1\r\n${host}Accept: text/html\r\n\r\n`,
      '\r\n\r\n',
    );
    expect(page).toContain('HTTP/1.1 303');
    expect(page).toMatch(/set-cookie: longshore_token=eyJtoken; Path=\/; HttpOnly/);
    expect(page).toContain('location: /a?b=1');
    const cookie = `Cookie: longshore_token=${TOKEN}\r\n`;
    const own = `GET /a HTTP/1.1\r\n${host}${cookie}Sec-Fetch-Site: same-origin\r\n\r\n`;
    expect(await exchanged(address, own, '\r\n\r\n')).toContain('200 OK');
    expect(got[0]).not.toContain(TOKEN);
    const foreign = `GET /a HTTP/1.1\r\n${host}${cookie}Origin: http://evil.test\r\n\r\n`;
    expect(await exchanged(address, foreign, '\r\n\r\n')).toContain('HTTP/1.1 403');
  });
});
