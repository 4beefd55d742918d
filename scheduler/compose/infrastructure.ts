import type { Clock } from '#shared/clock.ts';
import { systemClock } from '#shared/clock.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import type { SchedulerSettings } from '../config.ts';
import { StallDetector } from '../fleet/stall.ts';
import { keysOf } from '../stores/queues/keys.ts';
import type { Keys } from '../stores/queues/keys.ts';
import { ReadMetrics } from '../stores/store/metrics.ts';
import type { Stores } from './stores.ts';

/**
 * Infrastructure of all parts: settings and stores, the name by which
 * other replicas know this process, its clock, its log and its metrics.
 */
export interface Infrastructure extends Stores {
  readonly settings: SchedulerSettings;
  readonly instance: InstanceId;
  readonly keys: Keys;
  readonly clock: Clock;
  /** Stalls of this process and steps of its clock: silence measured across one proves nothing. */
  readonly stall: StallDetector;
  readonly log: Log;
  readonly registry: Registry;
}

export function infrastructureOf(settings: SchedulerSettings, log: Log, stores: Stores): Infrastructure {
  const registry = new Registry();
  new ReadMetrics(registry, stores.db.reads);
  return {
    ...stores,
    settings,
    log,
    clock: systemClock,
    stall: new StallDetector(systemClock, log),
    instance: newInstanceId(),
    keys: keysOf(settings.LONGSHORE_REDIS_PREFIX),
    registry,
  };
}
