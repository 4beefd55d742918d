// One POST to an address that somebody else named: through the guard, without following redirects, with a deadline for each part, and with hardly a look at the answer's body.
import type { LookupAddress } from 'node:dns';
import { Client, request } from 'undici';
import type { AddressRules } from './addresses.ts';
import type { Outcome } from './decide.ts';
import { BlockedAddressError, guardedConnector, permittedAddresses } from './guard.ts';
import { Lookups } from './lookups.ts';
import { NoPlaceError } from './places.ts';

export interface Message {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

export interface PostDeadlines {
  /** From the request's last byte to the answer's head. */
  readonly answerMs: number;
  /** For all of it, once the address is known: a receiver may also read slowly. */
  readonly wholeMs: number;
}

export const POST_DEADLINES: PostDeadlines = { answerMs: 30_000, wholeMs: 60_000 };
/** Read and thrown away, so that an ordinary connection ends well; more is cut off. */
const ANSWER_BYTES = 16 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;

export class Poster {
  readonly #rules: AddressRules;
  readonly #deadlines: PostDeadlines;
  readonly #lookups: Lookups;
  readonly #open = new Set<Client>();

  constructor(rules: AddressRules, deadlines: PostDeadlines = POST_DEADLINES, lookups = new Lookups()) {
    this.#rules = rules;
    this.#deadlines = deadlines;
    this.#lookups = lookups;
  }

  /** @param whose - whom its look-up is counted for @param signal - ends it early @throws the signal's reason when that ended it; nothing else */
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
    // One for each message: nobody is kept waiting for the end of somebody else's, and it dials what was judged for this one.
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
      // The status is the answer; what follows it is nobody's.
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

/** @throws the signal's reason, at once; the work goes on, and its end is nobody's */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
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

function outcomeOf(error: unknown): Outcome {
  for (let at = error, depth = 0; at instanceof Error && depth < 4; at = at.cause, depth += 1) {
    if (at instanceof BlockedAddressError) return { kind: 'blocked' };
    if (at instanceof NoPlaceError) return { kind: 'no_place' };
    const code = 'code' in at ? at.code : undefined;
    if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT' || at.name === 'TimeoutError') {
      return { kind: 'timed_out' };
    }
  }
  return { kind: 'connection_failed' };
}
