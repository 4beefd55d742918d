// WebSockets into containers: the handshake, the end of those whose caller is gone or whose token was revoked, and the
// pace at which both sides take bytes. Nothing is compressed: most bytes are small, or files.
// Invariant: a workspace has a bounded number of them. What a side does not take waits within bounds.
import type { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { WebSocketServer } from 'ws';
import type { WebSocket } from 'ws';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { Places } from '#shared/places.ts';
import type { FrameStream } from '#shared/protocol/frame-stream.ts';
import { headersOf } from '../streams/common.ts';
import { upgradeOf } from '../streams/upgrades.ts';
import { handshakeProblem } from '../streams/websockets.ts';
import type { Visitor } from './visitors.ts';

/** Largest message of a caller. */
export const MAX_MESSAGE_BYTES = 1024 * 1024;
const MOST_OF_WORKSPACE = 256;
/** Interval of pings: a caller who answers none until the next counts as gone. */
const PING_MS = 30_000;
/** Interval of looks at the caller's token. */
const LOOK_MS = 5_000;
/** Time for a caller whose token was revoked to read why. */
const LAST_WORD_MS = 500;
/** Bytes that wait for a caller above which its container has to wait. */
const MOST_BEHIND_BYTES = 1024 * 1024;
const RESUME_BELOW_BYTES = 256 * 1024;
/** Share of a message in them beside its own bytes. */
const MESSAGE_COST_BYTES = 256;

/** Codes of a close, as callers see them. */
export const CLOSES = {
  done: 1000,
  refused: 1008,
  /** This scheduler stops, or lost the container: the caller may come back. */
  comeBack: 1012,
  /** The caller's: it leaves for a moment, and comes back. Browsers choose from 4000 to 4999 alone. */
  pause: 4000,
} as const;

export interface SocketTimes {
  readonly pingMs: number;
  readonly lookMs: number;
}

export class ContainerSockets {
  readonly #server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });
  readonly #times: SocketTimes;
  readonly #headers = new WeakMap<IncomingMessage, readonly (readonly [string, string])[]>();
  readonly #open = new Set<WebSocket>();
  readonly #places = new Places<WorkspaceId>(MOST_OF_WORKSPACE);
  #isStopping = false;

  constructor(times: SocketTimes = { pingMs: PING_MS, lookMs: LOOK_MS }) {
    this.#times = times;
    this.#server.on('headers', (lines, request) => {
      for (const [name, value] of this.#headers.get(request) ?? []) lines.push(`${name}: ${value}`);
    });
  }

  /**
   * Checks that the request is for a WebSocket, before anything is looked up for it.
   * @throws AppError `bad_request`
   */
  check(request: FastifyRequest): void {
    if (upgradeOf(request.raw) === undefined)
      throw new AppError('bad_request', 'this address takes WebSockets: send a request for an upgrade');
    const problem = handshakeProblem(request.raw);
    if (problem !== undefined) throw new AppError('bad_request', `the handshake of the WebSocket is wrong: ${problem}`);
  }

  /**
   * Takes a place for a WebSocket of the workspace. @returns gives it back
   * @throws AppError `too_many_connections`
   */
  place(workspaceId: WorkspaceId): () => void {
    const giveBack = this.#places.take(workspaceId);
    if (giveBack !== undefined) return giveBack;
    const text = `this workspace has ${MOST_OF_WORKSPACE} WebSockets into its containers here: close some`;
    throw new AppError('too_many_connections', text, { details: { retryAfterSeconds: 5 } });
  }

  /** Answers the handshake, unless the caller has hung up. */
  accept(request: FastifyRequest, reply: FastifyReply, visitor: Visitor, opened: (webSocket: WebSocket) => void): void {
    const { raw } = request;
    const upgrade = upgradeOf(raw);
    if (upgrade === undefined || reply.raw.destroyed) return;
    this.#headers.set(raw, headersOf(reply));
    reply.hijack();
    const { raw: response } = reply;
    const { socket, head } = upgrade.take();
    response.removeAllListeners('finish');
    response.removeAllListeners('close');
    response.detachSocket(socket as Parameters<typeof response.detachSocket>[0]);
    let isOpen = false;
    this.#server.handleUpgrade(raw, socket, head, (webSocket) => {
      isOpen = true;
      this.#open.add(webSocket);
      webSocket.once('close', () => this.#open.delete(webSocket));
      // A fault in the protocol: the close that follows has its code.
      webSocket.on('error', () => undefined);
      this.#watch(webSocket, visitor);
      opened(webSocket);
      if (this.#isStopping) closeForRestart(webSocket);
    });
    if (!isOpen && !socket.writableEnded) socket.destroy();
  }

  /** Ends all WebSockets, also those that are accepted later, because this process stops: callers shall come back. */
  closeAll(): void {
    this.#isStopping = true;
    for (const webSocket of this.#open) closeForRestart(webSocket);
  }

  /** Ends a WebSocket whose caller does not answer, or whose token was revoked. */
  #watch(webSocket: WebSocket, visitor: Visitor): void {
    let isAlive = true;
    const heard = (): void => void (isAlive = true);
    webSocket.on('pong', heard);
    webSocket.on('message', heard);
    const pings = setInterval(() => {
      // Pongs of a caller whose bytes wait for the container wait behind them.
      if (!isAlive && !webSocket.isPaused) return webSocket.terminate();
      isAlive = false;
      webSocket.ping();
    }, this.#times.pingMs);
    pings.unref();
    this.watchToken(visitor, webSocket, () => {
      webSocket.close(CLOSES.refused, 'the token was revoked');
      // A caller that does not answer the close must not go on meanwhile.
      setTimeout(() => webSocket.terminate(), LAST_WORD_MS).unref();
    });
    webSocket.once('close', () => clearInterval(pings));
  }

  /** Looks at the visitor's token until `use` closes, and calls once it was revoked. */
  watchToken(visitor: Visitor, use: Pick<EventEmitter, 'once'>, onRevoked: () => void): void {
    const looks = setInterval(() => {
      visitor.isValid().then(
        (isValid) => {
          if (!isValid) onRevoked();
        },
        // The store is away: the next look tells.
        () => undefined,
      );
    }, visitor.lookMs ?? this.#times.lookMs);
    looks.unref();
    use.once('close', () => clearInterval(looks));
  }
}

const closeForRestart = (webSocket: WebSocket): void => webSocket.close(CLOSES.comeBack, 'the service restarts');

/** Sends to a caller no faster than it reads: the container's side waits meanwhile. */
export class Outgoing {
  readonly #webSocket: WebSocket;
  readonly #frames: FrameStream;
  #unsent = 0;
  #isWaiting = false;

  constructor(webSocket: WebSocket, frames: FrameStream) {
    this.#webSocket = webSocket;
    this.#frames = frames;
  }

  bytes(bytes: Uint8Array): void {
    this.#send(bytes, true);
  }

  text(text: string): void {
    this.#send(text, false);
  }

  json(value: unknown): void {
    this.text(JSON.stringify(value));
  }

  #send(data: Uint8Array | string, binary: boolean): void {
    if (this.#webSocket.readyState !== this.#webSocket.OPEN) return;
    this.#unsent += 1;
    this.#webSocket.send(data, { binary }, () => {
      this.#unsent -= 1;
      if (!this.#isWaiting || this.#behind > RESUME_BELOW_BYTES) return;
      this.#isWaiting = false;
      this.#frames.resume();
    });
    if (this.#isWaiting || this.#behind <= MOST_BEHIND_BYTES) return;
    this.#isWaiting = true;
    this.#frames.pause();
  }

  get #behind(): number {
    return this.#webSocket.bufferedAmount + this.#unsent * MESSAGE_COST_BYTES;
  }
}

/** Passes a caller's bytes to the container, and reads no more of them than it takes. */
export function passIn(webSocket: WebSocket, frames: FrameStream, bytes: Buffer): void {
  if (frames.isOver || frames.sendPieces('data', bytes) || webSocket.isPaused) return;
  webSocket.pause();
  frames.onceWritable(() => webSocket.resume());
}

/** Tells a caller why nothing goes on, and ends the WebSocket. */
export function refuse(webSocket: WebSocket, error: AppError, close: number = CLOSES.refused): void {
  webSocket.send(JSON.stringify({ error: { code: error.code, message: error.message } }));
  webSocket.close(close, error.code);
}
