// A call to a port in a container, in the frames by which http-exchange.ts knows calls: HTTP/1.1 is spoken here, with
// the program in the container. Node reads its responses strictly: bytes that are no response are none.
// Invariant: one connection serves one request. A caller who leaves ends it.
import { request as httpRequest } from 'node:http';
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { messageOf } from '#shared/errors.ts';
import type { Frame, FrameKind } from '#shared/protocol/frames.ts';
import type { FrameEvents, Frames } from '#shared/protocol/frame-stream.ts';
import { flushHead } from './flush-head.ts';
import { hasBody, waitsForContinue } from './head.ts';
import type { HeaderList } from './head.ts';
import { MOST_HEAD_BYTES } from './limits.ts';
import { PortConnection, PortRefused } from './port-connection.ts';

/** Most early hints that are passed on: nothing holds them back while the caller does not read. */
const MOST_HINTS = 16;
/** Most responses before the final one. */
const MOST_INFORMATION = 10_000;
const EMPTY = Buffer.alloc(0);

/** Methods for which a request without a body says nothing of one. */
const WITHOUT_BODY: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE']);

export interface PortCall {
  readonly bytes: Duplex;
  readonly port: number;
  /** Time for which the supervisor tries while nothing listens yet. */
  readonly waitMs: number;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Path and query for the program. */
  readonly path: string;
  readonly headers: HeaderList;
  /** Whether early hints pass. */
  readonly takesHints: boolean;
  /** Value of `Upgrade`, where the caller asks for another protocol. */
  readonly upgrade?: string;
}

/** The other protocol that the program has agreed to speak. */
export interface Upgraded {
  readonly head: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes that came behind the head. */
  readonly early: Buffer;
}

export class PortFrames implements Frames {
  readonly #call: PortCall;
  readonly #events: FrameEvents;
  readonly #connection: PortConnection;
  readonly #request: ClientRequest;
  #response: IncomingMessage | undefined;
  #isOver = false;
  #information = 0;
  #hints = 0;
  /** Why there is no response; undefined: there is one, or the container may be gone. */
  refusal: string | undefined;
  upgraded: Upgraded | undefined;

  constructor(call: PortCall, events: FrameEvents) {
    this.#call = call;
    this.#events = events;
    this.#connection = new PortConnection(call.bytes, call.port, call.waitMs);
    this.#request = httpRequest({
      method: call.request.method ?? 'GET',
      path: call.path,
      headers: headLines(call),
      setHost: false,
      maxHeaderSize: MOST_HEAD_BYTES,
      createConnection: () => this.#connection,
    });
    const request = this.#request;
    request.on('error', (error) => this.#failed(error));
    request.on('response', (response) => this.#responded(response));
    request.on('continue', () => this.#events.onFrame(frameOf('reading')));
    request.on('information', (information) => this.#informed(information));
    request.on('upgrade', (head, socket, early) => this.#upgrade({ head, socket, early }));
    flushHead(request);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  send(kind: FrameKind): boolean {
    if (kind === 'end') this.#endBody();
    return true;
  }

  #endBody(): void {
    const { rawTrailers } = this.#call.request;
    if (rawTrailers.length > 0 && isChunked(this.#call.request)) {
      try {
        this.#request.addTrailers(pairsOf(rawTrailers));
      } catch {
        // Trailers that cannot be passed on are left out.
      }
    }
    this.#request.end();
  }

  sendPieces(_kind: 'data', bytes: Uint8Array): boolean {
    return this.#request.destroyed || this.#request.write(bytes);
  }

  onceWritable(then: () => void): void {
    this.#request.once('drain', then);
  }

  pause(): void {
    this.#response?.pause();
  }

  resume(): void {
    this.#response?.resume();
  }

  close(): void {
    this.#isOver = true;
    // The supervisor tells a whole call from one whose caller left.
    if (this.#response?.complete === true) this.#connection.finish();
    this.#request.destroy();
    this.#connection.destroy();
  }

  #responded(response: IncomingMessage): void {
    this.#response = response;
    const isAChunked = isChunked(response);
    const headers = pairsOf(response.rawHeaders).filter(([name]) => !(isAChunked && /^content-length$/i.test(name)));
    const head = { status: response.statusCode ?? 0, headers, trailers: isAChunked };
    this.#tell('response', Buffer.from(JSON.stringify(head), 'utf8'));
    response.on('data', (chunk: Buffer) => this.#tell('data', chunk));
    response.on('end', () => {
      // Node takes any end of the connection for the end of a body that has no other mark of it.
      if (this.#endsWithConnection(response) && !this.#connection.hasEnded) return this.#over();
      const trailers = pairsOf(response.rawTrailers);
      this.#tell('end', trailers.length === 0 ? EMPTY : Buffer.from(JSON.stringify(trailers), 'utf8'));
    });
    response.on('error', () => undefined);
    response.on('close', () => {
      if (!response.complete) this.#over();
    });
  }

  #endsWithConnection({ statusCode = 0, headers }: IncomingMessage): boolean {
    if (headers['content-length'] !== undefined || isLastChunked(headers['transfer-encoding'])) return false;
    return this.#call.request.method !== 'HEAD' && statusCode !== 204 && statusCode !== 304;
  }

  #upgrade(upgraded: Upgraded): void {
    if (this.#call.upgrade === undefined) {
      upgraded.socket.destroy();
      return this.#failed(new PortRefused(`port ${this.#call.port} changed to a protocol that nobody asked for`));
    }
    this.upgraded = upgraded;
    this.#tell('response', Buffer.from(JSON.stringify({ accept: true, subprotocol: null, headers: [] }), 'utf8'));
  }

  /** A response that comes before the final one. */
  #informed({
    statusCode,
    headers,
  }: {
    readonly statusCode: number;
    readonly headers: IncomingMessage['headers'];
  }): void {
    const { request, response, takesHints } = this.#call;
    this.#information += 1;
    if (this.#information > MOST_INFORMATION) {
      const text = `the program on port ${this.#call.port} gave ${MOST_INFORMATION} responses before the final one`;
      return void this.#request.destroy(new PortRefused(text));
    }
    const link = headers['link'];
    if (statusCode !== 103 || link === undefined || request.httpVersion === '1.0' || response.headersSent) return;
    if (!takesHints) return;
    this.#hints += 1;
    if (this.#hints > MOST_HINTS) return;
    try {
      response.writeEarlyHints({ link });
    } catch {
      // Hints that Node does not take are left out.
    }
  }

  #failed(error: Error): void {
    if (this.#isOver || this.#response !== undefined || this.upgraded !== undefined) return;
    this.refusal ??= refusalOf(error, this.#call.port);
    this.#over();
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#events.onOver();
  }

  #tell(kind: FrameKind, body: Buffer): void {
    if (!this.#isOver) this.#events.onFrame(frameOf(kind, body));
  }
}

const frameOf = (kind: FrameKind, body: Buffer = EMPTY): Frame => ({ kind, header: {}, body });

/** Why the program gave no response; undefined: the way to it broke off, so its container may be gone. */
function refusalOf(error: Error & { readonly code?: string }, port: number): string | undefined {
  if (error instanceof PortRefused) return error.message;
  if (error.code === 'ECONNRESET') return `the program on port ${port} closed the connection without an answer`;
  if (error.code?.startsWith('HPE_') === true)
    return `the program on port ${port} gave no HTTP response: ${messageOf(error)}`;
  return undefined;
}

const isLastChunked = (coding: string | undefined): boolean => /(?:^|[,\s])chunked\s*$/i.test(coding ?? '');

const isChunked = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  headers['transfer-encoding'] !== undefined;

/** The lines of the head, names and values in turn. */
function headLines({ request, headers, upgrade }: PortCall): string[] {
  const lines = headers.map(([name, value]): [string, string] => [name, value]);
  if (!headers.some(([name]) => name.toLowerCase() === 'host')) lines.unshift(['host', 'localhost']);
  if (upgrade === undefined) lines.push(['connection', 'close']);
  else lines.push(['connection', 'upgrade'], ['upgrade', upgrade]);
  if (waitsForContinue(request)) lines.push(['expect', '100-continue']);
  if (isChunked(request)) lines.push(['transfer-encoding', 'chunked']);
  else if (
    !hasBody(request) &&
    !WITHOUT_BODY.has(request.method ?? 'GET') &&
    request.headers['content-length'] === undefined
  )
    lines.push(['content-length', '0']);
  return lines.flat();
}

function pairsOf(raw: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) pairs.push([raw[at] ?? '', raw[at + 1] ?? '']);
  return pairs;
}
