// Streams of chat completions, read to their end and judged: a stream without all of its tokens, or without its end,
// fails the run.
import { Agent, request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { once } from 'node:events';

export interface ChatTarget {
  /** Base address, with `/v1`. */
  readonly url: string;
  readonly model: string;
  readonly token: string;
}

const TOKEN = '"content":"word ';

export class TokenStreams {
  readonly #target: ChatTarget;
  readonly #tokens: number;
  readonly #agent = new Agent({ keepAlive: true });

  /** @param tokens - that each stream has */
  constructor(target: ChatTarget, tokens: number) {
    this.#target = target;
    this.#tokens = tokens;
  }

  /** Reads a stream. @returns milliseconds from the request to the first token */
  async read(): Promise<number> {
    const { url, model, token } = this.#target;
    const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'go' }] });
    const startedMs = performance.now();
    const sent = request(`${url}/chat/completions`, {
      method: 'POST',
      agent: this.#agent,
      headers: {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        authorization: `Bearer ${token}`,
      },
    });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    let firstMs = Number.NaN;
    let said = '';
    for await (const part of response.setEncoding('utf8') as AsyncIterable<string>) {
      said += part;
      if (Number.isNaN(firstMs) && contentIn(said) > 0) firstMs = performance.now() - startedMs;
    }
    const found = contentIn(said);
    if (response.statusCode !== 200 || found !== this.#tokens || !said.trimEnd().endsWith('data: [DONE]'))
      throw new Error(`${url}: ${response.statusCode}, ${found} tokens of ${this.#tokens}: ${said.slice(-500)}`);
    return firstMs;
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** Tokens in a text of events; servers write JSON with and without spaces. */
const contentIn = (said: string): number => said.replaceAll('": "', '":"').split(TOKEN).length - 1;
