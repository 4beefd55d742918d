import type { Redis } from 'ioredis';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl } from '../fleet/containers/container-registry.ts';
import type { Machines } from '../fleet/machines.ts';
import type { FleetMetrics } from '../fleet/metrics.ts';
import type { LoopMetrics } from '../cluster/loop-metrics.ts';
import { Accounting } from '../control/placement/accounting.ts';
import { Placer } from '../control/placement/placer.ts';
import { Quotas } from '../control/placement/quotas.ts';
import { Reservations } from '../control/placement/reservations.ts';
import type { Keys } from '../stores/queues/keys.ts';
import type { Db } from '../stores/store/db.ts';
import { imagePlaces, imagesInRegistry } from '../stores/store/queries/images.ts';
import { bindVolumes, volumeHomes } from '../stores/store/queries/volumes.ts';

export interface OpenPlacement {
  readonly db: Db;
  /** Redis client that both use: its order of commands lets the next reservation see freed capacity. */
  readonly general: Redis;
  readonly keys: Keys;
  readonly containers: ContainerControl;
  readonly machines: Machines;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FleetMetrics;
  readonly loops: LoopMetrics;
  readonly fence: () => number | undefined;
  /** Value of `LONGSHORE_CPU_WORK_ON_GPU_POOLS` for a pool. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  /** Whether the managed registry has built images. */
  readonly hasRegistry?: boolean;
}

/** Makes the parts of placement: the loop that places, and the counts of free capacity on machines. */
export function openPlacement(parts: OpenPlacement): {
  readonly accounting: Accounting;
  readonly placer: Placer;
  readonly reservations: Reservations;
  readonly quotas: Quotas;
} {
  const { db, general, keys, containers, machines, clock, log, metrics, loops, fence } = parts;
  const reservations = new Reservations({ client: general, keys });
  const accounting = new Accounting({ containers, machines, reservations, fence, clock, log, drift: metrics.drift });
  const quotas = new Quotas(db, clock);
  const placer = new Placer({
    containers,
    machines,
    reservations,
    accounting,
    clock,
    log,
    metrics,
    loops,
    fence,
    cpuWorkAllowed: parts.cpuWorkAllowed,
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
  return { accounting, placer, reservations, quotas };
}

/** Reads the setting. @param text - LONGSHORE_CPU_WORK_ON_GPU_POOLS */
export function cpuPoolsOf(text: string): (pool: string) => boolean {
  const pools = new Set(text.split(',').map((name) => name.trim()));
  return (pool) => pools.has('*') || pools.has(pool);
}
