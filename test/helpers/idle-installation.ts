/** An installation in which nothing happens, as far as the gauges look at it: no store, no connection. */
import type { Redis } from 'ioredis';
import { systemClock } from '#shared/clock.ts';
import { createLog } from '#shared/log.ts';
import type { Autoscaler } from '#scheduler/control/autoscaler/loop.ts';
import type { GaugeParts } from '#scheduler/compose/gauges.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { Machines } from '#scheduler/fleet/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { Registry } from '#shared/metrics.ts';
import type { Db } from '#scheduler/stores/store/db.ts';

/** All inputs of the gauges but the registries, for a database without rows. */
export function anIdleInstallation(): Omit<GaugeParts, 'registry' | 'fleetMetrics'> {
  const log = createLog({ name: 'test', level: 'silent' });
  const played: Pick<Db, 'query'> = { query: () => Promise.resolve({ rows: [], rowCount: 0 }) };
  const db = played as Db;
  const metrics = new FleetMetrics(new Registry());
  const containers = new ContainerRegistry({ db, log, clock: systemClock });
  const machines = new Machines({ db, log, clock: systemClock, metrics, containers });
  const idle: Pick<Autoscaler, 'wanted' | 'degraded'> = { wanted: () => [], degraded: 0 };
  const redis = (): Redis => ({ status: 'ready', sendCommand: () => Promise.resolve() }) as unknown as Redis;
  return {
    machines,
    containers,
    autoscaler: idle as Autoscaler,
    placer: { shares: () => [], reservations: () => [] },
    db,
    hot: redis(),
    general: redis(),
    clock: systemClock,
    isLeader: () => true,
    leaderLoop: ({ name }) => ({ name }),
  };
}
