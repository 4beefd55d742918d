// Check whether Redis still has the data that this process has seen there. Three signs tell:
// - The server's run id and the id of its data's history, read on each new
//   connection. Another server may have older data, or be a replica that lagged behind.
// - A number of this replica's own, written every second, which never goes back. A lower number shows older data.
// - The server's clock. When it was set forward, keys with a lifetime (locks, leases) have expired.
// Each sign raises the generation: earlier knowledge no longer counts, and listeners rebuild.
// Invariant: between the loss of a connection and the check of the next one, `isSure` is
// false. Bound: older data on the same server and connection are noticed within a second.
import type { Redis } from 'ioredis';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Keys } from './keys.ts';

const LOOK_EVERY_MS = 1_000;
/** Lifetime of the number's key; longer than any pause that a process survives. */
const NUMBER_LIFE_MS = 24 * 3600_000;

/**
 * Step of the server's clock that counts as set. A time service corrects by
 * less between two looks; every expiring key lives several times as long.
 */
const CLOCK_SET_MS = 5_000;

/** Reason why the data may differ from before. */
type Loss = 'emptied' | 'older' | 'another_server' | 'clock_set_forward';

/** Clock of the server at a look, read between two moments of this process. */
interface Reading {
  readonly serverMs: number;
  readonly askedAtMs: number;
  readonly answeredAtMs: number;
}

export interface RedisDataOptions {
  /** Client that fetches tasks: its connection is the one to check. The caller closes it. */
  readonly client: Redis;
  readonly keys: Keys;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly everyMs?: number;
}

export class RedisData {
  readonly name = 'redis data';
  readonly #options: RedisDataOptions;
  readonly #abort = new AbortController();
  readonly #listeners = new Set<() => void>();
  /** Number that was sent last, and answered last. */
  #number = 0;
  #answered = 0;
  #server = '';
  #connection = 0;
  #looked = -1;
  #sure = Promise.withResolvers<void>();
  #looking: Promise<void> = Promise.resolve();
  #generation = 0;
  #brokenAtMs = -Infinity;
  #knownSinceMs: number;
  #reading: Reading | undefined;
  readonly #onReady = (): void => {
    this.check().catch((error: unknown) => {
      this.#options.log.info({ err: error }, 'it is not known yet whether Redis has its data');
    });
  };
  readonly #onClose = (): void => {
    this.#connection += 1;
    this.#brokenAtMs = performance.now();
    if (this.#looked === this.#connection - 1) this.#sure = Promise.withResolvers();
  };

  constructor(options: RedisDataOptions) {
    this.#options = options;
    this.#knownSinceMs = options.clock.nowMs();
  }

  /** Number that grows each time the data may differ from before. */
  get generation(): number {
    return this.#generation;
  }

  /** Whether the data are known to be those of this generation. */
  get isSure(): boolean {
    return this.#looked === this.#connection;
  }

  /** Resolves when this connection, or a later one, has been checked. */
  sure(): Promise<void> {
    return this.#sure.promise;
  }

  /**
   * Time when the connection was last lost, or a loss of data
   * noticed; monotonic milliseconds. Earlier answers no longer count.
   */
  get brokenAtMs(): number {
    return this.#brokenAtMs;
  }

  /**
   * Since when this process knows the data: its start, or the last time when they were found to differ. Redis may have
   * forgotten changes from before. Epoch milliseconds.
   */
  get knownSinceMs(): number {
    return this.#knownSinceMs;
  }

  /** Registers a listener, called each time the generation grew, once Redis answers again. */
  onLost(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async start(): Promise<void> {
    const { client, log, everyMs = LOOK_EVERY_MS } = this.#options;
    client.on('ready', this.#onReady);
    client.on('close', this.#onClose);
    await this.check().catch((error: unknown) => {
      log.warn({ err: error }, 'the data of Redis are not known yet');
    });
    // When Redis is not there, the check after the reconnect tells.
    void repeat(
      everyMs,
      this.#abort.signal,
      () => this.check(),
      () => undefined,
    );
  }

  stop(): void {
    this.#abort.abort();
    this.#options.client.off('ready', this.#onReady);
    this.#options.client.off('close', this.#onClose);
  }

  /** Checks once, for the loop and for tests. @throws when Redis does not answer */
  check(): Promise<void> {
    this.#looking = this.#looking.then(
      () => this.#check(),
      () => this.#check(),
    );
    return this.#looking;
  }

  async #check(): Promise<void> {
    const { client, keys, instance, clock, log } = this.#options;
    const connection = this.#connection;
    this.#number += 1;
    const number = this.#number;
    const [before, server, reading] = await Promise.all([
      client.set(keys.data(instance), number, 'PX', NUMBER_LIFE_MS, 'GET'),
      this.#looked === connection ? this.#server : this.#serverNow(),
      this.#readClock(),
    ]);
    if (connection !== this.#connection) return;
    const why = this.#lossOf(before, server, reading);
    this.#answered = number;
    this.#reading = reading;
    if (why !== undefined) {
      this.#generation += 1;
      this.#knownSinceMs = clock.nowMs();
      this.#brokenAtMs = performance.now();
      log.warn({ why, generation: this.#generation }, 'Redis may have lost data; what is ours there is written again');
    }
    this.#server = server;
    this.#looked = connection;
    if (why !== undefined) for (const listener of this.#listeners) listener();
    this.#sure.resolve();
  }

  #lossOf(before: string | null, server: string, reading: Reading | undefined): Loss | undefined {
    if (this.#answered === 0) return undefined;
    if (before === null) return 'emptied';
    if (Number.parseInt(before, 10) < this.#answered) return 'older';
    if (server !== this.#server) return 'another_server';
    return isSetForward(this.#reading, reading) ? 'clock_set_forward' : undefined;
  }

  /**
   * Reads the server's clock. undefined: this user may not ask
   * for it; then only expired keys show a step of that clock.
   */
  async #readClock(): Promise<Reading | undefined> {
    const askedAtMs = performance.now();
    const time = await this.#options.client.time().catch(() => undefined);
    if (time === undefined) return undefined;
    const [seconds, microseconds] = time;
    return {
      serverMs: Number(seconds) * 1000 + Number(microseconds) / 1000,
      askedAtMs,
      answeredAtMs: performance.now(),
    };
  }

  async #serverNow(): Promise<string> {
    const { client } = this.#options;
    const [about, replication] = await Promise.all([client.info('server'), client.info('replication')]);
    const runId = /run_id:(\w+)/.exec(about)?.[1] ?? '';
    return `${runId}.${/master_replid:(\w+)/.exec(replication)?.[1] ?? ''}`;
  }
}

/** Whether the server's clock went further than the longest time that may have passed here. */
function isSetForward(before: Reading | undefined, now: Reading | undefined): boolean {
  if (before === undefined || now === undefined) return false;
  return now.serverMs - before.serverMs > now.answeredAtMs - before.askedAtMs + CLOCK_SET_MS;
}
