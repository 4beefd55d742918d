// Connections to receivers of events: kept open between deliveries, to addresses that the guard has checked. A name is
// looked up anew every half a minute. Redirects are not followed, and a whole try has one deadline.
import type { LookupAddress } from 'node:dns';
import { Pool, request } from 'undici';
import type { WebhookRow } from '../../stores/store/queries/webhooks.ts';
import type { Outcome } from '../webhooks/decide.ts';
import { guardedConnector, permittedAddresses } from '../webhooks/guard.ts';
import type { DialRules } from '../webhooks/open-networks.ts';
import type { Lookups } from '../webhooks/lookups.ts';
import { ANSWER_BYTES, MAX_HEADER_BYTES, outcomeOf, unlessAborted } from '../webhooks/post.ts';
import type { Message } from '../webhooks/post.ts';

/** Milliseconds for a try: look-up, connection, request and the answer's head. */
export const TRY_MS = 10_000;
/** Milliseconds for the rest of an answer, which is dropped; the connection ends then. */
const REST_MS = 1_000;
/** Milliseconds for which checked addresses are used. */
const CHECKED_MS = 30_000;
/** Most receivers with kept connections; the oldest go. */
const MOST_KEPT = 1_000;
/** Failures of a connection that its other side had closed. */
const CLOSED = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

interface Kept {
  readonly pool: Promise<Pool>;
  readonly untilMs: number;
  answered: boolean;
}

type Whose = Pick<WebhookRow, 'id' | 'workspaceId'>;

export interface ReceiversParts {
  readonly rules: DialRules;
  readonly lookups: Pick<Lookups, 'addressesOf'>;
  readonly monotonicMs: () => number;
  /** Connections of one webhook. */
  readonly connections: number;
  readonly tryMs?: number;
}

export class Receivers {
  readonly #parts: ReceiversParts;
  readonly #kept = new Map<string, Kept>();

  constructor(parts: ReceiversParts) {
    this.#parts = parts;
  }

  /**
   * Sends a message. One whose kept connection turns out to be closed goes over a new one, as part of the same try.
   * @param whose - webhook that the connections belong to, and workspace that names are looked up for
   * @throws only the signal's reason, when the signal ended it
   */
  async post(url: string, message: Message, whose: Whose, signal: AbortSignal): Promise<Outcome> {
    const ends = AbortSignal.any([signal, AbortSignal.timeout(this.#parts.tryMs ?? TRY_MS)]);
    const first = await this.#post(url, message, whose, ends);
    signal.throwIfAborted();
    if (!first.isStale) return first.outcome;
    const { outcome } = await this.#post(url, message, whose, ends);
    signal.throwIfAborted();
    return outcome;
  }

  async #post(
    url: string,
    message: Message,
    whose: Whose,
    ends: AbortSignal,
  ): Promise<{ readonly outcome: Outcome; readonly isStale: boolean }> {
    const key = `${whose.id} ${new URL(url).origin}`;
    const kept = this.#keptFor(key, url, whose);
    try {
      const pool = await unlessAborted(kept.pool, ends);
      const { statusCode, headers, body } = await request(url, {
        method: 'POST',
        headers: message.headers,
        body: message.body,
        dispatcher: pool,
        signal: ends,
      });
      kept.answered = true;
      await body.dump({ limit: ANSWER_BYTES, signal: AbortSignal.timeout(REST_MS) }).catch(() => undefined);
      const retryAfter = headers['retry-after'];
      return {
        outcome: {
          kind: 'answered',
          status: statusCode,
          ...(typeof retryAfter === 'string' ? { retryAfter } : {}),
        },
        isStale: false,
      };
    } catch (error) {
      const outcome = outcomeOf(error);
      this.#forget(key, kept);
      const isStale = kept.answered && outcome.kind === 'connection_failed' && CLOSED.has(outcome.why ?? '');
      return { outcome, isStale };
    }
  }

  #keptFor(key: string, url: string, whose: Whose): Kept {
    const nowMs = this.#parts.monotonicMs();
    const before = this.#kept.get(key);
    if (before !== undefined && before.untilMs > nowMs) return before;
    if (before !== undefined) this.#forget(key, before);
    const kept: Kept = { pool: this.#open(url, whose), untilMs: nowMs + CHECKED_MS, answered: false };
    // The failure reaches those who wait for the pool.
    kept.pool.catch(() => this.#forget(key, kept));
    this.#kept.set(key, kept);
    for (const [oldest, one] of this.#kept) {
      if (this.#kept.size <= MOST_KEPT) break;
      this.#forget(oldest, one);
    }
    return kept;
  }

  async #open(url: string, { workspaceId }: Whose): Promise<Pool> {
    const { rules, lookups, connections } = this.#parts;
    const find = (host: string): Promise<readonly LookupAddress[]> => lookups.addressesOf(host, workspaceId);
    const permitted = await permittedAddresses(url, rules, find);
    return new Pool(new URL(url).origin, {
      connect: guardedConnector(permitted, rules),
      connections,
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
  }

  /** Uses the connections no more; requests on them end first. */
  #forget(key: string, kept: Kept): void {
    if (this.#kept.get(key) === kept) this.#kept.delete(key);
    kept.pool
      .then(
        (pool) => pool.close(),
        () => undefined,
      )
      .catch(() => undefined);
  }

  async close(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.allSettled(all.map(async ({ pool }) => (await pool).destroy()));
  }
}
