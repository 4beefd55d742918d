import type { Registry } from '#shared/metrics.ts';
import { Counter } from '#shared/metrics.ts';

/** Counts of requests that were told to wait, by the limit they exceeded. */
export class IdentityMetrics {
  readonly rateLimited: Counter<'limit'>;

  constructor(registry: Registry) {
    this.rateLimited = new Counter({
      name: 'longshore_scheduler_rate_limited_total',
      help: 'Requests answered 429 for coming too fast: `refused_tokens` of one address, a rate of a workspace (`rest`, `invoke`, `state`, `inference`, `inference_tokens`), or of a session of the web console (`console`).',
      labelNames: ['limit'],
      registers: [registry],
    });
  }
}
