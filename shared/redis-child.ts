// The private redis-server of an installation without REDIS_URL: a child on a unix socket, with its
// append-only file in the data directory. The owner is the program that starts it: `longshore up`,
// or a scheduler without a Redis. Invariants: a directory has one server, which has one owner; a
// server that outlived a kill is adopted, never doubled; its data survives the owner.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { chmod, mkdir, realpath, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { StartupError, messageOf } from './errors.ts';
import { backoffMs, sleep } from './backoff.ts';
import type { Log } from './log.ts';
import { takeName } from './name-lock.ts';
import type { NameLock } from './name-lock.ts';
import { isListenerOurs } from './socket-owner.ts';
import { makeSocketDirectory, socketPathIn } from './socket-path.ts';

export interface EmbeddedRedis {
  readonly socketPath: string;
  /** The pid of the running server; undefined between a death and the next start. */
  readonly pid: number | undefined;
  /** Sends TERM, so that the append-only file is complete, and KILL after a while. */
  stop(): Promise<void>;
}

/** Loading a large append-only file takes time. */
const READY_DEADLINE_MS = 60_000;
const STOP_GRACE_MS = 8_000;
const PROBE_TIMEOUT_MS = 1_000;
const MAX_LOG_BYTES = 10 * 1024 * 1024;

/**
 * Starts a private redis-server for the data directory, or adopts the one that runs there.
 * @throws StartupError `redis_missing` naming the command, `redis_unreachable`, `data_dir_unusable`, `data_dir_in_use`
 */
export async function startEmbeddedRedis(options: {
  readonly dataDir: string;
  readonly log: Log;
  readonly command?: string;
}): Promise<EmbeddedRedis> {
  const directory = join(options.dataDir, 'redis');
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await chmod(directory, 0o700);
  } catch (error) {
    throw new StartupError(
      'data_dir_unusable',
      `cannot write to ${directory} (${(error as NodeJS.ErrnoException).code ?? 'error'}): make it writable for this user, or set LONGSHORE_DATA_DIR`,
      { cause: error },
    );
  }
  const socketPath = socketPathIn(directory, 'redis.sock');
  try {
    await makeSocketDirectory(socketPath);
  } catch (error) {
    throw new StartupError(
      'data_dir_unusable',
      `the embedded Redis has no safe place for its socket: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
  const path = await realpath(directory);
  // A server with a living owner must not be adopted, nor stopped when the rest of this start fails.
  const lock = await takeName('redis', path);
  if (lock === undefined)
    throw new StartupError(
      'data_dir_in_use',
      `the data directory ${options.dataDir} is in use by another Longshore process: stop that one, or set LONGSHORE_DATA_DIR to another directory`,
    );
  const keeper = new RedisKeeper(path, socketPath, options.command ?? 'redis-server', lock, options.log);
  try {
    await keeper.start();
  } catch (error) {
    await lock.release();
    throw error;
  }
  return keeper;
}

/** A running server, started or adopted. */
interface Server {
  readonly pid: number;
  /** Settles when the server has ended. */
  readonly ended: Promise<void>;
}

class RedisKeeper implements EmbeddedRedis {
  readonly socketPath: string;
  readonly #directory: string;
  readonly #command: string;
  readonly #lock: NameLock;
  readonly #log: Log;
  readonly #abort = new AbortController();
  #server: Server | undefined;
  #watching: Promise<void> | undefined;

  constructor(directory: string, socketPath: string, command: string, lock: NameLock, log: Log) {
    this.#directory = directory;
    this.socketPath = socketPath;
    this.#command = command;
    this.#lock = lock;
    this.#log = log;
  }

  get pid(): number | undefined {
    return this.#server?.pid;
  }

  async start(): Promise<void> {
    this.#server = await this.#adoptOrSpawn();
    this.#watching = this.#watch();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    const server = this.#server;
    if (server !== undefined) await end(server);
    await this.#watching;
    await this.#lock.release();
  }

  /** Restarts the server when it dies, with growing pauses. */
  async #watch(): Promise<void> {
    const { signal } = this.#abort;
    for (let failures = 0; !signal.aborted;) {
      const startedAt = performance.now();
      await this.#server?.ended;
      if (signal.aborted) return;
      this.#server = undefined;
      failures = performance.now() - startedAt > 60_000 ? 0 : failures + 1;
      this.#log.error({ failures }, 'embedded redis ended, starting it again');
      await sleep(backoffMs(failures, { baseMs: 50, capMs: 5_000, floorMs: 50 }), signal);
      if (signal.aborted) return;
      try {
        const server = await this.#adoptOrSpawn();
        this.#server = server;
        if (signal.aborted) await end(server);
      } catch (error) {
        this.#log.error({ err: error }, 'embedded redis does not start');
      }
    }
  }

  async #adoptOrSpawn(): Promise<Server> {
    const adopted = await this.#adopt(this.socketPath);
    if (adopted !== undefined) {
      this.#log.info({ redisPid: adopted.pid }, 'embedded redis outlived its scheduler, using it');
      return adopted;
    }
    return this.#spawn();
  }

  /**
   * The server that answers there, if it runs as this user and for this directory.
   * The server's claims about itself are verified: another user may have put it there.
   */
  async #adopt(socketPath: string): Promise<Server | undefined> {
    const listening = await openSocket(socketPath);
    if (listening === undefined) return undefined;
    const found = await this.#untilAnswers(socketPath, listening.closed);
    if (found === undefined) {
      listening.close();
      return undefined;
    }
    if (found.directory !== this.#directory) {
      listening.close();
      throw new StartupError(
        'redis_unreachable',
        `the Redis on ${socketPath} keeps its data in ${found.directory}, not in ${this.#directory}: stop it, or set LONGSHORE_DATA_DIR`,
      );
    }
    if ((await isListenerOurs(socketPath, found.pid)) === false) {
      listening.close();
      throw new StartupError(
        'redis_unreachable',
        `the Redis on ${socketPath} is not a process of this user (it names process ${found.pid}): stop it, or set LONGSHORE_DATA_DIR`,
      );
    }
    return { pid: found.pid, ended: listening.closed };
  }

  async #spawn(): Promise<Server> {
    const logFile = join(this.#directory, 'redis.log');
    const facts = await stat(logFile).catch(() => undefined);
    if (facts !== undefined && facts.size > MAX_LOG_BYTES) await rm(logFile, { force: true });
    // A session of its own keeps a terminal's Ctrl-C away: this process ends Redis after its last write.
    const child = spawn(this.#command, this.#settings(logFile), {
      cwd: this.#directory,
      stdio: ['ignore', 'ignore', 'ignore'],
      detached: true,
    });
    const ended = endOf(child);
    const spawned = await new Promise<Error | undefined>((resolve) => {
      child.once('spawn', () => resolve(undefined));
      child.once('error', resolve);
    });
    if (spawned !== undefined) throw missing(this.#command, spawned);
    const answers = await this.#untilAnswers(this.socketPath, ended);
    if (answers !== undefined) return { pid: answers.pid, ended };
    child.kill('SIGKILL');
    throw new StartupError(
      'redis_unreachable',
      `the embedded Redis does not start in ${this.#directory}: its reason is in ${logFile}`,
    );
  }

  #settings(logFile: string): string[] {
    const settings: Readonly<Record<string, string>> = {
      port: '0',
      unixsocket: this.socketPath,
      unixsocketperm: '700',
      dir: this.#directory,
      appendonly: 'yes',
      appendfsync: 'everysec',
      save: '',
      maxmemory: '0',
      'maxmemory-policy': 'noeviction',
      daemonize: 'no',
      logfile: logFile,
    };
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  }

  /** @returns undefined when the server ended, or did not answer in time */
  async #untilAnswers(
    socketPath: string,
    ended: Promise<void>,
  ): Promise<{ pid: number; directory: string } | undefined> {
    let hasEnded = false;
    ended.then(
      () => (hasEnded = true),
      () => (hasEnded = true),
    );
    const untilMs = performance.now() + READY_DEADLINE_MS;
    for (let pauseMs = 5; !hasEnded && performance.now() < untilMs; pauseMs = Math.min(pauseMs * 1.5, 200)) {
      const found = await probe(socketPath);
      if (found !== undefined) return found;
      await sleep(pauseMs);
    }
    return undefined;
  }
}

/** Asks the listening server for its facts; undefined while nobody listens, or while it loads its file. */
async function probe(socketPath: string): Promise<{ pid: number; directory: string } | undefined> {
  const client = new Redis({
    path: socketPath,
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectTimeout: PROBE_TIMEOUT_MS,
    commandTimeout: PROBE_TIMEOUT_MS,
    enableReadyCheck: false,
    disableClientInfo: true,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.ping();
    const directory = await client.config('GET', 'dir');
    const pid = /process_id:(\d+)/.exec(await client.info('server'))?.[1];
    const path = Array.isArray(directory) ? directory[1] : undefined;
    if (pid === undefined || typeof path !== 'string') return undefined;
    return { pid: Number(pid), directory: path };
  } catch {
    // The socket is absent or Redis is loading: the caller asks again until the deadline.
    return undefined;
  } finally {
    client.disconnect();
  }
}

/** A bare connection whose end tells that the server is gone; undefined when nobody listens. */
function openSocket(path: string): Promise<{ readonly closed: Promise<void>; close(): void } | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('error', () => resolve(undefined));
    socket.once('connect', () => {
      socket.on('error', () => undefined);
      socket.unref();
      socket.resume();
      const closed = new Promise<void>((done) => socket.once('close', () => done()));
      resolve({ closed, close: () => socket.destroy() });
    });
  });
}

function endOf(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
}

async function end(server: Server): Promise<void> {
  let hasEnded = false;
  const ended = server.ended.then(() => {
    hasEnded = true;
  });
  signal(server.pid, 'SIGTERM');
  const grace = new AbortController();
  await Promise.race([ended, sleep(STOP_GRACE_MS, grace.signal)]);
  grace.abort();
  if (hasEnded) return;
  signal(server.pid, 'SIGKILL');
  await ended;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // The process is gone already, as wanted.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function missing(command: string, error: Error): StartupError {
  return new StartupError(
    'redis_missing',
    `cannot run ${command} (${messageOf(error)}): install it (apt-get install redis-server), or set REDIS_URL to a server`,
    { cause: error },
  );
}
