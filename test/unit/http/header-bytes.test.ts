// Values of headers on their way to programs and applications and back, byte by byte, over real HTTP.
import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from 'vitest';
import * as ports from '../../helpers/played-ports.ts';
import { SANDBOX, STUB, TOKEN } from '../../helpers/played-ports.ts';
import * as streams from '../../helpers/played-streams.ts';

afterEach(ports.cleanUp);
afterEach(streams.cleanUp);

/** Every byte that a value may have, beginning and ending with a visible one. In these texts a character is a byte. */
const VALUE = `é${String.fromCharCode(
  9,
  ...Array.from({ length: 95 }, (_, at) => at + 0x20),
  ...Array.from({ length: 128 }, (_, at) => at + 0x80),
)}!`;
/** The file name of nodejs/node #1693 in UTF-8. */
const NAME = 'attachment; filename="\xc3\xa9.txt"';
const VALUES = [`X-All: ${VALUE}`, `Content-Disposition: ${NAME}`, 'X-Euro: \xe2\x82\xac', 'X-Latin: caf\xe9'];
const LINES = VALUES.map((line) => `${line}\r\n`).join('');
/** The lines of a head with those names. */
const linesIn = (head: string, isLower = false): string[] =>
  VALUES.map((line) => {
    const [name = ''] = line.split(':', 1);
    const found = new RegExp(`^${isLower ? name.toLowerCase() : name}: (.*?)\\r?$`, 'm').exec(head);
    return `${name}: ${found?.[1] ?? ''}`;
  });
const HOST = `${STUB}.apps.test`;

const FORMS = {
  path: ['pod', `/pod/public/${STUB}`, 'x'],
  'named path': ['pod', '/pod/app', 'x'],
  host: ['pod', '', HOST],
  container: ['sandbox', '', ''],
} as const;

describe('a program and its caller', () => {
  test.for([
    ['a body with its head', 'HTTP/1.1 200 OK\r\n', 'Content-Length: 2\r\n\r\nok', 'GET'],
    ['chunks', 'HTTP/1.1 200 OK\r\n', 'Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n', 'POST'],
    ['no body', 'HTTP/1.1 204 No Content\r\n', '\r\n', 'PUT'],
    ['an empty body', 'HTTP/1.1 404 Not Found\r\n', 'Content-Length: 0\r\n\r\n', 'DELETE'],
    ['a head alone', 'HTTP/1.1 200 OK\r\n', 'Content-Length: 2\r\n\r\n', 'HEAD'],
    ['a redirect', 'HTTP/1.1 302 Found\r\nLocation: /caf\xc3\xa9\r\n', 'Content-Length: 0\r\n\r\n', 'GET'],
  ] as const)('get each other’s values in every form, with %s', async ([, status, rest, method]) => {
    for (const [form, [kind, root, host]] of Object.entries(FORMS)) {
      let got = '';
      const { port } = await ports.aProgram((socket) => {
        socket.on('data', (chunk: Buffer) => {
          got += chunk.toString('latin1');
          if (!got.includes('\r\n\r\n')) return;
          socket.end(`${status}${LINES}${rest}`, 'latin1');
        });
      });
      const { address } = await ports.serve({ ports: [port], kind });
      const path = form === 'container' ? `/sandbox/container/${STUB}/${SANDBOX}/${port}` : root;
      const { socket, text } = ports.connected(address);
      const own = `Host: ${host === '' ? 'x' : host}\r\nAuthorization: Bearer ${TOKEN}\r\nConnection: close\r\n`;
      socket.write(`${method} ${path}/ HTTP/1.1\r\n${own}${LINES}\r\n`, 'latin1');
      await streams.turned(() => text().includes('\r\n\r\n'));
      expect([form, linesIn(got)]).toEqual([form, VALUES]);
      expect([form, linesIn(text())]).toEqual([form, VALUES]);
      if (status.includes('Location')) expect(text()).toMatch(/^location: \/caf\xc3\xa9\r$/im);
    }
  });

  test('a head comes with its bytes before its body does', async () => {
    const { port } = await ports.aProgram((socket) => {
      socket.once('data', () => socket.write(`HTTP/1.1 200 OK\r\n${LINES}\r\n`, 'latin1'));
    });
    const { address } = await ports.serve({ ports: [port] });
    for (const method of ['GET', 'HEAD']) {
      const { socket, text } = ports.connected(address);
      socket.write(`${method} /pod/public/${STUB}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
      await streams.turned(() => text().includes('\r\n\r\n'));
      expect(linesIn(text())).toEqual(VALUES);
    }
  });

  test('hints and trailers have their bytes, both ways', async () => {
    let got = '';
    const { port } = await ports.aProgram((socket) => {
      socket.on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1');
        if (!got.includes('0\r\n')) return;
        socket.write('HTTP/1.1 103 Early Hints\r\nLink: </caf\xc3\xa9.css>; rel=preload\r\n\r\n', 'latin1');
        const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
        socket.end(`${head}2\r\nok\r\n0\r\n${LINES}\r\n`, 'latin1');
      });
    });
    const { address } = await ports.serve({ ports: [port] });
    const { socket, text } = ports.connected(address);
    const head = `POST / HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    socket.write(`${head}2\r\nok\r\n0\r\n${LINES}\r\n`, 'latin1');
    await streams.turned(() => text().endsWith('0\r\n\r\n') || /0\r\n[^]*\r\n\r\n$/.test(text()));
    expect(text()).toContain('Link: </caf\xc3\xa9.css>; rel=preload\r\n');
    expect(linesIn(got)).toEqual(VALUES);
    expect(linesIn(text())).toEqual(VALUES);
  });

  test('a change of protocol has its bytes, both ways', async () => {
    let got = '';
    const { port } = await ports.aProgram((socket) => {
      socket.on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1');
        const key = /^sec-websocket-key: (.*)\r$/im.exec(got)?.[1] ?? '';
        const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
        const own = `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n`;
        if (got.includes('\r\n\r\n')) socket.write(`HTTP/1.1 101 Switching\r\n${own}${LINES}\r\n`, 'latin1');
      });
    });
    const { address } = await ports.serve({ ports: [port] });
    const { socket, text } = ports.connected(address);
    socket.write(`GET /pod/public/${STUB}/ HTTP/1.1\r\nHost: x\r\n${HANDSHAKE}${LINES}\r\n`, 'latin1');
    await streams.turned(() => text().includes('\r\n\r\n'));
    expect(text()).toContain('HTTP/1.1 101');
    expect(linesIn(got)).toEqual(VALUES);
    expect(linesIn(text())).toEqual(VALUES);
  });

  test('cookies of an application keep their bytes, beside the platform’s own', async () => {
    let got = '';
    const { port } = await ports.aProgram((socket) => {
      socket.once('data', (chunk: Buffer) => {
        got = chunk.toString('latin1');
        socket.end('HTTP/1.1 204 No Content\r\n\r\n');
      });
    });
    const { address } = await ports.serve({ ports: [port] });
    for (const [sent, passed] of [
      ['a=1;b=\xc3\xa9;;  c="x y" ;', 'a=1;b=\xc3\xa9;;  c="x y" ;'],
      [`a=1;b=2; longshore_token=${TOKEN};  c=3`, 'a=1;b=2;  c=3'],
      [`longshore_token=${TOKEN}; a=1;b=2`, 'a=1;b=2'],
      [`a=1; longshore_token=${TOKEN}`, 'a=1'],
    ] as const) {
      const { socket, text } = ports.connected(address);
      socket.write(`GET /pod/public/${STUB}/ HTTP/1.1\r\nHost: x\r\nCookie: ${sent}\r\n\r\n`, 'latin1');
      await streams.turned(() => text().includes('\r\n\r\n'));
      expect(/^cookie: (.*?)\s*\r$/im.exec(got)?.[1]).toBe(passed);
    }
  });
});

const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
const HANDSHAKE = `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${KEY}\r\n`;
/** The values as a runner process gets and sends them: text in which a character is a byte. */
const PAIRS = VALUES.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]);
/** JSON in ASCII, as runner processes write it. */
const asciiOf = (value: object): string =>
  JSON.stringify(value).replaceAll(/[^\x20-\x7e]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);

describe('an application and its caller', () => {
  test.for([
    ['path', streams.PATH, 'x', 'GET', ''],
    ['host', '', HOST, 'GET', ''],
    ['path, head alone', streams.PATH, 'x', 'HEAD', ''],
    ['handshake', streams.PATH, 'x', 'GET', HANDSHAKE],
    ['handshake by host', '', HOST, 'GET', HANDSHAKE],
  ] as const)('get each other’s values: %s', async ([, root, host, method, lines]) => {
    for (const accepts of lines === '' ? [false] : [true, false]) {
      const { address, task } = await streams.serve();
      const { socket, text } = streams.connected(address);
      socket.write(`${method} ${root}/ HTTP/1.1\r\nHost: ${host}\r\n${lines}${LINES}\r\n`, 'latin1');
      const one = await task(1);
      one.begin();
      await streams.turned(() => one.head !== '');
      const { headers } = JSON.parse(one.head) as { readonly headers: readonly (readonly [string, string])[] };
      expect(headers.filter(([name]) => PAIRS.some(([known]) => known === name))).toEqual(PAIRS);
      const head = accepts ? { accept: true, subprotocol: null, headers: PAIRS } : { status: 200, headers: PAIRS };
      one.send('response', {}, asciiOf(head));
      await streams.turned(() => text().includes('\r\n\r\n'));
      expect(text()).toContain(accepts ? 'HTTP/1.1 101' : 'HTTP/1.1 200');
      expect(linesIn(text(), true)).toEqual(VALUES);
      one.runner.destroy();
    }
  });
});
