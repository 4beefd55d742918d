import { Counter, fromZero, Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';

export class ExportMetrics {
  readonly exported: Counter<'kind'>;
  readonly failures: Counter;
  readonly behind: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.exported = new Counter({
      name: 'longshore_scheduler_exported_total',
      help: 'Events and log lines that the target of exports has taken, by kind; some are sent again after a failure.',
      labelNames: ['kind'],
      registers,
    });
    fromZero(this.exported, [{ kind: 'events' }, { kind: 'logs' }]);
    this.failures = new Counter({
      name: 'longshore_scheduler_export_failures_total',
      help: 'Tries of exports that failed; their rows are sent again.',
      registers,
    });
    this.behind = new Gauge({
      name: 'longshore_scheduler_export_behind_workspaces',
      help: 'Workspaces with rows that were not exported when the leader last looked, every 10 s.',
      registers,
    });
  }
}
