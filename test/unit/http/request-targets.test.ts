// Targets of requests that are no plain path, over real HTTP: the path that is checked is the path that is routed.
import { afterEach, expect, test } from 'vitest';
import { PATH, TOKEN, cleanUp, connected, serve, turned } from '../../helpers/played-streams.ts';

afterEach(cleanUp);

const STUB = '00000000-0000-4000-8000-000000000000';
const INSIDE = `~host/${STUB}/`;

/** The first line of the answer, and how many calls reached an application. */
async function asked(target: string, host: string, lines: readonly string[] = []) {
  const { address, tasks } = await serve();
  const { socket, text, isClosed } = connected(address);
  const head = [`GET ${target} HTTP/1.1`, `Host: ${host}`, `Authorization: Bearer ${TOKEN}`, ...lines];
  socket.write(`${head.join('\r\n')}\r\n\r\n`, 'latin1');
  await turned(() => tasks.length > 0 || text().includes('\r\n') || isClosed());
  return { status: Number(text().split(' ')[1] ?? 0), calls: tasks.length };
}

test.each([
  `/${INSIDE}`,
  `/%7ehost/${STUB}/`,
  `/~%48ost/${STUB}/`,
  `//${INSIDE}`,
  `http://x/${INSIDE}`,
  `HTTP://X/${INSIDE}`,
  `https://x/${INSIDE}`,
  `http://x/%7Ehost/${STUB}/`,
  `http://x//${INSIDE}`,
  `http:///${INSIDE}`,
  `http:/${INSIDE}`,
  `http://a@x/${INSIDE}`,
  `http://x:80/${INSIDE}`,
  `http://x?/${INSIDE}`,
  `http://x#/${INSIDE}`,
  `ftp://x/${INSIDE}`,
  // The router does not look at the first character.
  `*${INSIDE}`,
  `x${INSIDE}`,
  'x:80',
])('a path of host labels is named by no request: %s', async (target) => {
  const { status, calls } = await asked(target, 'x');
  expect(calls).toBe(0);
  expect([400, 404]).toContain(status);
});

test.each([
  [`http://x${PATH}/`, 'x'],
  [`HTTPS://X:443${PATH}/`, 'x'],
  [`http://${STUB}.apps.test/`, `${STUB}.apps.test`],
  [`http://${STUB}.apps.test?a=1`, `${STUB}.apps.test`],
])('a target for a proxy means its path: %s', async (target, host) => {
  expect(await asked(target, host)).toMatchObject({ calls: 1 });
});

test.each([
  [`http://y${PATH}/`, 'x', 1],
  [`http://${STUB}.apps.test/`, 'x', 1],
  [`http://${STUB}.apps.test/`, `${STUB.replaceAll('0', '1')}.apps.test`, 1],
  ['http://x/', `${STUB}.apps.test`, 0],
  [`http://x/${INSIDE}`, `${STUB}.apps.test`, 0],
  [`http://${STUB}.apps.test:1994/`, '', 1],
])('the host of an absolute target counts, and Host does not: %s with %s', async (target, host, calls) => {
  const answer = await asked(target, host);
  expect(answer.calls).toBe(calls);
  if (calls === 0) expect(answer.status).toBe(404);
});

test.each([
  ['GET', '*'],
  ['GET', 'x:80'],
  ['GET', 'x'],
  ['OPTIONS', '*a'],
  ['POST', '*'],
  ['GET', 'ftp://x/'],
  ['GET', 'http:///a'],
  ['GET', 'http:/a'],
  ['GET', `http://a@x${PATH}/`],
  ['GET', `http://a:b@x${PATH}/`],
  ['GET', `http://x:a${PATH}/`],
  ['GET', `http://[x${PATH}/`],
  ['CONNECT', 'x:80'],
  ['CONNECT', '127.0.0.1:1994'],
])('a target that is none is refused: %s %s', async (method, target) => {
  const { address, tasks } = await serve();
  const { socket, text, isClosed } = connected(address);
  const token = `Authorization: Bearer ${TOKEN}\r\nConnection: close\r\n`;
  socket.write(`${method} ${target} HTTP/1.1\r\nHost: x\r\n${token}\r\n`);
  await turned(() => isClosed());
  expect([text().slice(0, 12), tasks.length]).toEqual(['HTTP/1.1 400', 0]);
});

test.each(['*', 'http://x', 'http://y:80'])('options of the server are told: %s', async (target) => {
  const { address, tasks } = await serve();
  const { socket, text, isClosed } = connected(address);
  socket.write(`OPTIONS ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
  await turned(() => isClosed());
  expect(text()).toMatch(/^HTTP\/1\.1 204 [^]*\r\nallow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n/);
  expect(tasks).toEqual([]);
});

test('a tunnel is refused also with bytes behind it, and the connection ends', async () => {
  const { address, tasks } = await serve();
  const { socket, text, isClosed } = connected(address);
  socket.write(`CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\nGET ${PATH}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await turned(() => isClosed());
  expect([text().slice(0, 12), text().split('HTTP/1.1').length, tasks.length]).toEqual(['HTTP/1.1 400', 2, 0]);
});

test.each([
  ['path', `http://y:81${PATH}/a%2Fb//c?d=%C3`, `${PATH}/a%2Fb//c`, PATH, 'y:81'],
  ['host', `http://${STUB}.apps.test/a%2Fb//c?d=%C3`, '/a%2Fb//c', '', `${STUB}.apps.test`],
])('an application sees the target’s path and host: %s', async (_form, target, path, rootPath, host) => {
  const { address, task } = await serve();
  connected(address).socket.write(`GET ${target} HTTP/1.1\r\nHost: other.test\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  const head = JSON.parse(one.head) as { readonly headers: readonly (readonly [string, string])[] };
  expect(head).toMatchObject({ path, rootPath, query: 'd=%C3' });
  const hosts = head.headers.filter(([name]) => name === 'host' || name === 'x-forwarded-host');
  expect(hosts).toEqual([
    ['host', host],
    ['x-forwarded-host', host],
  ]);
});

test('an absolute target does not hide a second Host', async () => {
  expect(await asked(`http://x${PATH}/`, 'x', ['Host: y'])).toEqual({ status: 400, calls: 0 });
});

test('an application has the path alone of a target for a proxy', async () => {
  const { address, task } = await serve();
  connected(address).socket.write(`GET http://x${PATH}/a//b?c=1 HTTP/1.1\r\nHost: x\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  expect(JSON.parse(one.head)).toMatchObject({ path: `${PATH}/a//b`, rootPath: PATH, query: 'c=1' });
});
