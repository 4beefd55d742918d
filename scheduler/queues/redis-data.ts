// Whether Redis still has what we wrote: a marker that every replica knows, looked at every second and after each reconnect. A marker that is gone or another one means that the data were lost; a Redis
// process that is a new one may have come back with older data. Each time the generation grows: what was learned of the queues before counts no more, and listeners rebuild what is theirs.
import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Keys } from './keys.ts';

const LOOK_EVERY_MS = 1_000;

export interface RedisDataOptions {
  /** A client that fails fast. The caller closes it. */
  readonly client: Redis;
  readonly keys: Keys;
  readonly log: Log;
  readonly everyMs?: number;
}

export class RedisData {
  readonly name = 'redis data';
  readonly #client: Redis;
  readonly #keys: Keys;
  readonly #log: Log;
  readonly #everyMs: number;
  readonly #abort = new AbortController();
  readonly #listeners = new Set<() => void>();
  #marker: string | undefined;
  #process: string | undefined;
  #reconnected = false;
  #generation = 0;
  readonly #onReady = (): void => {
    this.#reconnected = true;
  };

  constructor(options: RedisDataOptions) {
    this.#client = options.client;
    this.#keys = options.keys;
    this.#log = options.log;
    this.#everyMs = options.everyMs ?? LOOK_EVERY_MS;
  }

  /** Grows each time the data may be others than before. */
  get generation(): number {
    return this.#generation;
  }

  /** Told each time the generation grew, once Redis answers again. */
  onLost(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async start(): Promise<void> {
    this.#client.on('ready', this.#onReady);
    await this.look().catch((error: unknown) => {
      this.#log.warn({ err: error }, 'the marker of Redis is not known yet');
    });
    // Where Redis is not there, the look after the reconnect tells.
    void repeat(
      this.#everyMs,
      this.#abort.signal,
      () => this.look(),
      () => undefined,
    );
  }

  stop(): void {
    this.#abort.abort();
    this.#client.off('ready', this.#onReady);
  }

  /** One look; the loop's, and the tests'. @throws when Redis does not answer */
  async look(): Promise<void> {
    const reconnected = this.#reconnected;
    let marker = await this.#client.get(this.#keys.dataMarker);
    if (marker === null) {
      await this.#client.set(this.#keys.dataMarker, randomUUID(), 'NX');
      marker = await this.#client.get(this.#keys.dataMarker);
    }
    let processId = this.#process;
    if (reconnected || processId === undefined) {
      processId = /run_id:(\w+)/.exec(await this.#client.info('server'))?.[1] ?? '';
      this.#reconnected = false;
    }
    const known = this.#marker !== undefined;
    const why = marker !== this.#marker ? 'emptied' : processId !== this.#process ? 'restarted' : undefined;
    this.#marker = marker ?? undefined;
    this.#process = processId;
    if (!known || why === undefined) return;
    this.#generation += 1;
    this.#log.warn(
      { why, generation: this.#generation },
      'Redis may have lost data; what is ours there is written again',
    );
    for (const listener of this.#listeners) listener();
  }
}
