import type { Registry } from '#shared/metrics.ts';
import { Counter, Gauge, Histogram, FAST_BUCKETS } from '#shared/metrics.ts';

export class RetentionMetrics {
  readonly deleted: Counter<'kind'>;
  readonly overdue: Gauge<'kind'>;
  readonly batch: Histogram<'kind'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.deleted = new Counter({
      name: 'longshore_scheduler_retention_deleted_total',
      help: 'Rows deleted for their age.',
      labelNames: ['kind'],
      registers,
    });
    this.overdue = new Gauge({
      name: 'longshore_scheduler_retention_overdue_seconds',
      help: 'How long the oldest row is past its time; shown by the leader, 0 when deletion keeps up.',
      labelNames: ['kind'],
      registers,
    });
    this.batch = new Histogram({
      name: 'longshore_scheduler_retention_batch_duration_seconds',
      help: 'One deletion of a batch of rows.',
      labelNames: ['kind'],
      buckets: FAST_BUCKETS,
      registers,
    });
  }
}
