/** A receiver's HTTP server for messages of the scheduler: keeps every request and answers as the test says. */
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { waitFor } from './programs.ts';

export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** Names as they came. */
  readonly rawHeaders: readonly string[];
  readonly body: string;
}

/**
 * A status, with headers where they matter, given `once` something is done; `never`: no answer at all; `endless`: a
 * head, and a body without end.
 */
export type Reply =
  | number
  | 'never'
  | 'endless'
  | {
      readonly status: number;
      readonly location?: string;
      readonly retryAfter?: string;
      readonly once?: Promise<unknown>;
    };

export class Receiver {
  readonly requests: Received[] = [];
  /** Replies by path, used in turn; the last one stays. */
  readonly replies = new Map<string, Reply[]>();
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('error', () => undefined);
      request.on('end', () => {
        const { url: path = '', headers, rawHeaders } = request;
        this.requests.push({ path, headers, rawHeaders, body: Buffer.concat(parts).toString() });
        const replies = this.replies.get(path) ?? [200];
        const reply = replies.length > 1 ? replies.shift() : replies[0];
        if (reply === 'never') return;
        if (reply === 'endless') {
          response.writeHead(200);
          const more = (): void => {
            while (!response.destroyed && response.write(Buffer.alloc(64 * 1024))) void 0;
          };
          response.on('drain', more);
          return more();
        }
        if (typeof reply === 'object') {
          const { status, location, retryAfter, once = Promise.resolve() } = reply;
          const headers = {
            ...(location === undefined ? {} : { location }),
            ...(retryAfter === undefined ? {} : { 'retry-after': retryAfter }),
          };
          void once.then(() => response.writeHead(status, headers).end());
        } else response.writeHead(reply ?? 200).end('thanks');
      });
    });
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return this;
  }

  url(path: string): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${path}`;
  }

  at(path: string): readonly Received[] {
    return this.requests.filter((request) => request.path === path);
  }

  /** The next `count` at that path, all told. */
  async until(path: string, count = 1): Promise<readonly Received[]> {
    await waitFor(() => this.at(path).length >= count, `${count} at ${path}, has ${this.at(path).length}`);
    return this.at(path);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => void this.#server.close(() => resolve()));
  }
}
