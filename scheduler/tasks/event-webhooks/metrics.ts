import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';

/** Metrics of events on their way to webhooks. */
export class EventWebhookMetrics {
  readonly tries: Counter<'outcome'>;
  readonly events: Counter<'result'>;
  readonly duration: Histogram;
  readonly skipped: Counter;
  readonly deactivated: Counter;
  readonly underWay: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.tries = new Counter({
      name: 'longshore_scheduler_webhook_tries_total',
      help: 'Tries to deliver an event to a webhook, by outcome: accepted, redirected, refused (4xx), server_error, connection_failed, timed_out, blocked (no permitted address), no_place (not tried: too many names were being looked up).',
      labelNames: ['outcome'],
      registers,
    });
    this.events = new Counter({
      name: 'longshore_scheduler_webhook_events_total',
      help: 'Events that were delivered to a webhook, failed for good, or wait for another try.',
      labelNames: ['result'],
      registers,
    });
    this.duration = new Histogram({
      name: 'longshore_scheduler_webhook_duration_seconds',
      help: 'From an event being stored to its delivery to a webhook.',
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.skipped = new Counter({
      name: 'longshore_scheduler_webhook_skipped_events_total',
      help: 'Events passed over because more than 100 000 waited for a webhook, or because they were deleted by age before.',
      registers,
    });
    this.deactivated = new Counter({
      name: 'longshore_scheduler_webhooks_deactivated_total',
      help: 'Webhooks that became inactive because their receiver answered 410.',
      registers,
    });
    this.underWay = new Gauge({
      name: 'longshore_scheduler_webhooks_behind',
      help: 'Webhooks with events that are not delivered yet, at most 256; shown by the leader.',
      registers,
    });
  }
}
