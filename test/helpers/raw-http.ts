// HTTP by hand: requests as bytes, answers as they came.
import { connect } from 'node:net';
import type { Socket } from 'node:net';

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** All values of headers that may repeat. */
  readonly lists: ReadonlyMap<string, readonly string[]>;
  /** The body, its chunks put together. */
  readonly body: Buffer;
  /** Trailers behind the last chunk. */
  readonly trailers: Readonly<Record<string, string>>;
  /** The body came to its announced end. */
  readonly isWhole: boolean;
  /** Answers of status 1xx before it. */
  readonly informational: readonly number[];
}

/** A connection that one test drives by hand. */
export class RawConnection {
  readonly socket: Socket;
  readonly opened: Promise<void>;
  #bytes = Buffer.alloc(0);
  #isClosed = false;
  readonly #waiters = new Set<() => void>();

  constructor(address: string) {
    const [host = '', port = ''] = address.split(':');
    this.socket = connect({ host, port: Number(port) });
    this.opened = new Promise((resolve) => this.socket.once('connect', () => resolve()));
    this.socket.on('error', () => undefined);
    this.socket.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      this.#wake();
    });
    this.socket.on('close', () => {
      this.#isClosed = true;
      this.#wake();
    });
    this.socket.on('end', () => {
      this.#isClosed = true;
      this.#wake();
    });
  }

  #wake(): void {
    for (const waiter of this.#waiters) waiter();
  }

  get received(): Buffer {
    return this.#bytes;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  send(bytes: string | Buffer): void {
    this.socket.write(bytes);
  }

  /** Waits until the bytes so far satisfy a condition, or the connection ends. */
  until(isEnough: (bytes: Buffer) => boolean, timeoutMs = 20_000): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiters.delete(look);
        reject(new Error(`nothing more came: ${JSON.stringify(this.#bytes.toString('latin1').slice(-300))}`));
      }, timeoutMs);
      const look = (): void => {
        if (!this.#isClosed && !isEnough(this.#bytes)) return;
        clearTimeout(timer);
        this.#waiters.delete(look);
        resolve();
      };
      this.#waiters.add(look);
      look();
    });
  }

  /** Reads one answer; bytes behind it stay for the next one. @param method - HEAD has no body */
  async answer(method = 'GET', timeoutMs = 20_000): Promise<RawAnswer> {
    let parsed: { readonly answer: RawAnswer; readonly length: number } | undefined;
    await this.until((bytes) => (parsed = parse(bytes, method, this.#isClosed)) !== undefined, timeoutMs);
    parsed ??= parse(this.#bytes, method, true);
    if (parsed === undefined) throw new Error(`no answer: ${JSON.stringify(this.#bytes.toString('latin1'))}`);
    this.#bytes = this.#bytes.subarray(parsed.length);
    return parsed.answer;
  }

  close(): void {
    this.socket.destroy();
  }
}

function parse(
  bytes: Buffer,
  method: string,
  isClosed: boolean,
): { readonly answer: RawAnswer; readonly length: number } | undefined {
  const informational: number[] = [];
  let at = 0;
  for (;;) {
    const end = bytes.indexOf('\r\n\r\n', at);
    if (end < 0) return undefined;
    const lines = bytes.toString('latin1', at, end).split('\r\n');
    const status = Number((lines[0] ?? '').split(' ')[1]);
    at = end + 4;
    if (status >= 100 && status < 200 && status !== 101) {
      informational.push(status);
      continue;
    }
    const lists = new Map<string, string[]>();
    for (const line of lines.slice(1)) {
      const colon = line.indexOf(':');
      const name = line.slice(0, colon).toLowerCase();
      lists.set(name, [...(lists.get(name) ?? []), line.slice(colon + 1).trim()]);
    }
    const headers = Object.fromEntries([...lists].map(([name, values]) => [name, values.join(', ')]));
    const common = { status, headers, lists, informational, trailers: {} };
    const whole = (body: Buffer, length: number, isWhole = true, trailers = {}) => ({
      answer: { ...common, body, isWhole, trailers },
      length,
    });
    const hasNone = method === 'HEAD' || status === 204 || status === 304 || status === 101;
    if (hasNone) return whole(Buffer.alloc(0), at);
    if (headers['transfer-encoding'] === 'chunked') {
      const chunks = dechunk(bytes, at);
      if (chunks.isWhole || isClosed) return whole(chunks.body, chunks.end, chunks.isWhole, chunks.trailers);
      return undefined;
    }
    if (headers['content-length'] !== undefined) {
      const length = Number(headers['content-length']);
      if (bytes.length - at >= length) return whole(bytes.subarray(at, at + length), at + length);
      return isClosed ? whole(bytes.subarray(at), bytes.length, false) : undefined;
    }
    return isClosed ? whole(bytes.subarray(at), bytes.length) : undefined;
  }
}

function dechunk(
  bytes: Buffer,
  from: number,
): {
  readonly body: Buffer;
  readonly end: number;
  readonly isWhole: boolean;
  readonly trailers: Record<string, string>;
} {
  const parts: Buffer[] = [];
  const trailers: Record<string, string> = {};
  let at = from;
  const cut = () => ({ body: Buffer.concat(parts), end: bytes.length, isWhole: false, trailers });
  for (;;) {
    const line = bytes.indexOf('\r\n', at);
    if (line < 0) return cut();
    const size = Number.parseInt(bytes.toString('latin1', at, line), 16);
    at = line + 2;
    if (size === 0) {
      for (;;) {
        const end = bytes.indexOf('\r\n', at);
        if (end < 0) return cut();
        const text = bytes.toString('latin1', at, end);
        at = end + 2;
        if (text === '') return { body: Buffer.concat(parts), end: at, isWhole: true, trailers };
        const colon = text.indexOf(':');
        trailers[text.slice(0, colon).toLowerCase()] = text.slice(colon + 1).trim();
      }
    }
    if (bytes.length < at + size + 2) {
      parts.push(bytes.subarray(at, Math.min(bytes.length, at + size)));
      return cut();
    }
    parts.push(bytes.subarray(at, at + size));
    at += size + 2;
  }
}
