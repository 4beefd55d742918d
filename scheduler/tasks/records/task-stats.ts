// Statistics of tasks that ended: sums of five minutes, added up by the database. Nothing is counted from tasks.
// Invariants: an answer serves every reader of the same question for a second at least, and for ten times the time that
// it took. A workspace has one reading at a time, and readings take a quarter of its time at most. No step in this
// process takes more than a few milliseconds.
import { setImmediate, setTimeout } from 'node:timers/promises';
import type { Clock } from '#shared/clock.ts';
import type { DeploymentId, StubId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { KeptAnswers } from '#shared/kept-answers.ts';
import { FairLine } from '#shared/fair-line.ts';
import { BINS, BUCKET_MS, addBins, noBins, percentileOf, unpackBins } from '../../domain/task-histogram.ts';
import { DEAD_STATUSES } from '../../domain/task-inputs.ts';
import type { Db } from '../../stores/store/db.ts';
import { taskStats } from '../../stores/store/queries/task-stats.ts';
import type { TaskStatsFilter, TaskStatsRow } from '../../stores/store/queries/task-stats.ts';

/** Sums that one question adds up. */
const MOST_SUMS = 20_000;
/** Deployments and stubs of an answer. */
const MOST_OWNERS = 1_000;
/** Rows between two turns of the event loop. */
const ROWS_AT_ONCE = 100;
const KEPT_MS = 1_000;
const LONGEST_KEPT_MS = 5_000;
/** A workspace's next reading waits for so many times the time of the last one. */
const REST_TIMES = 3;
/** Answers that are kept, and all of their intervals and owners: some 20 MB. */
const MOST_KEPT = 500;
const MOST_KEPT_ROWS = 50_000;

/** In milliseconds; null: there was none. */
export interface Spans {
  readonly p50: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
}

export interface TaskSums {
  readonly calls: number;
  readonly errors: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly waits: Spans;
  readonly runs: Spans;
}

export interface OwnSums extends TaskSums {
  readonly deploymentId: DeploymentId | null;
  readonly stubId: StubId;
  /** Calls by interval, of as many intervals as were asked for. */
  readonly bars: readonly number[];
}

export interface Statistics {
  readonly total: TaskSums;
  /** By the start of their interval, the oldest first. */
  readonly series: readonly (TaskSums & { readonly atMs: number })[];
  /** By deployment, or stub without one, those with most tasks first. */
  readonly groups: readonly OwnSums[];
  /** Whether something was left out: older sums, or deployments and stubs. */
  readonly truncated: boolean;
}

export interface TaskStatisticsParts {
  readonly db: Pick<Db, 'reads'>;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  /** Resolves when the database has every record that replicas held, or after a deadline. */
  readonly caughtUp: () => Promise<unknown>;
}

export class TaskStatistics {
  readonly #parts: TaskStatisticsParts;
  readonly #kept: KeptAnswers<string, Statistics>;
  readonly #line = new FairLine({
    atOnce: 1_000,
    atOnceOfOne: 1,
    mostWaiting: 1_000,
    mostWaitingOfOne: 32,
    waitMs: 5_000,
    refusal: () => new AppError('database_busy', 'too many readings of statistics of this workspace wait'),
  });

  constructor(parts: TaskStatisticsParts) {
    this.#parts = parts;
    this.#kept = new KeptAnswers({
      clock: parts.clock,
      most: MOST_KEPT,
      leastMs: KEPT_MS,
      longestMs: LONGEST_KEPT_MS,
      size: { of: ({ series, groups }) => series.length + groups.length, most: MOST_KEPT_ROWS },
    });
  }

  /**
   * @param intervalMs - of the series, which begins at `fromMs`
   * @param bars - intervals whose calls are told for each deployment
   * @throws AppError `database_busy`
   */
  async of(filter: TaskStatsFilter, intervalMs: number, bars = 0): Promise<Statistics> {
    // Sums are of five minutes, so all ends within the same five minutes ask for the same.
    const asked = { ...filter, toMs: Math.ceil(filter.toMs / BUCKET_MS) * BUCKET_MS };
    const { workspaceId, fromMs, toMs, stubIds, deploymentIds, appId } = asked;
    const key = JSON.stringify([workspaceId, fromMs, toMs, stubIds, deploymentIds, appId, intervalMs, bars]);
    return await this.#kept.of(key, () => this.#inTurn(asked, intervalMs, bars));
  }

  /** Reads at the workspace's turn. The turn lasts longer than the reading. */
  async #inTurn(filter: TaskStatsFilter, intervalMs: number, bars: number): Promise<Statistics> {
    await this.#parts.caughtUp();
    const { clock } = this.#parts;
    return await new Promise<Statistics>((resolve, reject) => {
      const turn = this.#line.run(filter.workspaceId, async () => {
        const beganMs = clock.monotonicMs();
        const reading = this.#read(filter, intervalMs, bars);
        resolve(reading);
        await reading.catch(() => undefined);
        await setTimeout(REST_TIMES * (clock.monotonicMs() - beganMs), undefined, { ref: false });
      });
      turn.catch(reject);
    });
  }

  async #read(filter: TaskStatsFilter, intervalMs: number, bars: number): Promise<Statistics> {
    const question = { ...filter, intervalMs, bars, mostSums: MOST_SUMS, mostOwners: MOST_OWNERS };
    const rows = await taskStats(this.#parts.db.reads.of(filter.workspaceId), question);
    return await statisticsOf(rows, filter, intervalMs);
  }
}

/**
 * Reads spans from sums, and gives the event loop its turns.
 * @param rows - intervals before deployments and stubs
 */
export async function statisticsOf(
  rows: readonly TaskStatsRow[],
  { fromMs }: Pick<TaskStatsFilter, 'fromMs'>,
  intervalMs: number,
): Promise<Statistics> {
  const series: (TaskSums & { readonly atMs: number })[] = [];
  const groups: OwnSums[] = [];
  const bins = noBins(2 * BINS);
  const statuses: Record<string, number> = {};
  let sums = 0;
  for (const [at, row] of rows.entries()) {
    if (at > 0 && at % ROWS_AT_ONCE === 0) await setImmediate();
    const own = unpackBins(row.counts, 2 * BINS);
    if (row.interval === null) {
      const { deploymentId, stubId, bars } = row;
      groups.push({ deploymentId, stubId, bars, ...sumsOf(row.statuses, own) });
      continue;
    }
    series.push({ atMs: fromMs + row.interval * intervalMs, ...sumsOf(row.statuses, own) });
    sums += row.sums;
    addBins(bins, own);
    for (const [status, calls] of Object.entries(row.statuses)) statuses[status] = (statuses[status] ?? 0) + calls;
  }
  return {
    total: sumsOf(statuses, bins),
    series: series.toSorted((a, b) => a.atMs - b.atMs),
    groups: groups.slice(0, MOST_OWNERS),
    truncated: sums >= MOST_SUMS || groups.length > MOST_OWNERS,
  };
}

function sumsOf(statuses: Readonly<Record<string, number>>, bins: readonly number[]): TaskSums {
  let calls = 0;
  for (const status in statuses) calls += statuses[status] ?? 0;
  let errors = 0;
  for (const status of DEAD_STATUSES) errors += statuses[status] ?? 0;
  return { calls, errors, statuses, waits: spansOf(bins.slice(0, BINS)), runs: spansOf(bins.slice(BINS)) };
}

const spansOf = (bins: readonly number[]): Spans => ({
  p50: percentileOf(bins, 0.5),
  p95: percentileOf(bins, 0.95),
  p99: percentileOf(bins, 0.99),
});
