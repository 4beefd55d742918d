/**
 * Connections to the scheduler for bytes, one for each streamed call: no body delays a ping, and no stream another.
 * Some are dialled ahead while streamed calls come. Must stay true: a connection serves one session and one stream.
 */
import type { Socket } from 'node:net';
import { encodeLine } from '#shared/protocol/byte-connections.ts';
import type { StreamLine } from '#shared/protocol/byte-connections.ts';
import type { Identity } from './identity.ts';

/** Connections that wait for the next calls. */
const AHEAD = 4;
/** Time without a streamed call after which none waits. */
const IDLE_MS = 30_000;

export interface ByteConnectionsParts {
  /** Dials by the way of the current session. The caller destroys the socket, also after an error. */
  readonly dial: (identity: Identity) => Promise<Socket>;
}

export class ByteConnections {
  readonly #parts: ByteConnectionsParts;
  readonly #ahead = new Set<Socket>();
  #dialling = 0;
  #sessionId = '';
  #idle: NodeJS.Timeout | undefined;

  constructor(parts: ByteConnectionsParts) {
    this.#parts = parts;
  }

  /** Opens the connection of a stream. @throws AppError or Error: the scheduler was not reached */
  async open(identity: Identity, sessionId: string, line: StreamLine): Promise<Socket> {
    if (this.#sessionId !== sessionId) this.close();
    this.#sessionId = sessionId;
    this.#idle ??= setTimeout(() => this.close(), IDLE_MS).unref();
    this.#idle.refresh();
    const [ready] = this.#ahead;
    if (ready !== undefined) this.#ahead.delete(ready);
    setImmediate(() => this.#dialAhead(identity, sessionId));
    const socket = ready ?? (await this.#dial(identity, sessionId));
    socket.pause();
    socket.write(encodeLine(line));
    return socket;
  }

  /** Closes the connections that wait. */
  close(): void {
    clearTimeout(this.#idle);
    this.#idle = undefined;
    this.#sessionId = '';
    for (const socket of this.#ahead) socket.destroy();
    this.#ahead.clear();
  }

  #dialAhead(identity: Identity, sessionId: string): void {
    for (let more = AHEAD - this.#ahead.size - this.#dialling; more > 0; more -= 1) {
      this.#dialling += 1;
      this.#dial(identity, sessionId)
        .then((socket) => {
          if (this.#sessionId !== sessionId || socket.destroyed) return void socket.destroy();
          this.#ahead.add(socket);
          socket.once('close', () => this.#ahead.delete(socket));
          // The scheduler sends nothing on it, except for its end.
          socket.resume();
        })
        // The next stream dials for itself, and meets the error.
        .catch(() => undefined)
        .finally(() => (this.#dialling -= 1));
    }
  }

  async #dial(identity: Identity, sessionId: string): Promise<Socket> {
    const socket = await this.#parts.dial(identity);
    socket.on('error', () => undefined);
    socket.write(encodeLine({ sessionId, authorization: `Bearer ${identity.credential}` }));
    return socket;
  }
}
