// Schedules: their alarms, the regular checks, and the tasks of their ticks.
import type { Redis } from 'ioredis';
import type { Clock } from '#shared/clock.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { LeaderLease } from '../cluster/leader.ts';
import { Alarms } from '../stores/queues/alarms.ts';
import type { Keys } from '../stores/queues/keys.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import { totalOf } from '../stores/queues/task-queues.ts';
import { Schedules } from '../tasks/schedules/loop.ts';
import { ScheduleMetrics } from '../tasks/schedules/metrics.ts';
import { Ticker } from '../tasks/schedules/service.ts';
import { Ticks } from '../domain/ticks.ts';
import type { Db } from '../stores/store/db.ts';
import type { Tasks } from '../tasks/service.ts';

export function openSchedules(parts: {
  readonly db: Db;
  readonly general: Redis;
  readonly keys: Keys;
  readonly targets: Targets;
  readonly queues: Pick<TaskQueues, 'depth'>;
  readonly tasks: Tasks;
  readonly leader: LeaderLease;
  readonly clock: Clock;
  readonly log: Log;
  readonly registry: Registry;
}): Part {
  const { db, targets, queues, tasks, leader, clock, log } = parts;
  const metrics = new ScheduleMetrics(parts.registry);
  const ticker = new Ticker({
    db,
    tasks,
    targetOf: (id) => targets.byDeployment(id),
    depthOf: async (queue) => totalOf(await queues.depth(queue)),
    clock,
    log,
    metrics,
  });
  const alarms = new Alarms({
    client: parts.general,
    prefix: parts.keys.prefix,
    log,
    next: (when, timezone, afterMs) => new Ticks({ when, timezone }).next(afterMs),
    onAlarm: (id) => schedules.look(id as DeploymentId),
  });
  const schedules: Schedules = new Schedules({ db, targets, leader, alarms, ticker, clock, log, metrics });
  return schedules;
}
