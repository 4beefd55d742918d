// Requests for a WebSocket or another upgrade. Node hands their sockets over; they pass the same routes as any other
// request, so that a refusal is the same answer. A route that accepts takes the socket from here.
import { ServerResponse } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import { RELAY_PATH, RELAY_PROTOCOL } from '../../../replicas/stream-relay.ts';
import { hasBody } from './head.ts';

export interface Upgrade {
  /** Takes the socket over. @returns bytes that came behind the request's head */
  readonly take: () => { readonly socket: Duplex; readonly head: Buffer };
}

/** Most bytes that are read before the upgrade is answered: a client should send none until then. */
const MOST_EARLY_BYTES = 64 * 1024;
/** Time for a caller to close its side after a refusal. */
const CLOSE_WITHIN_MS = 3_000;

const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/** The socket of a request for an upgrade; undefined: it is a request like any other. */
export const upgradeOf = (request: IncomingMessage): Upgrade | undefined => upgrades.get(request);

/** A field of Node's sockets without a public name: the response that has the connection. */
interface WithResponse {
  readonly _httpMessage?: unknown;
}

/**
 * Whether a connection is upgraded: for a WebSocket of a caller, or for a streamed call of another replica. Other
 * upgrades (such as `h2c`, which some clients offer) are not taken up: the request is answered as it is. Neither are
 * those of HTTP/1.0 (RFC 9110 §7.8), and those with a body, which would be read as the other protocol. An upgrade may
 * also come behind a request without an answer: a connection carries one response at a time.
 */
export function isUpgraded(request: Asking): boolean {
  const { method, url = '', httpVersion, headers, socket } = request;
  const protocol = headers.upgrade?.toLowerCase();
  const isKnown = protocol === 'websocket' || (protocol === RELAY_PROTOCOL && url.startsWith(RELAY_PATH));
  if (!isKnown || method !== 'GET' || httpVersion === '1.0' || hasBody(request)) return false;
  return ((socket as WithResponse)._httpMessage ?? null) === null;
}

type Asking = Pick<IncomingMessage, 'method' | 'url' | 'httpVersion' | 'headers' | 'socket'>;

export interface Upgrades {
  /** Cuts all connections that were handed over: the server does not count them as requests. */
  destroyAll(): void;
}

export function routeUpgrades(app: FastifyInstance): Upgrades {
  const open = new Set<Duplex>();
  const route = (request: IncomingMessage, socket: Duplex): void => {
    open.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => open.delete(socket));
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as Parameters<ServerResponse['assignSocket']>[0]);
    response.once('finish', () => endSoon(socket));
    // Node tells a response of room in its socket only where the socket is still its own.
    socket.on('drain', () => response.emit('drain'));
    app.routing(request, response);
  };
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    upgrades.set(request, waiting(socket, head));
    route(request, socket);
  });
  // A tunnel is refused with an answer. Without a listener the connection would end without one.
  app.server.on('connect', (request: IncomingMessage, socket: Duplex) => route(request, socket));
  return {
    destroyAll: () => {
      for (const socket of open) socket.destroy();
    },
  };
}

/** Ends a socket whose upgrade was refused, with time for its caller to read the answer and to close. */
function endSoon(socket: Duplex): void {
  socket.end();
  socket.removeAllListeners('data');
  // Only a socket that is read tells when its caller hangs up.
  socket.resume();
  const late = setTimeout(() => socket.destroy(), CLOSE_WITHIN_MS);
  late.unref();
  socket.once('close', () => clearTimeout(late));
}

/** Reads a socket until it is taken, since only a socket that is read tells when its caller hangs up. */
function waiting(socket: Duplex, head: Buffer): Upgrade {
  const early = [head];
  let bytes = head.length;
  const read = (chunk: Buffer): void => {
    early.push(chunk);
    bytes += chunk.length;
    if (bytes > MOST_EARLY_BYTES) socket.pause();
  };
  const gone = (): void => void socket.destroy();
  socket.on('data', read);
  socket.once('end', gone);
  return {
    take: () => {
      socket.off('data', read);
      socket.off('end', gone);
      // The socket flows: whoever takes it listens in the same turn.
      socket.resume();
      return { socket, head: Buffer.concat(early) };
    },
  };
}
