// Tokens that calls to models reserve, for each queue: exact for the calls whose callers wait at this replica, as last
// told for those of other replicas. A replica that dies takes its callers along, so its figures lapse with it.
// Invariant: nothing here refuses or ends a call; admission and the autoscaler read the sums.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Bus } from './bus.ts';

const TELL_MS = 250;
/** Rounds after which all figures are told again, for replicas that began to listen meanwhile. */
const WHOLE_EVERY = 40;
/** Age past which a figure of another replica no longer counts: it would have been told again three times. */
const LAPSES_MS = 30_000;
const MOST_IN_ONE = 500;

type Told = readonly [QueueName, number];

interface Heard {
  readonly tokens: number;
  readonly atMs: number;
}

export class ReservedTokens {
  readonly name = 'reserved tokens';
  readonly #parts: { readonly bus: Bus; readonly channel: string; readonly instance: InstanceId };
  readonly #here = new Map<QueueName, number>();
  readonly #elsewhere = new Map<QueueName, Map<InstanceId, Heard>>();
  readonly #changed = new Set<QueueName>();
  readonly #grown = new Listeners<[QueueName]>();
  #timer: NodeJS.Timeout | undefined;
  #rounds = 0;

  constructor(parts: { readonly bus: Bus; readonly channel: string; readonly instance: InstanceId }) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) =>
      this.#heard(message as { from: InstanceId; reservedTokens?: readonly Told[] }),
    );
  }

  /** Told when calls of another replica reserve more than before. */
  onGrown(listener: (queue: QueueName) => void): void {
    this.#grown.add(listener);
  }

  start(): void {
    this.#timer = setInterval(() => this.#tell(), TELL_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Reserves the tokens of a call. @returns a function that ends the reservation; a repetition changes nothing */
  reserve(queue: QueueName, tokens: number): () => void {
    this.#change(queue, tokens);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#change(queue, -tokens);
    };
  }

  /** Tokens that the open calls of a queue reserve on all replicas, as far as is known here. */
  of(queue: QueueName): number {
    let sum = this.#here.get(queue) ?? 0;
    const sinceMs = performance.now() - LAPSES_MS;
    for (const { tokens, atMs } of this.#elsewhere.get(queue)?.values() ?? []) if (atMs >= sinceMs) sum += tokens;
    return sum;
  }

  /** Number of queues with figures here, own or heard. */
  get size(): number {
    return new Set([...this.#here.keys(), ...this.#elsewhere.keys()]).size;
  }

  #change(queue: QueueName, by: number): void {
    const tokens = (this.#here.get(queue) ?? 0) + by;
    if (tokens > 0) this.#here.set(queue, tokens);
    else this.#here.delete(queue);
    if (this.#timer !== undefined) this.#changed.add(queue);
  }

  #heard({ from, reservedTokens }: { from: InstanceId; reservedTokens?: readonly Told[] }): void {
    if (from === this.#parts.instance || reservedTokens === undefined) return;
    const atMs = performance.now();
    for (const [queue, tokens] of reservedTokens) {
      let heard = this.#elsewhere.get(queue);
      const before = heard?.get(from)?.tokens ?? 0;
      if (tokens > 0) {
        if (heard === undefined) this.#elsewhere.set(queue, (heard = new Map()));
        heard.set(from, { tokens, atMs });
      } else {
        heard?.delete(from);
        if (heard?.size === 0) this.#elsewhere.delete(queue);
      }
      if (tokens > before) this.#grown.tell(queue);
    }
  }

  #tell(): void {
    const { bus, channel, instance: from } = this.#parts;
    this.#rounds += 1;
    if (this.#rounds % WHOLE_EVERY === 0) {
      for (const queue of this.#here.keys()) this.#changed.add(queue);
      this.#dropLapsed();
    }
    const told = [...this.#changed].map((queue): Told => [queue, this.#here.get(queue) ?? 0]);
    this.#changed.clear();
    for (let first = 0; first < told.length; first += MOST_IN_ONE)
      bus.publish(channel, { from, reservedTokens: told.slice(first, first + MOST_IN_ONE) });
  }

  #dropLapsed(): void {
    const sinceMs = performance.now() - LAPSES_MS;
    for (const [queue, heard] of this.#elsewhere) {
      for (const [instance, { atMs }] of heard) if (atMs < sinceMs) heard.delete(instance);
      if (heard.size === 0) this.#elsewhere.delete(queue);
    }
  }
}
