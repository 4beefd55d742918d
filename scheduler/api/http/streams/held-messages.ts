// Messages of one caller that this process holds, in bytes. The library keeps an incomplete message to itself, so its
// size is told from outside: by bytes that were read since the last complete message, and by fragments that were
// inflated. At most two reads are missed.
// Invariant: a connection that may hold no more reads and inflates nothing more. Bytes that it held count until it is
// closed.
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { compressionOf } from './compression.ts';
import type { FrameStream } from '#shared/protocol/frame-stream.ts';
import type { FullBound, MessageShare } from './message-room.ts';

/** Share of a read in memory beside its bytes, so that many small ones are bounded, too. */
const READ_COST_BYTES = 256;
/** Bytes of a ping or a pong beside its payload. Source: RFC 6455 §5.2, §5.5. */
const CONTROL_HEAD_BYTES = 6;
/** Time for a caller to close its side after it was told to come again. */
const CLOSE_WITHIN_MS = 3_000;

const REASONS: Readonly<Record<FullBound, string>> = {
  connection: 'too many messages wait for the application',
  workspace: 'too many messages of this workspace wait or are incomplete',
  process: 'too many messages wait or are incomplete',
};

export interface HeldParts {
  readonly webSocket: WebSocket;
  /** The caller's connection, which the WebSocket reads. */
  readonly socket: Duplex;
  readonly frames: FrameStream;
  readonly share: MessageShare;
  /** Most bytes that wait for the application. */
  readonly mostWaitingBytes: number;
  /** The connection has reached a bound, and is being closed; called once. */
  readonly onFull: (bound: FullBound) => void;
}

export class HeldMessages {
  readonly #parts: HeldParts;
  /** Bytes that were read since the last complete message. */
  #readBytes = 0;
  /** Inflated fragments of the message that is incomplete. */
  #inflatedBytes = 0;
  /** The last read counts with its cost. */
  #hasReadCost = false;
  #isFull = false;

  constructor(parts: HeldParts) {
    this.#parts = parts;
    const { webSocket, socket, frames } = parts;
    // Before the library reads: a message that the bytes complete is then behind them.
    socket.prependListener('data', (chunk: Buffer) => this.#onRead(chunk.length));
    webSocket.on('ping', (data) => this.#onControl(data.length));
    webSocket.on('pong', (data) => this.#onControl(data.length));
    webSocket.once('close', () => this.#forgetIncomplete());
    frames.onceGone(() => this.update());
    this.#boundInflation();
  }

  /** Whether a message that is complete may be passed on; false: the connection is being closed, or nobody reads. */
  takes(bytes: number): boolean {
    if (this.#isFull) return false;
    const { frames, share, mostWaitingBytes } = this.#parts;
    this.#readBytes = 0;
    this.#inflatedBytes = 0;
    const waiting = frames.waitingBytes + (frames.isOver ? 0 : bytes);
    const full = waiting > mostWaitingBytes ? 'connection' : share.set(waiting);
    if (frames.isOver) return false;
    if (full === undefined) return true;
    this.#close(full);
    return false;
  }

  /** Counts anew, after the application has taken messages. */
  update(): void {
    const { share, frames } = this.#parts;
    const full = share.set(this.#readBytes + this.#inflatedBytes + frames.waitingBytes);
    if (full !== undefined) this.#close(full);
  }

  #onRead(bytes: number): void {
    if (this.#isFull) return;
    this.#readBytes += bytes + READ_COST_BYTES;
    this.#hasReadCost = true;
    this.update();
  }

  /** A ping or pong leaves nothing behind; it may come in the middle of a message. */
  #onControl(bytes: number): void {
    if (this.#isFull) return;
    const cost = this.#hasReadCost ? READ_COST_BYTES : 0;
    this.#hasReadCost = false;
    this.#readBytes = Math.max(0, this.#readBytes - CONTROL_HEAD_BYTES - bytes - cost);
  }

  #forgetIncomplete(): void {
    this.#readBytes = 0;
    this.#inflatedBytes = 0;
    this.update();
  }

  /** Counts inflated fragments, and inflates nothing for a connection that is being closed. */
  #boundInflation(): void {
    const compression = compressionOf(this.#parts.webSocket);
    if (compression === undefined) return;
    const inflate = compression.decompress.bind(compression);
    const refused = (): Error => new Error('the connection may hold no more');
    compression.decompress = (data, isLast, done) => {
      if (this.#isFull) return done(refused());
      inflate(data, isLast, (error, inflated) => {
        if (!isLast && inflated !== undefined && !this.#isFull) {
          this.#inflatedBytes += inflated.length;
          this.update();
        }
        if (this.#isFull) done(refused());
        else done(error, inflated);
      });
    };
  }

  /** Tells the caller to come again, and reads nothing more. Messages that wait are dropped with the call. */
  #close(bound: FullBound): void {
    if (this.#isFull) return;
    this.#isFull = true;
    const { webSocket, socket, frames, onFull } = this.#parts;
    onFull(bound);
    frames.close();
    // The ping tells when everything before the close is out: the library waits for an answer that nobody reads.
    webSocket.ping('', false, () => socket.end());
    webSocket.close(1013, REASONS[bound]);
    socket.removeAllListeners('data');
    socket.resume();
    const late = setTimeout(() => webSocket.terminate(), CLOSE_WITHIN_MS);
    late.unref();
    webSocket.once('close', () => clearTimeout(late));
    this.update();
  }
}
