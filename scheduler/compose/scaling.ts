// The number and place of containers: the scaling loop with its breakers,
// placement, and the reaction of both to a changed limit of a workspace.
import type { QueueName } from '#shared/domain/ids.ts';
import { Breakers } from '../control/autoscaler/breakers.ts';
import { Autoscaler } from '../control/autoscaler/loop.ts';
import { AutoscalerMetrics } from '../control/autoscaler/metrics.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { Limits } from '../workspaces/identity/workspace-limits.ts';
import { LoopMetrics } from '../cluster/loop-metrics.ts';
import type { Accounting } from '../control/placement/accounting.ts';
import type { Placer } from '../control/placement/commit.ts';
import type { DueTimes } from '../stores/queues/due.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { Tasks } from '../tasks/service.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import { cpuPoolsOf, openPlacement } from './placement.ts';

export interface ScalingSetup {
  readonly ground: Ground;
  readonly books: Books;
  readonly limits: Limits;
  readonly targets: Targets;
  readonly queues: TaskQueues;
  readonly tasks: Pick<Tasks, 'failWaiting'>;
  readonly due: DueTimes;
  /**
   * Whether the queue is guarded: its machines have fallen silent
   * with many others, so none of its containers is stopped.
   */
  readonly isGuarded: (queue: QueueName) => boolean;
}

export interface Scaling {
  readonly autoscaler: Autoscaler;
  readonly placer: Placer;
  readonly accounting: Accounting;
  /** Value of `LONGSHORE_CPU_WORK_ON_GPU_POOLS` for a pool. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
}

export function openScaling({ ground, books, limits, targets, queues, tasks, due, isGuarded }: ScalingSetup): Scaling {
  const { db, clock, log, registry, settings } = ground;
  const { machines, leaderBook, slots, loads, isLeader, fence } = books;
  const loops = new LoopMetrics(registry, clock);
  const autoscaler: Autoscaler = new Autoscaler({
    targets,
    queues,
    book: leaderBook,
    create: (target, count) => placer.create(target, count),
    slots,
    loads,
    breakers: new Breakers({ db, clock, log, fence }),
    clock,
    log,
    metrics: new AutoscalerMetrics(registry),
    loops,
    due,
    isLeader,
    maxContainers: (workspaceId) => limits.peek(workspaceId).stub.max_replicas,
    graceMs: settings.LONGSHORE_RESTART_GRACE_SECONDS * 1000,
    silentSinceMs: (id) => machines.silentSinceMs(id),
    isGuarded,
    onStartFailed: (queue, lastLines, containerId) => void tasks.failWaiting(queue, lastLines, { containerId }),
  });
  const cpuWorkAllowed = cpuPoolsOf(settings.LONGSHORE_CPU_WORK_ON_GPU_POOLS);
  const { accounting, placer, quotas } = openPlacement({
    ...ground,
    book: leaderBook,
    machines,
    metrics: books.fleetMetrics,
    loops,
    fence,
    cpuWorkAllowed,
  });
  limits.onChange((workspaceId) => {
    quotas.forget(workspaceId);
    placer.wake();
    autoscaler.sweep();
  });
  return { autoscaler, placer, accounting, cpuWorkAllowed };
}
