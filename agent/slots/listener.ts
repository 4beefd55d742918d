import { chmodSync, unlinkSync } from 'node:fs';
import { mkdir, unlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { dirname } from 'node:path';
import { hasCode } from '../durable.ts';

export interface ListenerLimits {
  /** Bound on open connections; further ones are closed at once. */
  readonly most: number;
  /** Called for each connection that was closed because of the bound. */
  readonly onRefused?: () => void;
}

/**
 * A unix socket of one container. Each container has a directory (0711) with `agent.sock` and `gateway.sock` (0666):
 * any user of the image can connect, and none can list.
 */
export class SocketListener {
  readonly path: string;
  readonly #made: Server;
  readonly #limits: ListenerLimits;
  #server: Server | undefined;

  /** @param to - a handler of connections, or a server; it listens once */
  constructor(path: string, to: ((socket: Socket) => void) | Server, limits: ListenerLimits) {
    this.path = path;
    this.#limits = limits;
    this.#made = typeof to === 'function' ? createServer({ noDelay: true }, to) : to;
  }

  /** Listens; replaces a socket of an earlier agent. */
  async listen(): Promise<void> {
    // The removal is awaited before anything else: a hanging disk then holds up this container alone. The rest is as
    // quick as listening, since an adopting agent has hundreds of sockets to create.
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

  /** Stops taking connections; the owner closes open ones. */
  close(): void {
    this.#server?.close();
    this.#server = undefined;
  }
}

/** The pending check of the disk. */
let asking: Promise<unknown> | undefined;

/**
 * Removes a socket of an earlier agent. All callers in the meantime share one wait for the disk and then continue in
 * the same turn, since an adopting agent has hundreds of sockets.
 * @returns false when there was none, and possibly no folder for it either
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
