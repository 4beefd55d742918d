import type { Registry } from '#shared/metrics.ts';
import { Counter } from '#shared/metrics.ts';

export class LogMetrics {
  readonly dropped: Counter;

  constructor(registry: Registry) {
    this.dropped = new Counter({
      name: 'longshore_scheduler_log_lines_dropped_total',
      help: 'Lines of containers that were not kept, because their workspace has written its bytes for the day.',
      registers: [registry],
    });
  }
}
