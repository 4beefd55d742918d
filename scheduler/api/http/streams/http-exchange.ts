// A streamed HTTP call, once its stream is there: the bytes of the request to the runner process, those of the response
// to the caller, each no faster than the other side takes them.
// Invariant: nothing is held beyond the buffers of the connections. A response that is not complete is cut.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Frame } from '#shared/protocol/frames.ts';
import { answerBegan, cutOff } from '../begun-answers.ts';
import { DISCARD_MUCH, discardRest } from '../polite-close.ts';
import { FrameStream } from '#shared/protocol/frame-stream.ts';
import type { FrameEvents, Frames } from '#shared/protocol/frame-stream.ts';
import { flushHead } from './flush-head.ts';
import { hasBody, headerList, responseHead, waitsForContinue } from './head.ts';
import type { Acceptance, HeaderList, ResponseHead } from './head.ts';
import { answerHeaders, withinReach } from './tenant-answers.ts';

export interface HttpExchangeParts {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The head of the request, for the runner process. */
  readonly head: Uint8Array;
  readonly bytes: Duplex;
  /** Part of the path that names the application: its answers are sandboxed. Empty: the host form. */
  readonly rootPath: string;
  /** JSON that takes the place of a 404 of the container; absent: that goes out. */
  readonly notFound?: string;
  /** Begins the reading and writing of frames. Absent: they are those of a runner process, on the bytes. */
  readonly open?: (events: FrameEvents) => Frames;
  /** Takes the response over: from here on nobody else writes it. @returns headers to send beside the container's */
  readonly begin: () => HeaderList;
  /** Takes the frames of a WebSocket that the container accepts. Absent: the request asks for none. */
  readonly accept?: (acceptance: Acceptance) => void;
  /**
   * The exchange is over.
   * @param isWhole - the response went out to its end; false: it was cut, or never began
   * @param byContainer - the container's side broke off; false: the caller's did, or the platform cut it
   */
  readonly onOver: (isWhole: boolean, byContainer: boolean) => void;
  /** Counts bytes of bodies. */
  readonly onBytes: (direction: 'in' | 'out', count: number) => void;
}

/** A caller who reads nothing of a waiting response for so long counts as gone. */
const UNREAD_MS = 300_000;
/** How much of a body is still taken after its response is complete, and how long after it is out. */
const LATE_BODY = { mostBytes: 64 * 1024 * 1024, withinMs: 15_000 };

/** Headers of a connection, which 426 must have all the same. Source: RFC 9110 §15.5.22. */
const UPGRADE: HeaderList = [
  ['upgrade', 'websocket'],
  ['connection', 'upgrade'],
];

export class HttpExchange {
  readonly #parts: HttpExchangeParts;
  readonly #frames: Frames;
  #head: ResponseHead | undefined;
  /** The caller waits for `100 Continue`, and has not got it. A container may ask any number of times. */
  #waitsForContinue: boolean;
  #sentBytes = 0;
  /** Runs while the caller reads more slowly than the container sends. */
  #unread: NodeJS.Timeout | undefined;
  #isOver = false;
  /** A WebSocket has the frames. */
  #isAccepted = false;
  /** Another answer goes out in the place of the container's. */
  #replacement: string | undefined;

  constructor(parts: HttpExchangeParts) {
    this.#parts = parts;
    const { request, response } = parts;
    this.#waitsForContinue = waitsForContinue(request);
    const events: FrameEvents = {
      onFrame: (frame, used) => this.#onFrame(frame, used),
      onOver: () => this.#cut(true),
    };
    this.#frames = parts.open?.(events) ?? new FrameStream(parts.bytes, events);
    response.once('close', () => {
      if (!this.#isOver) this.#cut();
    });
    this.#frames.send('request', {}, parts.head);
    if (parts.accept !== undefined) return;
    if (hasBody(request)) this.#sendBody();
    else this.#frames.send('end');
  }

  /** Whether the response has begun. */
  get hasBegun(): boolean {
    return this.#head !== undefined;
  }

  /** Bytes of the response's body that have come. */
  get sentBytes(): number {
    return this.#sentBytes;
  }

  /** The caller reads more slowly than the container sends. */
  get waitsForCaller(): boolean {
    return this.#unread !== undefined;
  }

  #sendBody(): void {
    const { request, onBytes } = this.#parts;
    let lateBytes = 0;
    request.on('data', (chunk: Buffer) => {
      if (this.#isOver) {
        lateBytes += chunk.length;
        if (lateBytes > LATE_BODY.mostBytes) request.pause();
        return;
      }
      onBytes('in', chunk.length);
      if (this.#frames.sendPieces('data', chunk)) return;
      request.pause();
      this.#frames.onceWritable(() => request.resume());
    });
    request.once('end', () => {
      if (!this.#isOver) this.#frames.send('end');
    });
    // A body that was cut off: its caller is gone, and the response closes too.
    request.on('error', () => this.#cut());
  }

  #onFrame({ kind, body }: Frame, used?: () => void): void {
    const { response, onBytes } = this.#parts;
    switch (kind) {
      case 'response':
        if (this.#head === undefined) this.#begin(body);
        return;
      case 'data': {
        const head = this.#head;
        if (head === undefined) return this.#cut();
        if (this.#replacement !== undefined) return;
        this.#sentBytes += body.length;
        // More than the container has announced: the caller would take the rest for the next response.
        if (head.length !== undefined && this.#sentBytes > head.length && this.#carriesBody(head)) return this.#cut();
        if (!this.#carriesBody(head)) return;
        onBytes('out', body.length);
        if (response.write(body, used)) return;
        this.#frames.pause();
        // Several frames of one read may come behind the one that filled the way.
        if (this.#unread !== undefined) return;
        this.#unread = setTimeout(() => this.#cut(), UNREAD_MS);
        this.#unread.unref();
        response.once('drain', () => {
          clearTimeout(this.#unread);
          this.#unread = undefined;
          this.#frames.resume();
        });
        return;
      }
      case 'end':
        return this.#end(body);
      case 'reading':
        if (this.#waitsForContinue && !response.headersSent) response.writeContinue();
        this.#waitsForContinue = false;
        return;
      default:
    }
  }

  #carriesBody({ status }: ResponseHead): boolean {
    return this.#parts.request.method !== 'HEAD' && status !== 204 && status !== 304;
  }

  #begin(body: Uint8Array): void {
    const { request, response, begin, rootPath, notFound } = this.#parts;
    let head = responseHead(body);
    if (head !== undefined && 'accept' in head) {
      if (this.#parts.accept === undefined) return this.#cut();
      this.#isOver = true;
      this.#isAccepted = true;
      return this.#parts.accept({ ...head, headers: withinReach(head.headers, rootPath) });
    }
    if (head === undefined) return this.#cut();
    if (head.status === 404 && notFound !== undefined) {
      this.#replacement = notFound;
      head = { ...head, status: 200, length: undefined, trailers: false, headers: jsonHeaders(notFound) };
    }
    this.#head = head;
    const passed = answerHeaders(head.headers, rootPath);
    const names = new Set(passed.map(([name]) => name.toLowerCase()));
    const added = begin().filter(([name]) => !names.has(name.toLowerCase()));
    response.writeHead(
      head.status,
      [...added, ...passed, ...(head.status === 426 ? UPGRADE : [])].flatMap(([name, value]) => [name, value]),
    );
    answerBegan(request.socket, response);
    // A caller who closes its side ends the connection, before Node ends this side as if nothing were missing.
    if (this.#isUnframed(head)) request.socket.prependOnceListener('end', () => this.#cut());
    // The head goes out with what has come of the body: a container may send its first event much later.
    process.nextTick(() => {
      if (!response.destroyed) flushHead(response);
    });
  }

  #end(trailers: Uint8Array): void {
    const { response } = this.#parts;
    const head = this.#head;
    if (head === undefined) return this.#cut();
    if (head.length !== undefined && this.#sentBytes < head.length && this.#carriesBody(head)) return this.#cut();
    if (head.trailers && trailers.length > 0) addTrailers(response, trailers, this.#parts.rootPath);
    this.#isOver = true;
    response.end(this.#replacement);
    this.#cutWhenUnread(head);
    this.#dropLateBody();
    this.#finish(true);
  }

  /** The last bytes of a response may lie unread, too. */
  #cutWhenUnread(head: ResponseHead): void {
    const { response } = this.#parts;
    if (response.writableFinished) return;
    const unread = setTimeout(() => this.#cutResponse(head), UNREAD_MS);
    unread.unref();
    response.once('close', () => clearTimeout(unread));
  }

  /** A response may be complete before its request is: the rest of the body is not wanted, once the response is out. */
  #dropLateBody(): void {
    const { request, response } = this.#parts;
    if (request.complete || !hasBody(request)) return;
    request.resume();
    // Ahead of Node, which would close the connection with unread bytes, and so destroy the response.
    response.prependOnceListener('finish', () => {
      if (request.readableEnded || request.destroyed) return;
      if (!response.shouldKeepAlive) return discardRest(request, DISCARD_MUCH);
      const late = setTimeout(() => request.destroy(), LATE_BODY.withinMs);
      late.unref();
      request.once('close', () => clearTimeout(late));
      request.once('end', () => clearTimeout(late));
    });
  }

  /** The container, its machine or the caller is gone: the response, if it began, is cut. */
  #cut(byContainer = false): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#head !== undefined) this.#cutResponse(this.#head);
    this.#finish(false, byContainer);
  }

  /** Without a length and without chunks, the end of the connection looks like the end of the body. */
  #isUnframed({ length }: ResponseHead): boolean {
    return length === undefined && this.#parts.request.httpVersion === '1.0';
  }

  #cutResponse(head: ResponseHead): void {
    const { response } = this.#parts;
    if (this.#isUnframed(head) && response.socket !== null) cutOff(response.socket);
    // Bytes that have come go out first.
    else process.nextTick(() => response.destroy());
  }

  /** Ends a response that would have no end: its task has ended otherwise. */
  cut(): void {
    // A WebSocket takes the loss of its frames for the loss of the container.
    if (!this.#isAccepted) this.#cut();
    else if (!this.#frames.isOver) this.#parts.bytes.destroy();
  }

  #finish(isWhole: boolean, byContainer = false): void {
    clearTimeout(this.#unread);
    this.#frames.close();
    this.#parts.onOver(isWhole, byContainer);
  }
}

const jsonHeaders = (text: string): HeaderList => [
  ['content-type', 'application/json'],
  ['content-length', String(Buffer.byteLength(text))],
];

function addTrailers(response: ServerResponse, body: Uint8Array, rootPath: string): void {
  try {
    const list = headerList(JSON.parse(Buffer.from(body).toString('utf8')));
    if (list === undefined) return;
    response.addTrailers(withinReach(list, rootPath).map(([name, value]): [string, string] => [name, value]));
  } catch {
    // Trailers that cannot be read are left out.
  }
}
