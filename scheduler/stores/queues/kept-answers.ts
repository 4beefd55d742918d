// Answers of calls to models under idempotency keys, for a day. A key is claimed before its call, and then holds the
// answer, or the fact that the answer was given and is not kept.
// Invariant: a key stands for one call at a time. The number of keys of a workspace and the bytes of their answers are
// bounded. An answer is returned only for a call with the same fingerprint.
import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Keys } from './keys.ts';

const DAY_MS = 24 * 3600_000;
/** Longest time that a claim of a call under way outlives its process. */
const UNDER_WAY_MS = 20 * 60_000;
const WITHIN_MS = 2_000;
/** Most keys of a workspace in a day, and most bytes of their answers. */
const MOST_KEYS = 10_000;
const MOST_BYTES = 64 * 1024 * 1024;
/** Largest answer that is kept. */
const MOST_ANSWER = 1024 * 1024;

export interface KeptAnswer {
  /** Absent: 200. */
  readonly status?: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface KeyedCall {
  readonly workspaceId: WorkspaceId;
  readonly tokenId: TokenId;
  readonly key: string;
  /** Fingerprint of route and body. */
  readonly fingerprint: string;
}

export type Claim =
  | { readonly kind: 'claimed' | 'other_call' | 'under_way' | 'not_kept' | 'too_many' | 'unavailable' }
  | { readonly kind: 'answered'; readonly answer: KeptAnswer };

interface Entry {
  readonly fingerprint: string;
  readonly state: 'under_way' | 'not_kept' | 'answered';
  readonly answer?: KeptAnswer;
}

export class KeptAnswers {
  readonly #redis: Redis;
  readonly #keys: Pick<Keys, 'keptAnswer' | 'keptAnswers'>;

  constructor(redis: Redis, keys: Pick<Keys, 'keptAnswer' | 'keptAnswers'>) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * Claims a key for a call that is about to begin. Never throws.
   * @param underWayMs - for which the claim outlives its process
   */
  async claim(call: KeyedCall, underWayMs = UNDER_WAY_MS): Promise<Claim> {
    if (this.#redis.status !== 'ready') return { kind: 'unavailable' };
    return await withDeadline(this.#claim(call, underWayMs), WITHIN_MS, () => new Error('redis is slow')).catch(
      (): Claim => ({
        kind: 'unavailable',
      }),
    );
  }

  async #claim(call: KeyedCall, underWayMs: number): Promise<Claim> {
    const place = this.#placeOf(call);
    const mine: Entry = { fingerprint: call.fingerprint, state: 'under_way' };
    if ((await this.#redis.set(place, JSON.stringify(mine), 'PX', underWayMs, 'NX')) === null) {
      const text = await this.#redis.get(place);
      if (text === null) return { kind: 'under_way' };
      const entry = JSON.parse(text) as Entry;
      if (entry.fingerprint !== call.fingerprint) return { kind: 'other_call' };
      return entry.answer === undefined
        ? { kind: entry.state === 'not_kept' ? 'not_kept' : 'under_way' }
        : { kind: 'answered', answer: entry.answer };
    }
    const counter = `${this.#keys.keptAnswers(call.workspaceId)}:count`;
    const count = await this.#redis.incr(counter);
    if (count === 1) await this.#redis.pexpire(counter, DAY_MS);
    if (count <= MOST_KEYS) return { kind: 'claimed' };
    await this.#redis.del(place);
    return { kind: 'too_many' };
  }

  /** Keeps the answer of a call. An answer too large for its bounds is noted as given. */
  async keep(call: KeyedCall, answer: KeptAnswer): Promise<void> {
    const bytes = Buffer.byteLength(answer.body);
    if (bytes > MOST_ANSWER || !(await this.#hasRoom(call.workspaceId, bytes))) return await this.spend(call);
    await this.#write(call, { fingerprint: call.fingerprint, state: 'answered', answer });
  }

  /** Notes that the answer was given and is not kept: a stream. */
  spend(call: KeyedCall): Promise<void> {
    return this.#write(call, { fingerprint: call.fingerprint, state: 'not_kept' });
  }

  /** Gives the key back: its call failed, and may be sent again. */
  async release(call: KeyedCall): Promise<void> {
    await this.#redis.del(this.#placeOf(call));
  }

  async #hasRoom(workspaceId: WorkspaceId, bytes: number): Promise<boolean> {
    const counter = `${this.#keys.keptAnswers(workspaceId)}:bytes`;
    const sum = await this.#redis.incrby(counter, bytes);
    if (sum === bytes) await this.#redis.pexpire(counter, DAY_MS);
    return sum <= MOST_BYTES;
  }

  async #write(call: KeyedCall, entry: Entry): Promise<void> {
    await this.#redis.set(this.#placeOf(call), JSON.stringify(entry), 'PX', DAY_MS);
  }

  #placeOf({ tokenId, key }: KeyedCall): string {
    return this.#keys.keptAnswer(tokenId, createHash('sha256').update(key).digest('base64url'));
  }
}
