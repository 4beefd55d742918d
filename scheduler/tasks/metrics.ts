import type { Registry } from '#shared/metrics.ts';
import { Counter, FAST_BUCKETS, Gauge, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';

/** Tasks as they pass through this replica. `stub_type` is a kind of the interface, never a name. */
export class TaskMetrics {
  readonly finished: Counter<'stub_type' | 'status'>;
  readonly queueWait: Histogram<'stub_type'>;
  readonly execution: Histogram<'stub_type' | 'status'>;
  readonly dispatch: Histogram;
  readonly attemptsLost: Counter<'reason'>;
  readonly retries: Counter<'stub_type' | 'cause'>;
  readonly waiting: Gauge;
  readonly running: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.finished = new Counter({
      name: 'longshore_task_finished_total',
      help: 'Tasks that reached a final status.',
      labelNames: ['stub_type', 'status'],
      registers,
    });
    this.queueWait = new Histogram({
      name: 'longshore_task_queue_wait_seconds',
      help: 'From acceptance to being sent to a container.',
      labelNames: ['stub_type'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, ...SLOW_BUCKETS],
      registers,
    });
    this.execution = new Histogram({
      name: 'longshore_task_execution_seconds',
      help: 'From being sent to a container to its result.',
      labelNames: ['stub_type', 'status'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, ...SLOW_BUCKETS],
      registers,
    });
    this.dispatch = new Histogram({
      name: 'longshore_task_dispatch_duration_seconds',
      help: 'From a fetched job to its frame on the link.',
      buckets: FAST_BUCKETS,
      registers,
    });
    this.attemptsLost = new Counter({
      name: 'longshore_task_attempts_lost_total',
      help: 'Attempts that ended without a result.',
      labelNames: ['reason'],
      registers,
    });
    this.retries = new Counter({
      name: 'longshore_task_retries_total',
      help: 'User retries, by why the attempt before failed.',
      labelNames: ['stub_type', 'cause'],
      registers,
    });
    this.waiting = new Gauge({
      name: 'longshore_task_waiting_callers',
      help: 'Synchronous callers waiting on this replica.',
      registers,
    });
    this.running = new Gauge({
      name: 'longshore_task_running_attempts',
      help: 'Attempts this replica has sent and not seen the end of.',
      registers,
    });
  }
}
