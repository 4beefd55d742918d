// The port of published clients (1993): HTTP/2 in clear or by TLS, as the client's first byte says. Silent connections
// and those without a good token are bounded; the code of gRPC is loaded with the first connection.
// Invariant: in clear it serves callers of this host alone, unless the operator allows more by name.
import { createServer } from 'node:net';
import type { AddressInfo, Server as SocketServer, Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { Server as TlsServer } from 'node:tls';
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Places } from '#shared/places.ts';
import type { StrangerBounds } from '../../fleet/session-settings.ts';
import { Strangers } from '../../fleet/strangers.ts';
import { MIN_TLS } from '../http/certificate.ts';
import type { CertificateWatch } from '../http/certificate.ts';
import { isLoopbackHost, listenPlace } from '../http/listen-policy.ts';
import type { ListenWish } from '../http/listen-policy.ts';
import { listenFailure, parseAddress } from '../http/server.ts';
import type { Connections, Wire } from './wire.ts';

const SETTING = 'LONGSHORE_GRPC_ADDRESS';
/** Where it listens when nothing is set, and the port is free: published clients dial this port. */
const USUAL = '127.0.0.1:1993';
/** The value of the setting with which no port is opened. */
const NONE = 'none';

const MOST_CONNECTIONS = 1_000;
/** Connections of one workspace, as the first good token on each says. */
export const MOST_CONNECTIONS_OF_WORKSPACE = 250;
const HANDSHAKE_MS = 10_000;
/** Bounds on connections that have shown no good token. */
const STRANGERS: StrangerBounds = {
  most: 500,
  mostOfAddress: 250,
  handshakeWithinMs: HANDSHAKE_MS,
  knownWithinMs: HANDSHAKE_MS,
  mostBytes: 256 * 1024,
  mostBytesTogether: 32 * 1024 * 1024,
  mostOfMachine: MOST_CONNECTIONS,
};
const LAST_MS = 500;
const LOOK_EVERY_MS = 20;
/** First byte of a TLS handshake. */
const TLS_HANDSHAKE = 0x16;

const NARROWED =
  'gRPC in clear listens on loopback only: set LONGSHORE_HTTP_TLS_CERT and LONGSHORE_HTTP_TLS_KEY, or LONGSHORE_GRPC_PLAINTEXT=allow behind a proxy or on a trusted network';

export interface GrpcServerParts {
  /** `LONGSHORE_GRPC_ADDRESS`; undefined: the usual one, where it is free. */
  readonly address: string | undefined;
  /** `LONGSHORE_GRPC_PLAINTEXT` */
  readonly plaintext: ListenWish['plaintext'];
  /** The certificate of HTTP; absent: in clear. */
  readonly certificate?: CertificateWatch;
  /** Makes the calls' side. */
  readonly open: (connections: Connections) => Promise<Wire>;
  readonly log: Log;
}

export class GrpcServer {
  readonly #parts: GrpcServerParts;
  readonly #strangers = new Strangers(STRANGERS);
  readonly #sockets = new Set<Socket>();
  readonly #places = new Places<WorkspaceId>(MOST_CONNECTIONS_OF_WORKSPACE);
  /** Connections that count for a workspace, by peers. */
  readonly #counted = new Map<string, Socket>();
  #listener: SocketServer | undefined;
  #tls: TlsServer | undefined;
  #wire: Promise<Wire> | undefined;
  #isStopping = false;
  #stopped: Promise<void> | undefined;
  #port = 0;
  #address = '';

  constructor(parts: GrpcServerParts) {
    this.#parts = parts;
  }

  /** Bound address; empty: it does not listen. */
  get address(): string {
    return this.#address;
  }

  /** Bound port; 0: it does not listen. */
  get port(): number {
    return this.#port;
  }

  /** @throws StartupError `port_in_use`, `bad_address` */
  async start(): Promise<void> {
    const { address, certificate, plaintext, log } = this.#parts;
    if (address === NONE) return;
    const wanted = address ?? USUAL;
    const isSealed = certificate !== undefined;
    const { host, port, isNarrowed } = listenPlace({ ...parseAddress(wanted, SETTING), isSealed, plaintext });
    if (isNarrowed) log.warn({ wanted, setting: 'LONGSHORE_GRPC_PLAINTEXT' }, NARROWED);
    if (certificate !== undefined) this.#tls = this.#openTls(certificate);
    const listener = createServer((socket) => this.#took(socket));
    listener.maxConnections = MOST_CONNECTIONS;
    try {
      await listening(listener, host, port);
    } catch (error) {
      if (address !== undefined) throw listenFailure(wanted, error, SETTING);
      log.info(
        { wanted, why: messageOf(error) },
        'no port for published clients: set LONGSHORE_GRPC_ADDRESS to another',
      );
      return;
    }
    this.#listener = listener;
    const bound = listener.address() as AddressInfo;
    this.#port = bound.port;
    this.#address = `${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`;
    log.info({ address: this.#address }, 'grpc listening');
  }

  /** Refuses new calls, waits up to `graceMs` for those in progress, then ends streams and connections. */
  stop(graceMs = 10_000): Promise<void> {
    this.#stopped ??= this.#close(graceMs);
    return this.#stopped;
  }

  async #close(graceMs: number): Promise<void> {
    this.#isStopping = true;
    this.#listener?.close();
    this.#strangers.close();
    const wire = await this.#wire;
    if (wire !== undefined) {
      wire.injector.drain(graceMs);
      wire.endComingBack();
      await idle(wire, Math.max(0, graceMs - LAST_MS));
      wire.endStreams();
      await idle(wire, Math.min(graceMs, LAST_MS));
      wire.close();
    }
    for (const socket of this.#sockets) socket.destroy();
  }

  #openTls(certificate: CertificateWatch): TlsServer {
    const server = createTlsServer({ ALPNProtocols: ['h2'], minVersion: MIN_TLS, handshakeTimeout: HANDSHAKE_MS });
    server.on('secureConnection', (socket) => {
      socket.on('error', () => undefined);
      this.#strangers.shookHands(socket);
      void this.#inject(socket);
    });
    server.on('tlsClientError', (_error, socket) => socket.destroy());
    const { cert, key } = certificate.current;
    server.setSecureContext({ cert, key, minVersion: MIN_TLS });
    certificate.onReplaced((changed) =>
      server.setSecureContext({ cert: changed.cert, key: changed.key, minVersion: MIN_TLS }),
    );
    return server;
  }

  #took(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    socket.on('error', () => undefined);
    socket.setNoDelay(true);
    this.#strangers.came(socket);
    // A connection that says nothing costs its socket alone.
    socket.once('data', (first: Buffer) => {
      socket.pause();
      socket.unshift(first);
      const tls = this.#tls;
      if (tls !== undefined && first[0] === TLS_HANDSHAKE) tls.emit('connection', socket);
      else if (tls === undefined || this.#mayBeClear(socket)) void this.#inject(socket);
      else socket.destroy();
    });
  }

  #mayBeClear({ remoteAddress = '' }: Socket): boolean {
    return this.#parts.plaintext === 'allow' || isLoopbackHost(remoteAddress);
  }

  /** Counts a connection for the workspace of its first good token. @returns false: the workspace has too many */
  #known(peer: string, workspaceId: WorkspaceId): boolean {
    if (this.#counted.has(peer)) return true;
    const leave = this.#places.take(workspaceId);
    if (leave === undefined) return false;
    const socket = this.#strangers.knownPeer(peer);
    if (socket === undefined) {
      leave();
      return true;
    }
    this.#counted.set(peer, socket);
    socket.once('close', () => {
      leave();
      if (this.#counted.get(peer) === socket) this.#counted.delete(peer);
    });
    return true;
  }

  async #inject(socket: Socket): Promise<void> {
    this.#wire ??= this.#parts.open({
      isStopping: () => this.#isStopping,
      known: (peer, workspaceId) => this.#known(peer, workspaceId),
      isConnected: (peer) => this.#strangers.isConnected(peer),
    });
    const wire = await this.#wire;
    if (this.#isStopping || socket.destroyed) socket.destroy();
    else wire.injector.injectConnection(socket);
  }
}

/** Waits until no call is in progress. */
async function idle(wire: Wire, mostMs: number): Promise<void> {
  const untilMs = performance.now() + mostMs;
  while (wire.running > 0 && performance.now() < untilMs) await sleep(LOOK_EVERY_MS);
}

function listening(server: SocketServer, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port }, () => {
      server.off('error', reject);
      server.on('error', () => undefined);
      resolve();
    });
  });
}
