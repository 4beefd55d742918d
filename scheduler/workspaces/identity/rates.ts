// Number of requests that a workspace sends in a minute, counted in Redis so that all replicas count together.
// Invariant: a Redis that does not answer delays and refuses no request.
import type { Redis } from 'ioredis';
import type { Clock } from '#shared/clock.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { Keys } from '../../stores/queues/keys.ts';

/** console: requests of one session of the web console. */
export type RateKind = 'rest' | 'invoke' | 'state' | 'console';

const MINUTE_MS = 60_000;
const WITHIN_MS = 250;

export class Rates {
  readonly #redis: Redis;
  readonly #keys: Pick<Keys, 'rate'>;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #onLimited: (kind: RateKind) => void;

  constructor(parts: {
    readonly redis: Redis;
    readonly keys: Pick<Keys, 'rate'>;
    readonly clock: Pick<Clock, 'nowMs'>;
    readonly onLimited: (kind: RateKind) => void;
  }) {
    this.#redis = parts.redis;
    this.#keys = parts.keys;
    this.#clock = parts.clock;
    this.#onLimited = parts.onLimited;
  }

  /** Counts a request of a workspace or session. @returns undefined: it may proceed; else the seconds to wait */
  async take(of: string, kind: RateKind, perMinute: number): Promise<number | undefined> {
    if (this.#redis.status !== 'ready') return undefined;
    const nowMs = this.#clock.nowMs();
    const minute = Math.floor(nowMs / MINUTE_MS);
    const key = this.#keys.rate(kind, of, minute);
    const counting = this.#redis.incr(key);
    // If this fails, one small key stays: that of one sender and a minute.
    this.#redis.pexpire(key, 2 * MINUTE_MS).catch(() => undefined);
    const count = await withDeadline(counting, WITHIN_MS, () => new Error('redis is slow')).catch(() => undefined);
    if (count === undefined || count <= perMinute) return undefined;
    this.#onLimited(kind);
    return Math.max(1, Math.ceil(((minute + 1) * MINUTE_MS - nowMs) / 1000));
  }
}
