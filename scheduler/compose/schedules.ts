// Schedules: the leader's looks, and the tasks of their ticks.
import type { Part } from '#shared/lifecycle.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import { totalOf } from '../stores/queues/task-queues.ts';
import { LOOK_EVERY_MS, Schedules } from '../tasks/schedules/loop.ts';
import { ScheduleMetrics } from '../tasks/schedules/metrics.ts';
import { Ticker } from '../tasks/schedules/service.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LineParts } from './lines.ts';
import type { TaskParts } from './tasks.ts';

export interface SchedulesSetup {
  readonly infrastructure: Infrastructure;
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly lineParts: LineParts;
  readonly taskParts: TaskParts;
}

export interface ScheduleParts {
  readonly schedules: Schedules;
  readonly looks: Part;
}

export function openSchedules({
  infrastructure,
  clusterState,
  targets,
  lineParts,
  taskParts,
}: SchedulesSetup): ScheduleParts {
  const { db, clock, log, registry } = infrastructure;
  const { queues } = lineParts;
  const metrics = new ScheduleMetrics(registry);
  const { submissions, asynchronous } = taskParts;
  const ticker = new Ticker({
    db,
    newJob: (target, taskId) => submissions.newJob(target, taskId),
    tasks: asynchronous,
    targetOf: (id) => targets.byDeployment(id),
    depthOf: async (queue) => totalOf(await queues.depth(queue)),
    clock,
    log,
    metrics,
  });
  const schedules = new Schedules({ db, ticker, clock, log, metrics });
  const looks = clusterState.leaderLoop({
    name: 'schedules',
    everyMs: LOOK_EVERY_MS,
    round: (signal) => schedules.round(signal),
    restMs: () => schedules.restMs(),
    failed: 'schedules could not be looked at, trying again',
  });
  return { schedules, looks };
}
