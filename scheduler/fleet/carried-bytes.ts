// The bytes of a streamed call on the agent link, as a stream of Node: what is written goes to the runner process, what
// is read comes from it. Each message of the link holds a piece; back-pressure passes both ways.
import { Duplex } from 'node:stream';
import { status as GrpcStatus } from '@grpc/grpc-js';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { CarryFromAgent__Output } from '#shared/protocol/generated/messages.ts';

/** Written messages hold pieces, in the place of one buffer: {@link serializeCarried}. */
export type CarryCall = ServerDuplexStream<CarryFromAgent__Output, { readonly data: readonly Buffer[] }>;

/** Tag of field 1, length-delimited: the only field of `CarryToAgent`. */
const DATA_TAG = 0x0a;
/** The longest length in bytes of a number below 2^35. */
const MOST_LENGTH_BYTES = 5;

/**
 * A message of pieces, written at once: the generated code takes a single buffer, and joining pieces for it would copy
 * every byte once more. Source: agent.proto, `CarryToAgent`.
 */
export function serializeCarried({ data }: { readonly data: readonly Buffer[] }): Buffer {
  const bytes = data.reduce((sum, piece) => sum + piece.length, 0);
  const message = Buffer.allocUnsafe(1 + MOST_LENGTH_BYTES + bytes);
  let at = message.writeUInt8(DATA_TAG, 0);
  let rest = bytes;
  while (rest > 0x7f) {
    at = message.writeUInt8((rest & 0x7f) | 0x80, at);
    rest >>>= 7;
  }
  at = message.writeUInt8(rest, at);
  for (const piece of data) at += piece.copy(message, at);
  return message.subarray(0, at);
}

/**
 * Largest message: a read of a connection with its frame's head. Larger blocks are no faster, and the C library of an
 * agent would give each back to the kernel (`shared/agent-process.ts`).
 */
const MESSAGE_BYTES = 96 * 1024;

/** Bytes that are held here in either direction, beside those of the link's own window. */
const HELD_BYTES = 256 * 1024;

export class CarriedBytes extends Duplex {
  readonly #call: CarryCall;
  #isOver = false;

  /** @param call - paused, its head read */
  constructor(call: CarryCall) {
    super({ readableHighWaterMark: HELD_BYTES, writableHighWaterMark: HELD_BYTES, allowHalfOpen: true });
    this.#call = call;
    call.on('data', ({ data }: CarryFromAgent__Output) => {
      if (data.length > 0 && !this.push(data)) call.pause();
    });
    call.on('end', () => {
      this.#isOver = true;
      this.push(null);
    });
    call.on('cancelled', () => this.destroy());
    call.on('error', () => this.destroy());
  }

  override _read(): void {
    this.#call.resume();
  }

  /** Pieces that wait travel together: a message costs more than its bytes. */
  override _writev(chunks: { readonly chunk: Buffer }[], done: (error?: Error | null) => void): void {
    let hasRoom = true;
    let pieces: Buffer[] = [];
    let bytes = 0;
    const flush = (): void => {
      if (pieces.length > 0) hasRoom = this.#call.write({ data: pieces });
      pieces = [];
      bytes = 0;
    };
    for (const { chunk } of chunks)
      for (let at = 0; at < chunk.length; at += MESSAGE_BYTES) {
        const piece = chunk.subarray(at, at + MESSAGE_BYTES);
        if (bytes + piece.length > MESSAGE_BYTES) flush();
        pieces.push(piece);
        bytes += piece.length;
      }
    flush();
    if (hasRoom) return done();
    this.#call.once('drain', () => done());
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this._writev([{ chunk }], done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#call.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    // The agent takes any end for the whole end: the runner's connection closes. A regular end comes behind all bytes
    // that wait to be sent, so it is for a stream without any; an error costs both sides several times as much.
    if (!this.#isOver && !this.#call.cancelled && (error !== null || this.writableLength > 0)) {
      this.#call.emit('error', { name: 'Error', code: GrpcStatus.CANCELLED, details: 'over', message: 'over' });
    } else this.#call.end();
    done(error);
  }
}
