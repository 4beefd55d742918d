// Roll call of the replicas, after Redis may have come back with older data. Each replica writes again
// what it runs and what ended a moment ago, and says so; the roll call is over when all have. Until
// then it is unknown whether a waiting job runs somewhere. So no earlier job is sent. Bound: a silent replica
// is waited for as long as its presence may last without renewal.
import type { Redis } from 'ioredis';
import type { InstanceId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from './jobs.ts';
import type { Keys } from './keys.ts';
import type { RedisData } from './redis-data.ts';

export interface RollCallParts {
  readonly data: Pick<
    RedisData,
    'generation' | 'isSure' | 'sure' | 'say' | 'server' | 'isSameServer' | 'brokenAtMs' | 'lostAtMs'
  >;
  readonly client: Redis;
  readonly keys: Keys;
  readonly instance: InstanceId;
  /** Replicas seen a moment ago, even if Redis does not have them now. */
  readonly seen: () => Iterable<InstanceId>;
  /** Whether no other process uses this Redis. */
  readonly isAlone: boolean;
  readonly log: Log;
  /** Tests shorten these. */
  readonly mostMs?: number;
  readonly sameServerMs?: number;
}

/**
 * Longest wait for a replica, in milliseconds. Presence lapses
 * after 10 s: a replica silent until then has no Redis, or is dead.
 */
const MOST_MS = 12_000;
/**
 * Shortest wait, in milliseconds, after a loss on the same server. Every
 * replica looks once a second, so no word from before the loss counts any more.
 */
const SAME_SERVER_MS = 3_000;
const ASK_EVERY_MS = 100;
/** Largest difference between clocks of replicas, in milliseconds (agents have the same bound). */
const CLOCK_SKEW_MS = 30_000;

/** Questions that the sending of tasks asks. */
export type Doubts = Pick<RollCall, 'isSure' | 'sure' | 'brokenAtMs' | 'mayBeBack' | 'over' | 'isOver'>;

export class RollCall {
  readonly name = 'roll call';
  readonly #parts: RollCallParts;
  readonly #abort = new AbortController();
  /** Generation for which every replica has spoken. */
  #overOf = -1;
  #next = Promise.withResolvers<void>();

  constructor(parts: RollCallParts) {
    this.#parts = parts;
  }

  stop(): void {
    this.#abort.abort();
  }

  get isSure(): boolean {
    return this.#parts.data.isSure;
  }

  sure(): Promise<void> {
    return this.#parts.data.sure();
  }

  get brokenAtMs(): number {
    return this.#parts.data.brokenAtMs;
  }

  /**
   * Whether Redis may hand out that job a second time, because it is older than the loss of data.
   */
  mayBeBack({ createdAtMs, replica }: Pick<TaskJob, 'createdAtMs' | 'replica'>): boolean {
    const { data, instance } = this.#parts;
    return createdAtMs <= data.lostAtMs + (replica === instance ? 0 : CLOCK_SKEW_MS);
  }

  isOver(): boolean {
    const { data } = this.#parts;
    return data.isSure && this.#overOf === data.generation;
  }

  /** Resolves when all replicas have said what they have. */
  async over(): Promise<void> {
    for (;;) {
      await this.#parts.data.sure();
      if (this.isOver()) return;
      await this.#next.promise;
    }
  }

  /**
   * Says that this replica has written again what it has; resolves when the others have, too.
   * @returns false: the data were lost once more, or this process stops
   * @throws when Redis does not answer
   */
  async call(generation: number): Promise<boolean> {
    const { data, isAlone, log, mostMs = MOST_MS, sameServerMs = SAME_SERVER_MS } = this.#parts;
    if (!(await data.say(generation))) {
      if (data.generation !== generation) return false;
      // The same data may be under another connection: the word is said again once that connection is checked.
      throw new Error('the connection to Redis was lost while this replica said what it has');
    }
    const saidAtMs = performance.now();
    const leastMs = data.isSameServer && !isAlone ? sameServerMs : 0;
    for (;;) {
      if (data.generation !== generation) return false;
      const missing = isAlone ? [] : await this.#missing();
      const waitedMs = performance.now() - saidAtMs;
      if (waitedMs >= mostMs) log.warn({ missing }, 'replicas have not said what they run; going on without them');
      if (waitedMs >= mostMs || (missing.length === 0 && waitedMs >= leastMs)) break;
      if (!(await sleep(ASK_EVERY_MS, this.#abort.signal))) return false;
    }
    if (data.generation !== generation) return false;
    this.#overOf = generation;
    this.#next.resolve();
    this.#next = Promise.withResolvers();
    return true;
  }

  async #missing(): Promise<readonly InstanceId[]> {
    const { client, keys, instance, seen, data } = this.#parts;
    const listed = (await client.smembers(keys.instances)) as InstanceId[];
    const others = [...new Set([...listed, ...seen()])].filter((name) => name !== instance);
    if (others.length === 0) return [];
    const said = await client.mget(others.map((name) => keys.data(name)));
    return others.filter((_name, at) => said[at]?.split(' ')[1] !== data.server);
  }
}
