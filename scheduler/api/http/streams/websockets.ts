// WebSockets of callers. The protocol is spoken here; messages travel as frames between the caller and the runner
// process, each no faster than the other takes them.
// Invariant: a message is passed on whole, in order, as text or bytes as it was sent. A container that is gone never
// looks like a regular close.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import type { RawData, WebSocket } from 'ws';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { numberOf, textOf } from '#shared/protocol/frames.ts';
import { AT_ONCE, CompressionTurns } from './compression-turns.ts';
import { takeTurns } from './compression.ts';
import type { FrameStream } from '#shared/protocol/frame-stream.ts';
import { PIECE_BYTES } from '#shared/protocol/frame-stream.ts';
import type { Acceptance, HeaderList } from './head.ts';
import { HeldMessages } from './held-messages.ts';
import type { FullBound } from './message-room.ts';
import { MessageRoom, MessageShare } from './message-room.ts';
import type { Upgrade } from './upgrades.ts';

/** Largest message of a caller: it is in memory whole while it is passed on. */
export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/**
 * Most bytes of a caller's messages that wait for the container. Reading stops at the first message that finds no room,
 * but compressed ones of the same read follow; the rest is for the heads of their frames.
 */
const MOST_WAITING_BYTES = 2 * MAX_MESSAGE_BYTES + 64 * 1024;
/** Bytes that wait for a caller above which its container has to wait. */
const MOST_BEHIND_BYTES = 1024 * 1024;
const RESUME_BELOW_BYTES = 256 * 1024;
/** Share of a message in them beside its own bytes, so that many small messages are bounded, too. */
const MESSAGE_COST_BYTES = 256;
/** Interval of pings: a caller who answers none until the next counts as gone. */
const PING_MS = 30_000;
/** Longest reason of a close, in bytes. Source: RFC 6455 §5.5. */
const MOST_REASON_BYTES = 123;

/**
 * Terms of compression. Without context each message costs a little more, and a silent connection no memory. The
 * library's own queue has as many places as there are turns, so nothing waits in it.
 */
export const DEFLATE = {
  serverNoContextTakeover: true,
  clientNoContextTakeover: true,
  threshold: 1024,
  concurrencyLimit: AT_ONCE,
  zlibDeflateOptions: { level: 1, memLevel: 7 },
} as const;

const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** A list of names between commas. */
const NAMES = /^[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*$/;

/** Why the handshake cannot be answered; undefined: it can. */
export function handshakeProblem(
  request: Pick<IncomingMessage, 'headers'>,
): 'version' | 'key' | 'subprotocols' | undefined {
  const { headers } = request;
  const version = headers['sec-websocket-version'];
  if (version !== '13' && version !== '8') return 'version';
  if (!KEY.test(headers['sec-websocket-key'] ?? '')) return 'key';
  const offered = headers['sec-websocket-protocol'];
  if (offered === undefined) return undefined;
  const names = subprotocolsOf(request);
  return NAMES.test(offered) && new Set(names).size === names.length ? undefined : 'subprotocols';
}

/** Subprotocols that a caller offers. */
export const subprotocolsOf = ({ headers }: Pick<IncomingMessage, 'headers'>): readonly string[] =>
  (headers['sec-websocket-protocol'] ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');

export interface BridgeEvents {
  /** @param code - the code of the close, 1006 without one */
  onOver(code: number): void;
  onBytes(direction: 'in' | 'out', count: number): void;
  /** The caller's messages have reached a bound: it is told to come again, and the call is over. */
  onFull(bound: FullBound): void;
}

/** A handshake that a container has accepted. */
export interface Accepted {
  readonly workspaceId: WorkspaceId;
  readonly acceptance: Acceptance;
  readonly added: HeaderList;
  readonly frames: FrameStream;
}

export class WebSockets {
  readonly #server: WebSocketServer;
  readonly #room: MessageRoom;
  readonly #turns: CompressionTurns;
  readonly #accepting = new WeakMap<IncomingMessage, Accepted>();
  readonly #open = new Set<WebSocket>();
  #isStopping = false;

  constructor(room = new MessageRoom(), turns = new CompressionTurns()) {
    this.#room = room;
    this.#turns = turns;
    this.#server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      maxPayload: MAX_MESSAGE_BYTES,
      perMessageDeflate: DEFLATE,
      handleProtocols: (_offered, request) => this.#accepting.get(request)?.acceptance.subprotocol ?? false,
    });
    this.#server.on('headers', (lines, request) => {
      const { acceptance, added } = this.#accepting.get(request) ?? {};
      for (const [name, value] of [...(added ?? []), ...(acceptance?.headers ?? [])])
        if (name.toLowerCase() !== 'sec-websocket-protocol') lines.push(`${name}: ${value}`);
    });
  }

  /** Answers the handshake, and passes messages on until either side ends. */
  accept(
    request: IncomingMessage,
    response: ServerResponse,
    upgrade: Upgrade,
    accepted: Accepted,
    events: BridgeEvents,
  ): void {
    const { socket, head } = upgrade.take();
    this.#accepting.set(request, accepted);
    response.removeAllListeners('finish');
    response.removeAllListeners('close');
    response.detachSocket(socket as Parameters<ServerResponse['detachSocket']>[0]);
    let isOpen = false;
    // Values of headers are bytes, here as in every other answer.
    socket.setDefaultEncoding('latin1');
    this.#server.handleUpgrade(request, socket, head, (webSocket) => {
      isOpen = true;
      this.#open.add(webSocket);
      const { frames, workspaceId } = accepted;
      takeTurns(webSocket, workspaceId, this.#turns);
      const held = new HeldMessages({
        webSocket,
        socket,
        frames,
        share: new MessageShare(this.#room, workspaceId),
        mostWaitingBytes: MOST_WAITING_BYTES,
        onFull: (bound) => events.onFull(bound),
      });
      bridge(webSocket, frames, held, {
        onBytes: (direction, count) => events.onBytes(direction, count),
        onOver: (code) => {
          this.#open.delete(webSocket);
          events.onOver(code);
        },
      });
      if (this.#isStopping) closeForRestart(webSocket);
    });
    // The caller hung up meanwhile, or its extensions cannot be read, and the library has answered.
    if (!isOpen) whenRefused(socket, accepted.frames, events);
  }

  /** Ends all WebSockets, also those that are accepted later, because this process stops: callers shall come again. */
  closeAll(): void {
    this.#isStopping = true;
    for (const webSocket of this.#open) closeForRestart(webSocket);
  }
}

const closeForRestart = (webSocket: WebSocket): void => webSocket.close(1012, 'the service restarts');

function whenRefused(socket: Duplex, frames: FrameStream, events: BridgeEvents): void {
  // An answer of the library ends the connection itself.
  if (!socket.writableEnded) socket.destroy();
  frames.close();
  events.onOver(1006);
}

function bridge(
  webSocket: WebSocket,
  frames: FrameStream,
  held: HeldMessages,
  events: Pick<BridgeEvents, 'onBytes' | 'onOver'>,
): void {
  let isAlive = true;
  const pings = setInterval(() => {
    // Pongs of a caller whose messages wait for the container wait behind them; a ping still finds a broken connection.
    if (!isAlive && !webSocket.isPaused) return webSocket.terminate();
    isAlive = false;
    webSocket.ping();
  }, PING_MS);
  pings.unref();
  webSocket.on('pong', () => (isAlive = true));
  webSocket.on('message', (data: RawData, isBinary: boolean) => {
    isAlive = true;
    const bytes = data as Buffer;
    if (!held.takes(bytes.length)) return;
    events.onBytes('in', bytes.length);
    let hasRoom = true;
    let at = 0;
    do {
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      at += PIECE_BYTES;
      hasRoom = frames.send('message', { text: !isBinary, ...(at < bytes.length ? { more: true } : {}) }, piece);
    } while (at < bytes.length);
    // Messages that were read together come one after the other, also after the first of them found no room.
    if (hasRoom || webSocket.isPaused) return;
    webSocket.pause();
    frames.onceWritable(() => {
      isAlive = true;
      held.update();
      webSocket.resume();
    });
  });
  // A fault in the protocol: the close that follows has its code.
  webSocket.on('error', () => undefined);
  webSocket.on('close', (code, reason) => {
    clearInterval(pings);
    if (!frames.isOver) {
      if (code !== 1006) frames.send('close', { code, reason: reason.toString('utf8') });
      frames.end();
    }
    events.onOver(code);
  });
  let isWaiting = false;
  let unsent = 0;
  const bytesBehind = (): number => webSocket.bufferedAmount + unsent * MESSAGE_COST_BYTES;
  const sent = (): void => {
    unsent -= 1;
    if (!isWaiting || bytesBehind() > RESUME_BELOW_BYTES) return;
    isWaiting = false;
    frames.resume();
  };
  frames.handOver({
    onFrame: (frame) => {
      if (webSocket.readyState !== webSocket.OPEN) return;
      if (frame.kind === 'message') {
        events.onBytes('out', frame.body.length);
        unsent += 1;
        webSocket.send(frame.body, { binary: frame.header['text'] !== true, fin: frame.header['more'] !== true }, sent);
        if (isWaiting || bytesBehind() <= MOST_BEHIND_BYTES) return;
        isWaiting = true;
        frames.pause();
      } else if (frame.kind === 'close') closeAs(webSocket, frame);
    },
    onOver: () => {
      if (webSocket.readyState === webSocket.OPEN)
        webSocket.close(1011, 'the task was stopped, or its container is gone');
    },
  });
}

function closeAs(webSocket: WebSocket, { header }: Frame): void {
  const code = numberOf(header, 'code');
  const reason = Buffer.from(textOf(header, 'reason'), 'utf8');
  const isCode = (code >= 1000 && code <= 1014 && (code < 1004 || code > 1006)) || (code >= 3000 && code <= 4999);
  webSocket.close(isCode ? code : 1011, cutText(reason));
}

/** The text, cut between characters to the longest reason. */
function cutText(bytes: Buffer): Buffer {
  let end = Math.min(bytes.length, MOST_REASON_BYTES);
  while (end < bytes.length && end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.subarray(0, end);
}
