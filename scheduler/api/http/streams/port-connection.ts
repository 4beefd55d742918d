// A TCP connection to a port in a container, as a stream of bytes over the frames of its supervisor
// (docs/supervisor-protocol.md, `connect`). Each side takes bytes no faster than the other gives them.
// Invariant: an end without an `end` frame is an error, so a container that is gone never looks like a regular end.
import { Duplex } from 'node:stream';
import { isRecord } from '#shared/json.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { FrameStream } from '#shared/protocol/frame-stream.ts';

/** Time for the container to take the end: one that does not must not keep the connection, which is a use of it. */
const LAST_MS = 30_000;

/** The port takes no connections. */
export class PortRefused extends Error {}

export class PortConnection extends Duplex {
  readonly #port: number;
  readonly #bytes: Duplex;
  readonly #frames: FrameStream;
  #isOpen = false;
  #hasEnded = false;
  #isFinished = false;
  /** Runs once the supervisor has the connection. */
  #onceOpen: (() => void) | undefined;

  /** @param waitMs - time for which the supervisor tries while nothing listens yet */
  constructor(bytes: Duplex, port: number, waitMs: number) {
    super();
    this.#port = port;
    this.#bytes = bytes;
    this.#frames = new FrameStream(bytes, {
      onFrame: (frame) => this.#onFrame(frame),
      onOver: () => {
        if (!this.#hasEnded) this.destroy(new Error('the connection into the container broke off'));
      },
    });
    const head = { type: 'connect', port, waitMs };
    this.#frames.send('request', {}, Buffer.from(JSON.stringify(head), 'utf8'));
  }

  /** Whether the program has said that no more comes. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  #onFrame({ kind, body }: Frame): void {
    switch (kind) {
      case 'response':
        return this.#answered(body);
      case 'data':
        if (!this.push(body)) this.#frames.pause();
        return;
      case 'end':
        this.#hasEnded = true;
        this.push(null);
        return;
      default:
    }
  }

  #answered(body: Uint8Array): void {
    if (this.#isOpen) return;
    const answer = answerOf(body);
    if (answer?.['ok'] !== true) {
      const { code, error } = answer ?? {};
      const says = typeof error === 'string' ? `: ${error.slice(0, 500)}` : '';
      const text =
        code === 'refused' ? `nothing listens on port ${this.#port}` : `port ${this.#port} is not reached${says}`;
      return void this.destroy(new PortRefused(text));
    }
    this.#isOpen = true;
    this.#onceOpen?.();
    this.#onceOpen = undefined;
  }

  /** Ends the connection in order, once nothing is wanted of the program any more. */
  finish(): void {
    if (this.destroyed || !this.#isOpen) return void this.destroy();
    this.#isFinished = true;
    this.#frames.send('end');
    this.#frames.end();
    const late = setTimeout(() => this.#frames.close(), LAST_MS);
    late.unref();
    // Else every call of the last half minute would stay in memory.
    this.#bytes.once('close', () => clearTimeout(late));
    this.destroy();
  }

  override _read(): void {
    this.#frames.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (!this.#isOpen) {
      this.#onceOpen = () => this._write(chunk, 'latin1', done);
      return;
    }
    if (this.#frames.sendPieces('data', chunk)) done();
    else this.#frames.onceWritable(done);
  }

  override _final(done: () => void): void {
    if (!this.#isOpen) {
      this.#onceOpen = () => this._final(done);
      return;
    }
    this.#frames.send('end');
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.#isFinished) this.#frames.close();
    done(error);
  }
}

function answerOf(body: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(body).toString('utf8'));
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
