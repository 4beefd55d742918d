// What scheduler processes say to each other: small messages on Redis channels, one connection for all that comes in. Nothing is kept for who does not listen, so everything said here is either
// repeated, or found again in the store by whoever missed it: `onGap` tells when that may be. What must stay true: a message is a hint or an answer somebody waits for, never the only copy of a fact.
import type { Redis } from 'ioredis';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';

export interface Bus {
  /** Called for each message on that channel, those of this process too. Before {@link start}. */
  on(channel: string, handler: (message: unknown) => void): void;
  /** After each connection but the first: what was said before may have been missed. */
  onGap(handler: () => void): void;
  /** Says it to whoever listens, with all that this turn of the event loop says there. Never throws; what Redis does not take is lost. */
  say(channel: string, message: unknown): void;
  /** Whether messages arrive now. */
  readonly isLive: boolean;
}

/** Nobody else: embedded stores have one scheduler process. */
export const ALONE: Bus = { on: () => undefined, onGap: () => undefined, say: () => undefined, isLive: true };

/** Messages of one turn beyond this go in several commands. */
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

  /** @param publisher - the connection that tasks' own writes go through, so that an answer follows its record. @param subscriber - may be shared with others that subscribe; closed by whoever made it */
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

  say(channel: string, message: unknown): void {
    const waiting = this.#waiting.get(channel);
    if (waiting === undefined) this.#waiting.set(channel, [message]);
    else waiting.push(message);
    if (this.#flushing) return;
    this.#flushing = true;
    // Behind everything that the answers of this turn set off.
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
    // A subscribe that fails ends with the connection; its next `ready` tries again.
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
