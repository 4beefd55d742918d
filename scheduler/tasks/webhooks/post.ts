// POST request to an address that a user named: through the guard, without
// redirects, with a deadline for each part, and mostly without the answer's body.
import type { LookupAddress } from 'node:dns';
import { Client, request } from 'undici';
import type { Outcome } from './decide.ts';
import { BlockedAddressError, guardedConnector, permittedAddresses } from './guard.ts';
import type { DialRules } from './open-networks.ts';
import { Lookups } from './lookups.ts';
import { NoPlaceError } from './places.ts';

export interface Message {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

export interface PostDeadlines {
  /** Longest time from the request's last byte to the answer's head, in milliseconds. */
  readonly answerMs: number;
  /** Longest time for the whole request once the address is known, in milliseconds: a receiver may also read slowly. */
  readonly wholeMs: number;
}

export const POST_DEADLINES: PostDeadlines = { answerMs: 30_000, wholeMs: 60_000 };
/**
 * Bytes of the answer that are read and dropped, so that an ordinary connection ends well; a longer answer is cut off.
 */
export const ANSWER_BYTES = 16 * 1024;
export const MAX_HEADER_BYTES = 16 * 1024;

export class Poster {
  readonly #rules: DialRules;
  readonly #deadlines: PostDeadlines;
  readonly #lookups: Lookups;
  readonly #open = new Set<Client>();

  constructor(rules: DialRules, deadlines: PostDeadlines = POST_DEADLINES, lookups = new Lookups()) {
    this.#rules = rules;
    this.#deadlines = deadlines;
    this.#lookups = lookups;
  }

  /**
   * Sends a message.
   * @param whose - owner of the look-up
   * @param signal - ends the request early
   * @throws only the signal's reason, when the signal ended it
   */
  async post(url: string, message: Message, whose: string, signal: AbortSignal): Promise<Outcome> {
    try {
      const find = (host: string): Promise<readonly LookupAddress[]> => this.#lookups.addressesOf(host, whose);
      const permitted = await unlessAborted(permittedAddresses(url, this.#rules, find), signal);
      return await this.#send(url, message, permitted, signal);
    } catch (error) {
      signal.throwIfAborted();
      return outcomeOf(error);
    }
  }

  async #send(
    url: string,
    message: Message,
    permitted: readonly LookupAddress[],
    signal: AbortSignal,
  ): Promise<Outcome> {
    const { answerMs, wholeMs } = this.#deadlines;
    // Each message has a client of its own: no message waits for another, and each dials the addresses checked for it.
    const client = new Client(new URL(url).origin, {
      connect: guardedConnector(permitted, this.#rules),
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
    this.#open.add(client);
    const leave = (): void => {
      this.#open.delete(client);
      client.destroy().catch(() => undefined);
    };
    try {
      const { statusCode, body } = await request(url, {
        method: 'POST',
        headers: message.headers,
        body: message.body,
        dispatcher: client,
        headersTimeout: answerMs,
        bodyTimeout: answerMs,
        reset: true,
        signal: AbortSignal.any([signal, AbortSignal.timeout(wholeMs)]),
      });
      // Only the status counts; the body is dropped.
      body
        .dump({ limit: ANSWER_BYTES, signal: AbortSignal.timeout(answerMs) })
        .catch(() => undefined)
        .finally(leave);
      return { kind: 'answered', status: statusCode };
    } catch (error) {
      leave();
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open].map((client) => client.destroy()));
  }
}

/** Rejects at once when the signal aborts; the work goes on, and its end is ignored. @throws the signal's reason */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const stop = (): void => aborted.reject(signal.reason);
  signal.addEventListener('abort', stop);
  try {
    if (signal.aborted) stop();
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** Outcome of a request that failed. */
export function outcomeOf(error: unknown): Outcome {
  let why: string | undefined;
  for (let at = error, depth = 0; at instanceof Error && depth < 4; at = at.cause, depth += 1) {
    if (at instanceof BlockedAddressError) return { kind: 'blocked' };
    if (at instanceof NoPlaceError) return { kind: 'no_place' };
    const code = 'code' in at ? at.code : undefined;
    if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT' || at.name === 'TimeoutError') {
      return { kind: 'timed_out' };
    }
    if (typeof code === 'string') why = code;
  }
  return { kind: 'connection_failed', ...(why === undefined ? {} : { why }) };
}
