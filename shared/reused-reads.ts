/**
 * Reads of a connection into memory that is used again. Node takes new memory for every 64 KiB that it reads, and hands
 * them on through a stream's buffer: together about half of the time that it takes to pass bytes on. A quiet connection
 * is read into memory that all share, and its bytes are copied. After a read that filled this, larger buffers are lent
 * to it, and go back when their bytes have been written. Must stay true: no buffer is read into while its bytes are to
 * be written; a connection has at most {@link MOST_LENT} buffers and one to read into.
 */
import type { OnReadOpts, Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const SHARED_BYTES = 64 * 1024;
const LENT_BYTES = 256 * 1024;
/** A connection that reads less at once than this is quiet. */
const MUCH = 16 * 1024;
/** Buffers of a connection whose bytes are to be written: reading pauses at this number. */
const MOST_LENT = 2;
/** Buffers that are kept for later. */
const MOST_SPARE = 8;

const shared: Buffer = Buffer.allocUnsafeSlow(SHARED_BYTES);
const spare: Buffer[] = [];
const known = new WeakMap<Duplex, ReusedReads>();

/** The reads of a connection that was dialled with them. */
export const reusedReads = (connection: Duplex): ReusedReads | undefined => known.get(connection);

export class ReusedReads {
  #connection: Socket | undefined;
  #to: Duplex | undefined;
  #buffer: Buffer = shared;
  /** Buffers whose bytes are to be written. */
  #lent = 0;

  /** The option of `connect`, for one connection. */
  readonly onread: OnReadOpts & { readonly buffer: () => Buffer } = {
    buffer: () => this.#buffer,
    callback: (bytes) => this.#onRead(bytes),
  };

  /** Must be called before anything is read. */
  static of(dial: (options: { readonly onread: OnReadOpts }) => Socket): Socket {
    const reads = new ReusedReads();
    const connection = dial({ onread: reads.onread });
    reads.#connection = connection;
    known.set(connection, reads);
    return connection;
  }

  /** Writes everything that is read there from now on, with back-pressure. */
  passTo(to: Duplex): void {
    this.#to = to;
  }

  /** @returns false: nothing further is to be read until the connection is resumed */
  #onRead(bytes: number): boolean {
    const to = this.#to;
    const buffer = this.#buffer;
    const read = buffer.subarray(0, bytes);
    if (to === undefined) return this.#connection?.push(Buffer.from(read)) ?? true;
    if (to.destroyed || to.writableEnded) return true;
    if (buffer === shared) {
      if (bytes === SHARED_BYTES) this.#buffer = borrowed();
      return to.write(Buffer.from(read)) || this.#pause();
    }
    let isOut = false;
    to.write(read, () => {
      if (!isOut) return;
      this.#lent -= 1;
      giveBack(buffer);
      this.#connection?.resume();
    });
    // The kernel has taken it all.
    if (to.writableLength === 0) {
      if (bytes < MUCH) this.#quiet();
      return true;
    }
    isOut = true;
    this.#lent += 1;
    this.#buffer = bytes < MUCH ? shared : borrowed();
    return this.#lent < MOST_LENT || this.#pause();
  }

  #quiet(): void {
    giveBack(this.#buffer);
    this.#buffer = shared;
  }

  #pause(): false {
    this.#connection?.pause();
    return false;
  }
}

const borrowed = (): Buffer => spare.pop() ?? Buffer.allocUnsafeSlow(LENT_BYTES);

function giveBack(buffer: Buffer): void {
  if (spare.length < MOST_SPARE) spare.push(buffer);
}
