import type { Socket } from 'node:net';
import type { Frame, FrameKind } from './frames.ts';
import { FrameReader, encodeHead } from './frames.ts';

/** Bodies up to this size are copied behind their header, so that a frame is one write. */
const JOIN_BYTES = 16 * 1024;
/** A peer that connects and says nothing is cut off. */
const HELLO_DEADLINE_MS = 10_000;

export interface ConnectionEvents {
  onFrame(connection: RunnerConnection, frame: Frame): void;
  onClose(connection: RunnerConnection): void;
  onBadFrame(connection: RunnerConnection, error: unknown): void;
}

/** One connection of a runner process: reads frames, writes frames, remembers what the process said of itself. */
export class RunnerConnection {
  /** Set by its hello. */
  process = -1;
  pid = 0;
  greeted = false;
  control = false;
  slots = 0;
  /** Attempts in hand, by key. */
  readonly inHand = new Set<string>();
  closed = false;

  readonly #socket: Socket;
  readonly #reader = new FrameReader();

  constructor(socket: Socket, events: ConnectionEvents) {
    this.#socket = socket;
    const silence = setTimeout(() => {
      if (!this.greeted) socket.destroy();
    }, HELLO_DEADLINE_MS);
    silence.unref();
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const frame of this.#reader.push(chunk)) {
          if (this.closed) return;
          events.onFrame(this, frame);
        }
      } catch (error) {
        events.onBadFrame(this, error);
        socket.destroy();
      }
    });
    // Why it broke does not matter: the runner dials again, and `close` follows every error.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(silence);
      if (this.closed) return;
      this.closed = true;
      events.onClose(this);
    });
  }

  send(kind: FrameKind, header: object, body?: Uint8Array): void {
    if (this.closed) return;
    if (body === undefined || body.length === 0) {
      this.#socket.write(encodeHead(kind, header, 0));
      return;
    }
    const head = encodeHead(kind, header, body.length);
    if (body.length <= JOIN_BYTES) {
      this.#socket.write(Buffer.concat([head, body]));
      return;
    }
    this.#socket.cork();
    this.#socket.write(head);
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Back-pressure: the runner's writes wait while the link upstream is full. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}
