// Streamed answers under way on each connection. Bytes that are no HTTP may come behind a request whose answer has
// begun: another answer must not be written into it.
import type { ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';
import type { Duplex } from 'node:stream';

const begun = new WeakMap<Duplex, ServerResponse>();

export const answerBegan = (socket: Duplex, response: ServerResponse): void => void begun.set(socket, response);

/** Cuts a connection where a streamed answer has begun and is not out. */
export function cutBegun(socket: Duplex): void {
  if (begun.get(socket)?.writableFinished === false) cutOff(socket);
}

/**
 * Cuts a connection so that its caller sees that the answer is not whole: by a reset. The end of a TLS connection is a
 * message of its own, which a cut leaves out.
 */
export function cutOff(socket: Duplex): void {
  if ('resetAndDestroy' in socket && typeof socket.resetAndDestroy === 'function' && !(socket instanceof TLSSocket))
    socket.resetAndDestroy();
  else socket.destroy();
}
