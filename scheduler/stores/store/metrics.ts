import type { Registry } from '#shared/metrics.ts';
import { Counter, FAST_BUCKETS, Gauge, Histogram } from '#shared/metrics.ts';
import type { TenantReads } from './queryable.ts';

/** Metrics of tenants' reads on this replica. */
export class ReadMetrics {
  constructor(registry: Registry, reads: TenantReads) {
    const registers = [registry];
    const ended = new Counter({
      name: 'longshore_scheduler_tenant_reads_total',
      help: 'Statements that answered lists and pages of logs, by outcome: ok; failed; refused (too many of the workspace waited, or it waited 5 s).',
      labelNames: ['outcome'],
      registers,
    });
    const seconds = new Histogram({
      name: 'longshore_scheduler_tenant_read_seconds',
      help: 'From a tenant asking for a read to its rows, the wait for its turn included.',
      buckets: FAST_BUCKETS,
      registers,
    });
    new Gauge({
      name: 'longshore_scheduler_tenant_reads_waiting',
      help: 'Reads of tenants that wait for their turn at the database.',
      registers,
      collect() {
        this.set(reads.waiting);
      },
    });
    reads.onRead = (outcome, tookSeconds) => {
      ended.inc({ outcome });
      seconds.observe(tookSeconds);
    };
  }
}
