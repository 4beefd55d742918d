import { chmodSync, unlinkSync } from 'node:fs';
import { mkdir, unlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { dirname } from 'node:path';
import { hasCode } from '../durable.ts';

export interface ListenerLimits {
  /** Connections that are open at once; the next ones are closed at once. */
  readonly most: number;
  /** Called for each connection that was closed because of that. */
  readonly onRefused?: () => void;
}

/** A unix socket of one container: a directory of its own (0711) with `agent.sock` and `gateway.sock` (0666) in it, so that any user of the image can connect and none can list. */
export class SocketListener {
  readonly path: string;
  readonly #made: Server;
  readonly #limits: ListenerLimits;
  #server: Server | undefined;

  /** @param to - what takes connections, or a server that does; it listens once */
  constructor(path: string, to: ((socket: Socket) => void) | Server, limits: ListenerLimits) {
    this.path = path;
    this.#limits = limits;
    this.#made = typeof to === 'function' ? createServer({ noDelay: true }, to) : to;
  }

  /** Listens, in the place of whatever an earlier agent left there. */
  async listen(): Promise<void> {
    // Asked for first and waited for: a disk that hangs holds up this container here and no other. What follows is as quick as listening is, and an agent that adopts has hundreds of sockets to make.
    if (!(await isUnlinked(this.path))) {
      const folder = dirname(this.path);
      await mkdir(folder, { recursive: true, mode: 0o711 });
      chmodSync(folder, 0o711);
    }
    const server = this.#made;
    server.maxConnections = this.#limits.most;
    const { onRefused } = this.#limits;
    if (onRefused !== undefined) server.on('drop', onRefused);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ path: this.path }, () => {
        server.removeListener('error', reject);
        server.on('error', () => undefined);
        resolve();
      });
    });
    chmodSync(this.path, 0o666);
    this.#server = server;
  }

  /** Stops taking connections; open ones are their owner's to close. */
  close(): void {
    this.#server?.close();
    this.#server = undefined;
  }
}

/** The question to the disk that is under way. */
let asking: Promise<unknown> | undefined;

/**
 * Removes what an earlier agent left. Waits for the disk once for all who ask meanwhile; they follow in the turn in which it answers, as an agent that adopts has hundreds of sockets.
 * @returns false: there was none, and maybe no folder for it either
 */
async function isUnlinked(path: string): Promise<boolean> {
  try {
    if (asking === undefined) {
      asking = unlink(path).finally(() => (asking = undefined));
      await asking;
    } else {
      await asking.catch(() => undefined);
      unlinkSync(path);
    }
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}
