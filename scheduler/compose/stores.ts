// The stores: the data directory, the database with its tables, and Redis, embedded or a named server. Every opened
// store is a part at once, so that a start that fails closes it again.
import { mkdir } from 'node:fs/promises';
import type { Redis } from 'ioredis';
import { messageOf, StartupError } from '#shared/errors.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { SchedulerSettings } from '../config.ts';
import { connectListener, connectRedis } from '../stores/embedded/connect.ts';
import type { RedisTarget } from '../stores/embedded/connect.ts';
import { startEmbeddedRedis } from '#shared/redis-child.ts';
import { writeTogether } from '../stores/queues/turns.ts';
import type { Db } from '../stores/store/db.ts';
import { openDb } from '../stores/store/db.ts';
import { migrate } from '../stores/store/migrate.ts';

/** Receives opened stores, in order; they are closed in reverse. */
type Later = (name: string, stop: () => Promise<void> | void) => void;

/** Stores that are being opened. */
export interface Opening {
  /** Rejects with a StartupError, its sentence and the cure, when one of the stores cannot be used. */
  readonly stores: Promise<Stores>;
  /**
   * Settles when other threads or servers are at work, so that blocking this
   * thread from here on delays nothing; also when the opening has failed.
   */
  readonly begun: Promise<void>;
  /** Closes the opened stores in reverse order, also after a failed start; grows until `stores` is settled. */
  readonly parts: Part[];
}

export interface Stores {
  readonly db: Db;
  /** Queues, leases and records: the commands that a task waits for. Commands of one turn leave in one write. */
  readonly hot: Redis;
  readonly general: Redis;
  readonly subscriber: Redis;
}

/**
 * Begins to open the stores, so that a process can load its code
 * meanwhile: the database's thread and Redis start beside it.
 */
export function beginStores(settings: SchedulerSettings, log: Log): Opening {
  const parts: Part[] = [];
  const { promise: begun, resolve: onBegun } = Promise.withResolvers<void>();
  const stores = openStores(settings, log, (name, stop) => void parts.push({ name, stop }), onBegun);
  // A failure reaches the code that awaits `stores`; until then, this handler prevents an unhandled rejection.
  stores.catch(() => onBegun());
  return { stores, begun, parts };
}

async function openStores(settings: SchedulerSettings, log: Log, later: Later, onBegun: () => void): Promise<Stores> {
  const dataDir = settings.LONGSHORE_DATA_DIR;
  await makeDataDir(dataDir);
  // The database and Redis start side by side.
  const [db, redisTarget] = await bothOrNeither(
    openDb({
      databaseUrl: settings.DATABASE_URL,
      connections: {
        platform: settings.LONGSHORE_DATABASE_CONNECTIONS,
        reads: settings.LONGSHORE_DATABASE_READ_CONNECTIONS,
      },
      dataDir,
      log,
      onBegun,
    }).then(async (database) => {
      later('database', () => database.close());
      await migrate(database, log);
      return database;
    }),
    redisOf(settings, log, later),
  );
  const connect = async (role: string, open = connectRedis) => {
    const client = await open(redisTarget, role, log);
    later(`redis ${role}`, () => client.disconnect());
    return client;
  };
  const [hot, general, subscriber] = await Promise.all([
    connect('tasks'),
    connect('control'),
    connect('subscribe', connectListener),
  ]);
  writeTogether(hot);
  return { db, hot, general, subscriber };
}

async function redisOf(settings: SchedulerSettings, log: Log, later: Later): Promise<RedisTarget> {
  if (settings.REDIS_URL !== undefined) return { url: settings.REDIS_URL };
  if (settings.LONGSHORE_REDIS_SOCKET !== undefined) return { socketPath: settings.LONGSHORE_REDIS_SOCKET };
  const embedded = await startEmbeddedRedis({ dataDir: settings.LONGSHORE_DATA_DIR, log });
  later('redis server', () => embedded.stop());
  return { socketPath: embedded.socketPath };
}

async function makeDataDir(dataDir: string): Promise<void> {
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new StartupError(
      'data_dir_unusable',
      `cannot use data directory ${dataDir} (${messageOf(error)}): make it writable for this user, or set LONGSHORE_DATA_DIR`,
      { cause: error },
    );
  }
}

/** Waits for both promises, so that a failure of one does not leave the other opening unnoticed. */
async function bothOrNeither<A, B>(a: Promise<A>, b: Promise<B>): Promise<[A, B]> {
  const [first, second] = await Promise.allSettled([a, b]);
  if (first.status === 'rejected') throw first.reason;
  if (second.status === 'rejected') throw second.reason;
  return [first.value, second.value];
}
