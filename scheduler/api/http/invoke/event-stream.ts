// The answer to a caller whose handler may turn out to be a generator. Events go out as they come, and the missing rest
// when it ends. An answer that never began to stream is sent as any other.
// Invariant: the bytes sent so far are a prefix of the result. Source:
// interface, invoking deployments (generator handler); decision 0053.
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Finished } from '../../../tasks/dispatch/replies.ts';

/** Unsent bytes above which a caller gets the rest at the end: the result is kept until then anyway, once. */
const MOST_BEHIND_BYTES = 1024 * 1024;
/** A caller who reads nothing of a finished answer for so long counts as gone. */
const UNREAD_MS = 60_000;

export class EventStream {
  readonly #reply: FastifyReply;
  #sentBytes = 0;
  #isBehind = false;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
  }

  get hasBegun(): boolean {
    return this.#sentBytes > 0;
  }

  /** Sends an event; the response's head goes out with the first. */
  item(taskId: TaskId, event: string): void {
    const { raw } = this.#reply;
    if (raw.destroyed || this.#isBehind) return;
    if (!this.hasBegun) {
      // The head includes headers that hooks have set so far: the request's id.
      const common = this.#reply.getHeaders() as OutgoingHttpHeaders;
      this.#reply.hijack();
      raw.writeHead(200, { ...common, ...headersOf(taskId), ...EVENT_STREAM });
    }
    const bytes = Buffer.from(event, 'utf8');
    this.#sentBytes += bytes.length;
    raw.write(bytes);
    this.#isBehind = raw.writableLength > MOST_BEHIND_BYTES;
  }

  /**
   * Ends the stream, after at least one item. A failed generator is
   * reported in an event of its own, since the status is out already.
   */
  end(finished: Finished): void {
    const { raw } = this.#reply;
    if (raw.destroyed) return;
    if (finished.status === 'COMPLETE') raw.end(Buffer.from(finished.body, 'utf8').subarray(this.#sentBytes));
    else raw.end(`event: error\ndata: ${finished.body}\n\n`);
    cutWhenUnread(raw);
  }

  /** Cuts the connection: the end of the answer is not known. */
  cut(): void {
    this.#reply.raw.destroy();
  }
}

/**
 * Cuts a connection that leaves its answer unread, so that the bytes are not kept
 * for ever. The connection's next request has the server's own limits again.
 */
export function cutWhenUnread(raw: ServerResponse): void {
  // A container's call comes through the agent's link, which has bounds of its own, and not by a socket.
  const { socket }: { readonly socket: { readonly setTimeout?: unknown } | null } = raw;
  if (!raw.writableFinished && typeof socket?.setTimeout === 'function') raw.setTimeout(UNREAD_MS, () => raw.destroy());
}

/** Headers of the stream; they keep proxies from holding events back. */
export const EVENT_STREAM = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
} as const;

export const headersOf = (taskId: TaskId) =>
  ({ 'x-task-id': taskId, 'access-control-expose-headers': 'X-Task-Id' }) as const;
