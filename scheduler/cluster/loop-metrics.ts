import type { Clock } from '#shared/clock.ts';
import type { Registry } from '#shared/metrics.ts';
import { FAST_BUCKETS, Gauge, Histogram } from '#shared/metrics.ts';

/**
 * Rounds of the deciding loops: the time of each, and the moment
 * when each last completed. `loop` is one of the names in main.ts.
 */
export class LoopMetrics {
  readonly #duration: Histogram<'loop'>;
  readonly #success: Gauge<'loop'>;
  readonly #clock: Clock;

  constructor(registry: Registry, clock: Clock) {
    const registers = [registry];
    this.#clock = clock;
    this.#duration = new Histogram({
      name: 'longshore_scheduler_loop_duration_seconds',
      help: 'One round of a deciding loop.',
      labelNames: ['loop'],
      buckets: FAST_BUCKETS,
      registers,
    });
    this.#success = new Gauge({
      name: 'longshore_scheduler_loop_last_success_timestamp_seconds',
      help: 'When a deciding loop last finished a round.',
      labelNames: ['loop'],
      registers,
    });
  }

  /** Runs a round; a round that throws is timed, but does not count as completed. */
  async round(loop: string, work: () => Promise<void>): Promise<void> {
    const startedMs = this.#clock.monotonicMs();
    try {
      await work();
      this.#success.set({ loop }, this.#clock.nowMs() / 1000);
    } finally {
      this.#duration.observe({ loop }, (this.#clock.monotonicMs() - startedMs) / 1000);
    }
  }
}
