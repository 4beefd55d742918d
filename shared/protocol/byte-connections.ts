/**
 * Connections between agent and scheduler whose bytes are a stream's own: one for each streamed call, dialled by the
 * agent. On the scheduler's port the protocol of TLS (ALPN) tells them from the link's; beside its unix socket they
 * have a socket of their own. Each begins with two lines of JSON: the session that it belongs to, and the stream that
 * it is for. The second may come much later: agents dial ahead. Every byte behind it passes between the scheduler and
 * a runner process.
 */
import { dirname, join } from 'node:path';
import { Type } from 'typebox';
import type { Static } from 'typebox';

/** The protocol's name in the TLS handshake. */
export const BYTES_ALPN = 'longshore-bytes/1';

/** Time after which the kernel asks a silent peer whether it is still there. */
export const KEEP_ALIVE_MS = 30_000;
/** Bytes that each end holds in either direction: more than a read, so that a read is passed on in one piece. */
export const HELD_BYTES = 256 * 1024;

/** The socket for bytes, beside the link's. */
export const bytesSocketOf = (linkSocket: string): string => join(dirname(linkSocket), 'bytes.sock');

const Text = Type.String({ maxLength: 4096 });

/** The first line. */
export const SessionLine = Type.Object({ sessionId: Text, authorization: Text });
export type SessionLine = Static<typeof SessionLine>;

/** The second line: the attempt of a streamed call, the id of an order's stream, or HTTP for the managed registry. */
export const StreamLine = Type.Union([
  Type.Object({ taskId: Text, token: Text }),
  Type.Object({ streamId: Text }),
  Type.Object({ registry: Type.Literal(true) }),
]);
export type StreamLine = Static<typeof StreamLine>;

/** Both lines are shorter. */
export const MOST_LINE_BYTES = 16 * 1024;

export const encodeLine = (line: SessionLine | StreamLine): Buffer => Buffer.from(`${JSON.stringify(line)}\n`, 'utf8');
