/**
 * An HTTP proxy that connects to a given address, and knows names that no
 * other resolver knows. So a connection to such a name came through the proxy.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';

export class ConnectProxy {
  /** Targets of the requests so far. */
  readonly asked: string[] = [];
  /** Real address (host:port) by name or host:port. */
  readonly places = new Map<string, string>();
  /** `user:password` that it asks for. */
  credentials: string | undefined;
  /** Takes connections, and says nothing. */
  isSilent = false;
  #server: Server | undefined;
  #port = 0;
  readonly #sockets = new Set<Duplex>();

  /** Starts listening; after `down`, at the same port. */
  async up(): Promise<void> {
    const server = createServer((_request, response) => response.writeHead(405).end());
    server.on('connection', (socket: Socket) => this.#keep(socket));
    server.on('connect', ({ url = '', headers }, client: Duplex) => {
      this.asked.push(url);
      if (this.isSilent) return;
      const wanted = this.credentials && `Basic ${Buffer.from(this.credentials).toString('base64')}`;
      if (wanted !== undefined && headers['proxy-authorization'] !== wanted) {
        client.end('HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="x"\r\n\r\n');
        return;
      }
      const place = this.places.get(url);
      if (place === undefined) {
        client.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n');
        return;
      }
      const colon = place.lastIndexOf(':');
      const upstream = connect(Number(place.slice(colon + 1)), place.slice(0, colon).replace(/^\[|\]$/g, ''));
      this.#keep(upstream);
      upstream.once('connect', () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n');
        client.pipe(upstream).pipe(client);
      });
      upstream.on('close', () => client.destroy());
      client.on('close', () => upstream.destroy());
    });
    server.listen(this.#port, '127.0.0.1');
    await once(server, 'listening');
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** The proxy's URL, with the credentials that it asks for. */
  get url(): string {
    const [, user = '', password = ''] = /^([^:]*):(.*)$/.exec(this.credentials ?? '')?.map(encodeURIComponent) ?? [];
    return `http://${user === '' ? '' : `${user}:${password}@`}127.0.0.1:${this.#port}`;
  }

  /** Closes the proxy and every connection through it. */
  async down(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = once(server, 'close');
    server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #keep(socket: Duplex): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => this.#sockets.delete(socket));
  }
}
