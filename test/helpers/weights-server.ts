// An HTTP server with the weights of a model, at an address of this machine that containers reach when their agent
// opens it (LONGSHORE_AGENT_OPEN_ADDRESSES). Requests are counted.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { sleep } from '#shared/backoff.ts';

const CHUNK = randomBytes(1024 * 1024);

export class WeightsServer {
  /** Requests so far. */
  requests = 0;
  /** Time before each answer. */
  waitMs = 0;
  readonly address: string;
  readonly #server: Server;

  private constructor(address: string, server: Server) {
    this.address = address;
    this.#server = server;
  }

  /** Serves `mib` mebibytes at `/<mib>`. */
  static async start(): Promise<WeightsServer> {
    const address = ownAddress();
    const server = createServer();
    const weights = new WeightsServer(address, server);
    server.on('request', (request, response) => {
      weights.requests += 1;
      const mib = Number(request.url?.slice(1));
      response.setHeader('content-length', mib * CHUNK.length);
      sleep(weights.waitMs)
        .then(() => pipeline(Readable.from(repeated(mib), { objectMode: false }), response))
        .catch(() => response.destroy());
    });
    server.listen(0, address);
    await once(server, 'listening');
    return weights;
  }

  url(mib: number): string {
    return `http://${this.address}:${(this.#server.address() as AddressInfo).port}/${mib}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

function* repeated(mib: number): Generator<Buffer> {
  for (let sent = 0; sent < mib; sent += 1) yield CHUNK;
}

/** An address of this machine beside loopback, such as the one of the engine's bridge. */
function ownAddress(): string {
  const found = Object.values(networkInterfaces())
    .flatMap((some) => some ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4');
  if (found === undefined) throw new Error('this machine has no IPv4 address beside loopback');
  return found.address;
}
