// Changes that caches must learn of, published to every replica on one Redis channel. A cache registers a handler for
// its kind. After a reconnect every cache is emptied, because messages may have been missed. While the subscription is
// down, `isLive` is false and caches must not trust their entries for long.
// A writer may wait until every listening replica has acknowledged the change: the very next request there sees it.
import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';

export type InvalidationKind =
  | 'token'
  | 'deployment'
  | 'code'
  | 'workspace'
  | 'workspace_deleted'
  | 'signing_key'
  | 'container'
  | 'model'
  | 'setting';

/** Nothing is waited for where a handler gives no promise. */
type Handler = (id: string) => void | Promise<void>;

export interface Invalidation {
  /**
   * Tells this process now and the others by message; a message that cannot be sent yet is sent later. Never throws.
   * @returns resolves when every listening replica has acknowledged, after a second in any case; whether all have
   */
  publish(kind: InvalidationKind, id: string): Promise<boolean>;
  /**
   * Has every replica empty its caches, because a commit was not answered: its change may be made, and nobody else
   * announces it. Once more when the change can no longer come, and at most that often.
   */
  unsure(): void;
  /**
   * Registers a handler. Its replica acknowledges the change when it has ended, and not when it fails. The meaning of
   * `id` depends on the kind:
   * - token: sha256 hex of the token
   * - deployment: deployment id; unless it is gone, behind it in lines its workspace, stub and name
   * - code: id of the object that has other bytes now
   * - workspace: workspace id
   * - workspace_deleted: id of a workspace whose deletion began, or ended
   * - signing_key: the id of a retired key, else the name of the action
   * - container: the id of one that ends
   * - model: workspace id, or `public`
   * - setting: name of the setting
   */
  on(kind: InvalidationKind, handler: Handler): void;
  /** Registers a handler for the loss of messages: every cached entry may then be stale. */
  onReset(handler: () => void): void;
  readonly isLive: boolean;
  readonly name: string;
  start(): Promise<void>;
  stop(): Promise<void>;
}

export const INVALIDATION_CHANNEL = 'ls:invalidate';
/** Longest wait for acknowledgements: a replica that does not listen empties its caches when it listens again. */
const HEARD_WITHIN_MS = 1_000;
/** Most unsent messages that are kept; beyond them a single `reset` replaces all. */
const MAX_UNSENT = 1_000;
const RESET = 'reset';
const RESET_TEXT = JSON.stringify({ kind: RESET, id: '' });
/** A commit that was not answered is made by then, or never: the server ends an idle transaction after 30 s. */
const SETTLED_MS = 45_000;

/** Makes the channel's two ends. @param subscriber - a connection for this alone; its maker closes it */
export function createInvalidation(options: {
  readonly publisher: Redis;
  readonly subscriber: Redis;
  readonly log: Log;
  /** Channel of this installation; {@link INVALIDATION_CHANNEL} when absent. */
  readonly channel?: string;
}): Invalidation {
  const { publisher, subscriber, log, channel = INVALIDATION_CHANNEL } = options;
  return new RedisInvalidation(publisher, subscriber, log, channel);
}

/** A message on the channel. `from`: the channel on which the sender expects the acknowledgement of `n`. */
interface Message {
  readonly kind?: unknown;
  readonly id?: unknown;
  readonly n?: number;
  readonly from?: string;
}

interface Unsent {
  readonly text: string;
  /** Called with the number of other replicas that received it. */
  readonly onSent: (receivers: number) => void;
}

class RedisInvalidation implements Invalidation {
  readonly name = 'invalidation';
  readonly #publisher: Redis;
  readonly #subscriber: Redis;
  readonly #log: Log;
  readonly #channel: string;
  /** Channel on which other replicas acknowledge. */
  readonly #heardChannel: string;
  readonly #heard = new Map<number, () => void>();
  #number = 0;
  readonly #handlers = new Map<string, Handler[]>();
  readonly #resetHandlers: (() => void)[] = [];
  readonly #abort = new AbortController();
  /** Unsent messages; each is a separate object, since the same text twice means two changes. */
  #unsent: Unsent[] = [];
  #flushing: Promise<void> | undefined;
  #live = false;
  #unsure: NodeJS.Timeout | undefined;
  #isUnsureAgain = false;

  constructor(publisher: Redis, subscriber: Redis, log: Log, channel: string) {
    this.#publisher = publisher;
    this.#subscriber = subscriber;
    this.#log = log;
    this.#channel = channel;
    this.#heardChannel = `${channel}:${randomBytes(8).toString('hex')}`;
  }

  get isLive(): boolean {
    return this.#live;
  }

  async publish(kind: InvalidationKind, id: string): Promise<boolean> {
    const here = this.#deliver(kind, id);
    const there = this.#told(kind, id);
    return (await here) && (await there);
  }

  /** Tells the other replicas. @returns whether all of them have acknowledged within a second */
  #told(kind: InvalidationKind, id: string): Promise<boolean> {
    return new Promise((resolve) => {
      const n = (this.#number += 1);
      let outstanding: number | undefined;
      let heard = 0;
      const isHeard = (): boolean => outstanding !== undefined && heard >= outstanding;
      const done = (): void => {
        clearTimeout(timer);
        this.#heard.delete(n);
        resolve(isHeard());
      };
      const timer = setTimeout(done, HEARD_WITHIN_MS);
      const look = (): void => {
        if (isHeard()) done();
      };
      this.#heard.set(n, () => {
        heard += 1;
        look();
      });
      this.#send({
        text: JSON.stringify({ kind, id, n, from: this.#heardChannel }),
        onSent: (receivers) => {
          outstanding = receivers;
          look();
        },
      });
    });
  }

  #send(message: Unsent): void {
    if (this.#unsent.length >= MAX_UNSENT) {
      this.#unsent = [{ text: RESET_TEXT, onSent: () => undefined }];
    } else this.#unsent.push(message);
    this.#flushing ??= this.#flush().finally(() => {
      this.#flushing = undefined;
    });
  }

  unsure(): void {
    if (this.#unsure !== undefined) {
      this.#isUnsureAgain = true;
      return;
    }
    this.#resetAll();
    this.#lookOnceSettled();
  }

  #lookOnceSettled(): void {
    this.#unsure = setTimeout(() => {
      this.#unsure = undefined;
      this.#resetAll();
      if (this.#isUnsureAgain) this.#lookOnceSettled();
      this.#isUnsureAgain = false;
    }, SETTLED_MS).unref();
  }

  #resetAll(): void {
    this.#reset();
    this.#send({ text: RESET_TEXT, onSent: () => undefined });
  }

  on(kind: InvalidationKind, handler: Handler): void {
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
    await this.#subscribe();
    // Registered only now: a connection under way says `ready` before it answers,
    // and would be subscribed, and everything dropped, once more after this.
    this.#subscriber.on('ready', this.#onReady);
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    clearTimeout(this.#unsure);
    this.#live = false;
    this.#subscriber.off('message', this.#onMessage);
    this.#subscriber.off('close', this.#onClose);
    this.#subscriber.off('ready', this.#onReady);
    await this.#flushing;
  }

  readonly #onMessage = (channel: string, text: string): void => {
    if (channel === this.#heardChannel) this.#heard.get(Number(text))?.();
    if (channel !== this.#channel) return;
    let message: Message;
    try {
      message = JSON.parse(text) as Message;
    } catch (error) {
      this.#log.warn({ err: error }, 'invalidation message is not JSON');
      return;
    }
    const { kind, id, n, from } = message;
    if (kind === RESET) this.#reset();
    const carriedOut = typeof kind === 'string' && typeof id === 'string' ? this.#deliver(kind, id) : true;
    if (n === undefined || from === undefined || from === this.#heardChannel) return;
    // The acknowledgement is sent after the handlers have removed their entries.
    if (carriedOut === true) this.#acknowledge(from, n);
    else void carriedOut.then((isDone) => isDone && this.#acknowledge(from, n));
  };

  #acknowledge(from: string, n: number): void {
    this.#publisher.publish(from, String(n)).catch((error: unknown) => {
      this.#log.info({ err: error }, 'an invalidation was heard, and its sender not told so');
    });
  }

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
    await this.#subscriber.subscribe(this.#channel, this.#heardChannel);
    // The subscription comes before the reset: changes in between are received.
    this.#reset();
    this.#live = true;
  }

  /** Calls the handlers. @returns whether all have done their work; a promise only where one gave a promise */
  #deliver(kind: string, id: string): true | Promise<boolean> {
    const given = (this.#handlers.get(kind) ?? []).map((handler) => handler(id));
    const waits = given.filter((one) => one !== undefined);
    if (waits.length === 0) return true;
    return Promise.all(waits).then(
      () => true,
      (error: unknown) => {
        this.#log.warn({ err: error, kind, id }, 'a change that other replicas have is not carried out here yet');
        return false;
      },
    );
  }

  #reset(): void {
    for (const handler of this.#resetHandlers) handler();
  }

  async #flush(): Promise<void> {
    for (let attempt = 0; this.#unsent.length > 0 && !this.#abort.signal.aborted;) {
      const batch = this.#unsent.slice(0, 100);
      try {
        const isHere = this.#live ? 1 : 0;
        const receivers = await Promise.all(batch.map(({ text }) => this.#publisher.publish(this.#channel, text)));
        for (const [index, { onSent }] of batch.entries()) onSent((receivers[index] ?? 0) - isHere);
        // A reset may have replaced the list meanwhile, so only sent messages are removed.
        this.#unsent = this.#unsent.filter((message) => !batch.includes(message));
        attempt = 0;
      } catch (error) {
        if (attempt === 0) this.#log.info({ err: error }, 'invalidation messages wait for redis');
        await sleep(backoffMs(attempt++, { baseMs: 50, capMs: 2_000, floorMs: 20 }), this.#abort.signal);
      }
    }
  }
}
