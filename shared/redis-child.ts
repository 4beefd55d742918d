// The private Redis of the embedded default: a `redis-server` child on a unix socket, with its files in the data directory. Called by
// `longshore up`, and by a scheduler that was given neither REDIS_URL nor a socket. A server that outlived a kill of its starter is adopted
// by its socket, so there is never a second one on the same files; one that dies is started again, a bounded number of times.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, realpathSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { sleep } from './backoff.ts';
import { StartupError, messageOf } from './errors.ts';
import type { Log } from './log.ts';
import { decideRestart } from './restart.ts';

export interface RedisChild {
  /** Absolute path of the unix socket it listens on. */
  readonly socketPath: string;
  /** Its process id, for who must end it at once. */
  readonly pid: () => number;
  /** Asks it to write its files and end; KILL after `graceMs`. */
  stop(graceMs?: number): Promise<void>;
}

export interface RedisChildOptions {
  readonly dataDir: string;
  readonly log: Log;
  /** It died too often; nothing will start it again. */
  readonly onGaveUp?: (sentence: string) => void;
}

/** Reading a large append-only file takes its time; a server that says so is waited for. */
const READY_TIMEOUT_MS = 120_000;
const ANSWER_TIMEOUT_MS = 2_000;
/** The kernel's bound on a unix socket's path. */
const MAX_SOCKET_PATH_BYTES = 107;

/**
 * Starts or adopts the server of a data directory and waits until it answers.
 * @throws StartupError `redis_missing` (not installed), `redis_failed` (it ended, with its last words)
 */
export async function startEmbeddedRedis(options: RedisChildOptions): Promise<RedisChild> {
  const directory = join(options.dataDir, 'redis');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const server = new EmbeddedRedis(realpathSync(directory), options);
  await server.start();
  return server;
}

class EmbeddedRedis implements RedisChild {
  readonly socketPath: string;
  readonly #directory: string;
  readonly #options: RedisChildOptions;
  readonly #stopping = new AbortController();
  readonly #deathsMs: number[] = [];
  #pid = 0;
  /** Held open all the time: its end is the server's end, whoever started that. */
  #watch: Socket | undefined;
  #ended: Promise<void> = Promise.resolve();

  constructor(directory: string, options: RedisChildOptions) {
    this.#directory = directory;
    this.#options = options;
    this.socketPath = socketPathFor(directory);
  }

  readonly pid = (): number => this.#pid;

  async start(): Promise<void> {
    const adopted = await this.#adopt();
    if (!adopted) await this.#spawn();
    this.#pid = Number(/process_id:(\d+)/.exec(await ask(this.socketPath, 'INFO server'))?.[1] ?? 0);
    await this.#watchEnd();
    this.#options.log.info({ redisPid: this.#pid, adopted }, 'redis is ready');
  }

  async stop(graceMs = 3_000): Promise<void> {
    this.#stopping.abort();
    if (this.#watch === undefined) return;
    // SHUTDOWN writes the append-only file first. It has no answer: the connection ends.
    await ask(this.socketPath, 'SHUTDOWN').catch(() => '');
    const timer = setTimeout(() => {
      if (this.#pid > 0) killQuietly(this.#pid);
    }, graceMs);
    await this.#ended;
    clearTimeout(timer);
  }

  /** A server that answers on our socket and keeps our directory is ours, whoever started it. */
  async #adopt(): Promise<boolean> {
    const answer = await ask(this.socketPath, 'CONFIG GET dir').catch(() => '');
    if (answer.split('\r\n').includes(this.#directory)) return true;
    if (!answer.startsWith('-LOADING')) return false;
    await this.#waitUntilReady(() => undefined);
    return true;
  }

  async #spawn(): Promise<void> {
    const settings: Readonly<Record<string, string>> = {
      port: '0',
      unixsocket: this.socketPath,
      unixsocketperm: '700',
      dir: this.#directory,
      appendonly: 'yes',
      appendfsync: 'everysec',
      save: '',
      'maxmemory-policy': 'noeviction',
      daemonize: 'no',
      logfile: join(this.#directory, 'redis.log'),
    };
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
    // A group of its own: a Ctrl-C on the terminal is for its starter, which stops it last.
    const child = spawn('redis-server', args, { detached: true, stdio: 'ignore' });
    let failure: StartupError | undefined;
    child.once('error', (error) => {
      failure =
        'code' in error && error.code === 'ENOENT'
          ? new StartupError(
              'redis_missing',
              'redis-server is not installed: install it (`sudo apt-get install -y redis-server`), or name a server with REDIS_URL',
              { cause: error },
            )
          : new StartupError('redis_failed', `cannot run redis-server (${messageOf(error)})`, { cause: error });
    });
    child.once('exit', (code, signal) => {
      failure ??= new StartupError(
        'redis_failed',
        `redis-server ended at once (${signal ?? `code ${code}`}):\n${this.#lastWords()}`,
      );
    });
    // Its exit must not hold us back once we no longer wait for it.
    child.unref();
    await this.#waitUntilReady(() => failure);
  }

  async #waitUntilReady(failure: () => StartupError | undefined): Promise<void> {
    const deadlineMs = performance.now() + READY_TIMEOUT_MS;
    for (;;) {
      const answer = await ask(this.socketPath, 'PING').catch(() => '');
      if (answer.startsWith('+PONG')) return;
      const failed = failure();
      if (failed !== undefined) throw failed;
      if (performance.now() > deadlineMs) {
        throw new StartupError('redis_failed', `redis-server did not answer in time:\n${this.#lastWords()}`);
      }
      if (!(await sleep(20, this.#stopping.signal))) throw new StartupError('redis_failed', 'stopped while starting');
    }
  }

  async #watchEnd(): Promise<void> {
    const watch = await open(this.socketPath);
    watch.unref();
    this.#watch = watch;
    this.#ended = new Promise((resolve) => {
      watch.once('close', () => {
        this.#watch = undefined;
        resolve();
        void this.#afterEnd();
      });
    });
  }

  async #afterEnd(): Promise<void> {
    const { log, onGaveUp } = this.#options;
    while (!this.#stopping.signal.aborted) {
      const nowMs = performance.now();
      this.#deathsMs.push(nowMs);
      if (this.#deathsMs.length > 20) this.#deathsMs.shift();
      const decision = decideRestart(this.#deathsMs, nowMs);
      if (decision.kind === 'give_up') {
        const sentence = `redis-server ended ${decision.deaths} times within ${decision.withinMs / 1000} s: ${this.#lastWords()}`;
        log.error({ deaths: decision.deaths }, 'redis ended too often');
        onGaveUp?.(sentence);
        return;
      }
      log.warn({ delayMs: decision.delayMs }, 'redis ended, starting it again');
      if (!(await sleep(decision.delayMs, this.#stopping.signal))) return;
      try {
        await this.start();
        return;
      } catch (error) {
        log.warn({ err: error }, 'redis did not start');
      }
    }
  }

  #lastWords(): string {
    try {
      return readFileSync(join(this.#directory, 'redis.log'), 'utf8').trimEnd().split('\n').slice(-5).join('\n');
    } catch {
      return 'it wrote nothing';
    }
  }
}

/** In its directory; for a deep one a short stable stand-in, because a socket's path is bounded. */
function socketPathFor(directory: string): string {
  const path = join(directory, 'redis.sock');
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  const digest = createHash('sha256').update(directory).digest('hex').slice(0, 16);
  const short = `/tmp/longshore-${process.getuid?.() ?? 0}-${digest}`;
  mkdirSync(short, { recursive: true, mode: 0o700 });
  return join(short, 'redis.sock');
}

function open(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      // Whatever goes wrong later ends in `close`.
      socket.on('error', () => {});
      socket.resume();
      resolve(socket);
    });
  });
}

/** One inline command, answered by text that ends with a line end; enough for PING, CONFIG GET and INFO on a local socket. */
async function ask(path: string, command: string): Promise<string> {
  const socket = await open(path);
  return new Promise((resolve, reject) => {
    let text = '';
    const finish = (work: () => void): void => {
      clearTimeout(timer);
      socket.destroy();
      work();
    };
    const timer = setTimeout(() => finish(() => reject(new Error('redis did not answer'))), ANSWER_TIMEOUT_MS);
    socket.setEncoding('utf8');
    socket.on('data', (part: string) => {
      text += part;
      if (isWhole(text)) finish(() => resolve(text));
    });
    socket.once('close', () => finish(() => resolve(text)));
    socket.write(`${command}\r\n`);
  });
}

/** A line, a bulk string, or a flat array of bulk strings, all of it there. */
function isWhole(text: string): boolean {
  if (!text.endsWith('\r\n')) return false;
  if (text.startsWith('$')) {
    const header = text.indexOf('\r\n');
    return Buffer.byteLength(text) >= header + 2 + Number(text.slice(1, header)) + 2;
  }
  if (text.startsWith('*')) return text.split('\r\n').length - 2 >= 2 * Number(text.slice(1, text.indexOf('\r\n')));
  return true;
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended meanwhile.
  }
}
