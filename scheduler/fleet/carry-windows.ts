// Windows of the connections that bring streamed calls. gRPC's server has no option for them: the connection of an
// agent's first stream gets them through Node's own channel of diagnostics, which hands out each HTTP/2 stream.
import { subscribe } from 'node:diagnostics_channel';
import type { Http2Session, ServerHttp2Stream } from 'node:http2';

/**
 * Bytes in flight of one stream: 10 MB/s at a round trip of 50 ms. Node's own 64 KiB give 1.3 MB/s there. A caller who
 * reads nothing has at most so many bytes waiting here.
 */
const STREAM_WINDOW_BYTES = 512 * 1024;
/** Bytes in flight of all streams of a connection together. Node takes them off the connection as they come. */
const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;
const CARRY_PATH = '/longshore.agent.v1.AgentLink/Carry';

let isWatching = false;
const widened = new WeakSet<Http2Session>();

/** Widens the windows of every connection with a streamed call, in this process. */
export function widenCarryWindows(): void {
  if (isWatching) return;
  isWatching = true;
  subscribe('http2.server.stream.created', (message) => {
    const { stream, headers } = message as {
      readonly stream: ServerHttp2Stream;
      readonly headers: Readonly<Record<string, unknown>>;
    };
    const { session } = stream;
    if (headers[':path'] !== CARRY_PATH || session === undefined || widened.has(session)) return;
    widened.add(session);
    session.settings({ initialWindowSize: STREAM_WINDOW_BYTES });
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
  });
}
