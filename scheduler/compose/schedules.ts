// Schedules: their alarms, the regular checks, and the tasks of their ticks.
import type { Targets } from '../workspaces/deployments/targets.ts';
import { Alarms } from '../stores/queues/alarms.ts';
import { totalOf } from '../stores/queues/task-queues.ts';
import { Schedules } from '../tasks/schedules/loop.ts';
import { ScheduleMetrics } from '../tasks/schedules/metrics.ts';
import { Ticker } from '../tasks/schedules/service.ts';
import { Ticks } from '../domain/ticks.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LocalQueueParts } from './local-queue.ts';
import type { TaskParts } from './tasks.ts';

export interface SchedulesSetup {
  readonly infrastructure: Infrastructure;
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly localQueue: LocalQueueParts;
  readonly taskParts: TaskParts;
}

export interface ScheduleParts {
  readonly schedules: Schedules;
  readonly alarms: Alarms;
}

export function openSchedules({
  infrastructure,
  clusterState,
  targets,
  localQueue,
  taskParts,
}: SchedulesSetup): ScheduleParts {
  const { db, general, keys, clock, log, registry } = infrastructure;
  const { leader } = clusterState;
  const { queues } = localQueue;
  const metrics = new ScheduleMetrics(registry);
  const ticker = new Ticker({
    db,
    tasks: taskParts.submissions,
    targetOf: (id) => targets.byDeployment(id),
    depthOf: async (queue) => totalOf(await queues.depth(queue)),
    clock,
    log,
    metrics,
  });
  const alarms = new Alarms({
    client: general,
    prefix: keys.prefix,
    log,
    next: (when, timezone, afterMs) => new Ticks({ when, timezone }).next(afterMs),
  });
  return { schedules: new Schedules({ db, targets, leader, alarms, ticker, clock, log, metrics }), alarms };
}
