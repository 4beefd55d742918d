/**
 * Reads of a connection into memory that is used again. Otherwise Node takes new memory for every 64 KiB that it reads,
 * and a stream holds each before it is passed on. A quiet connection is read into memory that all of them share, and
 * its bytes are copied. A busy one is lent larger buffers: what comes in one turn of the loop is written together,
 * since each write wakes another process. Must stay true: no buffer is read into, or lent to another connection, before
 * the kernel has taken its bytes.
 */
import type { OnReadOpts, Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const SHARED_BYTES = 64 * 1024;
const LENT_BYTES = 256 * 1024;
/** A record of TLS brings so much at most: a connection that reads no less at once is busy. */
const MUCH = 16 * 1024;
/** So much is written before the end of the turn. A unix socket holds little more. */
const TOGETHER_BYTES = 160 * 1024;
/** Reading pauses while so much waits to be written. */
const MOST_WAITING = 256 * 1024;
/** Buffers that are kept for later. */
const MOST_SPARE = 8;

/** A buffer that one connection has. Bytes before `sent` were given to the other side; those up to `filled` wait. */
interface Lent {
  readonly bytes: Buffer;
  sent: number;
  filled: number;
  /** Writes of its bytes under way. */
  writes: number;
  /** Nothing further is read into it: it is free after its last write. */
  isFull: boolean;
}

const shared: Buffer = Buffer.allocUnsafeSlow(SHARED_BYTES);
const spare: Buffer[] = [];
const known = new WeakMap<Duplex, ReusedReads>();

/** The reads of a connection that was dialled with them. */
export const reusedReads = (connection: Duplex): ReusedReads | undefined => known.get(connection);

export class ReusedReads {
  #connection: Socket | undefined;
  #to: Socket | undefined;
  /** Undefined: the connection is quiet. */
  #lent: Lent | undefined;
  /** A write of all that has come is due at the end of this turn. */
  #isDue = false;
  /** The last turn brought little. */
  #isCalm = false;

  /**
   * Dials a connection whose reads they are. Until {@link passTo} it is read like any other.
   * @param by - passes the option to `connect`, of TCP, of a unix socket or of TLS
   */
  static dial(by: (options: { readonly onread: OnReadOpts }) => Socket): Socket {
    const reads = new ReusedReads();
    const connection = by({ onread: { buffer: () => reads.#room(), callback: (bytes) => reads.#onRead(bytes) } });
    reads.#connection = connection;
    connection.once('close', () => reads.#giveUp());
    known.set(connection, reads);
    return connection;
  }

  /**
   * Writes everything that is read from now on there, with back-pressure; the caller resumes after `drain`. Must not be
   * called from within a read of the connection: its bytes could go ahead of those that a stream still holds.
   */
  passTo(to: Socket): void {
    this.#to = to;
  }

  /** Writes what has come. */
  flush(): void {
    const lent = this.#lent;
    const to = this.#to;
    if (lent === undefined || to === undefined || isOver(to)) return;
    const come = lent.bytes.subarray(lent.sent, lent.filled);
    if (come.length === 0) return;
    this.#isCalm = come.length < MUCH;
    lent.sent = lent.filled;
    let isUnderWay = false;
    to.write(come, (error) => {
      // Memory of a write that failed is left to the garbage collector.
      if (isUnderWay && !(error instanceof Error)) this.#onWritten(lent);
    });
    // Otherwise the kernel has taken it all.
    isUnderWay = to.writableLength > 0;
    if (isUnderWay) lent.writes += 1;
  }

  /** Where the next read goes. */
  #room(): Buffer {
    return this.#lent === undefined ? shared : this.#lent.bytes.subarray(this.#lent.filled);
  }

  /** @returns false: nothing further is to be read until the connection is resumed */
  #onRead(bytes: number): boolean {
    const to = this.#to;
    if (to !== undefined && isOver(to)) return true;
    const lent = this.#lent;
    if (lent === undefined || to === undefined) return this.#copied(bytes);
    lent.filled += bytes;
    const isFull = lent.bytes.length - lent.filled < MUCH;
    const isCalm = this.#isCalm && bytes < MUCH;
    if (isFull || isCalm || lent.filled - lent.sent >= TOGETHER_BYTES) this.flush();
    else if (!this.#isDue) {
      this.#isDue = true;
      setImmediate(() => {
        this.#isDue = false;
        this.flush();
      });
    }
    if (lent.sent === lent.filled && lent.writes === 0) {
      lent.sent = 0;
      lent.filled = 0;
      if (isCalm) this.#lend(undefined);
    } else if (isFull) {
      lent.isFull = true;
      this.#lend(borrowed());
    }
    return to.writableLength < MOST_WAITING || this.#pause();
  }

  /** Passes on a copy of what was read into the shared memory. */
  #copied(bytes: number): boolean {
    const copy = Buffer.from(shared.subarray(0, bytes));
    if (this.#to === undefined) return this.#connection?.push(copy) ?? true;
    if (bytes >= MUCH) this.#lend(borrowed());
    return this.#to.write(copy) || this.#pause();
  }

  /** Changes where the next read goes. The buffer before must be free, or full. */
  #lend(next: Lent | undefined): void {
    const last = this.#lent;
    this.#lent = next;
    this.#isCalm = false;
    if (last !== undefined && last.writes === 0) giveBack(last.bytes);
  }

  #onWritten(lent: Lent): void {
    lent.writes -= 1;
    if (lent.isFull && lent.writes === 0) giveBack(lent.bytes);
    if (this.#to !== undefined && this.#to.writableLength < MOST_WAITING) this.#connection?.resume();
  }

  /** Nothing is read any more: what has come goes out, and the buffer is free behind it. */
  #giveUp(): void {
    this.flush();
    const lent = this.#lent;
    if (lent === undefined) return;
    lent.isFull = true;
    this.#lend(undefined);
  }

  #pause(): false {
    this.#connection?.pause();
    return false;
  }
}

const isOver = (to: Socket): boolean => to.destroyed || to.writableEnded;

const borrowed = (): Lent => ({
  bytes: spare.pop() ?? Buffer.allocUnsafeSlow(LENT_BYTES),
  sent: 0,
  filled: 0,
  writes: 0,
  isFull: false,
});

function giveBack(buffer: Buffer): void {
  if (spare.length < MOST_SPARE) spare.push(buffer);
}
