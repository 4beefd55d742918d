// Queues that the scaling loop is to look at: those that changed, before those of the last sweep. A replica that does
// not lead remembers what it was told, for when it does.
import type { QueueName } from '#shared/domain/ids.ts';

/** Queues of a round: as many as are sampled in one trip. */
const ROUND = 500;
const MAX_MISSED = 10_000;

export class WokenQueues {
  readonly #changed = new Set<QueueName>();
  readonly #swept = new Set<QueueName>();
  /** Queues woken while another replica, or none, led. */
  readonly #missed = new Set<QueueName>();

  get size(): number {
    return this.#changed.size + this.#swept.size;
  }

  add(queue: QueueName): void {
    this.#changed.add(queue);
  }

  sweep(queues: Iterable<QueueName>): void {
    for (const queue of queues) this.#swept.add(queue);
  }

  /** Adds what was missed: this replica leads now. */
  sweepMissed(): void {
    this.sweep(this.#missed);
    this.#missed.clear();
  }

  /** Takes the queues of a round out. */
  next(): readonly QueueName[] {
    const changed = [...this.#changed.values().take(ROUND)];
    for (const queue of changed) {
      this.#changed.delete(queue);
      this.#swept.delete(queue);
    }
    const swept = [...this.#swept.values().take(ROUND - changed.length)];
    for (const queue of swept) this.#swept.delete(queue);
    return [...changed, ...swept];
  }

  /**
   * Remembers queues to look at when this replica leads. Past the bound the oldest
   * are dropped: the leader heard of them by itself, or the task sweep finds them.
   */
  remember(queues: readonly QueueName[]): void {
    for (const queue of queues) this.#missed.add(queue);
    for (const queue of this.#missed) {
      if (this.#missed.size <= MAX_MISSED) return;
      this.#missed.delete(queue);
    }
  }
}
