import { FINAL_TASK_STATUSES, STUB_KINDS } from '#shared/domain/status.ts';
import type { Registry } from '#shared/metrics.ts';
import {
  bounded,
  Counter,
  FAST_BUCKETS,
  fromZero,
  Gauge,
  Histogram,
  LabelValues,
  SLOW_BUCKETS,
} from '#shared/metrics.ts';

/** Most values of a reason label; the reasons of failed and lost attempts are our own words. */
const MOST_REASONS = 50;
const REASONS_OF_LOSS = [
  'not_claimed',
  'drained',
  'preempted',
  'lease_ran_out',
  'agent_restarted',
  'container_gone',
  'machine_lost',
  'refused',
];
const LIMITED = [
  'pending_tasks',
  'queue_bytes',
  'redis_memory',
  'reserved_tokens',
  'commits',
  'waiting_adds',
  'flow_rate',
  'flow_keys',
];

/** Metrics of tasks that pass through this replica. `stub_type` is a kind of the interface, never a name. */
export class TaskMetrics {
  readonly finished: Counter<'stub_type' | 'status'>;
  readonly queueWait: Histogram<'stub_type'>;
  readonly execution: Histogram<'stub_type' | 'status'>;
  readonly dispatch: Histogram;
  readonly attemptsLost: Counter<'reason'>;
  readonly preemptedSeconds: Counter;
  readonly retries: Counter<'stub_type' | 'cause'>;
  readonly throttled: Counter<'resource'>;
  readonly refused: Counter<'from' | 'event'>;
  readonly late: Counter<'result'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.finished = new Counter({
      name: 'longshore_task_finished_total',
      help: 'Tasks that reached a final status.',
      labelNames: ['stub_type', 'status'],
      registers,
    });
    fromZero(
      this.finished,
      STUB_KINDS.flatMap((stub_type) => FINAL_TASK_STATUSES.map((status) => ({ stub_type, status }))),
    );
    this.queueWait = new Histogram({
      name: 'longshore_task_queue_wait_seconds',
      help: 'From acceptance to being sent to a container.',
      labelNames: ['stub_type'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.execution = new Histogram({
      name: 'longshore_task_execution_seconds',
      help: 'From being sent to a container to its result.',
      labelNames: ['stub_type', 'status'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.dispatch = new Histogram({
      name: 'longshore_task_dispatch_duration_seconds',
      help: 'From a fetched job to its frame on the link.',
      buckets: FAST_BUCKETS,
      registers,
    });
    this.attemptsLost = bounded(
      new Counter({
        name: 'longshore_task_attempts_lost_total',
        help: 'Attempts that ended without a result.',
        labelNames: ['reason'],
        registers,
      }),
      { reason: new LabelValues(MOST_REASONS) },
    );
    fromZero(
      this.attemptsLost,
      REASONS_OF_LOSS.map((reason) => ({ reason })),
    );
    this.preemptedSeconds = new Counter({
      name: 'longshore_task_preempted_seconds_total',
      help: 'Time for which attempts had run whose tasks were given back with interruptible containers.',
      registers,
    });
    this.retries = bounded(
      new Counter({
        name: 'longshore_task_retries_total',
        help: 'Attempts that are followed by another one, by why they failed.',
        labelNames: ['stub_type', 'cause'],
        registers,
      }),
      { cause: new LabelValues(MOST_REASONS) },
    );
    this.throttled = new Counter({
      name: 'longshore_scheduler_quota_throttles_total',
      help: "Requests that a limit turned away: pending_tasks (what a queue may hold), queue_bytes (a workspace's inputs), redis_memory (Redis is nearly full), commits (the database commits no tasks). The resource waiting_adds says that too many accepted tasks wait for Redis. The resource reserved_tokens stands for calls to models that would reserve more tokens than their queue may hold.",
      labelNames: ['resource'],
      registers,
    });
    fromZero(
      this.throttled,
      LIMITED.map((resource) => ({ resource })),
    );
    this.refused = new Counter({
      name: 'longshore_task_transitions_refused_total',
      help: 'Changes of a task that its status does not allow: nothing was written.',
      labelNames: ['from', 'event'],
      registers,
    });
    this.late = new Counter({
      name: 'longshore_task_late_results_total',
      help: 'Results that came after their task had ended otherwise: applied (COMPLETE of the last attempt) or ignored.',
      labelNames: ['result'],
      registers,
    });
  }
}

/** Parts of this replica that are counted at each scrape. */
export interface CountedTasks {
  readonly replies: { readonly size: number };
  readonly queueing: { readonly size: number };
  readonly attempts: { readonly size: number };
}

/** Registers the gauges of what waits and runs at this replica. */
export function registerTaskGauges(registry: Registry, { replies, queueing, attempts }: CountedTasks): void {
  const gauges = [
    ['longshore_task_waiting_callers', 'Synchronous callers waiting on this replica.', replies],
    ['longshore_task_waiting_adds', 'Accepted tasks of this replica that Redis has not taken yet.', queueing],
    ['longshore_task_running_attempts', 'Attempts this replica has sent and not seen the end of.', attempts],
  ] as const;
  for (const [name, help, counted] of gauges)
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(counted.size);
      },
    });
}
