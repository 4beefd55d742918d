// Triggers of the looks at schedules. Every replica looks on an alarm that it receives. The leader
// also looks once a second at schedules whose next tick has come, whether or not an alarm did.
// Active schedules are kept in memory with their next tick, so a second in which
// nothing is due costs no statement. They are read again when a deployment changes,
// and now and then. The leader also makes sure that there is an alarm for each.
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '#shared/clock.ts';
import { repeat } from '#shared/backoff.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import type { LeaderLease } from '../../cluster/leader.ts';
import type { Alarms } from '../../stores/queues/alarms.ts';
import type { Db } from '../../stores/store/db.ts';
import { listSchedules } from '../../stores/store/queries/schedules.ts';
import type { ScheduleRow } from '../../stores/store/queries/schedules.ts';
import type { ScheduleMetrics } from './metrics.ts';
import type { Ticker } from './service.ts';
import { Ticks } from '../../domain/ticks.ts';

const LOOK_EVERY_MS = 1_000;
/** Interval of reading all schedules again, for changes that no message told of and alarms that Redis lost. */
const READ_EVERY_MS = 30_000;
/** Most looks at a time. */
const AT_A_TIME = 8;
/** Schedules whose next tick is computed before other work gets its turn: each takes up to half a millisecond. */
const FOUND_AT_ONCE = 50;

export interface SchedulesParts {
  readonly db: Db;
  readonly targets: Pick<Targets, 'onChange'>;
  readonly leader: Pick<LeaderLease, 'isLeader' | 'onChange'>;
  readonly alarms: Pick<Alarms, 'listen' | 'setAll' | 'close'>;
  readonly ticker: Pick<Ticker, 'check'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<ScheduleMetrics, 'active'>;
  readonly lookEveryMs?: number;
}

interface Known {
  readonly when: string;
  readonly timezone: string;
  readonly tickedToMs: number;
  /** First tick after `tickedToMs`; null: none ever, or the schedule cannot be read. */
  readonly firstMs: number | null;
  /** Time of the next look; null: only an alarm causes one. */
  nextMs: number | null;
}

export class Schedules {
  readonly name = 'schedules';
  readonly #parts: SchedulesParts;
  readonly #abort = new AbortController();
  readonly #known = new Map<DeploymentId, Known>();
  #readAtMs = -Infinity;
  #isStale = true;
  #stopListening: readonly (() => void)[] = [];
  #running: Promise<void> | undefined;

  constructor(parts: SchedulesParts) {
    this.#parts = parts;
  }

  start(): void {
    const { targets, leader, lookEveryMs, log } = this.#parts;
    this.#stopListening = [
      targets.onChange(({ deploymentId, target }) => {
        if (target?.kind === 'schedule' || this.#known.has(deploymentId)) this.#isStale = true;
      }),
      // A new leader sets the alarms anew, and looks at schedules that nobody has looked at.
      leader.onChange(() => (this.#isStale = true)),
    ];
    this.#running = repeat(
      lookEveryMs ?? LOOK_EVERY_MS,
      this.#abort.signal,
      () => this.round(),
      (error) => log.warn({ err: error }, 'schedules could not be looked at, trying again'),
    );
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    for (const stop of this.#stopListening) stop();
    // The round under way may still start to listen to alarms.
    await this.#running;
    await this.#parts.alarms.close();
  }

  /** Runs one round, for the loop and for tests. */
  async round(): Promise<void> {
    const { clock, leader, log } = this.#parts;
    if (this.#isStale || clock.monotonicMs() - this.#readAtMs >= READ_EVERY_MS) await this.#read();
    if (!leader.isLeader()) return;
    const nowMs = clock.nowMs();
    const due = [...this.#known].filter(([, { nextMs }]) => nextMs !== null && nextMs <= nowMs).map(([id]) => id);
    for (let from = 0; from < due.length && !this.#abort.signal.aborted; from += AT_A_TIME) {
      const batch = due.slice(from, from + AT_A_TIME);
      const looked = await Promise.allSettled(batch.map((id) => this.#check(id)));
      const failed = looked.filter((one) => one.status === 'rejected');
      if (failed.length === 0) continue;
      log.warn({ err: failed[0]?.reason, schedules: failed.length }, 'schedules could not be looked at, trying again');
      // All looks of the batch failed, so a store is down: the others would fail as well, after a wait each.
      if (failed.length === batch.length) return;
    }
  }

  /** Looks at a schedule, and logs a failure. Never rejects. */
  async check(deploymentId: DeploymentId): Promise<void> {
    try {
      await this.#check(deploymentId);
    } catch (error) {
      this.#parts.log.warn({ err: error, deploymentId }, 'a schedule could not be looked at, trying again');
    }
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
    const { db, alarms, leader, clock, metrics } = this.#parts;
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
    if (this.#known.size > 0) alarms.listen();
    if (leader.isLeader()) await this.#setAlarms();
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

  /** Sets the alarms. Without them the looks go on, at most a second late. */
  async #setAlarms(): Promise<void> {
    const wanted = [...this.#known]
      .filter(([, { firstMs }]) => firstMs !== null)
      .map(([id, { when, timezone }]) => ({ id, pattern: when, timezone }));
    try {
      await this.#parts.alarms.setAll(wanted);
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'alarms of schedules could not be set, trying again');
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
