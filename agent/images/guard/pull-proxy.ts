/**
 * An HTTP server on loopback from which the engine of this machine pulls images of registries that no operator named.
 * The agent asks the registry itself, so the engine follows no redirect, asks no token server and resolves no name of a
 * tenant. Must stay true: a path of the server is good for one pull of one image and is a secret, because every user of
 * the machine reaches loopback; the engine gets no blob that the manifest does not list.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { splitAddress } from '#shared/address.ts';
import { PULL_PROXY_PATH } from '#shared/domain/guarded-images.ts';
import { PullSession } from './pull-session.ts';
import type { SessionParts } from './pull-session.ts';
import { refuse } from './refuse.ts';

const { createServer } = process.getBuiltinModule('node:http');

/** The engine opens a few connections for each of its pulls. */
const MAX_CONNECTIONS = 256;
/** A connection that has not sent a request within this time is closed, because a stranger could hold it open. */
const HEADERS_MS = 5_000;
const PATH = new RegExp(`^/v2/${PULL_PROXY_PATH}([0-9a-f]{32})/(manifests|blobs)/(sha256:[0-9a-f]{64})$`);

export class PullProxy {
  readonly #sessions = new Map<string, PullSession>();
  #server: Server | undefined;
  #host = '';

  get isOpen(): boolean {
    return this.#server !== undefined;
  }

  /** @param address - `host:port` on loopback, port 0 picks one */
  async start(address: string): Promise<void> {
    const { host, port } = splitAddress(address);
    const server = createServer(
      { headersTimeout: HEADERS_MS, requestTimeout: HEADERS_MS, connectionsCheckingInterval: 1_000 },
      (request, response) => this.#answer(request, response),
    );
    server.maxConnections = MAX_CONNECTIONS;
    server.listen({ host, port });
    await once(server, 'listening');
    this.#server = server;
    this.#host = `${host}:${(server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    for (const session of this.#sessions.values()) session.close();
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }

  /** Opens a path for one pull. */
  open(parts: Omit<SessionParts, 'name' | 'onClose'>): PullSession {
    const secret = randomBytes(16).toString('hex');
    const session = new PullSession({
      ...parts,
      name: `${this.#host}/${PULL_PROXY_PATH}${secret}`,
      onClose: () => this.#sessions.delete(secret),
    });
    this.#sessions.set(secret, session);
    return session;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    response.on('error', () => undefined);
    const { method = '', url = '' } = request;
    if (method !== 'GET' && method !== 'HEAD') return refuse(response, 405);
    if (url === '/v2/' || url === '/v2') {
      response.writeHead(200, { 'docker-distribution-api-version': 'registry/2.0', 'content-length': 2 }).end('{}');
      return;
    }
    const [, secret = '', kind = '', digest = ''] = PATH.exec(url.replace(/\?.*$/, '')) ?? [];
    const session = this.#sessions.get(secret);
    if (session === undefined) return refuse(response, 404);
    void session.serve(kind === 'blobs' ? 'blob' : 'manifest', digest, request, response);
  }
}
