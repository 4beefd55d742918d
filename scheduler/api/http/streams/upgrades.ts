// Requests for a WebSocket. Node hands their sockets over; they pass the same routes as any other request, so that a
// refusal is the same answer. A route that accepts takes the socket from here.
import { ServerResponse } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';

export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes that came behind the request's head. */
  readonly head: Buffer;
}

const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/** The socket of a request for a WebSocket; undefined: it is a request like any other. */
export const upgradeOf = (request: IncomingMessage): Upgrade | undefined => upgrades.get(request);

/** Other upgrades (such as `h2c`, which some clients offer) are not taken up: the request is answered as it is. */
export const asksForWebSocket = ({ method, headers }: Pick<IncomingMessage, 'method' | 'headers'>): boolean =>
  method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket';

export function routeUpgrades(app: FastifyInstance): void {
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => undefined);
    upgrades.set(request, { socket, head });
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as Parameters<ServerResponse['assignSocket']>[0]);
    response.once('finish', () => socket.end());
    // Node tells a response of room in its socket only where the socket is still its own.
    socket.on('drain', () => response.emit('drain'));
    app.routing(request, response);
  });
}
