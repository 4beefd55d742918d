// Whether Redis still has what this process has seen there. Two signs: the server that answers (its run id and the id of its data's history), asked for on each new connection; and a number of this replica's own, written every
// second, which never goes back. Another server may have come back older, or be a replica that lagged behind; a lower number did. A third sign is the clock of the server: where it was set forward, keys that live for a time are gone (locks, leases). Each time the generation grows: what was learned before counts no more, and listeners rebuild.
// Invariant: between the loss of the connection and the look at the next one `isSure` is false. Bound: data that go back under a connection that stays, on the same server, are noticed a second later.
import type { Redis } from 'ioredis';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Keys } from './keys.ts';

const LOOK_EVERY_MS = 1_000;
/** Longer than any pause that a process survives. */
const NUMBER_LIFE_MS = 24 * 3600_000;

/** A clock that a time service corrects differs by less between two looks; every key that lives for a time lives several times as long. */
const CLOCK_SET_MS = 5_000;

/** Why the data may be others than before. */
type Loss = 'emptied' | 'older' | 'another_server' | 'clock_set_forward';

/** The clock of the server at a look: read between these two moments of this process. */
interface Reading {
  readonly serverMs: number;
  readonly askedAtMs: number;
  readonly answeredAtMs: number;
}

export interface RedisDataOptions {
  /** The client that tasks are fetched with: its connection is what counts. The caller closes it. */
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
  /** Sent last, and answered last. */
  #number = 0;
  #answered = 0;
  #server = '';
  #said = '';
  #connection = 0;
  #looked = -1;
  #sure = Promise.withResolvers<void>();
  #looking: Promise<void> = Promise.resolve();
  #generation = 0;
  #brokenAtMs = -Infinity;
  #lostAtMs = -Infinity;
  #isSameServer = false;
  #reading: Reading | undefined;
  readonly #onReady = (): void => {
    this.look().catch((error: unknown) => {
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
  }

  /** Grows each time the data may be others than before. */
  get generation(): number {
    return this.#generation;
  }

  /** Whether the data are known to be those of this generation. */
  get isSure(): boolean {
    return this.#looked === this.#connection;
  }

  /** Resolves when it is known of this connection, or of a later one. */
  sure(): Promise<void> {
    return this.#sure.promise;
  }

  /** When the connection was last lost, or a loss of data noticed; monotonic milliseconds. What was asked before says nothing any more. */
  get brokenAtMs(): number {
    return this.#brokenAtMs;
  }

  /** When data were last found to be others; epoch milliseconds. -Infinity: never. */
  get lostAtMs(): number {
    return this.#lostAtMs;
  }

  /** Which server answers, and which history its data have. */
  get server(): string {
    return this.#server;
  }

  /** The last loss was under the same server: its name does not tell the data before from those after. */
  get isSameServer(): boolean {
    return this.#isSameServer;
  }

  /** Told each time the generation grew, once Redis answers again. */
  onLost(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async start(): Promise<void> {
    const { client, log, everyMs = LOOK_EVERY_MS } = this.#options;
    client.on('ready', this.#onReady);
    client.on('close', this.#onClose);
    await this.look().catch((error: unknown) => {
      log.warn({ err: error }, 'the data of Redis are not known yet');
    });
    // Where Redis is not there, the look after the reconnect tells.
    void repeat(
      everyMs,
      this.#abort.signal,
      () => this.look(),
      () => undefined,
    );
  }

  stop(): void {
    this.#abort.abort();
    this.#options.client.off('ready', this.#onReady);
    this.#options.client.off('close', this.#onClose);
  }

  /** Tells the other replicas that this one has written again what it has. @returns false: the data were lost once more */
  async say(generation: number): Promise<boolean> {
    if (generation !== this.#generation || !this.isSure) return false;
    this.#said = this.#server;
    await this.look();
    return generation === this.#generation && this.isSure;
  }

  /** One look; the loop's, and the tests'. @throws when Redis does not answer */
  look(): Promise<void> {
    this.#looking = this.#looking.then(
      () => this.#look(),
      () => this.#look(),
    );
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { client, keys, instance, clock, log } = this.#options;
    const connection = this.#connection;
    this.#number += 1;
    const number = this.#number;
    const [before, server, reading] = await Promise.all([
      client.set(keys.data(instance), `${number} ${this.#said}`, 'PX', NUMBER_LIFE_MS, 'GET'),
      this.#looked === connection ? this.#server : this.#serverNow(),
      this.#readClock(),
    ]);
    if (connection !== this.#connection) return;
    const why = this.#lossOf(before, server, reading);
    this.#answered = number;
    this.#reading = reading;
    if (why !== undefined) {
      this.#generation += 1;
      this.#said = '';
      this.#lostAtMs = clock.nowMs();
      this.#brokenAtMs = performance.now();
      this.#isSameServer = server === this.#server;
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

  /** undefined: this user may not ask for it, and a step of that clock is noticed by what lapsed alone. */
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
