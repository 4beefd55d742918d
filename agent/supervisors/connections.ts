/**
 * The connections between the agent and the supervisor of one container. The supervisor dials `supervisor.sock`, and
 * one connection always waits for a request. Streams of the scheduler are joined to such connections, and their bytes
 * pass unread. Must stay true: a connection serves one stream; the end of either side ends the other; both kinds are
 * bounded.
 */
import type { Socket } from 'node:net';
import { SocketListener } from '../slots/listener.ts';
import { joinSockets } from '../slots/streams.ts';
import type { Refusal } from './refuse.ts';
import { refuse } from './refuse.ts';

/** Most streams of one container at once. */
export const MOST_STREAMS = 256;
/** Connections beside those of streams: the one that waits, those that end, and strangers. */
const SPARE_CONNECTIONS = 32;
/** Time for a supervisor to dial: it does within 1 s of an agent's start. */
const DIAL_MS = 15_000;

export class SupervisorConnections {
  readonly #listener: SocketListener;
  /** Streams that no connection serves yet, each with its deadline. */
  readonly #waiting = new Map<Socket, NodeJS.Timeout>();
  /** Connections without a stream. */
  readonly #idle = new Set<Socket>();
  readonly #serving = new Set<Socket>();
  readonly #dialMs: number;
  #listening: Promise<void> | undefined;
  readonly #onIdle = new Set<(isDialled: boolean) => void>();

  constructor(path: string, dialMs = DIAL_MS) {
    this.#dialMs = dialMs;
    this.#listener = new SocketListener(path, (socket) => this.#dialled(socket), {
      most: MOST_STREAMS + SPARE_CONNECTIONS,
    });
  }

  /** Listens; a failure is tried again by the next call. */
  listen(): Promise<void> {
    this.#listening ??= this.#listener.listen().catch((error: unknown) => {
      this.#listening = undefined;
      throw error;
    });
    return this.#listening;
  }

  /** Whether a supervisor is connected. */
  get isConnected(): boolean {
    return this.#idle.size > 0 || this.#serving.size > 0;
  }

  get isFull(): boolean {
    return this.#waiting.size + this.#serving.size >= MOST_STREAMS;
  }

  /** Serves a stream as soon as a connection waits. */
  take(link: Socket): void {
    const late = setTimeout(() => {
      this.#waiting.delete(link);
      refuse(link, { code: 'failed', error: 'the supervisor of the container does not answer' });
    }, this.#dialMs);
    late.unref();
    this.#waiting.set(link, late);
    link.once('close', () => {
      clearTimeout(late);
      this.#waiting.delete(link);
    });
    this.#match();
  }

  /** Resolves once a connection waits; false after `ms`. */
  async dialled(ms: number): Promise<boolean> {
    if (this.#idle.size > 0) return true;
    return new Promise((resolve) => {
      const tell = (isDialled: boolean): void => {
        clearTimeout(timer);
        this.#onIdle.delete(tell);
        resolve(isDialled);
      };
      const timer = setTimeout(() => tell(false), ms);
      this.#onIdle.add(tell);
    });
  }

  /** Answers the streams that wait. */
  fail(refusal: Refusal): void {
    for (const [link, late] of this.#waiting) {
      clearTimeout(late);
      refuse(link, refusal);
    }
    this.#waiting.clear();
  }

  /** Ends all streams; a supervisor that lives on dials again when an agent listens again. */
  close(refusal: Refusal): void {
    this.#listener.close();
    this.fail(refusal);
    for (const socket of [...this.#idle, ...this.#serving]) socket.destroy();
  }

  #dialled(socket: Socket): void {
    socket.on('error', () => undefined);
    socket.pause();
    this.#idle.add(socket);
    socket.once('close', () => {
      this.#idle.delete(socket);
      this.#serving.delete(socket);
    });
    this.#match();
    if (this.#idle.size > 0) for (const tell of this.#onIdle) tell(true);
  }

  #match(): void {
    for (const [link, late] of this.#waiting) {
      const [socket] = this.#idle;
      if (socket === undefined) return;
      clearTimeout(late);
      this.#waiting.delete(link);
      this.#idle.delete(socket);
      this.#serving.add(socket);
      joinSockets(socket, link);
    }
  }
}
