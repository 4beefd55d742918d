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
  [`http://y${PATH}/`, 'x'],
  [`http://${STUB}.apps.test/`, 'x'],
  ['http://x/', `${STUB}.apps.test`],
])('a target for a proxy that names another host than Host leads nowhere: %s', async (target, host) => {
  expect(await asked(target, host)).toEqual({ status: 404, calls: 0 });
});

test('an application has the path alone of a target for a proxy', async () => {
  const { address, task } = await serve();
  connected(address).socket.write(`GET http://x${PATH}/a//b?c=1 HTTP/1.1\r\nHost: x\r\n\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  expect(JSON.parse(one.head)).toMatchObject({ path: `${PATH}/a//b`, rootPath: PATH, query: 'c=1' });
});
