// The answer to a caller whose handler may turn out to be a generator: its events go out as they come, and what is missing of them when it ends. An answer that never began to stream is
// sent as any other. Source: interface, invoking deployments (generator handler); decision 0053.
import type { FastifyReply } from 'fastify';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Finished } from '../../tasks/task-service.ts';

export class EventStream {
  readonly #reply: FastifyReply;
  #sentBytes = 0;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
  }

  get hasBegun(): boolean {
    return this.#sentBytes > 0;
  }

  /** The head goes out with the first. A caller who reads slowly makes them wait here, as long as a result may be. */
  item(taskId: TaskId, event: string): void {
    const { raw } = this.#reply;
    if (!this.hasBegun) {
      this.#reply.hijack();
      raw.writeHead(200, { ...headersOf(taskId), ...EVENT_STREAM });
    }
    const bytes = Buffer.from(event, 'utf8');
    this.#sentBytes += bytes.length;
    if (!raw.destroyed) raw.write(bytes);
  }

  /** Only after an item. A generator that failed says so in an event of its own: its status is out already. */
  end(finished: Finished): void {
    const { raw } = this.#reply;
    if (raw.destroyed) return;
    if (finished.status === 'COMPLETE') raw.end(Buffer.from(finished.body, 'utf8').subarray(this.#sentBytes));
    else raw.end(`event: error\ndata: ${finished.body}\n\n`);
  }

  /** Its end is not known. */
  cut(): void {
    this.#reply.raw.destroy();
  }
}

/** No proxy on the way may hold events back. */
export const EVENT_STREAM = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
} as const;

export const headersOf = (taskId: TaskId) =>
  ({ 'x-task-id': taskId, 'access-control-expose-headers': 'X-Task-Id' }) as const;
