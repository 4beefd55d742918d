// Paths and queries on their way to pods, sandboxes and applications, byte by byte, in every form of URL.
import { afterEach, describe, expect, test } from 'vitest';
import * as ports from '../../helpers/played-ports.ts';
import { SANDBOX, STUB, TOKEN } from '../../helpers/played-ports.ts';
import * as streams from '../../helpers/played-streams.ts';

afterEach(ports.cleanUp);
afterEach(streams.cleanUp);

/** Paths with queries that arrive as they were sent. */
const SAME = [
  '/',
  '/a/',
  '//a//b/',
  '/./a',
  '/../x',
  '/%2e%2e/x',
  '/%2E%2E%2Fx',
  '/a%2Fb',
  '/a%2fb',
  '/a%5c..%5Cb',
  '/a\\b',
  '/a%3Fb%23c',
  '/a%25b',
  '/a%252Fb',
  '/%C3%A9',
  '/caf%E9',
  '/caf%E9/%41',
  '/a%',
  '/%zz',
  '/a%00b',
  '/a+b%20c',
  '/a;b=1,c',
  '/a"<>|b',
  '/warmup',
  '/v3/latest',
  '/a?b?c',
  '/a?x=%ff&y=%',
  '/a?&&x&',
  '/a??',
  '/a?x=1#f',
  '/%E9?x=%E9',
  `/${'a'.repeat(3000)}`,
] as const;

/** Where a program differs from an application, which gets path and query apart. */
const OF_PROGRAMS = ['/a?', '/a#f', '/a#', '/a?#'] as const;

interface Sent {
  readonly url: string;
  readonly host?: string;
  readonly method?: string;
}

async function serveProgram(kind: 'pod' | 'sandbox' = 'pod') {
  const got: string[] = [];
  const { port } = await ports.aProgram((socket) => {
    socket.once('data', (head: Buffer) => {
      got.push(/^\w+ (.*) HTTP\/1\.1\r\n/.exec(head.toString('latin1'))?.[1] ?? 'no request');
      socket.end('HTTP/1.1 204 No Content\r\n\r\n');
    });
  });
  const { address, state } = await ports.serve({ ports: [port], kind });
  /** @returns the target that the program got; else the status */
  const targetOf = async ({ url, host = 'x' }: Sent): Promise<string> => {
    const { socket, text } = ports.connected(address);
    const token = `Authorization: Bearer ${TOKEN}\r\n`;
    socket.write(`GET ${url} HTTP/1.1\r\nHost: ${host}\r\n${token}Connection: close\r\n\r\n`, 'latin1');
    await streams.turned(() => text().includes('\r\n\r\n'));
    return got.shift() ?? text().slice(9, 12);
  };
  return { port, targetOf, state };
}

const HOST = `${STUB}.apps.test`;

describe('a program gets the target as it was sent', () => {
  test.for(['path', 'path with a port', 'named path', 'host', 'container'] as const)(
    'in the form: %s',
    async (form) => {
      const { port, targetOf } = await serveProgram(form === 'container' ? 'sandbox' : 'pod');
      const roots = {
        path: `/pod/public/${STUB}`,
        'path with a port': `/pod/id/${STUB}/${port}`,
        'named path': `/pod/app/v2/${port}`,
        host: '',
        container: `/sandbox/container/${STUB}/${SANDBOX}/${port}`,
      };
      for (const sent of [...SAME, ...OF_PROGRAMS]) {
        const url = `${roots[form]}${sent}`;
        expect(await targetOf({ url, ...(form === 'host' ? { host: HOST } : {}) })).toBe(sent);
      }
    },
  );

  test.for([
    ['without a path', '', '/'],
    ['without a path, with a query', '?x=1', '/?x=1'],
    ['with a token alone', `/a?auth_token=${TOKEN}`, '/a'],
    ['with a token behind a number sign', `/a#auth_token=${TOKEN}`, '/a'],
    ['with a token among others', `/a%2Fb?x=%2F&auth_token=${TOKEN}&y`, '/a%2Fb?x=%2F&y'],
    ['with a byte that no URL may have', '/caf\xe9', '400'],
  ] as const)('%s', async ([, sent, target]) => {
    const { targetOf } = await serveProgram();
    expect(await targetOf({ url: `/pod/public/${STUB}${sent}` })).toBe(target);
  });
});

describe('the parts that name the pod', () => {
  test.for([
    ['escaped words of the route', (port: number) => `/%70od/%70ublic/${STUB}/${port}/a`, '/a', undefined],
    ['an escaped name', () => '/pod/%61pp/a', '/a', null],
    ['a version', () => '/pod/app/v3/a%2Fb', '/a%2Fb', 3],
    ['an escaped version, which is the program’s', () => '/pod/app/%763/a', '/%763/a', null],
    ['a version with an escaped slash behind it', () => '/pod/app/v3%2Fa', '/v3%2Fa', null],
    ['an escaped port', () => '/pod/app/v3/%38000/a', '/%38000/a', 3],
  ] as const)('%s', async ([, url, target, version]) => {
    const { port, targetOf, state } = await serveProgram();
    expect(await targetOf({ url: url(port) })).toBe(target);
    expect(state.versions).toEqual(version === undefined ? [] : [version]);
  });
});

describe('an application gets path and query as they were sent', () => {
  test.for(['path', 'host'] as const)('in the form: %s', async (form) => {
    const { address, task } = await streams.serve();
    for (const [at, sent] of SAME.entries()) {
      const { socket } = streams.connected(address);
      const [url, host] = form === 'path' ? [`${streams.PATH}${sent}`, 'x'] : [sent, HOST];
      socket.write(`GET ${url} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      const one = await task(at + 1);
      one.begin();
      await streams.turned(() => one.head !== '');
      const { path, rootPath, query } = JSON.parse(one.head) as Readonly<Record<string, string>>;
      expect(rootPath).toBe(form === 'path' ? streams.PATH : '');
      expect(`${path?.slice(rootPath?.length)}${query === '' ? '' : `?${query}`}`).toBe(sent);
    }
  });

  test('below a root whose words are escaped', async () => {
    const { address, task } = await streams.serve();
    const { socket } = streams.connected(address);
    const root = streams.PATH.replace('/asgi/public', '/%61sgi/%70ublic');
    socket.write(`GET ${root}/a HTTP/1.1\r\nHost: x\r\n\r\n`);
    const one = await task(1);
    one.begin();
    await streams.turned(() => one.head !== '');
    expect(JSON.parse(one.head)).toMatchObject({ path: `${root}/a`, rootPath: root });
  });
});
