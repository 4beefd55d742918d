// Answers of the passage, compressed for browsers. Elsewhere nothing is: programs near by read plain bytes sooner.
// Streams and short answers pass as they are. The work is done by threads of the runtime, not by the event loop.
import { gzip } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { takesEncoding } from './encodings.ts';

/** Shorter answers gain nothing. */
const LEAST_CHARACTERS = 2_048;
/** Higher levels take twice the time for a tenth less, where rows are alike. */
const LEVEL = 4;

/** The last step of an answer: gives the bytes to send. */
export function compressed(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: Error | null, payload: unknown) => void,
): void {
  if (typeof payload !== 'string' || payload.length < LEAST_CHARACTERS) return done(null, payload);
  if (reply.hasHeader('content-encoding')) return done(null, payload);
  reply.header('vary', 'accept-encoding');
  if (!takesEncoding(request, 'gzip')) return done(null, payload);
  gzip(payload, { level: LEVEL }, (error, bytes) => {
    if (error !== null) return done(null, payload);
    reply.removeHeader('content-length').header('content-encoding', 'gzip');
    done(null, bytes);
  });
}
