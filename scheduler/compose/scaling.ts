// The number and place of containers: placement, the scaling loop with its breakers, and rollouts of new versions.
import { join } from 'node:path';
import { Breakers } from '../control/autoscaler/breakers.ts';
import { Autoscaler } from '../control/autoscaler/loop.ts';
import { ScaleEvents } from '../control/autoscaler/scale-events.ts';
import { AutoscalerMetrics } from '../control/autoscaler/metrics.ts';
import { RolloutLoop } from '../control/rollouts/loop.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { ServeLeases } from '../workspaces/deployments/serve-leases.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import { LoopMetrics } from '../cluster/loop-metrics.ts';
import { leaseChecks } from '../control/placement/lease-check.ts';
import type { Placer } from '../control/placement/placer.ts';
import { Recordings } from '../control/placement/recordings.ts';
import type { Quotas } from '../control/placement/quotas.ts';
import type { MachineHealth } from '../fleet/health.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { LineParts } from './lines.ts';
import type { TaskParts } from './tasks.ts';
import { cpuPoolsOf, openPlacement } from './placement.ts';

export interface ScalingSetup {
  readonly infrastructure: Infrastructure;
  readonly identity: Identity;
  readonly events: Pick<Events, 'writer'>;
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly lineParts: LineParts;
  readonly taskParts: TaskParts;
  readonly health: Pick<MachineHealth, 'isGuarded' | 'hasGuard'>;
  readonly serves: ServeLeases;
}

export interface Scaling {
  readonly autoscaler: Autoscaler;
  readonly rollouts: RolloutLoop;
  readonly placer: Placer;
  readonly recordings: Recordings;
  readonly leaseChecks: Part;
  readonly quotas: Quotas;
  readonly loops: LoopMetrics;
  /** Value of `LONGSHORE_CPU_WORK_ON_GPU_POOLS` for a pool. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
}

export function openScaling(setup: ScalingSetup): Scaling {
  const { infrastructure, identity, clusterState, targets, health } = setup;
  const { limits } = identity;
  const { lines: queues } = setup.lineParts;
  const { db, clock, log, registry, settings } = infrastructure;
  const { machines, leaderContainers, slots, loads, reservedTokens, isLeader, fence } = clusterState;
  const loops = new LoopMetrics(registry, clock);
  const cpuWorkAllowed = cpuPoolsOf(settings.LONGSHORE_CPU_WORK_ON_GPU_POOLS);
  const { placer, quotas } = openPlacement({
    ...infrastructure,
    containers: leaderContainers,
    machines,
    metrics: clusterState.fleetMetrics,
    loops,
    fence,
    cpuWorkAllowed,
    loads,
    slots,
    isGuarded: () => health.hasGuard,
    spare: () => autoscaler.spare(),
    isRollingOut: (queue) => rollouts.watches(queue),
    reserveGraceMs: settings.LONGSHORE_RESTART_GRACE_SECONDS * 1000,
    hasRegistry: settings.LONGSHORE_REGISTRY !== undefined,
  });
  const autoscaler = new Autoscaler({
    targets,
    queues,
    containers: leaderContainers,
    create: (target, count, unplaced) => placer.create(target, count, unplaced),
    slots,
    loads,
    reservedTokens,
    breakers: new Breakers({ db, clock, log, fence, told: { db, events: setup.events.writer, targets } }),
    clock,
    log,
    scaled: new ScaleEvents({ db, events: setup.events.writer, clock, log }),
    metrics: new AutoscalerMetrics(registry),
    loops,
    isLeader,
    serves: setup.serves,
    maxContainers: (workspaceId, whenRead) => limits.known(workspaceId, whenRead)?.stub.max_replicas,
    graceMs: settings.LONGSHORE_RESTART_GRACE_SECONDS * 1000,
    silentSinceMs: (id) => machines.silentSinceMs(id),
    isAwaited: (entry) => !rollouts.watches(entry.spec.queue) && placer.isAwaited(entry),
    isGuarded: (queue) => health.isGuarded(queue),
  });
  const rollouts = new RolloutLoop({
    db,
    targets,
    containers: clusterState.containers,
    events: setup.events.writer,
    clock,
    log,
    loops,
    fence,
  });
  return {
    autoscaler,
    rollouts,
    placer,
    recordings: new Recordings({
      directory: join(settings.LONGSHORE_DATA_DIR, 'recordings'),
      placer,
      isLeader,
      clock,
      log,
    }),
    leaseChecks: clusterState.leaderLoop(
      leaseChecks({ db, log, fence, faults: clusterState.fleetMetrics.gpuLeaseFaults }),
    ),
    quotas,
    loops,
    cpuWorkAllowed,
  };
}
