// Connections to Redis, one per role, all with the same rules. When Redis is away, a command fails fast instead of
// waiting in a queue, and the connection reconnects by itself.
import { Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import { backoffMs } from '#shared/backoff.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { askNowAndThen, failUnanswered } from './unanswered.ts';

export type RedisTarget = { readonly socketPath: string } | { readonly url: string };

const COMMAND_TIMEOUT_MS = 2_000;
/** Time between two questions on a connection that listens. */
const ASK_MS = 1_000;
const CONNECT_TIMEOUT_MS = 5_000;
const READY_DEADLINE_MS = 15_000;

/** Options without `replyMapping`, which the client's constructor does not accept back under exact optional types. */
type Options = Omit<RedisOptions, 'replyMapping'>;

/** Opens a connection that listens to channels, as {@link connectRedis}; a broken one is noticed within 4 s. */
export async function connectListener(target: RedisTarget, role: string, log: Log): Promise<Redis> {
  const client = await connectRedis(target, role, log);
  askNowAndThen(client, ASK_MS);
  return client;
}

/**
 * Opens a connection and waits until it can be used.
 * @param role - its purpose, and its name in CLIENT LIST
 * @throws StartupError `redis_unreachable`, without a password in the text
 */
export async function connectRedis(
  target: RedisTarget,
  role: string,
  log: Log,
  deadlineMs: number = READY_DEADLINE_MS,
): Promise<Redis> {
  const options: Options = {
    ...addressOf(target),
    connectionName: `longshore-${role}`,
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    connectTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: (attempt) => backoffMs(attempt, { baseMs: 25, capMs: 2_000, floorMs: 20 }),
    // A primary that was demoted refuses writes: the client looks for the new one.
    reconnectOnError: (error) => error.message.startsWith('READONLY'),
    lazyConnect: true,
  };
  const client = new Redis(options);
  failUnanswered(client, COMMAND_TIMEOUT_MS);
  let lastError: Error | undefined;
  let wasReady = false;
  client.on('error', (error: Error) => {
    // Logged once for each loss, not for each try.
    if (lastError === undefined && wasReady) log.warn({ err: error, role }, 'redis connection lost');
    lastError = error;
  });
  client.on('ready', () => {
    if (wasReady) log.info({ role }, 'redis connection is back');
    wasReady = true;
    lastError = undefined;
  });
  try {
    await untilReady(client, deadlineMs);
    return client;
  } catch {
    client.disconnect();
    throw unreachable(placeOf(target), lastError);
  }
}

function untilReady(client: Redis, deadlineMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('not ready in time')), deadlineMs);
    client.once('ready', () => {
      clearTimeout(timer);
      resolve();
    });
    // The first try may fail and a later one succeed: the deadline decides, and the error event keeps the reason.
    client.connect().catch(() => undefined);
  });
}

function unreachable(place: string, cause: unknown): StartupError {
  const reason = cause === undefined ? 'no answer in time' : messageOf(cause);
  return new StartupError(
    'redis_unreachable',
    `cannot use Redis at ${place} (${reason}): check REDIS_URL and that the server runs`,
    { cause },
  );
}

const badUrl = (): StartupError =>
  new StartupError(
    'redis_unreachable',
    'REDIS_URL is not a Redis address: it must look like redis://host:6379/0, rediss://…, unix:///path/redis.sock or redis+sentinel://host1:26379,host2:26379/master',
  );

/** The connection options of ioredis for an address; exported for its tests. */
export function addressOf(target: RedisTarget): Options {
  if ('socketPath' in target) return { path: target.socketPath };
  const { url } = target;
  if (url.startsWith('redis+sentinel://')) return sentinelAddress(url.slice('redis+sentinel://'.length));
  if (!URL.canParse(url)) throw badUrl();
  const parsed = new URL(url);
  const login = {
    ...(parsed.username === '' ? {} : { username: decodeURIComponent(parsed.username) }),
    ...(parsed.password === '' ? {} : { password: decodeURIComponent(parsed.password) }),
  };
  if (parsed.protocol === 'unix:') {
    return { path: decodeURIComponent(parsed.pathname), db: dbOf(parsed.searchParams.get('db') ?? ''), ...login };
  }
  if (parsed.protocol !== 'redis:' && parsed.protocol !== 'rediss:') throw badUrl();
  const host = parsed.hostname.replace(/^\[(.*)\]$/, '$1');
  if (host === '') throw badUrl();
  return {
    host,
    port: parsed.port === '' ? 6379 : Number(parsed.port),
    db: dbOf(parsed.pathname.slice(1)),
    ...login,
    ...(parsed.protocol === 'rediss:' ? { tls: { servername: host } } : {}),
  };
}

function dbOf(text: string): number {
  if (text === '') return 0;
  if (!/^\d{1,5}$/.test(text)) throw badUrl();
  return Number(text);
}

/** Reads `[user:password@]host1:port,host2:port/master[/db]`. */
function sentinelAddress(rest: string): Options {
  const at = rest.lastIndexOf('@');
  const [hosts = '', master = '', db = ''] = rest.slice(at + 1).split('/');
  const sentinels = hosts.split(',').map((text) => {
    const match = /^(?:\[([^\]]+)\]|([^:\s]+))(?::(\d{1,5}))?$/.exec(text);
    const host = match?.[1] ?? match?.[2];
    if (host === undefined) throw badUrl();
    return { host, port: Number(match?.[3] ?? 26_379) };
  });
  if (master === '') throw badUrl();
  const [username = '', password = ''] = at === -1 ? [] : rest.slice(0, at).split(/:(.*)/s);
  return {
    sentinels,
    name: decodeURIComponent(master),
    db: dbOf(db),
    sentinelCommandTimeout: COMMAND_TIMEOUT_MS,
    failoverDetector: true,
    ...(username === '' ? {} : { username: decodeURIComponent(username) }),
    ...(password === '' ? {} : { password: decodeURIComponent(password) }),
  };
}

/** The printable part of an address, without credentials and parameters. */
function placeOf(target: RedisTarget): string {
  if ('socketPath' in target) return target.socketPath;
  return target.url.replace(/\/\/[^/]*@/, '//').replace(/\?.*$/, '');
}
