// Heads of streamed calls that could be read in two ways, and cookies by which a page calls. Queue and runner processes
// are played.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, expect, test } from 'vitest';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { GET, PATH, TOKEN, cleanUp, connected, serve, turned } from '../../helpers/played-streams.ts';

afterEach(cleanUp);

test.each(['gzip, chunked', 'deflate, chunked'])(
  'a body in the coding %s is refused: nobody decodes it',
  async (coding) => {
    const { address, tasks } = await serve();
    const { socket, text } = connected(address);
    socket.write(`POST ${PATH}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ${coding}\r\n\r\n0\r\n\r\n`);
    await turned(() => text().includes('HTTP/1.1 501'));
    expect(text()).toContain('Transfer-Encoding');
    expect(tasks).toEqual([]);
  },
);

test('a chunked body passes, however it is written', async () => {
  const { address, task } = await serve();
  const { socket } = connected(address);
  socket.write(`POST ${PATH}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:  CHUNKED \r\n\r\n0\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.got.includes('end'));
});

test('the address of a caller comes from the platform alone, also by names that applications take for the same', async () => {
  const { address, task } = await serve();
  const { socket } = connected(address);
  const lines = ['X_Forwarded_For: 9.9.9.9', 'X-Forwarded_Host: 9.9.9.9', 'x_real_ip: 9.9.9.9', 'X_Own: 1'];
  socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n${lines.join('\r\n')}\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  expect(one.head).not.toContain('9.9.9.9');
  expect(JSON.parse(one.head)).toMatchObject({ headers: expect.arrayContaining([['x_own', '1']]) });
});

test('204 has no length, 304 has that of its page', async () => {
  const { address, task } = await serve();
  for (const [at, status] of [204, 304].entries()) {
    const { socket, text } = connected(address);
    socket.write(GET);
    const one = await task(at + 1);
    one.begin();
    one.send('response', {}, { status, headers: [['content-length', '5']] });
    one.send('end');
    await turned(() => text().includes('\r\n\r\n'));
    expect(/content-length: 5/i.test(text())).toBe(status === 304);
  }
});

test('headers of a WebSocket’s acceptance are bytes as those of any answer, and tell no length', async () => {
  const { address, task } = await serve();
  const { socket, text } = connected(address);
  const lines = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'];
  lines.push('Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==');
  socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n${lines.join('\r\n')}\r\n\r\n`);
  const one = await task(1);
  one.begin();
  const headers = [
    ['x-name', 'caf\u00e9'],
    ['content-length', '5'],
  ];
  const head = JSON.stringify({ accept: true, subprotocol: null, headers });
  one.runner.write(encodeFrame('response', {}, Buffer.from(head, 'utf8')));
  await turned(() => text().includes('\r\n\r\n'));
  expect(text()).toContain('x-name: caf\u00e9\r\n');
  expect(text()).not.toMatch(/content-length/i);
});

test('with HTTPS, a page in clear may not call by the cookie of its host', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ls-heads-'));
  const [keyFile, certFile] = [join(directory, 'key'), join(directory, 'cert')];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  const made = [
    'req',
    '-x509',
    ...kind,
    '-nodes',
    '-keyout',
    keyFile,
    '-out',
    certFile,
    '-days',
    '2',
    '-subj',
    '/CN=x',
  ];
  execFileSync('openssl', made, { stdio: 'ignore' });
  const { address, task } = await serve({ key: readFileSync(keyFile), cert: readFileSync(certFile) });
  await rm(directory, { recursive: true });
  const [host = '', port = ''] = address.split(':');
  const name = '00000000-0000-4000-8000-000000000000.apps.test';
  const call = (scheme: string) => {
    const socket = connectTls({ host, port: Number(port), rejectUnauthorized: false });
    let text = '';
    socket.on('error', () => undefined).on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    const lines = [`Origin: ${scheme}://${name}`, `Cookie: __Host-longshore_token=${TOKEN}`];
    socket.write(`GET / HTTP/1.1\r\nHost: ${name}\r\n${lines.join('\r\n')}\r\n\r\n`);
    return { text: () => text, end: () => socket.destroy() };
  };
  const foreign = call('http');
  await turned(() => foreign.text().includes('HTTP/1.1 403'));
  foreign.end();
  const own = call('https');
  expect((await task(1)).head).toBe('');
  own.end();
});
