// Requests that come by another way than a socket of this host, handed to the same HTTP server: they pass every surface as any other request does, and are on no host's loopback.
import type { Server } from 'node:http';
import { request } from 'node:http';
import type { ClientRequest, OutgoingHttpHeaders } from 'node:http';
import { duplexPair } from 'node:stream';
import { Server as TlsServer } from 'node:tls';

export interface RequestWithin {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
}

/** A request on a connection of its own, in memory; whoever made it writes the body and ends it. */
export function requestWithin(server: Server, { method, path, headers }: RequestWithin): ClientRequest {
  const [ours, theirs] = duplexPair();
  // Whichever side is cut off, the other one learns of it: a pair tells only of a good end by itself.
  for (const [one, other] of [
    [ours, theirs],
    [theirs, ours],
  ] as const) {
    one.on('error', () => undefined);
    one.on('close', () => {
      if (!one.writableFinished) other.destroy();
    });
  }
  // A server of HTTPS would wait for a handshake on a new connection; after the handshake it takes one up by another event.
  server.emit(server instanceof TlsServer ? 'secureConnection' : 'connection', theirs);
  return request({ method, path, headers: { ...headers }, createConnection: () => ours });
}
