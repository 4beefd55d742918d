// Deadlines that a row keeps as wall time and that end running work. From the first
// look on each counts in monotonic time, so that setting the clock moves none of
// them. A process that starts after the clock was set knows the wall time alone.
import type { Clock } from '#shared/clock.ts';

export class SteadyDeadlines<Key> {
  readonly #clock: Clock;
  /** Deadlines seen so far. The callers bound this map: each forgets the keys that it asks about no more. */
  readonly #known = new Map<Key, { readonly wallMs: number; readonly dueAtMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Whether the key's deadline has passed.
   * @param wallMs - epoch milliseconds, as the row has it; another value than before is another deadline
   */
  isOver(key: Key, wallMs: number): boolean {
    const nowMs = this.#clock.monotonicMs();
    let known = this.#known.get(key);
    if (known?.wallMs !== wallMs) {
      known = { wallMs, dueAtMs: nowMs + wallMs - this.#clock.nowMs() };
      this.#known.set(key, known);
    }
    return nowMs >= known.dueAtMs;
  }

  forget(key: Key): void {
    this.#known.delete(key);
  }

  get size(): number {
    return this.#known.size;
  }
}
