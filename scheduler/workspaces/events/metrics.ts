import { Counter, fromZero } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';

export class EventMetrics {
  readonly pages: Counter<'rows'>;

  constructor(registry: Registry) {
    this.pages = new Counter({
      name: 'longshore_scheduler_event_stream_pages_total',
      help: 'Pages that single streams read from the database, because they were behind the rows kept in memory.',
      labelNames: ['rows'],
      registers: [registry],
    });
    fromZero(this.pages, [{ rows: 'events' }]);
  }
}
