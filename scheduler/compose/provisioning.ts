// Growth of pools: the pools with a provider as this replica knows them, and the loop that decides for them.
import type { Autoscaler } from '../control/autoscaler/loop.ts';
import { ProvisioningLoop } from '../control/provisioning/loop.ts';
import { PoolEvents } from '../control/provisioning/pool-events.ts';
import { ProvisioningMetrics, registerProvisionGauges } from '../control/provisioning/metrics.ts';
import type { Placer } from '../control/placement/placer.ts';
import type { Quotas } from '../control/placement/quotas.ts';
import type { LoopMetrics } from '../cluster/loop-metrics.ts';
import type { CapacityChanges, MachineOrders } from '../domain/provisioning.ts';
import type { PoolDirectory } from '../fleet/pool-directory.ts';
import { volumeHomes } from '../stores/store/queries/volumes.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface ProvisioningSetup {
  readonly infrastructure: Pick<Infrastructure, 'db' | 'clock' | 'log' | 'registry'>;
  readonly clusterState: Pick<ClusterState, 'containers' | 'machines' | 'fence' | 'isLeader' | 'fleetMetrics'>;
  readonly events: Pick<Events, 'writer'>;
  readonly directory: PoolDirectory;
  readonly changes: CapacityChanges & MachineOrders;
  readonly quotas: Pick<Quotas, 'of'>;
  /** Absent in tests that play no scaling loop. */
  readonly autoscaler?: Pick<Autoscaler, 'followOf'>;
  /** Absent in tests that play no placement. */
  readonly placer?: Pick<Placer, 'turnOf'>;
  readonly loops: LoopMetrics;
}

export function openProvisioning(setup: ProvisioningSetup): ProvisioningLoop {
  const { directory, changes, quotas, placer, loops, events } = setup;
  const { db, clock, log, registry } = setup.infrastructure;
  const { containers, machines, fence, isLeader, fleetMetrics } = setup.clusterState;
  const loop = new ProvisioningLoop({
    directory,
    machines,
    containers,
    changes,
    clock,
    log,
    loops,
    fence,
    metrics: new ProvisioningMetrics(registry, fleetMetrics),
    told: new PoolEvents({ db, events: events.writer, clock, log }),
    volumeHomes: (ids) => volumeHomes(db, ids),
    quotas: (workspaces) => quotas.of(workspaces),
    ...(placer === undefined ? {} : { turnOf: (entry) => placer.turnOf(entry) }),
    followOf: (queue) => setup.autoscaler?.followOf(queue) ?? 0,
  });
  registerProvisionGauges({
    registry,
    metrics: fleetMetrics,
    views: () => [...directory.all()].flatMap(({ id }) => loop.explainPool(id) ?? []),
    isLeader,
  });
  return loop;
}
