import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';

/** Metrics of messages to addresses that users named. `kind` is one of ours: task_callback. */
export class DeliveryMetrics {
  readonly tries: Counter<'kind' | 'outcome'>;
  readonly ended: Counter<'kind' | 'result'>;
  readonly duration: Histogram<'kind'>;
  readonly waiting: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.tries = new Counter({
      name: 'longshore_scheduler_delivery_tries_total',
      help: 'Tries to deliver a callback, by what came of them: accepted, redirected, refused (4xx), server_error, connection_failed, timed_out, blocked (no permitted address), no_place (not tried, and not counted: too many names were being looked up).',
      labelNames: ['kind', 'outcome'],
      registers,
    });
    this.ended = new Counter({
      name: 'longshore_scheduler_deliveries_total',
      help: 'Callbacks that were delivered, failed for good, or superseded by a newer one about the same task.',
      labelNames: ['kind', 'result'],
      registers,
    });
    this.duration = new Histogram({
      name: 'longshore_scheduler_delivery_duration_seconds',
      help: 'From a task having ended in the database to its callback being delivered.',
      labelNames: ['kind'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.waiting = new Gauge({
      name: 'longshore_scheduler_deliveries_waiting',
      help: 'Callbacks that are not delivered and not given up, up to 100 000; shown by the leader.',
      registers,
    });
  }
}
