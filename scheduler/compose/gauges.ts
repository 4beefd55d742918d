// Gauges on `/metrics`: the state of this moment rather than counts of events, computed from memory at each scrape.
import type { Redis } from 'ioredis';
import type { Clock } from '#shared/clock.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Registry } from '#shared/metrics.ts';
import type { Autoscaler } from '../control/autoscaler/loop.ts';
import { registerScaleGauges } from '../control/autoscaler/metrics.ts';
import type { Placer } from '../control/placement/placer.ts';
import { registerShareGauges } from '../control/placement/share-gauges.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import { watchRedis } from '../stores/embedded/redis-metrics.ts';
import { registerFleetGauges } from '../fleet/gauges.ts';
import type { FleetGauges } from '../fleet/gauges.ts';
import type { Machines } from '../fleet/machines.ts';
import type { FleetMetrics } from '../fleet/metrics.ts';
import type { Db } from '../stores/store/db.ts';
import { countDead } from '../stores/store/queries/dead-letters.ts';
import { countOpenTasks } from '../stores/store/queries/task-counts.ts';
import { COUNTED_EVERY_MS, OpenTaskGauges } from '../tasks/maintenance/open-task-gauges.ts';
import type { ClusterState } from './cluster-state.ts';

export interface GaugeParts {
  readonly registry: Registry;
  readonly fleetMetrics: FleetMetrics;
  readonly machines: Machines;
  readonly containers: ContainerRegistry;
  readonly autoscaler: Autoscaler;
  readonly placer: Pick<Placer, 'shares' | 'reservations'>;
  readonly db: Db;
  readonly hot: Redis;
  readonly general: Redis;
  readonly clock: Clock;
  readonly isLeader: () => boolean;
  readonly leaderLoop: ClusterState['leaderLoop'];
}

/** Share of the task connection's commands that is timed: one in so many. */
const TIMED_TASK_COMMANDS = 64;

export interface Gauges {
  readonly fleet: FleetGauges;
  /** The count of open tasks, which has a timer. */
  readonly openTasks: Part;
}

/** Registers the gauges. */
export function registerGauges(parts: GaugeParts): Gauges {
  const { registry, fleetMetrics, machines, containers, autoscaler, db, hot, general, clock, isLeader } = parts;
  const fleet = registerFleetGauges({ registry, metrics: fleetMetrics, machines, containers, clock, isLeader });
  registerShareGauges({
    registry,
    metrics: fleetMetrics,
    reports: () => parts.placer.shares(),
    reservations: () => parts.placer.reservations(),
    nowMs: () => clock.nowMs(),
    isLeader,
  });
  registerScaleGauges({ registry, autoscaler, containers, isLeader });
  watchRedis(registry, clock, [
    { role: 'tasks', client: hot, oneIn: TIMED_TASK_COMMANDS },
    { role: 'control', client: general, oneIn: 1 },
  ]);
  const counts = new OpenTaskGauges({
    registry,
    count: () => countOpenTasks(db),
    countDead: () => countDead(db),
    clock,
    isLeader,
  });
  const openTasks = parts.leaderLoop({
    name: 'open task gauges',
    everyMs: COUNTED_EVERY_MS,
    round: () => counts.check(),
    restMs: (nextMs) => nextMs,
    failed: 'open tasks not counted, trying again',
  });
  return { fleet, openTasks };
}
