// The bytes of a streamed call on the agent link, as a stream of Node: what is written goes to the runner process, what
// is read comes from it. Each message of the link holds a piece; back-pressure passes both ways.
import { Duplex } from 'node:stream';
import { status as GrpcStatus } from '@grpc/grpc-js';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { PART_BYTES } from '#shared/protocol/link.ts';
import type { CarryFromAgent__Output, CarryToAgent } from '#shared/protocol/generated/messages.ts';

export type CarryCall = ServerDuplexStream<CarryFromAgent__Output, CarryToAgent>;

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

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    let hasRoom = true;
    for (let at = 0; at < chunk.length; at += PART_BYTES)
      hasRoom = this.#call.write({ data: chunk.subarray(at, at + PART_BYTES) });
    if (hasRoom) return done();
    this.#call.once('drain', () => done());
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#call.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    // The agent takes any end for the whole end: the runner's connection closes.
    if (!this.#isOver && !this.#call.cancelled) {
      this.#call.emit('error', { name: 'Error', code: GrpcStatus.CANCELLED, details: 'over', message: 'over' });
    } else this.#call.end();
    done(error);
  }
}
