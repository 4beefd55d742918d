import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge, fromZero } from '#shared/metrics.ts';

/** `stored`; `over_bound`: dropped, too many at once; `unknown`: of no container of that machine, or too soon. */
const RESULTS = ['stored', 'over_bound', 'unknown'] as const;

export class SeriesMetrics {
  readonly samples: Counter<'result'>;
  readonly waiting: Gauge;

  constructor(registry: Registry) {
    this.samples = new Counter({
      name: 'longshore_scheduler_metric_samples_total',
      help: "Samples of containers' resource use that agents sent: stored, dropped over a bound, or of no container there.",
      labelNames: ['result'],
      registers: [registry],
    });
    fromZero(
      this.samples,
      RESULTS.map((result) => ({ result })),
    );
    this.waiting = new Gauge({
      name: 'longshore_scheduler_metric_samples_waiting',
      help: 'Samples that are not written yet. More than a few thousand: the database does not keep up.',
      registers: [registry],
    });
  }
}
