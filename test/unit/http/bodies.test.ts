import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { pino } from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { admit } from '../../../scheduler/api/http/bodies.ts';
import type { BodyRules } from '../../../scheduler/api/http/bodies.ts';
import { createHttpServer } from '../../../scheduler/api/http/server.ts';
import type { HttpServer, ServerState } from '../../../scheduler/api/http/server.ts';

const servers: HttpServer[] = [];
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await server.stop(0);
});

const KIB = 1024;

/**
 * A server that echoes the length of the body. The header `payer`
 * names the workspace, `x-public` marks an unknown caller.
 */
async function aServer(bodyRules: Partial<BodyRules>, maxConnections?: number) {
  let state: ServerState | undefined;
  let hold = Promise.resolve();
  const server = createHttpServer({
    log: pino({ level: 'silent' }),
    bodyRules,
    largestBodyBytes: 8 * KIB,
    ...(maxConnections === undefined ? {} : { maxConnections }),
    register: (app, made) => {
      state = made;
      app.post('/', {
        onRequest: (request, reply, done) => {
          admit(request, reply, {
            sender: request.headers['x-public'] === undefined ? 'known' : 'public',
            payer: String(request.headers['payer']) as WorkspaceId,
            limitBytes: 2048 * KIB,
          });
          done();
        },
        handler: async (request) => {
          await hold;
          return { bytes: (request.body as Buffer | undefined)?.length ?? 0 };
        },
      });
    },
  });
  servers.push(server);
  await server.start('127.0.0.1:0');
  const port = Number(server.address.split(':')[1]);
  return {
    held: (sender: 'known' | 'public' = 'known') => state?.bodies.heldBytes(sender),
    keep(until: Promise<void>) {
      hold = until;
    },
    /** A request of which `bytes` of 1 MiB are sent. */
    send(payer: string, bytes: number, { all = 1024 * KIB, isPublic = false } = {}) {
      const socket = connect(port, '127.0.0.1');
      sockets.push(socket);
      const head = `POST / HTTP/1.1\r\nhost: x\r\npayer: ${payer}\r\n${isPublic ? 'x-public: 1\r\n' : ''}content-length: ${all}\r\n\r\n`;
      socket.write(head + 'x'.repeat(bytes));
      let text = '';
      socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      const ended = new Promise<string>((resolve, reject) =>
        socket.on('error', reject).on('close', () => resolve(text)),
      );
      ended.catch(() => undefined);
      return { socket, ended, text: () => text };
    },
  };
}

describe('bodies under way', () => {
  test('of a public deployment end with 503 and Retry-After above the budget, those of known senders go on', async () => {
    const server = await aServer({ publicBytes: 64 * KIB });
    // A quarter for each payer.
    for (const payer of ['a', 'b', 'c', 'd']) server.send(payer, 16 * KIB, { isPublic: true });
    await expect.poll(() => server.held('public')).toBe(64 * KIB);
    const late = await server.send('e', 1, { isPublic: true }).ended;
    expect(late).toMatch(/^HTTP\/1\.1 503 .*\r\n/);
    expect(late).toMatch(/\r\nretry-after: 5\r\n/);
    expect(late).toMatch(/\r\nconnection: close\r\n/);
    expect(late).toContain('"code":"bodies_full"');
    expect(server.send('e', 4 * KIB, { all: 4 * KIB }).text()).toBe('');
    const known = server.send('e', 4 * KIB, { all: 4 * KIB });
    await expect.poll(() => known.text()).toContain('{"bytes":4096}');
  });

  test('of one workspace take a quarter of the budget, the others have the rest', async () => {
    const server = await aServer({ knownBytes: 64 * KIB });
    server.send('greedy', 16 * KIB);
    await expect.poll(() => server.held()).toBe(16 * KIB);
    expect(await server.send('greedy', 1).ended).toMatch(/^HTTP\/1\.1 503 /);
    const other = server.send('other', 10 * KIB, { all: 10 * KIB });
    await expect.poll(() => other.text()).toContain('{"bytes":10240}');
  });

  test.each(['', 'garbage', ';;;', 'text/plain; charset', 'application/json', undefined])(
    'are read whatever their type is (%j)',
    async (type) => {
      const server = await aServer({});
      const { socket, text } = server.send('w', 0, { all: 0 });
      const declared = type === undefined ? '' : `content-type: ${type}\r\n`;
      socket.write(`POST / HTTP/1.1\r\nhost: x\r\npayer: w\r\n${declared}content-length: 2\r\n\r\n{}`);
      await expect.poll(text).toContain('{"bytes":2}');
    },
  );

  test('count no longer when their sender is gone', async () => {
    const server = await aServer({ knownBytes: 64 * KIB });
    const gone = server.send('w', 16 * KIB);
    await expect.poll(() => server.held()).toBe(16 * KIB);
    gone.socket.destroy();
    await expect.poll(() => server.held()).toBe(0);
  });

  test('count no longer when their sender is gone while an earlier request of the connection is served', async () => {
    const server = await aServer({});
    server.keep(new Promise(() => undefined));
    const gone = server.send('w', 100 * KIB, { all: 100 * KIB });
    gone.socket.write(
      `POST / HTTP/1.1\r\nhost: x\r\npayer: w\r\ncontent-length: ${200 * KIB}\r\n\r\n${'x'.repeat(200 * KIB)}`,
    );
    await expect.poll(() => server.held()).toBe(300 * KIB);
    gone.socket.destroy();
    await expect.poll(() => server.held()).toBe(0);
  });

  test('that are cut off, however many, leave a refusal readable for those who still send', async () => {
    const server = await aServer({});
    for (let batch = 0; batch < 11; batch++) {
      const cut = Array.from({ length: 100 }, () => server.send('w', KIB));
      await expect.poll(() => server.held()).toBe(100 * KIB);
      for (const { socket } of cut) socket.destroy();
      await expect.poll(() => server.held()).toBe(0);
    }
    const refused = server.send('w', 8 * 1024 * KIB, { all: 8 * 1024 * KIB });
    expect(await refused.ended).toMatch(/^HTTP\/1\.1 413 /);
  });

  test('that are large count until they are answered, small ones until they have come', async () => {
    const server = await aServer({});
    const { promise, resolve } = Promise.withResolvers<void>();
    server.keep(promise);
    const large = server.send('w', 1024 * KIB);
    const small = server.send('w', KIB, { all: KIB });
    await expect.poll(() => server.held()).toBe(1024 * KIB);
    resolve();
    await expect.poll(() => large.text() + small.text()).toMatch(/1048576(.|\n|\r)*1024/);
    await expect.poll(() => server.held()).toBe(0);
  });

  test('that come slower than the rate end with 408, faster ones do not', async () => {
    const server = await aServer({ graceMs: 50, bytesPerSecond: KIB, lookEveryMs: 10 });
    // 64 KiB at 1 KiB/s may take more than a minute.
    const fast = server.send('w', 64 * KIB);
    expect(await server.send('w', 1).ended).toMatch(/^HTTP\/1\.1 408 .*"code":"body_too_slow"/s);
    expect(fast.text()).toBe('');
    expect(server.held()).toBe(64 * KIB);
  });
});

describe('connections', () => {
  test('above the bound are closed at once', async () => {
    const server = await aServer({}, 1);
    const first = server.send('w', 1);
    await expect.poll(() => server.held()).toBe(1);
    const second = server.send('w', 1);
    expect(await second.ended.catch(() => '')).toBe('');
    expect(first.socket.destroyed).toBe(false);
  });
});
