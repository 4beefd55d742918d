import type { Registry } from '#shared/metrics.ts';
import { Counter, FAST_BUCKETS, fromZero, Gauge, Histogram } from '#shared/metrics.ts';

/** Metrics of schedules' ticks, as this replica makes tasks of them. */
export class ScheduleMetrics {
  readonly ticks: Counter<'result'>;
  readonly lag: Histogram;
  readonly active: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.ticks = new Counter({
      name: 'longshore_scheduler_schedule_ticks_total',
      help: 'Ticks of schedules, by what became of them: task; too_old: more than a hundred were missed (counted up to a thousand at a time); queue_full.',
      labelNames: ['result'],
      registers,
    });
    fromZero(this.ticks, [{ result: 'task' }, { result: 'too_old' }, { result: 'queue_full' }]);
    this.lag = new Histogram({
      name: 'longshore_scheduler_schedule_tick_lag_seconds',
      help: 'From a tick of a schedule to the row of its task.',
      buckets: FAST_BUCKETS,
      registers,
    });
    this.active = new Gauge({
      name: 'longshore_scheduler_schedules',
      help: 'Active schedules, as this replica knows them.',
      registers,
    });
  }
}
