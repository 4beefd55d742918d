import { pino } from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import { StartupError } from '#shared/errors.ts';
import { registerHealth } from '../../../scheduler/http/ops/health-page.ts';
import { createHttpServer, parseAddress } from '../../../scheduler/http/server.ts';
import type { HttpServer } from '../../../scheduler/http/server.ts';
import { Readiness } from '../../../scheduler/ops/health.ts';

const log = pino({ level: 'silent' });
const servers: HttpServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop(0);
});

function aServer(checks: Record<string, () => Promise<unknown>> = {}): HttpServer {
  const server = createHttpServer({
    log,
    register: (app, state) => {
      registerHealth(app, { readiness: new Readiness(checks), isDraining: state.isDraining });
      app.get('/slow', () => new Promise(() => undefined));
    },
  });
  servers.push(server);
  return server;
}
const get = async (server: HttpServer, path: string) => {
  const answer = await fetch(`http://${server.address}${path}`);
  return { status: answer.status, body: await answer.json(), connection: answer.headers.get('connection') };
};

describe('health', () => {
  test('is 200 while every store answers, and names the one that does not', async () => {
    const well = aServer({ database: async () => 1 });
    await well.start('127.0.0.1:0');
    expect(await get(well, '/api/v1/health')).toMatchObject({ status: 200, body: { status: 'ok' } });
    const ill = aServer({ database: async () => 1, redis: () => Promise.reject(new Error('away')) });
    await ill.start('127.0.0.1:0');
    expect(await get(ill, '/api/v1/health')).toMatchObject({
      status: 503,
      body: { status: 'unavailable', failing: ['redis'] },
    });
    expect(await get(ill, '/api/v1/health/live')).toMatchObject({ status: 200 });
  });

  test('while draining is 503, liveness stays 200, and connections are asked to close', async () => {
    const server = aServer();
    await server.start('127.0.0.1:0');
    expect((await get(server, '/api/v1/health')).connection).not.toBe('close');
    server.drain();
    expect(await get(server, '/api/v1/health')).toEqual({
      status: 503,
      body: { status: 'draining' },
      connection: 'close',
    });
    expect(await get(server, '/api/v1/health/live')).toMatchObject({ status: 200, connection: 'close' });
  });
});

describe('the server', () => {
  test('names every answer, each with another id', async () => {
    const server = aServer();
    const ids = await Promise.all(
      [1, 2].map(async () => (await server.app.inject('/nothing')).headers['x-request-id']),
    );
    expect(new Set(ids).size).toBe(2);
    const answer = await server.app.inject('/nothing');
    expect(answer.statusCode).toBe(404);
    expect(answer.json()).toEqual({
      message: 'Not Found',
      code: 'not_found',
      request_id: answer.headers['x-request-id'],
    });
  });

  test('answers a path that cannot be decoded with 400', async () => {
    const answer = await aServer().app.inject('/api/%zz');
    expect([answer.statusCode, answer.json()]).toMatchObject([400, { code: 'bad_request' }]);
  });

  test('says which address is taken and what to set', async () => {
    const server = aServer();
    const address = await server.start('127.0.0.1:0');
    const failure = await aServer()
      .start(address)
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(StartupError);
    expect(failure).toMatchObject({ code: 'port_in_use', message: expect.stringContaining(address) });
    expect(String(failure)).toContain('LONGSHORE_HTTP_ADDRESS');
  });

  test.each(['0.0.0.0/0', '::/0', '10.0.0.0/33', '10.0.0.0/8/8', 'proxy'])(
    'trusts no proxies named %j, and says so',
    (range) => {
      const parts = { log, register: () => undefined, trustedProxies: ['10.0.0.0/8', range] };
      expect(() => createHttpServer(parts)).toThrow(StartupError);
      expect(() => createHttpServer(parts)).toThrow(`LONGSHORE_TRUSTED_PROXIES: ${JSON.stringify(range)}`);
    },
  );

  test('stops in time although a request never ends', async () => {
    const server = aServer();
    await server.start('127.0.0.1:0');
    const hanging = fetch(`http://${server.address}/slow`).catch((error: unknown) => error);
    await get(server, '/api/v1/health/live');
    await server.stop(20);
    expect(await hanging).toBeInstanceOf(Error);
  });

  test.each([
    ['127.0.0.1:1994', { host: '127.0.0.1', port: 1994 }],
    [':1994', { host: '::', port: 1994 }],
    ['[::1]:0', { host: '::1', port: 0 }],
    ['host.example:80', { host: 'host.example', port: 80 }],
  ])('reads the address %s', (address, expected) => {
    expect(parseAddress(address)).toEqual(expected);
  });

  test.each(['1994', 'host', 'host:99999', '::1:1994', ''])('refuses the address %j', (address) => {
    expect(() => parseAddress(address)).toThrow(/LONGSHORE_HTTP_ADDRESS/);
  });
});
