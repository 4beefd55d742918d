/**
 * How a channel's connections begin: through a proxy if configured, then TLS. Both steps have a deadline. gRPC has
 * none, and a peer that accepts connections and stays silent would collect one for each try. (gRPC's own proxying reads
 * the environment by its own rules, and sends an IPv6 address without its brackets.)
 */
import { ChannelCredentials } from '@grpc/grpc-js';
import type { Proxy } from '../proxy.ts';
import { tunnelOn } from './tunnel.ts';

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

const HANDSHAKE_DEADLINE_MS = 10_000;

export class LinkCredentials extends ChannelCredentials {
  readonly #trust: ChannelCredentials;
  readonly #address: string;
  readonly #proxy: Proxy | undefined;

  /** @param address - the address behind the proxy; the channel dials the proxy's own */
  constructor(trust: ChannelCredentials, address: string, proxy: Proxy | undefined) {
    super();
    this.#trust = trust;
    this.#address = address;
    this.#proxy = proxy;
  }

  _isSecure(): boolean {
    return this.#trust._isSecure();
  }

  _equals(other: ChannelCredentials): boolean {
    return other === this;
  }

  _createSecureConnector(...given: Parameters<ChannelCredentials['_createSecureConnector']>): Connector {
    const inner = this.#trust._createSecureConnector(...given);
    const [address, proxy] = [this.#address, this.#proxy];
    return {
      connect: async (socket) => {
        const way = proxy === undefined ? socket : await tunnelOn(socket, proxy, address);
        return await new Promise((resolve, reject) => {
          const deadline = setTimeout(() => {
            way.destroy();
            reject(new Error(`${address} does not begin TLS within ${HANDSHAKE_DEADLINE_MS / 1000} s`));
          }, HANDSHAKE_DEADLINE_MS);
          deadline.unref();
          inner
            .connect(way)
            .then(resolve, reject)
            .finally(() => clearTimeout(deadline));
        });
      },
      waitForReady: () => inner.waitForReady(),
      getCallCredentials: () => inner.getCallCredentials(),
      destroy: () => inner.destroy(),
    };
  }
}
