// Who looks at schedules, and when: this replica on every alarm it hears, and the leader once a second at those whose next tick has come, whether or not an alarm did. The active ones are kept in memory with their next
// tick, so a second in which nothing is due costs no statement; they are read again when a deployment changes and now and then. The leader also sees to it that there is an alarm for each.
import type { Clock } from '#shared/clock.ts';
import { repeat } from '#shared/backoff.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Targets } from '../deployments/targets.ts';
import type { LeaderLease } from '../leader.ts';
import type { Alarms } from '../queues/alarms.ts';
import type { Db } from '../store/db.ts';
import { listSchedules } from '../store/queries/schedules.ts';
import type { ScheduleMetrics } from './metrics.ts';
import type { Ticker } from './service.ts';
import { Ticks } from './ticks.ts';

const LOOK_EVERY_MS = 1_000;
/** Changes that no message told of, and alarms that Redis lost. */
const READ_EVERY_MS = 30_000;
/** Looks at a time. */
const AT_A_TIME = 8;

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
  /** null: never again. */
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
    await this.#parts.alarms.close();
    await this.#running;
  }

  /** One round; the loop's, and the tests'. */
  async round(): Promise<void> {
    const { clock, leader } = this.#parts;
    if (this.#isStale || clock.monotonicMs() - this.#readAtMs >= READ_EVERY_MS) await this.#read();
    if (!leader.isLeader()) return;
    const nowMs = clock.nowMs();
    const due = [...this.#known].filter(([, { nextMs }]) => nextMs !== null && nextMs <= nowMs).map(([id]) => id);
    for (let from = 0; from < due.length && !this.#abort.signal.aborted; from += AT_A_TIME) {
      await Promise.all(due.slice(from, from + AT_A_TIME).map((id) => this.look(id)));
    }
  }

  /** Never rejects. */
  async look(deploymentId: DeploymentId): Promise<void> {
    try {
      const { nextMs } = await this.#parts.ticker.look(deploymentId);
      const known = this.#known.get(deploymentId);
      if (known !== undefined) known.nextMs = nextMs;
    } catch (error) {
      this.#parts.log.warn({ err: error, deploymentId }, 'a schedule could not be looked at, trying again');
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
      for (const row of rows) {
        const { when, timezone } = row;
        this.#known.set(row.deploymentId, { when, timezone, nextMs: this.#nextOf(row) });
      }
      metrics.active.set(rows.length);
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
    if (this.#known.size > 0) alarms.listen();
    if (leader.isLeader()) await this.#setAlarms();
  }

  /** Without them the looks go on, a second late at most. */
  async #setAlarms(): Promise<void> {
    const wanted = [...this.#known].map(([id, { when, timezone }]) => ({ id, pattern: when, timezone }));
    try {
      await this.#parts.alarms.setAll(wanted);
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'alarms of schedules could not be set, trying again');
    }
  }

  #nextOf(row: { readonly deploymentId: DeploymentId; readonly tickedToMs: number } & Omit<Known, 'nextMs'>) {
    try {
      return new Ticks(row).next(row.tickedToMs) ?? null;
    } catch (error) {
      // It was checked when its stub was made, by another version of the library or of the time zones.
      this.#parts.log.error({ err: error, deploymentId: row.deploymentId }, 'a schedule cannot be read any more');
      return null;
    }
  }
}
