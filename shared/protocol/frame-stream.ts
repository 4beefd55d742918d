// Frames on the bytes of one stream: a streamed call, or a request to a container's supervisor. Frames are read as they
// come; reading stops while the other side is full. Kinds: docs/runner-protocol.md, docs/supervisor-protocol.md.
import type { Duplex } from 'node:stream';
import { giveBack } from '../pass-on.ts';
import { FrameReader, NO_FIELDS, encodeHead } from './frames.ts';
import type { Frame, FrameKind } from './frames.ts';

/** Largest piece of a body in a frame. */
export const PIECE_BYTES = 256 * 1024;
/** Pieces of a body wait for each other up to so many bytes: what a unix socket holds. */
const TOGETHER_BYTES = 160 * 1024;

/** Frames with a shorter body are joined with those before and behind them. */
const SMALL_BYTES = 4096;

const EMPTY = new Uint8Array();

export interface FrameEvents {
  /** @param used - may be called once nobody reads the body's memory any more */
  onFrame(frame: Frame, used?: () => void): void;
  /** No further frame comes; called once. */
  onOver(): void;
}

/** The frames of a call, as an exchange of HTTP needs them; see {@link FrameStream}. */
export type Frames = Pick<
  FrameStream,
  'send' | 'sendPieces' | 'onceWritable' | 'pause' | 'resume' | 'close' | 'isOver'
>;

export class FrameStream {
  readonly #bytes: Duplex;
  #events: FrameEvents;
  readonly #reader = new FrameReader({ splitsData: true });
  #isOver = false;
  /** Small frames that go out at the end of this turn. */
  #small: Uint8Array[] = [];
  #smallBytes = 0;
  /** Pieces of a body that go out in one frame behind them. */
  #pieces: Uint8Array[] = [];
  #piecesBytes = 0;
  /** Pieces go out at the end of this turn. */
  #isDue = false;

  constructor(bytes: Duplex, events: FrameEvents) {
    this.#bytes = bytes;
    this.#events = events;
    const over = (): void => {
      if (this.#isOver) return;
      this.#isOver = true;
      this.#events.onOver();
    };
    bytes.on('error', over);
    bytes.on('end', over);
    bytes.on('close', over);
    bytes.on('data', (chunk: Buffer) => {
      if (this.#isOver) return;
      try {
        const frames = this.#reader.push(chunk);
        const used = this.#giverOf(chunk, frames);
        for (const frame of frames) if (!this.#isOver) this.#events.onFrame(frame, used);
      } catch {
        // Bytes that are no frames: the runner process cannot be understood any more.
        bytes.destroy();
        over();
      }
    });
    bytes.resume();
  }

  /** A function to be called for each frame: the last call gives the memory back. Undefined: others may read it. */
  #giverOf(chunk: Buffer, frames: readonly Frame[]): (() => void) | undefined {
    if (this.#reader.isWithinFrame || frames.some(({ kind }) => kind !== 'data')) return undefined;
    let left = frames.length;
    return () => {
      left -= 1;
      if (left === 0) giveBack(chunk);
    };
  }

  /** Gives all further frames to another reader. */
  handOver(events: FrameEvents): void {
    this.#events = events;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * Sends a frame.
   * @param used - may be called once nobody reads the body's memory any more
   * @returns false: the way is full until {@link onceWritable}
   */
  send(kind: FrameKind, header: object = NO_FIELDS, body: Uint8Array = EMPTY, used?: () => void): boolean {
    if (this.#bytes.destroyed || this.#bytes.writableEnded) return true;
    const head = encodeHead(kind, header, body.length);
    if (body.length < SMALL_BYTES) return this.#sendSmall(head, body);
    this.#flush();
    this.#bytes.cork();
    this.#bytes.write(head);
    const hasRoom = this.#bytes.write(body, used);
    this.#bytes.uncork();
    return hasRoom;
  }

  /** Small frames of a turn are joined: a buffer for each would take many times its bytes while it waits. */
  #sendSmall(head: Uint8Array, body: Uint8Array): boolean {
    if (this.#piecesBytes > 0) this.#flush();
    if (this.#smallBytes === 0) process.nextTick(() => this.#flush());
    this.#small.push(head, body);
    this.#smallBytes += head.length + body.length;
    const { writableNeedDrain, writableLength, writableHighWaterMark } = this.#bytes;
    if (writableNeedDrain) return false;
    // A full way is full for the stream, too, so that it tells of room.
    return writableLength + this.#smallBytes < writableHighWaterMark || this.#flush();
  }

  /** Writes what waits. @returns as `send` */
  #flush(): boolean {
    if (this.#smallBytes === 0 && this.#piecesBytes === 0) return true;
    const small = this.#small;
    const pieces = this.#pieces;
    const [smallBytes, piecesBytes] = [this.#smallBytes, this.#piecesBytes];
    this.#small = [];
    this.#smallBytes = 0;
    this.#pieces = [];
    this.#piecesBytes = 0;
    if (this.#bytes.destroyed || this.#bytes.writableEnded) return true;
    this.#bytes.cork();
    let hasRoom = smallBytes === 0 || this.#bytes.write(Buffer.concat(small, smallBytes));
    if (piecesBytes > 0) this.#bytes.write(encodeHead('data', NO_FIELDS, piecesBytes));
    for (const [index, piece] of pieces.entries())
      hasRoom = this.#bytes.write(piece, index < pieces.length - 1 ? undefined : () => giveAllBack(pieces));
    this.#bytes.uncork();
    return hasRoom;
  }

  /**
   * Sends bytes of a body, and gives their memory back. All that come in one turn of the loop go out together: each
   * write wakes the agent, and each of its writes the runner process. @returns as `send`
   */
  sendPieces(_kind: 'data', bytes: Uint8Array): boolean {
    let hasRoom = true;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES)
      hasRoom = this.#sendPiece(bytes.length <= PIECE_BYTES ? bytes : bytes.subarray(at, at + PIECE_BYTES));
    return hasRoom;
  }

  #sendPiece(piece: Uint8Array): boolean {
    if (this.#bytes.destroyed || this.#bytes.writableEnded) return true;
    if (this.#piecesBytes + piece.length > PIECE_BYTES) this.#flush();
    if (!this.#isDue) {
      this.#isDue = true;
      setImmediate(() => {
        this.#isDue = false;
        this.#flush();
      });
    }
    this.#pieces.push(piece);
    this.#piecesBytes += piece.length;
    const { writableNeedDrain, writableLength, writableHighWaterMark } = this.#bytes;
    if (this.#piecesBytes >= TOGETHER_BYTES) return this.#flush();
    if (writableNeedDrain) return false;
    return writableLength + this.#smallBytes + this.#piecesBytes < writableHighWaterMark || this.#flush();
  }

  onceWritable(then: () => void): void {
    this.#bytes.once('drain', then);
  }

  /** Bytes that were sent and not taken yet. */
  get waitingBytes(): number {
    return this.#bytes.destroyed ? 0 : this.#bytes.writableLength + this.#smallBytes + this.#piecesBytes;
  }

  /** Calls when nothing waits any more: what was sent is out behind the end, or the call was cut. May call twice. */
  onceGone(then: () => void): void {
    this.#bytes.once('finish', then);
    this.#bytes.once('close', then);
  }

  pause(): void {
    this.#bytes.pause();
  }

  resume(): void {
    this.#bytes.resume();
  }

  /** Ends the call behind what was sent. */
  end(): void {
    this.#flush();
    this.#isOver = true;
    this.#bytes.end();
    this.#bytes.resume();
  }

  /** Ends the call: the runner process sees that its caller is gone, or done. */
  close(): void {
    this.#isOver = true;
    this.#bytes.destroy();
  }
}

function giveAllBack(pieces: readonly Uint8Array[]): void {
  for (const piece of pieces) if (piece.length >= SMALL_BYTES) giveBack(piece);
}
