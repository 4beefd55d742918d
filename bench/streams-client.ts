// A caller of a web application, as the benchmark of streamed calls needs it: times of first bytes, bodies of any size
// at full speed, WebSockets that echo.
import { Agent, request } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { sleep } from '#shared/backoff.ts';
import { WebSocket } from 'ws';
import { writable } from '../test/helpers/transfers.ts';

/** An application and the headers that its calls need. */
export interface WebTarget {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

const PIECE = Buffer.alloc(256 * 1024, 'x');
/** A connection on which nothing passes for so long is stuck. */
const SILENT_MS = 60_000;

/** Calls on connections that stay open. */
export class WebClient {
  readonly #target: WebTarget;
  readonly #agent: Agent;

  constructor(target: WebTarget, connections = 1) {
    this.#target = target;
    this.#agent = new Agent({ keepAlive: true, maxSockets: connections });
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Calls one after the other. @returns milliseconds from each request to the first byte of its body */
  async firstBytes(path: string, until: { readonly calls: number }): Promise<readonly number[]> {
    const took: number[] = [];
    for (let call = 0; call < until.calls; call += 1) took.push(await this.firstByte(path));
    return took;
  }

  /** Reads the answer to its end. @returns milliseconds from the request to the first byte of the body */
  async firstByte(path: string): Promise<number> {
    const startedMs = performance.now();
    const answer = await this.#answer(this.#request('GET', path, true));
    return new Promise((resolve, reject) => {
      let ms: number | undefined;
      answer.on('data', () => (ms ??= performance.now() - startedMs));
      answer.once('error', reject);
      answer.once('end', () => (ms === undefined ? reject(new Error(`${path}: no body`)) : resolve(ms)));
    });
  }

  /** Calls an endpoint. @returns its answer's body */
  async call(body: string): Promise<string> {
    const sent = this.#request('POST', '', false);
    sent.end(body);
    return textOf(await this.#answer(sent));
  }

  /**
   * Calls an endpoint at a fixed rate, however long the answers take. All must be alike.
   * @returns milliseconds from the time that each call was due to the end of its answer
   */
  async offered(
    { perSecond, body }: { readonly perSecond: number; readonly body: string },
    ms: number,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    const expected = await this.call(body);
    const took: Promise<number>[] = [];
    const startedMs = performance.now();
    for (let number = 0; number < (ms / 1000) * perSecond; number += 1) {
      signal.throwIfAborted();
      const dueMs = startedMs + (number / perSecond) * 1000;
      const waitMs = dueMs - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      took.push(
        this.call(body).then((answer) => {
          if (answer !== expected) throw new Error(`a call was answered with ${answer}`);
          return performance.now() - dueMs;
        }),
      );
    }
    return Promise.all(took);
  }

  /** @returns seconds until the last byte */
  async download(bytes: number): Promise<number> {
    const startedMs = performance.now();
    const answer = await this.#answer(this.#request('GET', `/download?${bytes}`, true));
    let got = 0;
    await new Promise<void>((resolve, reject) => {
      answer.on('data', (chunk: Buffer) => (got += chunk.length));
      answer.once('error', reject);
      answer.once('end', resolve);
    });
    if (got !== bytes) throw new Error(`a download brought ${got} of ${bytes} bytes`);
    return (performance.now() - startedMs) / 1000;
  }

  /** @returns seconds until the answer, which must name the size */
  async upload(bytes: number): Promise<number> {
    const startedMs = performance.now();
    const sent = this.#request('POST', '/upload', false);
    const answer = this.#answer(sent);
    answer.catch(() => undefined);
    for (let at = 0; at < bytes; at += PIECE.length) {
      if (!sent.write(PIECE.subarray(0, Math.min(PIECE.length, bytes - at)))) await writable(sent);
      if (sent.destroyed) break;
    }
    sent.end();
    const text = await textOf(await answer);
    if (text !== String(bytes)) throw new Error(`an upload of ${bytes} bytes was answered with ${text}`);
    return (performance.now() - startedMs) / 1000;
  }

  /** Begins a call and leaves its answer unread. @returns once its head has come; the way to end it */
  async stalled(path: string): Promise<() => void> {
    const answer = await this.#answer(this.#request('GET', path, true));
    answer.on('error', () => undefined);
    answer.pause();
    return () => void answer.destroy();
  }

  /** A stream of events. */
  async events(path: string): Promise<EventStream> {
    const answer = await this.#answer(this.#request('GET', path, true));
    let count = 0;
    answer.on('data', () => (count += 1));
    answer.on('error', () => undefined);
    return {
      count: () => count,
      isAlive: () => !answer.destroyed && !answer.readableEnded,
      close: () => void answer.destroy(),
    };
  }

  #request(method: string, path: string, isWhole: boolean): ClientRequest {
    const { url, headers } = this.#target;
    const sent = request(`${url}${path}`, { method, headers, agent: this.#agent });
    sent.setTimeout(SILENT_MS, () =>
      sent.destroy(new Error(`${method} ${path}: nothing came for ${SILENT_MS / 1000} s`)),
    );
    if (isWhole) sent.end();
    return sent;
  }

  /** @throws Error for a status that is not 200 */
  async #answer(sent: ClientRequest): Promise<IncomingMessage> {
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      sent.once('response', resolve);
      sent.once('error', reject);
    });
    if (answer.statusCode === 200) return answer;
    throw new Error(`${sent.path} answered ${answer.statusCode}: ${(await textOf(answer)).slice(0, 300)}`);
  }
}

export interface EventStream {
  readonly count: () => number;
  readonly isAlive: () => boolean;
  readonly close: () => void;
}

async function textOf(answer: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  return Buffer.concat(parts).toString('utf8');
}

/** A WebSocket to the application, whose messages come back. */
export class EchoSocket {
  readonly #socket: WebSocket;
  #answered: (data: Buffer) => void = () => undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data) => this.#answered(data as Buffer));
    socket.on('error', () => undefined);
  }

  static async open({ url, headers }: WebTarget): Promise<EchoSocket> {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/echo`, { headers, perMessageDeflate: false });
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
    return new EchoSocket(socket);
  }

  get isAlive(): boolean {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  /** Sends a message and waits for it. @returns milliseconds */
  async roundTrip(message: Buffer): Promise<number> {
    const startedMs = performance.now();
    const answer = await new Promise<Buffer>((resolve, reject) => {
      this.#answered = resolve;
      this.#socket.once('close', reject);
      this.#socket.send(message);
    });
    this.#socket.removeAllListeners('close');
    if (answer.length !== message.length) throw new Error(`${message.length} bytes came back as ${answer.length}`);
    return performance.now() - startedMs;
  }

  close(): void {
    this.#socket.terminate();
  }
}
