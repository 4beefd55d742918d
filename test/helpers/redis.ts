/** A private Redis per test file: a unix socket in a directory of its own, append-only file on, no port. */
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis, type RedisOptions } from 'ioredis';
import { findProgram, missingService, type Program, startProgram, tempDirectory, waitFor } from './programs.ts';

/** Options of a client, without the one whose type the constructor does not accept under exact optional types. */
export type ClientOptions = Omit<RedisOptions, 'replyMapping'>;

/** A real server; `stop()` fails when a client was left connected. */
export interface PrivateRedis {
  readonly socketPath: string;
  /** REDIS_URL of this server. */
  readonly url: string;
  readonly directory: string;
  /** A client of this server; closed by `stop()` when the test did not. */
  readonly connect: (options?: ClientOptions) => Redis;
  /** kill -9: the socket file stays, connections break. */
  readonly crash: () => Promise<void>;
  /** Starts again on the same directory, with the data of the append-only file. */
  readonly restart: () => Promise<void>;
  /**
   * Copies the data on disk. @returns a function that kills the
   * server (-9) and starts it on that copy; later writes are gone
   */
  readonly keep: () => () => Promise<void>;
  /** Freezes the server by SIGSTOP (`thaw`: SIGCONT): it accepts connections and does not answer. */
  readonly freeze: () => void;
  readonly thaw: () => void;
  /**
   * Ends the server and removes its directory. @throws when a client is still connected a second after the tests ended
   */
  readonly stop: () => Promise<void>;
}

/** Starts a Redis of its own for a test file. */
export async function aRedis(): Promise<PrivateRedis> {
  const server = findProgram('redis-server');
  if (server === undefined) throw missingService('Redis (redis-server)');
  const directory = tempDirectory('redis');
  const socketPath = join(directory.path, 'r.sock');
  const clients = new Set<Redis>();
  const open = (options: ClientOptions = {}): Redis => {
    const client = new Redis({ path: socketPath, maxRetriesPerRequest: null, ...options });
    // A test that breaks the server expects broken connections; an unheard error event would end the process.
    client.on('error', () => undefined);
    return client;
  };
  const start = async (): Promise<Program> => {
    const args = ['--port', '0', '--unixsocket', socketPath, '--unixsocketperm', '700', '--dir', directory.path];
    const program = await startProgram(server, [
      ...args,
      '--save',
      '',
      '--appendonly',
      'yes',
      '--appendfsync',
      'everysec',
    ]);
    const probe = open({ maxRetriesPerRequest: 0, retryStrategy: () => 20 });
    try {
      await waitFor(async () => {
        if (!program.isRunning()) throw new Error(`redis-server ended at once:\n${program.output()}`);
        return (await probe.ping().catch(() => '')) === 'PONG';
      }, 'redis-server answers on its socket');
    } finally {
      probe.disconnect();
    }
    return program;
  };
  let copies = 0;
  let program = await start().catch((error: unknown) => {
    directory.remove();
    throw error;
  });
  return {
    socketPath,
    url: `unix://${socketPath}`,
    directory: directory.path,
    connect: (options) => {
      const client = open(options);
      clients.add(client);
      return client;
    },
    crash: () => program.end('SIGKILL'),
    restart: async () => {
      await program.end();
      program = await start();
    },
    keep: () => {
      const [now, kept] = [join(directory.path, 'appendonlydir'), join(directory.path, `kept-${(copies += 1)}`)];
      cpSync(now, kept, { recursive: true });
      return async () => {
        await program.end('SIGKILL');
        rmSync(now, { recursive: true });
        cpSync(kept, now, { recursive: true });
        program = await start();
      };
    },
    freeze: () => void process.kill(program.pid, 'SIGSTOP'),
    thaw: () => void process.kill(program.pid, 'SIGCONT'),
    stop: async () => {
      for (const client of clients) client.disconnect();
      try {
        if (program.isRunning()) await refuseGuests(open);
      } finally {
        await program.end('SIGTERM', 3000);
        directory.remove();
      }
    },
  };
}

async function refuseGuests(open: (options?: ClientOptions) => Redis): Promise<void> {
  const probe = open({ maxRetriesPerRequest: 0, commandTimeout: 2000 });
  try {
    let guests: string[] = [];
    const alone = waitFor(
      async () => {
        const id = String(await probe.client('ID'));
        const lines = String(await probe.client('LIST'))
          .trim()
          .split('\n');
        guests = lines.filter((line) => !line.startsWith(`id=${id} `));
        return guests.length === 0;
      },
      'all clients of the test Redis leave',
      1000,
    );
    await alone.catch(() => {
      throw new Error(`connections to Redis left behind:\n${guests.join('\n')}`);
    });
  } finally {
    probe.disconnect();
  }
}
