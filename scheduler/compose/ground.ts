import type { Clock } from '#shared/clock.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import type { SchedulerSettings } from '../config.ts';
import type { StallDetector } from '../fleet/stall.ts';
import type { Keys } from '../stores/queues/keys.ts';
import type { Stores } from './stores.ts';

/**
 * Common ground of all parts: settings and stores, the name by which
 * other replicas know this process, its clock, its log and its metrics.
 */
export interface Ground extends Stores {
  readonly settings: SchedulerSettings;
  readonly instance: InstanceId;
  readonly keys: Keys;
  readonly clock: Clock;
  /** Stalls of this process and steps of its clock: silence measured across one proves nothing. */
  readonly stall: StallDetector;
  readonly log: Log;
  readonly registry: Registry;
}
