// The leader's looks at schedules. Active schedules are kept in memory with their next tick. So the leader rests until
// the earliest of them, and a look at which nothing is due costs no statement. Schedules are read again when a
// deployment changes, and now and then. No rest is longer than a second, because wall clocks may be set.
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '#shared/clock.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { TargetChange } from '../../workspaces/deployments/targets.ts';
import type { Db } from '../../stores/store/db.ts';
import { listSchedules } from '../../stores/store/queries/schedules.ts';
import type { ScheduleRow } from '../../stores/store/queries/schedules.ts';
import type { ScheduleMetrics } from './metrics.ts';
import type { Ticker } from './service.ts';
import { Ticks } from '../../domain/ticks.ts';

/** Longest rest between two looks. */
export const LOOK_EVERY_MS = 1_000;
/** Interval of reading all schedules again, for changes that no message told of. */
const READ_EVERY_MS = 30_000;
/** Most looks at a time. */
const AT_A_TIME = 8;
/** Schedules whose next tick is computed before other work gets its turn: each takes up to half a millisecond. */
const FOUND_AT_ONCE = 50;

export interface SchedulesParts {
  readonly db: Db;
  readonly ticker: Pick<Ticker, 'check'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<ScheduleMetrics, 'active'>;
}

interface Known {
  readonly when: string;
  readonly timezone: string;
  readonly tickedToMs: number;
  /** First tick after `tickedToMs`; null: none ever, or the schedule cannot be read. */
  readonly firstMs: number | null;
  /** Time of the next look; null: none comes before the schedule changes. */
  nextMs: number | null;
}

export class Schedules {
  readonly #parts: SchedulesParts;
  readonly #known = new Map<DeploymentId, Known>();
  #readAtMs = -Infinity;
  #isStale = true;

  constructor(parts: SchedulesParts) {
    this.#parts = parts;
  }

  /** A deployment changed: the schedules are read anew where it is one. */
  changed({ deploymentId, target }: TargetChange): void {
    if (target?.kind === 'schedule' || this.#known.has(deploymentId)) this.#isStale = true;
  }

  /** This replica leads from now on, or no more: others may have looked meanwhile. */
  leads(isLeading: boolean): void {
    this.#isStale = true;
    if (!isLeading) this.#parts.metrics.active.set(0);
  }

  /** Looks at the schedules whose tick has come. */
  async round(signal?: AbortSignal): Promise<void> {
    const { clock, log } = this.#parts;
    if (this.#isStale || clock.monotonicMs() - this.#readAtMs >= READ_EVERY_MS) await this.#read();
    const nowMs = clock.nowMs();
    const due = [...this.#known].filter(([, { nextMs }]) => nextMs !== null && nextMs <= nowMs).map(([id]) => id);
    for (let from = 0; from < due.length && signal?.aborted !== true; from += AT_A_TIME) {
      const batch = due.slice(from, from + AT_A_TIME);
      const looked = await Promise.allSettled(batch.map((id) => this.#check(id)));
      const failed = looked.filter((one) => one.status === 'rejected');
      if (failed.length === 0) continue;
      log.warn({ err: failed[0]?.reason, schedules: failed.length }, 'schedules could not be looked at, trying again');
      // All looks of the batch failed, so a store is down: the others would fail as well, after a wait each.
      if (failed.length === batch.length) return;
    }
  }

  /** Milliseconds until the earliest tick to come; at most {@link LOOK_EVERY_MS}. Those that failed wait as long. */
  restMs(): number {
    const nowMs = this.#parts.clock.nowMs();
    let restMs = LOOK_EVERY_MS;
    for (const { nextMs } of this.#known.values())
      if (nextMs !== null && nextMs > nowMs) restMs = Math.min(restMs, nextMs - nowMs);
    return restMs;
  }

  async #check(deploymentId: DeploymentId): Promise<void> {
    try {
      const { nextMs } = await this.#parts.ticker.check(deploymentId);
      const known = this.#known.get(deploymentId);
      if (known !== undefined) known.nextMs = nextMs;
    } catch (error) {
      // The failed schedule goes to the end of the next round. If it alone fails, it then delays no other.
      const known = this.#known.get(deploymentId);
      if (known !== undefined && this.#known.delete(deploymentId)) this.#known.set(deploymentId, known);
      throw error;
    }
  }

  async #read(): Promise<void> {
    const { db, clock, metrics } = this.#parts;
    this.#isStale = false;
    try {
      const rows = await listSchedules(db);
      this.#readAtMs = clock.monotonicMs();
      const active = new Set(rows.map((row) => row.deploymentId));
      for (const id of this.#known.keys()) if (!active.has(id)) this.#known.delete(id);
      await this.#keep(rows);
      metrics.active.set(rows.length);
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
  }

  /**
   * Updates the schedules in memory. The next tick of an unchanged one is
   * not computed again: a thousand schedules take some tenths of a second.
   */
  async #keep(rows: readonly ScheduleRow[]): Promise<void> {
    let found = 0;
    for (const row of rows) {
      const { deploymentId, when, timezone, tickedToMs } = row;
      const known = this.#known.get(deploymentId);
      const isSame = known?.when === when && known.timezone === timezone && known.tickedToMs === tickedToMs;
      const firstMs = isSame ? known.firstMs : this.#firstOf(row);
      this.#known.set(deploymentId, { when, timezone, tickedToMs, firstMs, nextMs: firstMs });
      if (isSame) continue;
      found += 1;
      if (found % FOUND_AT_ONCE === 0) await turn();
    }
  }

  #firstOf(row: ScheduleRow): number | null {
    try {
      return new Ticks(row).next(row.tickedToMs) ?? null;
    } catch (error) {
      // The schedule was valid when its stub was made, under another version of the library or of the time zones.
      this.#parts.log.error({ err: error, deploymentId: row.deploymentId }, 'a schedule cannot be read any more');
      return null;
    }
  }
}
