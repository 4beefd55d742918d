import type { Clock } from '#shared/clock.ts';
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl } from '../fleet/containers/container-registry.ts';
import type { Machines } from '../fleet/machines.ts';
import type { FleetMetrics } from '../fleet/metrics.ts';
import type { LoopMetrics } from '../cluster/loop-metrics.ts';
import type { Loads } from '../cluster/loads.ts';
import { Preemptions } from '../control/placement/preemptions.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import { Placer } from '../control/placement/placer.ts';
import { Quotas } from '../control/placement/quotas.ts';
import type { Db } from '../stores/store/db.ts';
import { imagePlaces, imagesInRegistry } from '../stores/store/queries/images.ts';
import { bindVolumes, volumeHomes } from '../stores/store/queries/volumes.ts';

export interface OpenPlacement {
  readonly db: Db;
  readonly containers: ContainerControl;
  readonly machines: Machines;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FleetMetrics;
  readonly loops: LoopMetrics;
  readonly fence: () => number | undefined;
  /** Value of `LONGSHORE_CPU_WORK_ON_GPU_POOLS` for a pool. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  /** Whether many machines went silent at once. */
  readonly isGuarded: () => boolean;
  /** Time for which a new leader reserves no machine. */
  readonly reserveGraceMs: number;
  readonly loads: Pick<Loads, 'of'>;
  readonly slots: Pick<SlotTable, 'leave' | 'stay'>;
  /** Containers that warmth alone kept when their queues were decided last. */
  readonly spare: () => Iterable<ContainerId>;
  /** Whether a rollout waits whose older or newer version has that queue. */
  readonly isRollingOut: (queue: QueueName) => boolean;
  /** Whether the managed registry has built images. */
  readonly hasRegistry?: boolean;
}

/** Makes the parts of placement: the loop that places, and the limits of workspaces. */
export function openPlacement(parts: OpenPlacement): {
  readonly placer: Placer;
  readonly quotas: Quotas;
} {
  const { db, containers, machines, clock, log, metrics, loops, fence } = parts;
  const quotas = new Quotas(db, clock);
  const placer = new Placer({
    containers,
    machines,
    clock,
    log,
    metrics,
    loops,
    fence,
    cpuWorkAllowed: parts.cpuWorkAllowed,
    isGuarded: parts.isGuarded,
    reserveGraceMs: parts.reserveGraceMs,
    preemptions: new Preemptions(parts),
    volumeHomes: (ids) => volumeHomes(db, ids),
    imagePlaces: async (images) => {
      const [places, stored] = await Promise.all([
        imagePlaces(db, images),
        parts.hasRegistry === true ? imagesInRegistry(db, images) : [],
      ]);
      const inRegistry = new Set(stored);
      return new Map(
        images.map((image) => {
          const machines = new Set(places.filter(({ imageId }) => imageId === image).map(({ machineId }) => machineId));
          return [image, { machines, inRegistry: inRegistry.has(image) }];
        }),
      );
    },
    bindVolumes: (ids, machineId) => bindVolumes(db, ids, machineId),
    quotas: (workspaces) => quotas.of(workspaces),
  });
  return { placer, quotas };
}

/** Reads the setting. @param text - LONGSHORE_CPU_WORK_ON_GPU_POOLS */
export function cpuPoolsOf(text: string): (pool: string) => boolean {
  const pools = new Set(text.split(',').map((name) => name.trim()));
  return (pool) => pools.has('*') || pools.has(pool);
}
