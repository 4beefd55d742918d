import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { pino } from 'pino';
import { Pool } from 'undici';
import { afterEach, describe, expect, test } from 'vitest';
import { StartupError } from '#shared/errors.ts';
import { registerHealth } from '../../../scheduler/api/http/ops/health-page.ts';
import { createHttpServer, parseAddress } from '../../../scheduler/api/http/server.ts';
import type { HttpServer } from '../../../scheduler/api/http/server.ts';
import { upgradeOf } from '../../../scheduler/api/http/streams/upgrades.ts';
import { Readiness } from '../../../scheduler/api/ops/health.ts';

const log = pino({ level: 'silent' });
const servers: HttpServer[] = [];
const pools: Pool[] = [];
const connectionsOf = (server: HttpServer): Promise<number> =>
  new Promise((resolve) => server.app.server.getConnections((_error, count) => resolve(count)));
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.destroy();
  for (const server of servers.splice(0)) await server.stop(0);
});

function aServer(checks: Record<string, () => Promise<unknown>> = {}): HttpServer {
  const server = createHttpServer({
    log,
    register: (app, state) => {
      registerHealth(app, { readiness: new Readiness(checks), isDraining: state.isDraining, version: '1.2.3' });
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

/** A connection to the server, and what came on it so far. */
function connectedTo(server: HttpServer): { readonly socket: Socket; readonly text: () => string } {
  const [host = '', port = ''] = server.address.split(':');
  const socket = connect(Number(port), host);
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  return { socket, text: () => text };
}

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
});

describe('while it drains', () => {
  /** A server with a call that runs until it is released, and a connection that is kept alive. */
  async function withCall() {
    const called = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    const server = createHttpServer({
      log,
      register: (app, state) => {
        registerHealth(app, { readiness: new Readiness({}), isDraining: state.isDraining, version: '1.2.3' });
        app.get('/call', async () => {
          called.resolve();
          await released.promise;
          return { done: true };
        });
      },
    });
    servers.push(server);
    await server.start('127.0.0.1:0');
    // The pool has two connections, one for the call and an idle one.
    const pool = new Pool(`http://${server.address}`, { connections: 2, keepAliveTimeout: 60_000 });
    pools.push(pool);
    const running = pool.request({ path: '/call', method: 'GET' });
    await called.promise;
    return { server, pool, running, release: () => released.resolve() };
  }

  test('calls that run are answered however long they take, and then it ends at once', async () => {
    const { server, running, release } = await withCall();
    const stopped = server.stop(60_000);
    expect(server.isOpen).toBe(true);
    release();
    const answer = await running;
    expect([answer.statusCode, await answer.body.json()]).toEqual([200, { done: true }]);
    await stopped;
    expect(server.isOpen).toBe(false);
  });

  test('a request that was on its way over an idle connection is answered', async () => {
    const { server, release } = await withCall();
    const { socket, text } = connectedTo(server);
    const ask = (): void => void socket.write('GET /api/v1/health/live HTTP/1.1\r\nhost: x\r\n\r\n');
    ask();
    await expect.poll(text).toContain('200 OK');
    const before = text().length;
    const stopped = server.stop(60_000);
    ask();
    await expect.poll(() => text().slice(before)).toMatch(/^HTTP\/1\.1 200 .*connection: close/s);
    release();
    await stopped;
  });

  test('calls that run longer than the drain are cut', async () => {
    const { server, running } = await withCall();
    const cut = expect(running).rejects.toThrow(/closed/);
    await server.stop(0);
    await cut;
  });

  test('new requests are 503 with Retry-After and the connection closes; probes are answered', async () => {
    const { server, release } = await withCall();
    // Connections that are busy when the drain begins: their next request is a new one.
    const asked = (path: string) =>
      new Promise<string>((resolve, reject) => {
        const { socket, text } = connectedTo(server);
        socket.on('error', reject).on('end', () => resolve(text()));
        socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n`, () => begun.push(() => socket.write('\r\n')));
      });
    const begun: (() => void)[] = [];
    const answers = Promise.all([asked('/call'), asked('/api/v1/health'), asked('/api/v1/health/live')]);
    await expect.poll(() => begun.length).toBe(3);
    await expect.poll(async () => connectionsOf(server)).toBe(4);
    const stopped = server.stop(60_000);
    for (const finish of begun) finish();
    const [call, health, live] = await answers;
    expect(call).toMatch(/^HTTP\/1\.1 503 /);
    expect(call).toMatch(/\r\nretry-after: 5\r\n/);
    expect(call).toMatch(/\r\nconnection: close\r\n/);
    expect(call).toContain('"code":"draining"');
    expect(health).toMatch(/^HTTP\/1\.1 503 .*"status":"draining"/s);
    expect(live).toMatch(/^HTTP\/1\.1 200 /);
    release();
    await stopped;
  });
});

describe('the server', () => {
  test('in clear listens on loopback in place of every interface, and says so', async () => {
    let warnings: (() => readonly string[]) | undefined;
    const server = createHttpServer({ log, register: (_app, state) => void (warnings = state.warnings) });
    servers.push(server);
    expect(await server.start('0.0.0.0:0')).toMatch(/^127\.0\.0\.1:/);
    expect(warnings?.()).toEqual([expect.stringContaining('LONGSHORE_HTTP_PLAINTEXT=allow')]);
    const allowed = createHttpServer({
      log,
      plaintext: 'allow',
      register: (_app, state) => void (warnings = state.warnings),
    });
    servers.push(allowed);
    expect(await allowed.start('0.0.0.0:0')).toMatch(/^0\.0\.0\.0:/);
    expect(warnings?.()).toEqual([]);
  });

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

  test.each([
    ['websocket', '/second'],
    ['longshore-stream', '/~streams/1'],
  ])(
    'an upgrade to %s behind a request without an answer is a plain request, and behind an answered one an upgrade',
    async (protocol, path) => {
      const released = Promise.withResolvers<string>();
      const server = createHttpServer({
        log,
        register: (app) => {
          app.get('/first', () => released.promise);
          app.get(path, ({ raw }) => (upgradeOf(raw) === undefined ? 'plain' : 'upgraded'));
        },
      });
      servers.push(server);
      await server.start('127.0.0.1:0');
      const { socket, text } = connectedTo(server);
      const upgrade = `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: ${protocol}\r\n\r\n`;
      socket.write(`GET /first HTTP/1.1\r\nhost: x\r\n\r\n${upgrade}`);
      await expect.poll(() => connectionsOf(server)).toBe(1);
      await get(server, '/nothing');
      released.resolve('first');
      await expect.poll(text).toMatch(/^HTTP\/1\.1 200 .*first.*HTTP\/1\.1 200 .*plain$/s);
      socket.write(upgrade);
      await expect.poll(text).toMatch(/upgraded$/);
      socket.destroy();
    },
  );

  test.each([
    ['of HTTP/1.0', 'GET / HTTP/1.0', 'upgrade: websocket\r\n', ''],
    ['with a body', 'GET / HTTP/1.1', 'upgrade: websocket\r\ncontent-length: 4\r\n', 'body'],
    ['to the protocol of replicas elsewhere', 'GET / HTTP/1.1', 'upgrade: longshore-stream\r\n', ''],
    ['by POST', 'POST / HTTP/1.1', 'upgrade: websocket\r\ncontent-length: 0\r\n', ''],
  ])('an upgrade %s is a plain request', async (_name, line, headers, body) => {
    const server = createHttpServer({
      log,
      register: (app) =>
        app.route({
          method: ['GET', 'POST'],
          url: '/',
          handler: ({ raw }) => (upgradeOf(raw) === undefined ? 'plain' : 'upgraded'),
        }),
    });
    servers.push(server);
    await server.start('127.0.0.1:0');
    const { socket, text } = connectedTo(server);
    socket.write(`${line}\r\nhost: x\r\nconnection: upgrade\r\n${headers}\r\n${body}`);
    await expect.poll(text).toMatch(/^HTTP\/1\.1 200 .*plain$/s);
    socket.destroy();
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

describe('a refused upgrade', () => {
  const UPGRADE = 'GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n';
  const answered = async (server: HttpServer, early: Buffer) => {
    const [host = '', port = ''] = server.address.split(':');
    const socket = connect({ host, port: Number(port), allowHalfOpen: true });
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1'))).on('error', () => undefined);
    socket.write(Buffer.concat([Buffer.from(UPGRADE), early]));
    await expect.poll(() => text).toContain('HTTP/1.1 404');
    return socket;
  };

  test('leaves no connection behind whose caller sent bytes and is gone', async () => {
    const server = aServer();
    await server.start('127.0.0.1:0');
    const socket = await answered(server, Buffer.alloc(1024 * 1024));
    socket.destroy();
    await expect.poll(() => connectionsOf(server), { timeout: 8_000 }).toBe(0);
  }, 10_000);

  test('leaves no connection behind whose caller does not close it', async () => {
    const server = aServer();
    await server.start('127.0.0.1:0');
    const socket = await answered(server, Buffer.alloc(0));
    await expect.poll(() => connectionsOf(server), { timeout: 8_000 }).toBe(0);
    socket.destroy();
  }, 10_000);
});
