// One POST to an address that somebody else named: through the guard, without following redirects, with a deadline for each part, and with hardly a look at the answer's body.
import { Agent, request } from 'undici';
import type { AddressRules } from './addresses.ts';
import type { Outcome } from './decide.ts';
import { BlockedAddressError, guardedConnector } from './guard.ts';

export interface Message {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

export interface PostDeadlines {
  /** From the request's last byte to the answer's head. */
  readonly answerMs: number;
  /** For all of it: a receiver may also read slowly. */
  readonly wholeMs: number;
}

export const POST_DEADLINES: PostDeadlines = { answerMs: 30_000, wholeMs: 60_000 };
/** Read and thrown away, so that an ordinary connection ends well; more is cut off. */
const ANSWER_BYTES = 16 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;
const PER_ORIGIN = 16;

export class Poster {
  readonly #agent: Agent;
  readonly #deadlines: PostDeadlines;

  constructor(rules: AddressRules, deadlines: PostDeadlines = POST_DEADLINES) {
    this.#deadlines = deadlines;
    this.#agent = new Agent({
      connect: guardedConnector(rules),
      connections: PER_ORIGIN,
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: MAX_HEADER_BYTES,
    });
  }

  /** @param signal - ends it early @throws the signal's reason when that ended it; nothing else */
  async post(url: string, message: Message, signal: AbortSignal): Promise<Outcome> {
    const { answerMs, wholeMs } = this.#deadlines;
    try {
      const { statusCode, body } = await request(url, {
        method: 'POST',
        headers: message.headers,
        body: message.body,
        dispatcher: this.#agent,
        headersTimeout: answerMs,
        bodyTimeout: answerMs,
        // A connection for each: nobody is kept waiting for the end of somebody else's.
        reset: true,
        signal: AbortSignal.any([signal, AbortSignal.timeout(wholeMs)]),
      });
      // The status is the answer; what follows it is nobody's.
      body.dump({ limit: ANSWER_BYTES, signal: AbortSignal.timeout(answerMs) }).catch(() => undefined);
      return { kind: 'answered', status: statusCode };
    } catch (error) {
      signal.throwIfAborted();
      return outcomeOf(error);
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

function outcomeOf(error: unknown): Outcome {
  for (let at = error, depth = 0; at instanceof Error && depth < 4; at = at.cause, depth += 1) {
    if (at instanceof BlockedAddressError) return { kind: 'blocked' };
    const code = 'code' in at ? at.code : undefined;
    if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT' || at.name === 'TimeoutError') {
      return { kind: 'timed_out' };
    }
  }
  return { kind: 'connection_failed' };
}
