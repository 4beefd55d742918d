// Requests that come by another way than a socket of this host, handed to the same HTTP server. Such requests pass
// every surface as any other request does, and never count as loopback.
import type { Server } from 'node:http';
import { request } from 'node:http';
import type { ClientRequest, OutgoingHttpHeaders } from 'node:http';
import { duplexPair } from 'node:stream';
import { Server as TlsServer } from 'node:tls';

export interface RequestWithin {
  readonly method: string;
  /** Path with its query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
}

/** A request on a connection of its own, in memory; the caller writes the body and ends it. */
export function requestWithin(server: Server, { method, path, headers }: RequestWithin): ClientRequest {
  const [ours, theirs] = duplexPair();
  // A pair passes on a regular end only, so destroying one side must destroy the other.
  for (const [one, other] of [
    [ours, theirs],
    [theirs, ours],
  ] as const) {
    one.on('error', () => undefined);
    one.on('close', () => {
      if (!one.writableFinished) other.destroy();
    });
  }
  // An HTTPS server would wait for a handshake on a new connection;
  // after the handshake it takes the connection up by another event.
  server.emit(server instanceof TlsServer ? 'secureConnection' : 'connection', theirs);
  return request({ method, path, headers: { ...headers }, createConnection: () => ours });
}
