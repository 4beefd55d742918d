import { timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { RequestListener, Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { splitAddress } from '#shared/address.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { AgentConfig } from '../config.ts';
import { hasCode } from '../durable.ts';
import type { AgentMetrics } from './metrics.ts';

export type MetricsPageConfig = Pick<
  AgentConfig,
  | 'LONGSHORE_AGENT_METRICS_ADDRESS'
  | 'LONGSHORE_AGENT_METRICS_TOKEN'
  | 'LONGSHORE_AGENT_METRICS_TLS_CERT'
  | 'LONGSHORE_AGENT_METRICS_TLS_KEY'
>;

const REQUEST_MS = 5_000;
/** Connections at once; collectors need few. */
const MOST_CONNECTIONS = 64;

/** The Prometheus page. A request only reads existing numbers, so it answers in every state of the engine. */
export class MetricsPage {
  readonly #config: MetricsPageConfig;
  readonly #metrics: AgentMetrics;
  #server: Server | undefined;

  constructor(config: MetricsPageConfig, metrics: AgentMetrics) {
    this.#config = config;
    this.#metrics = metrics;
  }

  /** The listening address as `host:port`. */
  get address(): string {
    const address = this.#config.LONGSHORE_AGENT_METRICS_ADDRESS;
    const bound = this.#server?.address() as AddressInfo | null | undefined;
    // Everything before the port, including brackets of an IPv6 address.
    const host = address.slice(0, address.lastIndexOf(':'));
    return bound === null || bound === undefined ? address : `${host}:${bound.port}`;
  }

  /** @throws StartupError `address_taken`, `bad_config` where a certificate cannot be used */
  async start(): Promise<void> {
    const address = this.#config.LONGSHORE_AGENT_METRICS_ADDRESS;
    const { host, port } = splitAddress(address);
    const server = this.#create((request, response) => {
      if (request.url?.split('?', 1)[0] !== '/metrics') {
        response.writeHead(404).end();
        return;
      }
      if (!this.#mayRead(request.headers.authorization)) {
        response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
        return;
      }
      this.#metrics.registry.metrics().then(
        (page) => response.writeHead(200, { 'content-type': this.#metrics.registry.contentType }).end(page),
        () => response.writeHead(500).end(),
      );
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => {
        reject(
          hasCode(error, 'EADDRINUSE', 'EACCES', 'EADDRNOTAVAIL')
            ? new StartupError(
                'address_taken',
                `cannot listen on ${address} for metrics; free that port, or set LONGSHORE_AGENT_METRICS_ADDRESS (port 0 picks one)`,
                { cause: error },
              )
            : error,
        );
      });
      server.listen(port, host, resolve);
    });
    this.#server = server;
  }

  async stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }

  #create(listener: RequestListener): Server {
    const { LONGSHORE_AGENT_METRICS_TLS_CERT: certFile, LONGSHORE_AGENT_METRICS_TLS_KEY: keyFile } = this.#config;
    // An import of this module would evaluate all of its exports, among them `WebSocket` with Node's whole fetch: 7 MiB
    // of an agent at rest.
    const bounds = { requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS };
    if (certFile === undefined || keyFile === undefined)
      return bounded(process.getBuiltinModule('node:http').createServer(bounds, listener));
    try {
      const [cert, key] = [readFileSync(certFile), readFileSync(keyFile)];
      return bounded(createTlsServer({ cert, key, handshakeTimeout: REQUEST_MS, ...bounds }, listener));
    } catch (error) {
      throw new StartupError(
        'bad_config',
        `LONGSHORE_AGENT_METRICS_TLS_CERT and _KEY cannot be used: ${messageOf(error)}`,
        { cause: error, exitCode: 78 },
      );
    }
  }

  /** Compares in constant time. */
  #mayRead(authorization: string | undefined): boolean {
    const token = this.#config.LONGSHORE_AGENT_METRICS_TOKEN;
    if (token === undefined) return true;
    const given = /^Bearer (.+)$/i.exec(authorization ?? '')?.[1] ?? '';
    return timingSafeEqual(Buffer.from(sha256Hex(given)), Buffer.from(sha256Hex(token)));
  }
}

function bounded<T extends Server>(server: T): T {
  server.maxConnections = MOST_CONNECTIONS;
  return server;
}
