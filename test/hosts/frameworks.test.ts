// Applications of web frameworks as people have them: FastAPI by the example, Starlette, Django. The command line
// deploys each with an image that has the framework. test/hosts/large-bodies.test.ts sends a gibibyte through.
import { once } from 'node:events';
import { describe, expect } from 'vitest';
import { WebSocket } from 'ws';
import { deployFile } from '../helpers/frameworks.ts';
import type { Site } from '../helpers/frameworks.ts';
import { jsonOf, test as base } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { RawConnection } from '../helpers/raw-http.ts';
import { download, upload } from '../helpers/transfers.ts';

const MIB = 1024 * 1024;

const test = base
  .extend('fastapi', { scope: 'file' }, ({ platform }): Promise<Site> =>
    deployFile(platform, 'examples/fastapi/app.py'),
  )
  .extend('starlette', { scope: 'file' }, ({ platform }): Promise<Site> =>
    deployFile(platform, 'test/fixtures/apps/starlette_site.py'),
  )
  .extend('django', { scope: 'file' }, ({ platform }): Promise<Site> =>
    deployFile(platform, 'test/fixtures/apps/django_site.py'),
  );

const get = (platform: Platform, url: string, options: RequestInit = {}): Promise<Response> =>
  fetch(url, { ...options, headers: { authorization: `Bearer ${platform.token}` } });

interface Socket {
  readonly socket: WebSocket;
  /** Sends a message. @returns the next that comes */
  readonly ask: (message: string | Buffer) => Promise<string | Buffer>;
  readonly closed: Promise<readonly [code: number, reason: string]>;
}

async function open(platform: Platform, site: Site, path: string, protocols: readonly string[] = []): Promise<Socket> {
  const socket = new WebSocket(`ws://${platform.httpAddress}${site.path}${path}`, [...protocols], {
    headers: { authorization: `Bearer ${platform.token}` },
  });
  const closed = new Promise<readonly [number, string]>((resolve) =>
    socket.once('close', (code, reason) => resolve([code, reason.toString()])),
  );
  await once(socket, 'open');
  return {
    socket,
    closed,
    ask: async (message) => {
      const answered = once(socket, 'message') as Promise<[Buffer, boolean]>;
      socket.send(message);
      const [data, isBinary] = await answered;
      return isBinary ? data : data.toString();
    },
  };
}

describe('FastAPI', () => {
  test('answers with JSON at any path', async ({ platform, fastapi: { url } }) => {
    const hello = await platform.call(`${url}/?name=Ada`);
    expect(jsonOf(hello)).toEqual({ greeting: 'Hello, Ada!', started_at: expect.any(Number) as number });
    expect(await platform.call(url)).toMatchObject({ status: 200 });
    expect(jsonOf(await platform.call(`${url}/items/7`))).toEqual({ number: 7 });
    const ordered = await platform.call(`${url}/orders`, { body: { item: 'tea', count: 3, price: 1.5 } });
    expect(jsonOf(ordered)).toEqual({ item: 'tea', total: 4.5 });
    const squares = await get(platform, `${url}/squares?up_to=300`);
    expect(squares.headers.get('content-length')).toBeNull();
    expect((await squares.text()).split('\n').slice(-3)).toEqual(['298 88804', '299 89401', '']);
  });

  test('refuses in its own words', async ({ platform, fastapi: { url } }) => {
    const refusals = [
      ['/items/seven', undefined, 'int_parsing', ['path', 'number']],
      ['/download?size=-1', undefined, 'greater_than_equal', ['query', 'size']],
      ['/orders', { item: 'tea' }, 'missing', ['body', 'price']],
      ['/orders', '{"item":', 'json_invalid', ['body', 8]],
    ] as const;
    for (const [path, body, type, loc] of refusals) {
      const answer = await platform.call(`${url}${path}`, { body });
      expect([path, answer.status]).toEqual([path, 422]);
      expect(jsonOf<{ detail: unknown[] }>(answer).detail).toMatchObject([{ type, loc }]);
    }
    expect(await platform.call(`${url}/nowhere`)).toMatchObject({ status: 404, text: '{"detail":"Not Found"}' });
    const wrong = await platform.call(`${url}/orders`);
    expect(wrong).toMatchObject({ status: 405, text: '{"detail":"Method Not Allowed"}' });
  });

  test('makes links and redirects that lead back to it, in the path form and on a host of its own', async ({
    platform,
    fastapi: { url, path, stubId, deploymentId },
  }) => {
    const api = jsonOf<{ servers: unknown }>(await platform.call(`${url}/openapi.json`));
    expect(api.servers).toEqual([{ url: path }]);
    expect((await platform.call(`${url}/docs`)).text).toContain(`'${path}/openapi.json'`);
    const moved = await get(platform, `${url}/items/7/`, { redirect: 'manual' });
    expect([moved.status, moved.headers.get('location')]).toEqual([307, `${url}/items/7`]);

    const asked = await platform.gateway(`/stubs/${stubId}/url?deploymentId=${deploymentId}&urlType=host`);
    const { host } = new URL(String(asked['url']));
    const connection = new RawConnection(platform.httpAddress);
    await connection.opened;
    const ask = async (at: string) => {
      connection.send(`GET ${at} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${platform.token}\r\n\r\n`);
      return connection.answer();
    };
    expect((await ask('/docs')).body.toString()).toContain(`'/openapi.json'`);
    expect((await ask('/items/7/')).headers['location']).toBe(`http://${host}/items/7`);
    connection.close();
  });

  test('takes and sends 32 MiB piece by piece', async ({ platform: { token }, fastapi: { url } }) => {
    const size = 32 * MIB;
    const sent = await upload({ url: `${url}/files/large.bin`, token }, size);
    expect(sent.answer).toEqual({ name: 'large.bin', size, sha256: sent.sha256 });
    expect(await download({ url: `${url}/download?size=${size}`, token })).toEqual({ size, sha256: sent.sha256 });
  });

  test('echoes text and bytes over a WebSocket, and both sides tell why they close', async ({ platform, fastapi }) => {
    const { socket, ask, closed } = await open(platform, fastapi, '/echo');
    expect(await ask('κόσμε 😀')).toBe('κόσμε 😀');
    expect(await ask('')).toBe('');
    expect(await ask(Buffer.from([0, 255, 128]))).toEqual(Buffer.from([0, 255, 128]));
    const long = Buffer.alloc(2 * MIB, 'long ');
    expect((await ask(long)).toString()).toBe(long.toString());
    socket.send('bye');
    expect(await closed).toEqual([4000, 'bye']);

    const left = await open(platform, fastapi, '/echo');
    expect(await left.ask('here')).toBe('here');
    left.socket.close(4321, 'enough');
    expect(await left.closed).toEqual([4321, 'enough']);
    await platform.logSays(`deployment_id=${fastapi.deploymentId}`, 'closed with 4321');
    await expect(open(platform, fastapi, '/nowhere')).rejects.toThrow('403');
  });

  test('runs its lifespan once for a container: before the first request, and when the container stops', async ({
    platform,
    fastapi: { url, deploymentId },
  }) => {
    const startedAt = async () => jsonOf<{ started_at: number }>(await platform.call(url)).started_at;
    expect(await startedAt()).toBe(await startedAt());
    const filter = `deployment_id=${deploymentId}`;
    const lines = await platform.logs(filter);
    expect(lines.filter((line) => line === 'started')).toHaveLength(1);
    expect(lines).not.toContain('stopped');
    await platform.gateway(`/deployments/${deploymentId}/stop`, {});
    await platform.logSays(filter, 'stopped');
  });
});

test('Starlette serves mounts, state of its lifespan, middleware and a WebSocket', async ({ platform, starlette }) => {
  const { url } = starlette;
  const painted = jsonOf(await platform.call(`${url}/walls/north`));
  expect(painted).toEqual({ north: 'blue', url: `${url}/walls/north` });
  const long = await get(platform, `${url}/long`);
  expect(long.headers.get('content-encoding')).toBe('gzip');
  expect(await long.text()).toBe('long '.repeat(10_000));
  const { socket, ask, closed } = await open(platform, starlette, '/talk', ['other', 'talk']);
  expect(socket.protocol).toBe('talk');
  expect(JSON.parse(String(await ask('[1, "two"]')))).toEqual({ heard: [1, 'two'], color: 'blue' });
  socket.close(1000);
  expect((await closed)[0]).toBe(1000);
});

test('Django serves views of both kinds, reversed paths, a body and a streamed response', async ({
  platform,
  django: { url, path },
}) => {
  const hello = jsonOf(await platform.call(`${url}/hello/Ada%20L?a=1&b=%C3%A9`));
  expect(hello).toEqual({ greeting: 'Hello, Ada L!', query: { a: '1', b: 'é' }, again: `${path}/hello/Ada%20L` });
  const counted = await platform.call(`${url}/count`, { method: 'PUT', body: Buffer.alloc(2 * MIB) });
  expect(jsonOf(counted)).toEqual({ method: 'PUT', size: 2 * MIB });
  expect(await platform.call(`${url}/numbers`)).toMatchObject({ status: 200, text: '0\n1\n2\n' });
  expect(await platform.call(`${url}/nowhere`)).toMatchObject({ status: 404 });
});
