/**
 * Connections that a program in a container dials, on a socket of its own: one always waits for a request. Streams of
 * the scheduler are joined to them, and their bytes pass unread. Must stay true: a connection serves one stream; the
 * end of either side ends the other.
 */
import type { Socket } from 'node:net';
import { SocketListener } from './listener.ts';
import { joinSockets } from './streams.ts';

export class DialledConnections {
  readonly #listener: SocketListener;
  /** Streams that no connection serves yet. */
  readonly #waiting = new Set<Socket>();
  /** Connections without a stream. */
  readonly #idle = new Set<Socket>();
  readonly #serving = new Set<Socket>();
  readonly #onChange: () => void;

  /**
   * @param most - connections of all kinds
   * @param onChange - called when a connection was dialled, and when a stream is over
   */
  constructor(path: string, most: number, onChange: () => void = () => undefined) {
    this.#onChange = onChange;
    this.#listener = new SocketListener(path, (socket) => this.#dialled(socket), { most });
  }

  listen(): Promise<void> {
    return this.#listener.listen();
  }

  /** A connection waits for a stream. */
  get isWaiting(): boolean {
    return this.#idle.size > 0;
  }

  /** A connection is there, with a stream or without. */
  get isConnected(): boolean {
    return this.#idle.size > 0 || this.#serving.size > 0;
  }

  /** Streams that are served, or wait for that. */
  get streams(): number {
    return this.#waiting.size + this.#serving.size;
  }

  /** Serves a stream as soon as a connection waits. */
  take(link: Socket): void {
    this.#waiting.add(link);
    link.once('close', () => {
      if (this.#waiting.delete(link)) this.#onChange();
    });
    this.#match();
  }

  /** Takes back a stream that still waits. @returns whether it did */
  takeBack(link: Socket): boolean {
    return this.#waiting.delete(link);
  }

  /** Gives up all streams that wait. */
  giveUp(refuse: (link: Socket) => void): void {
    for (const link of this.#waiting) refuse(link);
    this.#waiting.clear();
    this.#onChange();
  }

  /** Ends all streams. */
  close(refuse: (link: Socket) => void): void {
    this.#listener.close();
    this.giveUp(refuse);
    for (const socket of [...this.#idle, ...this.#serving]) socket.destroy();
  }

  #dialled(socket: Socket): void {
    socket.on('error', () => undefined);
    socket.pause();
    this.#idle.add(socket);
    socket.once('close', () => {
      this.#idle.delete(socket);
      if (this.#serving.delete(socket)) this.#onChange();
    });
    this.#match();
    this.#onChange();
  }

  #match(): void {
    for (const link of this.#waiting) {
      const [socket] = this.#idle;
      if (socket === undefined) return;
      this.#waiting.delete(link);
      this.#idle.delete(socket);
      this.#serving.add(socket);
      joinSockets(socket, link);
    }
  }
}
