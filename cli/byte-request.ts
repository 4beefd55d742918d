/**
 * HTTP/1.1 requests with large bodies. An answer's bytes are read into a few buffers that are used again, and parts of
 * a request's body are sent from where they lie: a general client takes new memory for every 64 KiB, which costs more
 * than the bytes themselves. Must stay true: no more is read than those buffers hold; an answer that ends early fails.
 */
import { connect as connectTcp, isIP } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** Bytes of a request's or an answer's body, taken one by one as they come. */
export interface ByteSource {
  /** Bytes that have come; they hold until the next call. Undefined: nothing yet, or the end. */
  next(): Buffer | undefined;
  /** Waits for more. @returns false: the end */
  more(): Promise<boolean>;
  /** Nobody wants the rest. */
  close(): void;
}

export interface ByteRequest {
  readonly method: 'POST' | 'PUT';
  readonly contentType: string;
  /** Each part must hold until the part after the next one is asked for. */
  readonly body: Buffer | AsyncIterable<Buffer>;
}

export interface ByteAnswer {
  readonly status: number;
  readonly body: ByteSource;
}

/** The body of a request failed; `cause` is what it threw. */
export class BodyFailure extends Error {
  override readonly name = 'BodyFailure';
}

export interface Trust {
  readonly ca?: string[];
  readonly allowPartialTrustChain?: boolean;
}

const CONNECT_WITHIN_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;
/** Time for which a connection waits for its next request. */
const IDLE_MS = 5_000;
const READ_BYTES = 512 * 1024;
/** Buffers of a connection: one is read into, one is looked at, and one waits. */
const BUFFERS = 3;
const MOST_HEAD_BYTES = 64 * 1024;
const LINE_END = 0x0a;

/** Connections for such requests. */
export class ByteRequests {
  readonly #trust: Trust;
  readonly #open = new Set<Connection>();
  readonly #idle = new Map<Connection, NodeJS.Timeout>();

  constructor(trust: Trust) {
    this.#trust = trust;
  }

  /**
   * Sends a request, and gives the answer's head once it is there.
   * @throws BodyFailure; the signal's reason; an error with the system's code when the connection fails
   */
  async send(url: string, request: ByteRequest, signal: AbortSignal): Promise<ByteAnswer> {
    signal.throwIfAborted();
    const { origin, protocol, hostname, port, host, pathname, search } = new URL(url);
    const connection = this.#taken(origin) ?? this.#dial(origin, protocol === 'https:', hostname, port);
    const stop = (): void => connection.fail(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    const over = (isUsable: boolean): void => {
      signal.removeEventListener('abort', stop);
      if (isUsable) this.#rest(connection);
      else connection.fail(lost());
    };
    return connection.exchange(`${request.method} ${pathname}${search} HTTP/1.1\r\nhost: ${host}`, request, over);
  }

  close(): void {
    for (const connection of this.#open) connection.fail(lost());
  }

  #taken(origin: string): Connection | undefined {
    for (const [connection, timer] of this.#idle) {
      if (connection.origin !== origin) continue;
      clearTimeout(timer);
      this.#idle.delete(connection);
      if (connection.isReady) return connection;
      connection.fail(lost());
    }
    return undefined;
  }

  #rest(connection: Connection): void {
    const timer = setTimeout(() => connection.fail(lost()), IDLE_MS);
    timer.unref();
    this.#idle.set(connection, timer);
  }

  #dial(origin: string, isSecure: boolean, hostname: string, port: string): Connection {
    const host = hostname.replace(/^\[|\]$/g, '');
    const connection = new Connection(origin, (onread) => {
      if (!isSecure) return connectTcp({ host, port: Number(port || 80), onread });
      const name = isIP(host) === 0 ? { servername: host } : {};
      // The types leave `onread` out, which Node documents for both.
      const options = { host, port: Number(port || 443), ...name, ALPNProtocols: ['http/1.1'], ...this.#trust };
      return connectTls(Object.assign(options, { onread }));
    });
    this.#open.add(connection);
    connection.onceOver(() => {
      this.#open.delete(connection);
      clearTimeout(this.#idle.get(connection));
      this.#idle.delete(connection);
    });
    return connection;
  }
}

const lost = (): Error => Object.assign(new Error('the answer broke off'), { code: 'ECONNRESET' });

interface OnRead {
  readonly buffer: () => Buffer;
  readonly callback: (count: number, memory: Uint8Array) => boolean;
}

/** A connection, with one request at a time. */
class Connection {
  readonly origin: string;
  readonly #socket: Socket;
  readonly #free: Buffer[] = Array.from({ length: BUFFERS }, () => Buffer.allocUnsafeSlow(READ_BYTES));
  /** Bytes that wait, each in a buffer of its own. */
  readonly #come: Buffer[] = [];
  /** The buffer that is looked at until more is asked for. */
  #seen: Buffer | undefined;
  /** The begin of a line whose end has not come. */
  #line = '';
  #failure: unknown;
  #isOver = false;
  #wake = Promise.withResolvers<void>();
  #onOver: () => void = () => undefined;

  constructor(origin: string, dial: (onread: OnRead) => Socket) {
    this.origin = origin;
    const free = this.#free;
    this.#socket = dial({
      buffer: () => free.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES),
      callback: (count, memory) => {
        this.#come.push(Buffer.from(memory.buffer, memory.byteOffset, count));
        this.#wake.resolve();
        // The next read's buffer is taken now; without another behind it that read must wait.
        return free.length > 1;
      },
    });
    this.#socket.setNoDelay(true);
    this.#socket.resume();
    const isSecure = 'encrypted' in this.#socket;
    const late = setTimeout(
      () => this.fail(Object.assign(new Error('it did not answer in time'), { code: 'ETIMEDOUT' })),
      CONNECT_WITHIN_MS,
    );
    this.#socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      clearTimeout(late);
      this.#socket.setKeepAlive(true, KEEP_ALIVE_MS);
    });
    this.#socket.on('error', (error) => this.fail(error));
    this.#socket.once('end', () => this.#over());
    this.#socket.once('close', () => {
      clearTimeout(late);
      this.#over();
      this.#onOver();
    });
  }

  /** Whether another exchange may begin: nothing came behind the last one. */
  get isReady(): boolean {
    return !this.#isOver && this.#come.length === 0 && this.#line === '';
  }

  onceOver(then: () => void): void {
    this.#onOver = then;
  }

  fail(reason: unknown): void {
    if (!this.#isOver) this.#failure ??= reason;
    this.#over();
    this.#socket.destroy();
  }

  #over(): void {
    this.#isOver = true;
    this.#wake.resolve();
  }

  /** @param over - called once, when the exchange is: true: another one may follow on this connection */
  async exchange(begin: string, request: ByteRequest, over: (isUsable: boolean) => void): Promise<ByteAnswer> {
    let isAnswered = false;
    let isSent = false;
    void this.#send(begin, request, () => isAnswered).then((isWhole) => (isSent = isWhole));
    try {
      const head = await this.#head();
      isAnswered = true;
      // An answer may come before the request is out. The rest of it is not sent then, so nothing may follow it.
      const ended = (isWhole: boolean): void => over(isWhole && isSent && head.isKept);
      return { status: head.status, body: new AnswerBody(this, head, ended) };
    } catch (error) {
      over(false);
      throw error;
    }
  }

  /** @returns whether everything was sent */
  async #send(begin: string, { contentType, body }: ByteRequest, isAnswered: () => boolean): Promise<boolean> {
    const framing = Buffer.isBuffer(body) ? `content-length: ${body.length}` : 'transfer-encoding: chunked';
    this.#socket.write(`${begin}\r\ncontent-type: ${contentType}\r\n${framing}\r\n\r\n`);
    try {
      if (Buffer.isBuffer(body)) {
        await this.#written([body]);
        return !this.#isOver;
      }
      let before: Promise<void> | undefined;
      for await (const part of body) {
        if (part.length === 0) continue;
        const written = this.#written([`${part.length.toString(16)}\r\n`, part, '\r\n']);
        await before;
        if (this.#isOver || isAnswered()) return false;
        before = written;
      }
      await before;
      await this.#written(['0\r\n\r\n']);
      return !this.#isOver;
    } catch (error) {
      this.fail(new BodyFailure('the body of the request failed', { cause: error }));
      return false;
    }
  }

  /** Resolves when the parts are out, and their memory may be used again; also when the connection is over. */
  #written(parts: readonly (string | Buffer)[]): Promise<void> {
    return new Promise((resolve) => {
      const socket = this.#socket;
      if (socket.destroyed) return resolve();
      socket.cork();
      parts.forEach((part, at) => {
        if (at < parts.length - 1) socket.write(part);
        else socket.write(part, () => resolve());
      });
      socket.uncork();
    });
  }

  async #head(): Promise<Head> {
    let first = '';
    let bytes = 0;
    const headers = new Map<string, string>();
    for (;;) {
      const line = this.line();
      if (line === undefined) {
        if (!(await this.more())) throw lost();
        continue;
      }
      bytes += line.length;
      if (bytes > MOST_HEAD_BYTES) throw unreadable();
      if (first === '') first = line;
      else if (line !== '') {
        const at = line.indexOf(':');
        headers.set(line.slice(0, at).toLowerCase(), line.slice(at + 1).trim());
      } else {
        const head = headOf(first, headers);
        if (head.status >= 200) return head;
        // Interim answers, such as `100 Continue`.
        first = '';
        headers.clear();
      }
    }
  }

  /** Waits for bytes. @returns false: none come any more. @throws what the connection failed with */
  async more(): Promise<boolean> {
    while (this.#come.length === 0) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#isOver) return false;
      this.#wake = Promise.withResolvers<void>();
      await this.#wake.promise;
    }
    return true;
  }

  /** Up to so many bytes of what has come; they hold until the next call. */
  take(most: number): Buffer | undefined {
    this.#giveBack();
    const [waiting] = this.#come;
    if (waiting === undefined) return undefined;
    if (waiting.length <= most) {
      this.#come.shift();
      this.#seen = waiting;
      return waiting;
    }
    this.#come[0] = waiting.subarray(most);
    return waiting.subarray(0, most);
  }

  #giveBack(): void {
    if (this.#seen === undefined) return;
    this.#free.push(Buffer.from(this.#seen.buffer));
    this.#seen = undefined;
    if (!this.#socket.destroyed) this.#socket.resume();
  }

  /** The next line, without its end; undefined: it has not come whole. @throws when it is too long */
  line(): string | undefined {
    for (;;) {
      const [waiting] = this.#come;
      if (waiting === undefined) {
        this.#giveBack();
        return undefined;
      }
      const end = waiting.subarray(0, MOST_HEAD_BYTES).indexOf(LINE_END);
      const part = this.take(end < 0 ? waiting.length : end + 1);
      this.#line += part?.toString('latin1') ?? '';
      if (this.#line.length > MOST_HEAD_BYTES) throw unreadable();
      if (end < 0) continue;
      const line = this.#line.replace(/\r?\n$/, '');
      this.#line = '';
      return line;
    }
  }
}

const unreadable = (): Error => Object.assign(new Error('the answer cannot be read'), { code: 'EPROTO' });

interface Head {
  readonly status: number;
  /** Bytes of the body; undefined: in chunks, or to the end of the connection. */
  readonly length: number | undefined;
  readonly isChunked: boolean;
  /** The connection stays open behind the answer. */
  readonly isKept: boolean;
}

function headOf(first: string, headers: ReadonlyMap<string, string>): Head {
  const [, minor = '', code = ''] = /^HTTP\/1\.([01]) (\d{3})(?: |$)/.exec(first) ?? [];
  if (code === '') throw unreadable();
  const status = Number(code);
  const isChunked = headers.get('transfer-encoding')?.toLowerCase() === 'chunked';
  const length = headers.get('content-length');
  if (length !== undefined && !/^\d{1,15}$/.test(length)) throw unreadable();
  const isEmpty = status < 200 || status === 204 || status === 304;
  const known = isEmpty ? 0 : isChunked || length === undefined ? undefined : Number(length);
  const isKept =
    minor === '1' && headers.get('connection')?.toLowerCase() !== 'close' && (isChunked || known !== undefined);
  return { status, length: known, isChunked, isKept };
}

/** The body of an answer, without its chunks. */
class AnswerBody implements ByteSource {
  readonly #connection: Connection;
  #over: ((isWhole: boolean) => void) | undefined;
  /** Bytes left of the body, or of its chunk. */
  #left: number;
  /** The part that comes behind those bytes. */
  #behind: 'nothing' | 'size' | 'line end' | 'trailers' = 'nothing';

  constructor(connection: Connection, head: Head, over: (isWhole: boolean) => void) {
    this.#connection = connection;
    this.#over = over;
    this.#left = head.length ?? (head.isChunked ? 0 : Number.POSITIVE_INFINITY);
    if (head.isChunked) this.#behind = 'size';
    else if (this.#left === 0) this.#end(true);
  }

  next(): Buffer | undefined {
    while (this.#over !== undefined) {
      if (this.#left > 0) {
        const piece = this.#connection.take(this.#left);
        this.#left -= piece?.length ?? 0;
        return piece;
      }
      if (this.#behind === 'nothing') this.#end(true);
      else if (!this.#frame()) return undefined;
    }
    return undefined;
  }

  /** Reads what is between chunks. @returns false: it has not come yet */
  #frame(): boolean {
    const line = this.#connection.line();
    if (line === undefined) return false;
    if (this.#behind === 'size') {
      const [, size] = /^([0-9a-f]{1,12})\s*(?:;|$)/i.exec(line) ?? [];
      if (size === undefined) throw unreadable();
      this.#left = Number.parseInt(size, 16);
      this.#behind = this.#left === 0 ? 'trailers' : 'line end';
    } else if (this.#behind === 'line end') {
      if (line !== '') throw unreadable();
      this.#behind = 'size';
    } else if (line === '') this.#end(true);
    return true;
  }

  async more(): Promise<boolean> {
    if (this.#over === undefined) return false;
    if (await this.#connection.more()) return true;
    const isWhole = this.#left === Number.POSITIVE_INFINITY;
    this.#end(false);
    if (!isWhole) throw lost();
    return false;
  }

  close(): void {
    this.#end(false);
  }

  #end(isWhole: boolean): void {
    const over = this.#over;
    this.#over = undefined;
    over?.(isWhole);
  }
}

/** Reads a body whole. @throws RangeError above the bound */
export async function readWhole(body: ByteSource, mostBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  do {
    for (let part = body.next(); part !== undefined; part = body.next()) {
      size += part.length;
      if (size > mostBytes) {
        body.close();
        throw new RangeError(`the answer is larger than ${mostBytes} bytes`);
      }
      parts.push(Buffer.from(part));
    }
  } while (await body.more());
  return Buffer.concat(parts, size);
}
