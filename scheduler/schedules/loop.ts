// Who looks at schedules, and when: this replica on every alarm it hears, and the leader once a second at those whose next tick has come, whether or not an alarm did. The active ones are kept in memory with their next
// tick, so a second in which nothing is due costs no statement; they are read again when a deployment changes and now and then. The leader also sees to it that there is an alarm for each.
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '#shared/clock.ts';
import { repeat } from '#shared/backoff.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Targets } from '../deployments/targets.ts';
import type { LeaderLease } from '../leader.ts';
import type { Alarms } from '../queues/alarms.ts';
import type { Db } from '../store/db.ts';
import { listSchedules } from '../store/queries/schedules.ts';
import type { ScheduleRow } from '../store/queries/schedules.ts';
import type { ScheduleMetrics } from './metrics.ts';
import type { Ticker } from './service.ts';
import { Ticks } from './ticks.ts';

const LOOK_EVERY_MS = 1_000;
/** Changes that no message told of, and alarms that Redis lost. */
const READ_EVERY_MS = 30_000;
/** Looks at a time. */
const AT_A_TIME = 8;
/** Schedules whose next tick is looked for before others get their turn: each takes up to half a millisecond. */
const FOUND_AT_ONCE = 50;

export interface SchedulesParts {
  readonly db: Db;
  readonly targets: Pick<Targets, 'onChange'>;
  readonly leader: Pick<LeaderLease, 'isLeader' | 'onChange'>;
  readonly alarms: Pick<Alarms, 'listen' | 'setAll' | 'close'>;
  readonly ticker: Pick<Ticker, 'look'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<ScheduleMetrics, 'active'>;
  readonly lookEveryMs?: number;
}

interface Known {
  readonly when: string;
  readonly timezone: string;
  readonly tickedToMs: number;
  /** The first tick after that; null: none ever, or nobody can read when. */
  readonly firstMs: number | null;
  /** When it is looked at next; null: not by itself. */
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
      // Who leads from now on sets the alarms anew, and looks at what nobody has looked at.
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
    // The round that runs may listen to alarms yet.
    await this.#running;
    await this.#parts.alarms.close();
  }

  /** One round; the loop's, and the tests'. */
  async round(): Promise<void> {
    const { clock, leader, log } = this.#parts;
    if (this.#isStale || clock.monotonicMs() - this.#readAtMs >= READ_EVERY_MS) await this.#read();
    if (!leader.isLeader()) return;
    const nowMs = clock.nowMs();
    const due = [...this.#known].filter(([, { nextMs }]) => nextMs !== null && nextMs <= nowMs).map(([id]) => id);
    for (let from = 0; from < due.length && !this.#abort.signal.aborted; from += AT_A_TIME) {
      const batch = due.slice(from, from + AT_A_TIME);
      const looked = await Promise.allSettled(batch.map((id) => this.#look(id)));
      const failed = looked.filter((one) => one.status === 'rejected');
      if (failed.length === 0) continue;
      log.warn({ err: failed[0]?.reason, schedules: failed.length }, 'schedules could not be looked at, trying again');
      // A store is away: the others fare no better, and each would wait for it.
      if (failed.length === batch.length) return;
    }
  }

  /** Never rejects. */
  async look(deploymentId: DeploymentId): Promise<void> {
    try {
      await this.#look(deploymentId);
    } catch (error) {
      this.#parts.log.warn({ err: error, deploymentId }, 'a schedule could not be looked at, trying again');
    }
  }

  async #look(deploymentId: DeploymentId): Promise<void> {
    try {
      const { nextMs } = await this.#parts.ticker.look(deploymentId);
      const known = this.#known.get(deploymentId);
      if (known !== undefined) known.nextMs = nextMs;
    } catch (error) {
      // The last of the next round: it may be the only one that fails, and holds up nobody then.
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

  /** What has not changed is not looked for again: a thousand schedules take some tenths of a second. */
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

  /** Without them the looks go on, a second late at most. */
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
      // It was checked when its stub was made, by another version of the library or of the time zones.
      this.#parts.log.error({ err: error, deploymentId: row.deploymentId }, 'a schedule cannot be read any more');
      return null;
    }
  }
}
