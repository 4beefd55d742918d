// Admission of tasks by the memory of Redis. With `noeviction`, Redis refuses every write at its bound, including those
// of running tasks (leases, ends). So new asynchronous tasks are refused before; synchronous ones need no room there.
// Invariants: the last seventh is for accepted tasks; no task costs a command to Redis here.
import type { Redis } from 'ioredis';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';

/** Fractions of the bound: asynchronous tasks are refused from CLOSE on, and accepted again REOPEN_BELOW below it. */
const CLOSE = 0.85;
const REOPEN_BELOW = 0.05;
const EVERY_MS = 1_000;
/** Room for a Redis that already holds more than its new bound: the bound becomes its usage times this. */
const ROOM = 1.25;
/** Bytes of a job beside its input. */
const JOB_BYTES = 2_048;
/** Fraction of the bound that may be added before Redis is asked again. */
const ASK_AFTER = 0.02;

export interface RedisMemoryParts {
  readonly redis: Pick<Redis, 'info' | 'config'>;
  readonly registry: Registry;
  readonly log: Log;
  /** Bound of a Redis that is ours; absent: the operator's bound is read. */
  readonly ownMaxBytes?: number;
  readonly everyMs?: number;
}

export class RedisMemory {
  readonly name = 'redis memory';
  readonly #parts: RedisMemoryParts;
  readonly #abort = new AbortController();
  #isClosed = false;
  #usedBytes = 0;
  /** Bound in bytes; 0: Redis has no bound. */
  #maxBytes = 0;
  /** Bytes that this replica has added since Redis was asked. */
  #addedBytes = 0;
  #asking: Promise<void> | undefined;

  constructor(parts: RedisMemoryParts) {
    this.#parts = parts;
    const registers = [parts.registry];
    const read = (): readonly [number, number] => [this.#usedBytes, this.#maxBytes];
    new Gauge({
      name: 'longshore_scheduler_redis_memory_bytes',
      help: 'Memory of Redis: used, and max (its bound; absent when it has none).',
      labelNames: ['kind'],
      registers,
      collect() {
        const [used, max] = read();
        this.reset();
        this.set({ kind: 'used' }, used);
        if (max > 0) this.set({ kind: 'max' }, max);
      },
    });
  }

  async start(): Promise<void> {
    const { log, everyMs = EVERY_MS } = this.#parts;
    const onFailed = (error: unknown): void => log.debug({ err: error }, 'memory of redis not read, trying again');
    await this.check().catch(onFailed);
    void repeat(everyMs, this.#abort.signal, () => this.check(), onFailed);
  }

  stop(): void {
    this.#abort.abort();
  }

  /** Whether asynchronous tasks must be refused now. */
  refuses(): boolean {
    return this.#isClosed;
  }

  /** Adds a task that admission accepted to what Redis holds, because the last look at its memory was before. */
  added(inputBytes: number): void {
    this.#addedBytes += inputBytes + JOB_BYTES;
    if (this.#maxBytes === 0 || this.#addedBytes < this.#maxBytes * ASK_AFTER) return;
    this.#judge();
    if (this.#asking === undefined) this.check().catch(() => undefined);
  }

  /** Reads usage and bound. @throws when Redis does not answer: the last values stay */
  check(): Promise<void> {
    this.#asking ??= this.#check().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  async #check(): Promise<void> {
    const before = this.#addedBytes;
    const { redis, ownMaxBytes, log } = this.#parts;
    const info = await redis.info('memory');
    const read = (name: string): number => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
    this.#usedBytes = Math.max(0, read('used_memory') - read('mem_not_counted_for_evict'));
    const max = read('maxmemory');
    this.#maxBytes = ownMaxBytes ?? max;
    // Bytes that came while Redis answered stay counted: the answer may lack them.
    this.#addedBytes -= before;
    this.#judge();
    if (ownMaxBytes === undefined) return;
    // The server may have been restarted, or have outlived a scheduler with other
    // settings. A server that holds more than the setting gets a higher bound, because
    // its tasks need their writes. The bound comes down as the server empties.
    const bound = Math.floor(Math.max(ownMaxBytes, this.#usedBytes * ROOM));
    // On its way down the bound takes steps of a tenth, but for the last one.
    const isRight = max === bound || (bound > ownMaxBytes && bound > max * 0.9 && max >= ownMaxBytes);
    if (isRight) return;
    await redis.config('SET', 'maxmemory', String(bound));
    log.info({ maxBytes: bound, usedBytes: this.#usedBytes }, 'memory of the embedded redis is bounded');
  }

  #judge(): void {
    const full = this.#maxBytes === 0 ? 0 : (this.#usedBytes + this.#addedBytes) / this.#maxBytes;
    const was = this.#isClosed;
    this.#isClosed = full >= CLOSE - (was ? REOPEN_BELOW : 0);
    if (this.#isClosed === was) return;
    const facts = { usedBytes: this.#usedBytes, maxBytes: this.#maxBytes };
    if (this.#isClosed) this.#parts.log.error(facts, 'redis is nearly full; new asynchronous tasks are refused');
    else this.#parts.log.info(facts, 'redis has room again; new asynchronous tasks are taken');
  }
}
