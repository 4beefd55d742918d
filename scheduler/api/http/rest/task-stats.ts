import { timestampOf } from '#shared/api/fields.ts';
import { Overview, OverviewQuery, TaskStats, TaskStatsQuery } from '#shared/api/rest/task-stats.ts';
import { durationMsOf } from '#shared/domain/duration.ts';
import { AppError } from '#shared/errors.ts';
import type { Clock } from '#shared/clock.ts';
import { BUCKET_MS } from '../../../domain/task-histogram.ts';
import type { ContainerReads } from '../../../fleet/containers/container-view.ts';
import type { OwnSums, TaskStatistics, TaskSums } from '../../../tasks/records/task-stats.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface TaskStatsParts {
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly taskStatistics: Pick<TaskStatistics, 'of'>;
  readonly containers: Pick<ContainerReads, 'list'>;
}

const HOUR_MS = 3600_000;
const MOST_RANGE_MS = 31 * 24 * HOUR_MS;
const MOST_INTERVALS = 1_000;
const MOST_FAILURES = 10;
/** Intervals of the overview. */
const INTERVALS = 12;

/** Statistics of tasks that ended, from sums of five minutes. */
export function taskStatsRoute({ clock, taskStatistics }: TaskStatsParts): RestRoute {
  return restRoute({
    http: 'GET /task-stats/{ws}',
    summary: 'Statistics of tasks that ended: numbers, errors, waits and runs',
    grants: { scopes: ['read'], confinesToApp: true },
    query: TaskStatsQuery,
    answer: TaskStats,
    handle: async ({ caller, workspaceId, query }) => {
      const toMs = query.end ?? clock.nowMs();
      const fromMs = bucketOf(query.start ?? toMs - HOUR_MS);
      if (toMs <= fromMs) throw new AppError('invalid_query', 'query parameter end must be after start');
      if (toMs - fromMs > MOST_RANGE_MS + BUCKET_MS)
        throw new AppError('invalid_query', 'query parameter start must be at most 31 days before end');
      const intervalMs = durationOf(query.interval, 'interval', BUCKET_MS);
      if (intervalMs % BUCKET_MS !== 0)
        throw new AppError('invalid_query', 'query parameter interval must be a multiple of 5m');
      if ((toMs - fromMs) / intervalMs > MOST_INTERVALS)
        throw new AppError('invalid_query', `query parameter interval makes more than ${MOST_INTERVALS} intervals`);
      const { app_id: appId, stub_ids: stubIds, deployment_ids: deploymentIds } = query;
      const isHidden = appId !== undefined && isOutside(caller, appId);
      const filter = {
        workspaceId,
        fromMs,
        toMs,
        ...(stubIds === undefined ? {} : { stubIds }),
        ...(isHidden ? { stubIds: [] } : {}),
        ...(deploymentIds === undefined ? {} : { deploymentIds }),
        ...(appId === undefined ? {} : { appId }),
        ...ownApp(caller),
      };
      const { total, series, groups, truncated } = await taskStatistics.of(filter, intervalMs);
      return {
        start: timestampOf(fromMs) ?? '',
        end: timestampOf(toMs) ?? '',
        interval_seconds: intervalMs / 1000,
        total: shownSums(total),
        series: series.map((sums) => ({ at: timestampOf(sums.atMs) ?? '', ...shownSums(sums) })),
        groups: groups.map((sums) => ({ ...ownerOf(sums), ...shownSums(sums) })),
        truncated,
      };
    },
  });
}

/** The numbers of a workspace at a glance. */
export function overviewRoute({ clock, taskStatistics, containers }: TaskStatsParts): RestRoute {
  return restRoute({
    http: 'GET /overview/{ws}',
    summary: 'A workspace at a glance: tasks that ended, failures, containers, GPUs',
    grants: READERS_OF_ALL,
    query: OverviewQuery,
    answer: Overview,
    handle: async ({ workspaceId, query }) => {
      const rangeMs = durationOf(query.range, 'range', HOUR_MS);
      if (rangeMs > MOST_RANGE_MS) throw new AppError('invalid_query', 'query parameter range must be at most 744h');
      const toMs = clock.nowMs();
      const intervalMs = Math.max(BUCKET_MS, Math.ceil(rangeMs / INTERVALS / BUCKET_MS) * BUCKET_MS);
      const fromMs = bucketOf(toMs) + BUCKET_MS - INTERVALS * intervalMs;
      const { total, series, groups, truncated } = await taskStatistics.of({ workspaceId, fromMs, toMs }, intervalMs);
      const live = containers.list(workspaceId);
      const statuses: Record<string, number> = {};
      for (const { status } of live) statuses[status] = (statuses[status] ?? 0) + 1;
      return {
        start: timestampOf(fromMs) ?? '',
        end: timestampOf(toMs) ?? '',
        tasks: shownSums(total),
        series: Array.from({ length: INTERVALS }, (_, at) => {
          const atMs = fromMs + at * intervalMs;
          const sums = series.find((one) => one.atMs === atMs);
          return { at: timestampOf(atMs) ?? '', calls: sums?.calls ?? 0, errors: sums?.errors ?? 0 };
        }),
        failures: groups
          .filter(({ errors }) => errors > 0)
          .toSorted((a, b) => b.errors - a.errors)
          .slice(0, MOST_FAILURES)
          .map((sums) => ({ ...ownerOf(sums), calls: sums.calls, errors: sums.errors })),
        containers: statuses,
        truncated,
      };
    },
  });
}

const bucketOf = (ms: number): number => Math.floor(ms / BUCKET_MS) * BUCKET_MS;

/** @throws AppError `invalid_query` */
function durationOf(text: string | undefined, name: string, standardMs: number): number {
  if (text === undefined) return standardMs;
  const ms = durationMsOf(text);
  if (ms !== undefined && ms >= BUCKET_MS) return ms;
  throw new AppError('invalid_query', `query parameter ${name} must be a duration of at least 5m, such as 1h or 24h`);
}

const ownerOf = ({ deploymentId, stubId }: OwnSums) => ({ deployment_id: deploymentId, stub_id: stubId });

const shownSums = ({ calls, errors, statuses, waits, runs }: TaskSums) => ({
  calls,
  errors,
  statuses,
  wait_ms: waits,
  run_ms: runs,
});
