// Changes that caches must hear of, told to every replica by one Redis channel. A cache registers a handler for its kind; after a reconnect everything cached is dropped,
// because messages may have been missed. While the subscription is down, `isLive` is false and caches must not trust what they hold for long.
import type { Redis } from 'ioredis';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';

export type InvalidationKind = 'token' | 'deployment' | 'workspace';

export interface Invalidation {
  /** Tells this process now and the others by message; a message that cannot be sent yet is sent later. Never throws. */
  publish(kind: InvalidationKind, id: string): void;
  /** `id`: token: sha256 hex of the token; deployment: deployment or stub id; workspace: workspace id. */
  on(kind: InvalidationKind, handler: (id: string) => void): void;
  /** Everything cached may be stale. */
  onReset(handler: () => void): void;
  readonly isLive: boolean;
  start(): Promise<void>;
  stop(): Promise<void>;
}

export const INVALIDATION_CHANNEL = 'ls:invalidate';
/** Unsent messages kept; beyond them one `reset` for all. */
const MAX_UNSENT = 1_000;
const RESET = 'reset';

/** @param subscriber - a connection for this alone; closed by whoever made it */
export function createInvalidation(options: {
  readonly publisher: Redis;
  readonly subscriber: Redis;
  readonly log: Log;
}): Invalidation {
  return new RedisInvalidation(options.publisher, options.subscriber, options.log);
}

class RedisInvalidation implements Invalidation {
  readonly #publisher: Redis;
  readonly #subscriber: Redis;
  readonly #log: Log;
  readonly #handlers = new Map<string, ((id: string) => void)[]>();
  readonly #resetHandlers: (() => void)[] = [];
  readonly #abort = new AbortController();
  /** Each a thing of its own: the same text twice means two changes. */
  #unsent: { readonly text: string }[] = [];
  #flushing: Promise<void> | undefined;
  #live = false;

  constructor(publisher: Redis, subscriber: Redis, log: Log) {
    this.#publisher = publisher;
    this.#subscriber = subscriber;
    this.#log = log;
  }

  get isLive(): boolean {
    return this.#live;
  }

  publish(kind: InvalidationKind, id: string): void {
    this.#deliver(kind, id);
    if (this.#unsent.length >= MAX_UNSENT) this.#unsent = [{ text: JSON.stringify({ kind: RESET, id: '' }) }];
    else this.#unsent.push({ text: JSON.stringify({ kind, id }) });
    this.#flushing ??= this.#flush().finally(() => {
      this.#flushing = undefined;
    });
  }

  on(kind: InvalidationKind, handler: (id: string) => void): void {
    const handlers = this.#handlers.get(kind) ?? [];
    handlers.push(handler);
    this.#handlers.set(kind, handlers);
  }

  onReset(handler: () => void): void {
    this.#resetHandlers.push(handler);
  }

  async start(): Promise<void> {
    this.#subscriber.on('message', this.#onMessage);
    this.#subscriber.on('close', this.#onClose);
    this.#subscriber.on('ready', this.#onReady);
    await this.#subscribe();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    this.#live = false;
    this.#subscriber.off('message', this.#onMessage);
    this.#subscriber.off('close', this.#onClose);
    this.#subscriber.off('ready', this.#onReady);
    await this.#flushing;
  }

  readonly #onMessage = (channel: string, text: string): void => {
    if (channel !== INVALIDATION_CHANNEL) return;
    let message: { kind?: unknown; id?: unknown };
    try {
      message = JSON.parse(text) as { kind?: unknown; id?: unknown };
    } catch (error) {
      this.#log.warn({ err: error }, 'invalidation message is not JSON');
      return;
    }
    if (message.kind === RESET) this.#reset();
    else if (typeof message.kind === 'string' && typeof message.id === 'string')
      this.#deliver(message.kind, message.id);
  };

  readonly #onClose = (): void => {
    this.#live = false;
  };

  readonly #onReady = (): void => {
    // A subscribe that fails ends with the connection; its next `ready` tries again.
    this.#subscribe().catch((error: unknown) => {
      this.#log.info({ err: error }, 'invalidation subscription failed');
    });
  };

  async #subscribe(): Promise<void> {
    await this.#subscriber.subscribe(INVALIDATION_CHANNEL);
    // First the subscription, then the drop: what changes in between is heard.
    this.#reset();
    this.#live = true;
  }

  #deliver(kind: string, id: string): void {
    for (const handler of this.#handlers.get(kind) ?? []) handler(id);
  }

  #reset(): void {
    for (const handler of this.#resetHandlers) handler();
  }

  async #flush(): Promise<void> {
    for (let attempt = 0; this.#unsent.length > 0 && !this.#abort.signal.aborted;) {
      const batch = this.#unsent.slice(0, 100);
      try {
        await Promise.all(batch.map((message) => this.#publisher.publish(INVALIDATION_CHANNEL, message.text)));
        // The list may have been replaced by a reset meanwhile: take away only what was sent.
        this.#unsent = this.#unsent.filter((message) => !batch.includes(message));
        attempt = 0;
      } catch (error) {
        if (attempt === 0) this.#log.info({ err: error }, 'invalidation messages wait for redis');
        await sleep(backoffMs(attempt++, { baseMs: 50, capMs: 2_000, floorMs: 20 }), this.#abort.signal);
      }
    }
  }
}
