// Requests for a WebSocket or another upgrade. Node hands their sockets over; they pass the same routes as any other
// request, so that a refusal is the same answer. A route that accepts takes the socket from here.
import { ServerResponse } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import { RELAY_PROTOCOL } from '../../../replicas/stream-relay.ts';

export interface Upgrade {
  readonly socket: Duplex;
  /** Bytes that came behind the request's head. */
  readonly head: Buffer;
}

const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/** The socket of a request for an upgrade; undefined: it is a request like any other. */
export const upgradeOf = (request: IncomingMessage): Upgrade | undefined => upgrades.get(request);

/** Protocols that connections are upgraded to: WebSockets of callers, and streamed calls of other replicas. */
const PROTOCOLS: ReadonlySet<string> = new Set(['websocket', RELAY_PROTOCOL]);

/** Other upgrades (such as `h2c`, which some clients offer) are not taken up: the request is answered as it is. */
export const isUpgraded = ({ method, headers }: Pick<IncomingMessage, 'method' | 'headers'>): boolean =>
  method === 'GET' && PROTOCOLS.has(headers.upgrade?.toLowerCase() ?? '');

export function routeUpgrades(app: FastifyInstance): void {
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => undefined);
    upgrades.set(request, { socket, head });
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as Parameters<ServerResponse['assignSocket']>[0]);
    response.once('finish', () => socket.end());
    app.routing(request, response);
  });
}
