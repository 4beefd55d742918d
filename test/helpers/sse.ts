/** A client of server-sent events over a plain connection: what came so far, frame by frame. */
import { Agent, request } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { waitFor } from './programs.ts';

export interface Frame {
  readonly id?: string;
  readonly event?: string;
  readonly data: string;
}

export class SseClient {
  readonly frames: Frame[] = [];
  readonly comments: string[] = [];
  status = 0;
  headers: IncomingMessage['headers'] = {};
  text = '';
  isOver = false;
  /** A connection of its own, kept as browsers keep theirs. */
  readonly #agent = new Agent({ keepAlive: true });
  #request: ClientRequest | undefined;
  #response: IncomingMessage | undefined;
  #rest = '';

  /** Opens a stream, and waits for its head. */
  static async open(url: string, token?: string, headers: Readonly<Record<string, string>> = {}): Promise<SseClient> {
    const client = new SseClient();
    const all = { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...headers };
    await new Promise<void>((resolve, reject) => {
      const opened = request(url, { headers: all, agent: client.#agent }, (response) => {
        client.#response = response;
        client.status = response.statusCode ?? 0;
        client.headers = response.headers;
        response.setEncoding('utf8');
        response.on('data', (text: string) => client.#read(text));
        response.on('close', () => (client.isOver = true));
        response.on('error', () => undefined);
        resolve();
      });
      opened.on('error', (error) => {
        client.isOver = true;
        reject(error);
      });
      client.#request = opened;
      opened.end();
    });
    if (client.status !== 200) await client.over();
    return client;
  }

  #read(text: string): void {
    this.text += text;
    this.#rest += text;
    const blocks = this.#rest.split('\n\n');
    this.#rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const fields = new Map<string, string>();
      for (const line of block.split('\n')) {
        if (line.startsWith(':')) this.comments.push(line.slice(2));
        else {
          const at = line.indexOf(': ');
          const [name, value] = [line.slice(0, at), line.slice(at + 2)];
          const before = fields.get(name);
          fields.set(name, before === undefined ? value : `${before}\n${value}`);
        }
      }
      const data = fields.get('data');
      const [id, event] = [fields.get('id'), fields.get('event')];
      if (data !== undefined)
        this.frames.push({ ...(id === undefined ? {} : { id }), ...(event === undefined ? {} : { event }), data });
    }
  }

  get ids(): readonly number[] {
    return this.frames.map(({ id }) => Number(id));
  }

  json(at: number): Record<string, unknown> {
    return JSON.parse(this.frames.at(at)?.data ?? 'null') as Record<string, unknown>;
  }

  /** Waits for so many frames. */
  async has(count: number, what = `${count} frames`): Promise<void> {
    await waitFor(() => this.frames.length >= count, `${what} (${this.frames.length} came: ${this.text.slice(-200)})`);
  }

  async over(): Promise<void> {
    await waitFor(() => this.isOver, 'the stream ends');
  }

  /** Stops reading, as a caller who is stuck does. */
  pause(): void {
    this.#response?.pause();
  }

  resume(): void {
    this.#response?.resume();
  }

  close(): void {
    this.#request?.destroy();
    this.#agent.destroy();
  }
}
