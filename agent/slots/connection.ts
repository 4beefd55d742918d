import type { Socket } from 'node:net';
import type { Frame, FrameKind } from '#shared/protocol/frames.ts';
import { FrameReader, encodeHead } from '#shared/protocol/frames.ts';

/** Bodies up to this size are copied behind their header, so that a frame is one write. */
const JOIN_BYTES = 16 * 1024;
/** Bounds on delayed frames: the longest delay, and their number. */
const LATER_MS = 20;
const MOST_LATER = 64;
/** Deadline for the hello: a peer that connects and sends nothing is cut off. */
const HELLO_DEADLINE_MS = 10_000;

export interface ConnectionEvents {
  /** Called for each read. @returns milliseconds for which reading pauses; 0: it continues */
  onRead(connection: RunnerConnection, bytes: number, frames: number): number;
  onFrame(connection: RunnerConnection, frame: Frame): void;
  onClose(connection: RunnerConnection): void;
  onBadFrame(connection: RunnerConnection, error: unknown): void;
}

/** A connection of a runner process: reads and writes frames, and holds the process's facts from its hello. */
export class RunnerConnection {
  /** Number of the process, from its hello. */
  process = -1;
  pid = 0;
  greeted = false;
  control = false;
  slots = 0;
  /** Attempts that the process holds, by key. */
  readonly inHand = new Set<string>();
  closed = false;
  #isEnding = false;

  readonly #socket: Socket;
  readonly #later: Buffer[] = [];
  #laterTimer: NodeJS.Timeout | undefined;
  /** Number of reasons to pause reading. */
  #pauses = 0;
  #waitTimer: NodeJS.Timeout | undefined;
  readonly #reader = new FrameReader();

  constructor(socket: Socket, events: ConnectionEvents) {
    this.#socket = socket;
    const silence = setTimeout(() => {
      if (!this.greeted) socket.destroy();
    }, HELLO_DEADLINE_MS);
    silence.unref();
    socket.on('data', (chunk: Buffer) => {
      try {
        const frames = this.#reader.push(chunk);
        const waitMs = events.onRead(this, chunk.length, frames.length);
        if (waitMs > 0) this.#wait(waitMs);
        for (const frame of frames) {
          if (this.closed) return;
          events.onFrame(this, frame);
        }
      } catch (error) {
        events.onBadFrame(this, error);
        socket.destroy();
      }
    });
    // The cause of a break does not matter: the runner dials again, and `close` follows every error.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(silence);
      clearTimeout(this.#laterTimer);
      clearTimeout(this.#waitTimer);
      if (this.closed) return;
      this.closed = true;
      events.onClose(this);
    });
  }

  /** Sends a frame without urgency: together with the next one, or after a short delay. */
  sendLater(kind: FrameKind, header: object): void {
    if (this.closed || this.#isEnding) return;
    this.#later.push(encodeHead(kind, header, 0));
    if (this.#later.length >= MOST_LATER) this.#flushLater();
    else this.#laterTimer ??= setTimeout(() => this.#flushLater(), LATER_MS);
  }

  #flushLater(): void {
    const frames = this.#takeLater();
    if (frames.length > 0 && !this.closed && !this.#isEnding) this.#socket.write(Buffer.concat(frames));
  }

  #takeLater(): Buffer[] {
    clearTimeout(this.#laterTimer);
    this.#laterTimer = undefined;
    return this.#later.splice(0);
  }

  send(kind: FrameKind, header: object, body?: Uint8Array): void {
    if (this.closed || this.#isEnding) return;
    const later = this.#later.length === 0 ? undefined : this.#takeLater();
    const head = encodeHead(kind, header, body?.length ?? 0);
    if (body === undefined || body.length <= JOIN_BYTES) {
      const parts = [...(later ?? []), head, ...(body === undefined ? [] : [body])];
      this.#socket.write(parts.length === 1 ? head : Buffer.concat(parts));
      return;
    }
    this.#socket.cork();
    if (later !== undefined) this.#socket.write(Buffer.concat(later));
    this.#socket.write(head);
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Bytes for the process that its socket has not accepted yet. */
  get unsentBytes(): number {
    return this.#socket.writableLength;
  }

  /** Back-pressure: the runner's writes wait while the link upstream is full. Each call needs one `resume`. */
  pause(): void {
    this.#pauses += 1;
    this.#socket.pause();
  }

  resume(): void {
    this.#pauses -= 1;
    if (this.#pauses === 0) this.#socket.resume();
  }

  /** Back-pressure: the container has used up its rate. */
  #wait(ms: number): void {
    if (this.#waitTimer !== undefined) return;
    this.pause();
    this.#waitTimer = setTimeout(() => {
      this.#waitTimer = undefined;
      this.resume();
    }, Math.ceil(ms));
  }

  /** Sends nothing more, and reads on until the process has closed its side. */
  end(): void {
    if (this.closed) return;
    this.#isEnding = true;
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}
