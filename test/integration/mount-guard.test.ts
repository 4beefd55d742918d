// The guard through which daemons of buckets reach the network: addresses, tunnels, and who may use it.
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { expect, test as base } from 'vitest';
import { AddressRules } from '#shared/address-rules.ts';
import { Guard } from '#agent/mounts/guard.ts';

const rules = (text: string): AddressRules => {
  const read = AddressRules.read(text);
  if ('wrong' in read) throw new Error(read.wrong);
  return read;
};

interface World {
  readonly guard: Guard;
  /** Requests that the server behind the guard got. */
  readonly seen: { readonly method: string; readonly url: string; readonly body: string }[];
  readonly port: number;
  readonly ask: (
    url: string,
    options?: { readonly secret?: string; readonly method?: string; readonly body?: string },
  ) => Promise<{ readonly status: number; readonly text: string }>;
  readonly tunnel: (target: string) => Promise<string>;
}

const test = base.extend('world', async ({ task: _task }, { onCleanup }): Promise<World> => {
  const seen: World['seen'] = [];
  const server = createServer(async (incoming, response) => {
    let body = '';
    for await (const part of incoming) body += String(part);
    seen.push({ method: incoming.method ?? '', url: incoming.url ?? '', body });
    if (incoming.headers['proxy-authorization'] !== undefined) return void response.writeHead(500).end();
    response.writeHead(incoming.url === '/gone' ? 404 : 200, { 'x-own': 'kept' }).end('answer');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const guard = new Guard({ allowed: rules('127.0.0.1/32'), closed: rules('8.8.8.0/24'), schedulerHost: '1.1.1.1' });
  const place = await guard.start(undefined);
  onCleanup(async () => {
    await guard.stop();
    server.close();
  });
  const auth = (secret: string): string => `Basic ${Buffer.from(`mount:${secret}`).toString('base64')}`;
  return {
    guard,
    seen,
    port,
    ask: async (url, { secret = place.secret, method = 'GET', body = '' } = {}) => {
      const headers = { 'proxy-authorization': auth(secret), host: new URL(url).host };
      const sent = request({ host: '127.0.0.1', port: place.port, method, path: url, headers });
      sent.end(body);
      const [answer] = (await once(sent, 'response')) as [IncomingMessage];
      let text = '';
      for await (const part of answer) text += String(part);
      return { status: answer.statusCode ?? 0, text };
    },
    tunnel: async (target) => {
      const socket = connect(place.port, '127.0.0.1');
      socket.write(
        `CONNECT ${target} HTTP/1.1\r\nhost: ${target}\r\nproxy-authorization: ${auth(place.secret)}\r\n\r\n`,
      );
      const [first] = (await once(socket, 'data')) as [Buffer];
      socket.destroy();
      return first.toString().split('\r\n')[0] ?? '';
    },
  };
});

test('requests to an open address pass with their method, path and body, and without the proxy’s credential', async ({
  world,
}) => {
  const origin = `http://127.0.0.1:${world.port}`;
  expect(await world.ask(`${origin}/a%2Fb/../c?x=1`, { method: 'PUT', body: 'bytes' })).toEqual({
    status: 200,
    text: 'answer',
  });
  // The path is the signed one, to the byte.
  expect(world.seen).toEqual([{ method: 'PUT', url: '/a%2Fb/../c?x=1', body: 'bytes' }]);
  expect((await world.ask(`${origin}/gone`)).status).toBe(404);
  expect((await world.ask(`${origin}/gone`, { method: 'HEAD' })).status).toBe(404);
  expect(await world.tunnel(`127.0.0.1:${world.port}`)).toContain('200');
});

test('nobody without the secret gets anything through', async ({ world }) => {
  expect((await world.ask(`http://127.0.0.1:${world.port}/`, { secret: 'guess' })).status).toBe(407);
  expect(world.seen).toEqual([]);
});

test('closed addresses are refused, whatever they are called', async ({ world }) => {
  const own = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .find(({ internal }) => !internal);
  const closed = [
    '169.254.169.254',
    '10.0.0.1',
    '[::1]',
    '127.0.0.2',
    '[::ffff:10.0.0.1]',
    '8.8.8.8',
    '1.1.1.1',
    ...(own === undefined || own.family !== 'IPv4' ? [] : [own.address]),
  ];
  for (const host of closed) {
    expect((await world.ask(`http://${host}/`)).status, host).toBe(403);
    expect(await world.tunnel(`${host}:443`), host).toContain('403');
    await expect(world.guard.addressOf(host)).rejects.toThrow('LONGSHORE_BUCKET_ALLOW');
  }
  expect(await world.guard.addressOf('9.9.9.9')).toBe('9.9.9.9');
  expect((await world.ask('https://127.0.0.1/')).status).toBe(400);
});

test('a guard that starts again listens at the same place', async ({ world }) => {
  const guard = new Guard({ allowed: rules(''), closed: rules(''), schedulerHost: undefined });
  const place = await guard.start(undefined);
  await guard.stop();
  const next = new Guard({ allowed: rules(''), closed: rules(''), schedulerHost: undefined });
  expect(await next.start(place)).toEqual(place);
  await next.stop();
  expect(world.seen).toEqual([]);
});
