import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { lstatSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, describe, expect } from 'vitest';
import { connectListener, connectRedis } from '../../scheduler/stores/embedded/connect.ts';
import { startEmbeddedRedis } from '../../shared/redis-child.ts';
import { makeSocketDirectory, socketPathIn } from '../../shared/socket-path.ts';
import { startProgram, tempDirectory, test, waitFor } from '../helpers/services.ts';
import { silent } from './store-fixture.ts';

const directories: { remove(): void }[] = [];
afterAll(() => {
  for (const directory of directories) directory.remove();
});
function aDirectory(): string {
  const directory = tempDirectory('emb');
  directories.push(directory);
  return directory.path;
}

async function pidOf(socketPath: string): Promise<number> {
  const client = await connectRedis({ socketPath }, 'test', silent);
  try {
    return Number(/process_id:(\d+)/.exec(await client.info('server'))?.[1]);
  } finally {
    client.disconnect();
  }
}

/** A server that answers like a Redis with the given directory and pid. */
async function anImpostor(
  path: string,
  says: { readonly directory: string; readonly pid: number },
): Promise<{ close(): Promise<void> }> {
  const bulk = (text: string): string => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
  const sockets = new Set<{ destroy(): void }>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      for (const [, command] of bytes.toString().matchAll(/\*\d+\r\n\$\d+\r\n(\w+)/g)) {
        if (command?.toLowerCase() === 'ping') socket.write('+PONG\r\n');
        else if (command?.toLowerCase() === 'config') socket.write(`*2\r\n${bulk('dir')}${bulk(says.directory)}`);
        else socket.write(bulk(`# Server\r\nprocess_id:${says.pid}\r\n`));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(path, () => resolve()));
  return {
    close: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

describe('the embedded redis', () => {
  test('keeps what it holds over a stop, in a private directory, without evicting', async () => {
    const dataDir = aDirectory();
    const first = await startEmbeddedRedis({ dataDir, log: silent });
    const client = await connectRedis(first, 'test', silent);
    await client.set('kept', 'yes');
    expect(await client.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
    expect(await client.config('GET', 'port')).toEqual(['port', '0']);
    client.disconnect();
    await first.stop();
    await expect(connectRedis(first, 'test', silent, 200)).rejects.toMatchObject({ code: 'redis_unreachable' });
    expect(statSync(join(dataDir, 'redis')).mode & 0o777).toBe(0o700);

    const second = await startEmbeddedRedis({ dataDir, log: silent });
    const again = await connectRedis(second, 'test', silent);
    expect(await again.get('kept')).toBe('yes');
    again.disconnect();
    await second.stop();
  });

  test('that outlived its scheduler is adopted, watched and stopped', async () => {
    const dataDir = aDirectory();
    const program = await startProgram(process.execPath, [
      '--input-type=module',
      '-e',
      `const { startEmbeddedRedis } = await import(${JSON.stringify(new URL('../../shared/redis-child.ts', import.meta.url).href)});
       const { pino } = await import('pino');
       await startEmbeddedRedis({ dataDir: ${JSON.stringify(dataDir)}, log: pino({ level: 'silent' }) });
       process.stdout.write('up');`,
    ]);
    await waitFor(() => program.output().includes('up'), 'the first scheduler has its redis', 20_000);
    await program.end('SIGKILL');
    const socketPath = join(dataDir, 'redis', 'redis.sock');
    const orphan = await pidOf(socketPath);

    const adopted = await startEmbeddedRedis({ dataDir, log: silent });
    expect(await pidOf(socketPath)).toBe(orphan);
    process.kill(orphan, 'SIGKILL');
    const next = await waitFor(
      () =>
        pidOf(socketPath).then(
          (pid) => (pid === orphan ? undefined : pid),
          () => undefined,
        ),
      'another one takes its place',
      20_000,
    );
    expect(next).not.toBe(orphan);
    await adopted.stop();
    await expect(connectRedis({ socketPath }, 'test', silent, 200)).rejects.toMatchObject({
      code: 'redis_unreachable',
    });
  });

  test('works below a path that is too long for a socket', async () => {
    const dataDir = join(aDirectory(), 'x'.repeat(100));
    const redis = await startEmbeddedRedis({ dataDir, log: silent });
    const client = await connectRedis(redis, 'test', silent);
    expect(await client.config('GET', 'dir')).toEqual(['dir', join(dataDir, 'redis')]);
    client.disconnect();
    await redis.stop();
  });

  test('that another user put on our socket, with our directory and a process of ours in its answers, is refused', async () => {
    const dataDir = join(aDirectory(), 'x'.repeat(100));
    const directory = join(dataDir, 'redis');
    mkdirSync(directory, { recursive: true });
    const socketPath = socketPathIn(directory, 'redis.sock');
    await makeSocketDirectory(socketPath);
    // The first process's own pid: a running process of another program.
    const impostor = await anImpostor(socketPath, { directory, pid: process.ppid });
    try {
      await expect(startEmbeddedRedis({ dataDir, log: silent })).rejects.toMatchObject({
        code: 'redis_unreachable',
        message: expect.stringContaining('is not a process of this user') as string,
      });
    } finally {
      await impostor.close();
    }
  });

  test('of a data directory with a long path has its socket in a directory of this user alone', async () => {
    const dataDir = join(aDirectory(), 'y'.repeat(100));
    const redis = await startEmbeddedRedis({ dataDir, log: silent });
    try {
      const facts = lstatSync(dirname(redis.socketPath));
      expect([facts.isDirectory(), facts.mode & 0o777, facts.uid]).toEqual([true, 0o700, process.getuid?.()]);
    } finally {
      await redis.stop();
    }
  });

  test('of another directory on the same socket is refused', async ({ redis }) => {
    const dataDir = aDirectory();
    mkdirSync(join(dataDir, 'redis'));
    symlinkSync(redis.socketPath, join(dataDir, 'redis', 'redis.sock'));
    await expect(startEmbeddedRedis({ dataDir, log: silent })).rejects.toMatchObject({
      code: 'redis_unreachable',
      message: expect.stringContaining(redis.directory) as string,
    });
  });

  test('that is not installed is named with the command', async () => {
    await expect(
      startEmbeddedRedis({ dataDir: aDirectory(), log: silent, command: 'no-such-redis-server' }),
    ).rejects.toMatchObject({
      code: 'redis_missing',
      message: expect.stringMatching(/no-such-redis-server.*apt-get install redis-server/) as string,
    });
  });

  test('that refuses to start says where its reason is', async () => {
    const dataDir = aDirectory();
    mkdirSync(join(dataDir, 'redis'));
    // The file takes the place of the append-only directory.
    writeFileSync(join(dataDir, 'redis', 'appendonlydir'), '');
    await expect(startEmbeddedRedis({ dataDir, log: silent })).rejects.toMatchObject({
      code: 'redis_unreachable',
      message: expect.stringContaining('redis.log') as string,
    });
  });
});

describe('a connection', () => {
  test('fails fast while redis is away and comes back by itself', async ({ redis }) => {
    const client = await connectRedis({ url: redis.url }, 'task', silent);
    expect(String(await client.client('GETNAME'))).toBe('longshore-task');
    await redis.crash();
    await expect(client.ping()).rejects.toThrow();
    await redis.restart();
    await waitFor(
      () =>
        client.ping().then(
          () => true,
          () => false,
        ),
      'the connection is back',
      10_000,
    );
    client.disconnect();
  });

  test('gives up every command that is not answered, and is back once Redis is', async ({ redis }) => {
    const client = await connectRedis({ url: redis.url }, 'task', silent);
    redis.freeze();
    try {
      const startedMs = performance.now();
      // The time itself is the subject: a later command does not prolong the time of the earlier ones.
      const later = sleep(500).then(() => client.ping());
      const both = client.multi().ping().ping().exec();
      const all = await Promise.allSettled([client.ping(), client.echo('a'), both, later]);
      expect(all.map((one) => (one.status === 'rejected' ? String(one.reason) : one.value))).toEqual(
        Array.from({ length: 4 }, () => expect.stringMatching(/timed out/i)),
      );
      const tookMs = performance.now() - startedMs;
      expect(tookMs).toBeGreaterThan(1900);
      expect(tookMs).toBeLessThan(6000);
      // The same holds while the client dials a server that accepts connections and does not answer.
      await expect(client.ping()).rejects.toThrow();
      redis.thaw();
      await waitFor(async () => (await client.ping().catch(() => '')) === 'PONG', 'the connection is back', 15_000);
      expect(await client.echo('b')).toBe('b');
    } finally {
      redis.thaw();
      client.disconnect();
    }
  });

  test('fails what was under way at once when Redis goes', async ({ redis }) => {
    const client = await connectRedis({ url: redis.url }, 'task', silent);
    redis.freeze();
    const failed = expect(client.ping()).rejects.toThrow('Connection is closed.');
    const startedMs = performance.now();
    await redis.crash();
    await failed;
    expect(performance.now() - startedMs).toBeLessThan(1800);
    client.disconnect();
    await redis.restart();
  });

  test('a stall of our own event loop fails no command', async ({ redis }) => {
    const client = await connectRedis({ url: redis.url }, 'task', silent);
    for (let stalls = 0; stalls < 3; stalls += 1) {
      const asked = client.ping();
      await new Promise((resolve) => setImmediate(resolve));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500);
      expect(await asked).toBe('PONG');
    }
    client.disconnect();
  });

  test('that listens, and to which nothing comes any more, is made anew', async ({ redis }) => {
    const cut = new Set<Socket>();
    const cable = createServer((client) => {
      const server = connect(new URL(redis.url).pathname);
      cut.add(client).add(server);
      for (const socket of [client, server]) socket.on('error', () => undefined);
      client.on('close', () => server.destroy());
      client.pipe(server).pipe(client);
    });
    await new Promise<void>((resolve) => cable.listen(0, '127.0.0.1', resolve));
    const { port } = cable.address() as AddressInfo;
    const listener = await connectListener({ url: `redis://127.0.0.1:${port}` }, 'subscribe', silent);
    const heard: string[] = [];
    listener.on('message', (_, text) => heard.push(text));
    await listener.subscribe('news');
    const client = redis.connect();
    await client.publish('news', 'first');
    await waitFor(() => heard.includes('first'), 'a message comes');
    await sleep(1500);
    expect(listener.status).toBe('ready');
    // The cable is silent in both directions, and closes nothing.
    for (const socket of cut) socket.unpipe().pause();
    await waitFor(
      async () => {
        await client.publish('news', 'later');
        return heard.includes('later');
      },
      'messages come again',
      15_000,
    );
    listener.disconnect();
    client.disconnect();
    for (const socket of cut) socket.destroy();
    cable.close();
  });

  test('to nobody is a start-up error without the password', async () => {
    const attempt = connectRedis({ url: 'redis://user:hunter2@127.0.0.1:1' }, 'main', silent, 300);
    const error: unknown = await attempt.catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'redis_unreachable' });
    expect((error as Error).message).toContain('127.0.0.1:1');
    expect((error as Error).message).not.toContain('hunter2');
  });
});
