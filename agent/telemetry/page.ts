import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { StartupError } from '#shared/errors.ts';
import { splitAddress } from '../config.ts';
import { hasCode } from '../durable.ts';
import type { AgentMetrics } from './metrics.ts';

/** The Prometheus page. It reads nothing but numbers that are there already, so it answers whatever the engine does. */
export class MetricsPage {
  readonly #address: string;
  readonly #metrics: AgentMetrics;
  #server: Server | undefined;

  constructor(address: string, metrics: AgentMetrics) {
    this.#address = address;
    this.#metrics = metrics;
  }

  /** `host:port` as it listens. */
  get address(): string {
    const bound = this.#server?.address() as AddressInfo | null | undefined;
    return bound === null || bound === undefined ? this.#address : `${splitAddress(this.#address).host}:${bound.port}`;
  }

  async start(): Promise<void> {
    const { host, port } = splitAddress(this.#address);
    const server = createServer({ requestTimeout: 5000 }, (request, response) => {
      if (request.url?.split('?', 1)[0] !== '/metrics') {
        response.writeHead(404).end();
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
                `cannot listen on ${this.#address} for metrics; free that port, or set LONGSHORE_AGENT_METRICS_ADDRESS (port 0 picks one)`,
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
}
