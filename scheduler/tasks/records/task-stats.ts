// Statistics of tasks that ended: sums of five minutes, put together for a range of time. Nothing is counted from
// tasks.
import type { DeploymentId, StubId } from '#shared/domain/ids.ts';
import { addBins, noBins } from '../../domain/task-histogram.ts';
import type { Db } from '../../stores/store/db.ts';
import { taskStats } from '../../stores/store/queries/task-stats.ts';
import type { TaskStatsFilter, TaskStatsRow } from '../../stores/store/queries/task-stats.ts';

/** Sums that one question reads. */
const MOST_ROWS = 20_000;

export interface TaskSums {
  calls: number;
  errors: number;
  readonly statuses: Record<string, number>;
  waits: number[];
  runs: number[];
}

export interface OwnSums extends TaskSums {
  readonly deploymentId: DeploymentId | null;
  readonly stubId: StubId;
}

export interface Statistics {
  readonly total: TaskSums;
  /** By the start of their interval, the oldest first. */
  readonly series: readonly (TaskSums & { readonly atMs: number })[];
  /** By deployment, or stub without one, those with most tasks first. */
  readonly groups: readonly OwnSums[];
  /** Calls by deployment or stub, and by the start of their interval. */
  readonly bars: ReadonlyMap<string, ReadonlyMap<number, number>>;
  readonly truncated: boolean;
}

export interface TaskStatisticsParts {
  readonly db: Pick<Db, 'reads'>;
  /** Resolves when the database has every record that replicas held, or after a deadline. */
  readonly caughtUp: () => Promise<unknown>;
}

export class TaskStatistics {
  readonly #parts: TaskStatisticsParts;

  constructor(parts: TaskStatisticsParts) {
    this.#parts = parts;
  }

  /** @param intervalMs - of the series, which begins at `fromMs` */
  async of(filter: TaskStatsFilter, intervalMs: number): Promise<Statistics> {
    await this.#parts.caughtUp();
    const rows = await taskStats(this.#parts.db.reads.of(filter.workspaceId), filter, MOST_ROWS);
    return { ...statisticsOf(rows, filter.fromMs, intervalMs), truncated: rows.length >= MOST_ROWS };
  }
}

const FAILED: ReadonlySet<string> = new Set(['ERROR', 'TIMEOUT', 'EXPIRED']);
const noSums = (): TaskSums => ({
  calls: 0,
  errors: 0,
  statuses: {},
  waits: noBins(),
  runs: noBins(),
});

/** Puts sums together. Pure. */
export function statisticsOf(
  rows: readonly TaskStatsRow[],
  fromMs: number,
  intervalMs: number,
): Omit<Statistics, 'truncated'> {
  const total = noSums();
  const series = new Map<number, TaskSums>();
  const groups = new Map<string, OwnSums>();
  const bars = new Map<string, Map<number, number>>();
  for (const row of rows) {
    const atMs = fromMs + Math.max(0, Math.floor((row.bucketMs - fromMs) / intervalMs)) * intervalMs;
    const key = row.deploymentId ?? row.stubId;
    const own = groups.get(key) ?? { deploymentId: row.deploymentId, stubId: row.stubId, ...noSums() };
    const then = series.get(atMs) ?? noSums();
    groups.set(key, own);
    series.set(atMs, then);
    for (const sums of [total, own, then]) add(sums, row);
    const ownBars = bars.get(key) ?? new Map<number, number>();
    bars.set(key, ownBars.set(atMs, (ownBars.get(atMs) ?? 0) + callsOf(row)));
  }
  return {
    total,
    series: [...series].toSorted(([a], [b]) => a - b).map(([atMs, sums]) => ({ atMs, ...sums })),
    groups: [...groups.values()].toSorted((a, b) => b.calls - a.calls),
    bars,
  };
}

/** Every task that ended has one wait. */
const callsOf = ({ waits }: TaskStatsRow): number => waits.reduce((sum, count) => sum + count, 0);

function add(sums: TaskSums, row: TaskStatsRow): void {
  const { status, waits, runs } = row;
  const calls = callsOf(row);
  sums.calls += calls;
  if (FAILED.has(status)) sums.errors += calls;
  sums.statuses[status] = (sums.statuses[status] ?? 0) + calls;
  sums.waits = addBins(sums.waits, waits);
  sums.runs = addBins(sums.runs, runs);
}
