// The port that agents dial, and the unix sockets where the agent of this machine reaches the scheduler without TLS.
// TLS names the protocol of a connection (ALPN): gRPC gets the link's, and `onBytes` those for bytes.
// Invariant: every protocol asks for the machine's credential on every way, and connections without one are bounded.
import { createServer } from 'node:net';
import type { Server as SocketServer, Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { ServerCredentials, logVerbosity, setLogVerbosity } from '@grpc/grpc-js';
import type { Server } from '@grpc/grpc-js';
import { splitAddress } from '#shared/address.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import { BYTES_ALPN, HELD_BYTES, bytesSocketOf } from '#shared/protocol/byte-connections.ts';
import { listenPrivately } from './local-socket.ts';
import type { StrangerBounds } from './session-settings.ts';
import { Strangers } from './strangers.ts';

/** Protocol of gRPC in the TLS handshake. */
const GRPC_ALPN = 'h2';
/** Connections of the port in all: those for bytes of a large fleet, and room. Others are closed at once. */
const MOST_CONNECTIONS = 200_000;

export interface AgentPortParts {
  readonly grpc: Server;
  /** Takes a connection for bytes. `onKnown` is called once it has shown a credential. */
  readonly onBytes: (socket: Socket, onKnown: () => void) => void;
  readonly certificate: { readonly chainPem: string; readonly keyPem: string };
  /** `host:port`; port 0 picks one. */
  readonly address: string;
  /** Unix socket that the agent of this machine may dial as well. */
  readonly socketPath: string | undefined;
  readonly strangers: StrangerBounds;
}

export class AgentPort {
  readonly #parts: AgentPortParts;
  readonly #servers: SocketServer[] = [];
  /** Connections that have shown no credential, and those of each machine that have. */
  readonly strangers: Strangers;
  #address = '';

  constructor(parts: AgentPortParts) {
    this.#parts = parts;
    this.strangers = new Strangers(parts.strangers);
  }

  /** `host:port` as bound. */
  get address(): string {
    return this.#address;
  }

  /** @throws StartupError `port_in_use`, `data_dir_unusable` */
  async start(): Promise<void> {
    const { address, socketPath } = this.#parts;
    // gRPC also writes its errors to stderr; the same errors reach this code, which logs them once.
    setLogVerbosity(logVerbosity.NONE);
    try {
      const port = await this.#listenForAll();
      this.#address = `${address.slice(0, address.lastIndexOf(':'))}:${port}`;
    } catch (error) {
      throw new StartupError(
        'port_in_use',
        messageOf(error).includes('EADDRINUSE')
          ? `cannot listen for agents on ${address}: another program has that port; stop it or set LONGSHORE_AGENT_ADDRESS to a free one (port 0 picks one)`
          : `cannot listen for agents on ${address} (${messageOf(error)}): set LONGSHORE_AGENT_ADDRESS to an address of this host`,
        { cause: error },
      );
    }
    if (socketPath !== undefined) await this.#listenLocally(socketPath);
  }

  /** Takes no further connection. */
  stop(): void {
    for (const server of this.#servers) server.close();
    this.strangers.close();
  }

  /** @returns the port as bound */
  async #listenForAll(): Promise<number> {
    const { grpc, onBytes, certificate } = this.#parts;
    const { host, port } = splitAddress(this.#parts.address);
    const injector = grpc.createConnectionInjector(ServerCredentials.createInsecure());
    const server = createTlsServer({
      cert: certificate.chainPem,
      key: certificate.keyPem,
      ALPNProtocols: [BYTES_ALPN, GRPC_ALPN],
      handshakeTimeout: this.#parts.strangers.handshakeWithinMs,
      noDelay: true,
      highWaterMark: HELD_BYTES,
    });
    server.maxConnections = MOST_CONNECTIONS;
    server.on('connection', (socket: Socket) => this.strangers.came(socket));
    server.on('secureConnection', (socket) => {
      socket.on('error', () => undefined);
      this.strangers.shookHands(socket);
      if (socket.alpnProtocol === BYTES_ALPN) onBytes(socket, () => this.strangers.known(socket));
      else injector.injectConnection(socket);
    });
    const address = await listening(server, { host, port });
    this.#servers.push(server);
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  async #listenLocally(socketPath: string): Promise<void> {
    const { grpc, onBytes } = this.#parts;
    await listenPrivately(bytesSocketOf(socketPath), async (path) => {
      const server = createServer({ highWaterMark: HELD_BYTES }, (socket) => onBytes(socket, () => undefined));
      await listening(server, { path });
      this.#servers.push(server);
    });
    await listenPrivately(socketPath, (path) => bindLocally(grpc, path));
  }
}

/** Lets gRPC listen on a unix socket. */
export function bindLocally(grpc: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    grpc.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    );
  });
}

function listening(
  server: SocketServer,
  at: { readonly host: string; readonly port: number } | { readonly path: string },
): Promise<ReturnType<SocketServer['address']>> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(at, () => {
      server.off('error', reject);
      server.on('error', () => undefined);
      resolve(server.address());
    });
  });
}
