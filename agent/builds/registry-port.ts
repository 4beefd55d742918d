/**
 * A port on loopback where the engine of this machine reaches the managed registry: each connection goes over the link
 * to the scheduler, unread. Engines speak plain HTTP to loopback without any setting, and containers cannot reach it.
 * Must stay true: nothing here gives a right; the scheduler asks every request for a token.
 */
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { splitAddress } from '#shared/address.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { HELD_BYTES } from '#shared/protocol/byte-connections.ts';
import type { OpenBytes } from '../slots/streams.ts';
import { joinSockets } from '../slots/streams.ts';

/** Connections of an engine: a few for each of its pulls and pushes. */
const MOST_CONNECTIONS = 48;

export interface RegistryPortParts {
  /** `host:port` on loopback, port 0 picks one; `off`: none. */
  readonly address: string;
  readonly open: OpenBytes;
  readonly log: Log;
}

export class RegistryPort {
  readonly #parts: RegistryPortParts;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #host: string | undefined;

  constructor(parts: RegistryPortParts) {
    this.#parts = parts;
  }

  /** `host:port` for names of images; undefined: the port is not open. */
  get host(): string | undefined {
    return this.#host;
  }

  /** Opens the port. Without it images are neither pushed nor pulled from the managed registry. */
  async start(): Promise<void> {
    const { address, log } = this.#parts;
    if (address === 'off') return;
    const { host, port } = splitAddress(address);
    const server = createServer({ allowHalfOpen: true, highWaterMark: HELD_BYTES, noDelay: true }, (socket) =>
      this.#accept(socket),
    );
    server.maxConnections = MOST_CONNECTIONS;
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host, port }, resolve);
      });
    } catch (error) {
      log.warn(
        { err: error },
        `the port for built images could not be opened (${messageOf(error)}): set LONGSHORE_AGENT_REGISTRY_ADDRESS`,
      );
      return;
    }
    server.on('error', (error) => log.warn({ err: error }, 'the port for built images failed'));
    this.#server = server;
    this.#host = `${host}:${(server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#host = undefined;
    this.#server?.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => this.#sockets.delete(socket));
    socket.pause();
    const opening = this.#parts.open({ registry: true });
    if (opening === undefined) return void socket.destroy();
    opening.then(
      (link) => joinSockets(socket, link),
      () => socket.destroy(),
    );
  }
}
