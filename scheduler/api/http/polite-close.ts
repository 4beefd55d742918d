// Closes a connection whose request body was refused, so that a client which is still sending can read the answer. Node
// closes a socket with unread bytes by a reset, which destroys the answer. Here the answer goes out with a half-close,
// and further bytes are discarded up to a bound and a deadline.
// Invariant: no discarded byte is kept. The number of such
// connections is bounded; above the bound they are closed at once.
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';

export interface Discarding {
  /** Bytes after which reading stops: the client gets no further, and can still read the answer. */
  readonly mostBytes: number;
  /** Time after which the connection is cut. */
  readonly withinMs: number;
}

/** Bounds for a sender without a good credential, or for a body that the route does not use. */
export const DISCARD_LITTLE: Discarding = { mostBytes: 256 * 1024, withinMs: 3_000 };
/** Bounds for a known sender whose body is too large: clients that read only after sending get their answer, too. */
export const DISCARD_MUCH: Discarding = { mostBytes: 64 * 1024 * 1024, withinMs: 15_000 };

const MOST_AT_ONCE = 1024;
let closing = 0;

interface ClosableSocket {
  readonly destroyed: boolean;
  destroySoon?: () => void;
  once(event: 'close', then: () => void): void;
  end(): void;
  destroy(): void;
}

const carriesBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';

/** Whether bytes of the body may still come or lie unread. */
export const isUnread = (request: FastifyRequest): boolean =>
  !request.raw.complete && !request.raw.readableEnded && carriesBody(request.raw);

/**
 * Closes the connection of a refused request; call it before the refusal
 * is sent. A request whose body was read to its end keeps its connection.
 */
export function closeUnread(
  request: FastifyRequest,
  reply: FastifyReply,
  discarding: Discarding = DISCARD_LITTLE,
): void {
  if (!isUnread(request)) return;
  reply.header('connection', 'close');
  discardRest(request.raw, discarding);
}

/** Replaces the socket's way to close after the answer. A second call changes nothing. */
export function discardRest(raw: IncomingMessage, { mostBytes, withinMs }: Discarding): void {
  const socket = raw.socket as unknown as ClosableSocket;
  // A container's call comes over a connection in memory, which its agent's link bounds and ends.
  if (typeof socket.destroySoon !== 'function' || Object.hasOwn(socket, 'destroySoon')) return;
  // A body was cut off: the connection has closed, and no further `close` event comes.
  if (socket.destroyed) return;
  if (closing >= MOST_AT_ONCE) return;
  closing++;
  const destroySoon = socket.destroySoon.bind(socket);
  let isAnswered = false;
  let discarded = 0;
  const cut = setTimeout(() => socket.destroy(), withinMs);
  cut.unref();
  socket.once('close', () => {
    closing--;
    clearTimeout(cut);
  });
  raw.on('error', () => undefined);
  raw.on('data', (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > mostBytes) raw.pause();
  });
  raw.once('end', () => {
    if (isAnswered) destroySoon();
  });
  socket.destroySoon = () => {
    isAnswered = true;
    if (raw.readableEnded) destroySoon();
    else socket.end();
  };
}

/** Time for the body of a request that needs none to end, once its answer is out. */
const LATE_MS = 20_000;

/**
 * Bounds the bodies of methods that use none (published clients
 * send some), so that they cannot keep the connection for ever.
 */
export function dropLate(request: FastifyRequest, reply: FastifyReply): void {
  if (!isUnread(request)) return;
  const { raw } = request;
  reply.raw.once('finish', () => {
    if (raw.complete) return;
    const cut = setTimeout(() => raw.destroy(), LATE_MS);
    cut.unref();
    raw.once('close', () => clearTimeout(cut));
    raw.once('end', () => clearTimeout(cut));
  });
}
