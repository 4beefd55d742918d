// Messages between scheduler processes: small, on Redis channels, with one connection for all that
// comes in. A message is not kept for a process that does not listen. So each is either repeated, or
// found again in the store by the process that missed it: `onGap` tells when that may be. Invariant:
// a message is a hint, or an answer that a caller waits for, never the only copy of a fact.
import type { Redis } from 'ioredis';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';

export interface Bus {
  /**
   * Registers a handler for each message on that channel, including those of this process. Call before {@link start}.
   */
  on(channel: string, handler: (message: unknown) => void): void;
  /** Registers a handler called after each connection but the first: earlier messages may have been missed. */
  onGap(handler: () => void): void;
  /**
   * Publishes a message, together with all others of this turn of the event loop
   * on that channel. Never throws; a message that Redis does not take is lost.
   */
  publish(channel: string, message: unknown): void;
  /** Whether messages arrive now. */
  readonly isLive: boolean;
}

/** Bus without other processes: embedded stores have one scheduler process. */
export const ALONE: Bus = { on: () => undefined, onGap: () => undefined, publish: () => undefined, isLive: true };

/** Most messages of one turn in one command. */
const MOST_TOGETHER = 500;

export class RedisBus implements Bus {
  readonly name = 'replica bus';
  readonly #publisher: Redis;
  readonly #subscriber: Redis;
  readonly #log: Log;
  readonly #handlers = new Map<string, ((message: unknown) => void)[]>();
  readonly #gapHandlers: (() => void)[] = [];
  readonly #waiting = new Map<string, unknown[]>();
  #flushing = false;
  #live = false;
  #wasLive = false;

  /**
   * @param publisher - the connection of tasks' own writes, so that an answer follows its record
   * @param subscriber - may be shared with other subscribers; its creator closes it
   */
  constructor(publisher: Redis, subscriber: Redis, log: Log) {
    this.#publisher = publisher;
    this.#subscriber = subscriber;
    this.#log = log;
  }

  get isLive(): boolean {
    return this.#live;
  }

  on(channel: string, handler: (message: unknown) => void): void {
    const handlers = this.#handlers.get(channel) ?? [];
    handlers.push(handler);
    this.#handlers.set(channel, handlers);
  }

  onGap(handler: () => void): void {
    this.#gapHandlers.push(handler);
  }

  publish(channel: string, message: unknown): void {
    const waiting = this.#waiting.get(channel);
    if (waiting === undefined) this.#waiting.set(channel, [message]);
    else waiting.push(message);
    if (this.#flushing) return;
    this.#flushing = true;
    // The flush runs after everything that the answers of this turn set off.
    process.nextTick(() => this.#flush());
  }

  async start(): Promise<void> {
    this.#subscriber.on('message', this.#onMessage);
    this.#subscriber.on('close', this.#onClose);
    this.#subscriber.on('ready', this.#onReady);
    await this.#subscribe();
  }

  stop(): void {
    this.#live = false;
    this.#subscriber.off('message', this.#onMessage);
    this.#subscriber.off('close', this.#onClose);
    this.#subscriber.off('ready', this.#onReady);
  }

  #flush(): void {
    this.#flushing = false;
    for (const [channel, messages] of this.#waiting) {
      for (let at = 0; at < messages.length; at += MOST_TOGETHER) {
        this.#publisher
          .publish(channel, JSON.stringify(messages.slice(at, at + MOST_TOGETHER)))
          .catch((error: unknown) => this.#log.info({ err: error, channel }, 'a message to other replicas is lost'));
      }
    }
    this.#waiting.clear();
  }

  readonly #onMessage = (channel: string, text: string): void => {
    const handlers = this.#handlers.get(channel);
    if (handlers === undefined) return;
    let messages: unknown;
    try {
      messages = JSON.parse(text);
    } catch (error) {
      this.#log.warn({ err: error, channel }, 'a message of another replica is not JSON');
      return;
    }
    if (!Array.isArray(messages)) return;
    for (const message of messages as unknown[]) {
      for (const handler of handlers) this.#hand(channel, message, handler);
    }
  };

  #hand(channel: string, message: unknown, handler: (message: unknown) => void): void {
    try {
      handler(message);
    } catch (error) {
      this.#log.error(
        { err: error, channel, reason: messageOf(error) },
        'a message of another replica is not understood',
      );
    }
  }

  readonly #onClose = (): void => {
    this.#live = false;
  };

  readonly #onReady = (): void => {
    // A failed subscribe ends with the connection; the next `ready` tries again.
    this.#subscribe().catch((error: unknown) => this.#log.info({ err: error }, 'replica subscription failed'));
  };

  async #subscribe(): Promise<void> {
    await this.#subscriber.subscribe(...this.#handlers.keys());
    const isFirst = !this.#wasLive;
    this.#live = true;
    this.#wasLive = true;
    if (!isFirst) for (const handler of this.#gapHandlers) handler();
  }
}
