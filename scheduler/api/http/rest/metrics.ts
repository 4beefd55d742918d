// Series of metrics: of a stub, of a workspace, of pools. Texts of refusals are those of the interface (REST §8).
import { timestampOf } from '#shared/api/fields.ts';
import {
  MetricSeries,
  PoolSeries,
  PoolSeriesQuery,
  StubSeriesQuery,
  WorkspaceSeriesQuery,
} from '#shared/api/rest/metrics.ts';
import type { MetricBucket, PoolMetric } from '#shared/api/rest/metrics.ts';
import { durationMsOf } from '#shared/domain/duration.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import { MOST_BUCKETS } from '../../../domain/series.ts';
import type { SeriesRange, SeriesReads } from '../../../fleet/series/series-reads.ts';
import type { BucketRead, SampleBucket } from '../../../stores/store/queries/metric-samples.ts';
import type { PoolBucket } from '../../../stores/store/queries/pool-samples.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { timeMsOf } from './query.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface MetricRouteParts {
  readonly series: SeriesReads;
  readonly directory: Pick<Directory, 'stub'>;
}

const SECOND_MS = 1_000;
const LEAST_INTERVAL_MS = 5 * SECOND_MS;
const MOST_POOL_INTERVAL_MS = 2 * 3600 * SECOND_MS;
const MOST_POOL_RANGE_MS = 8 * 86_400 * SECOND_MS;
const NAMED_INTERVALS: Readonly<Record<string, string>> = { minute: '1m', hour: '1h' };

export const metricRoutes = ({ series, directory }: MetricRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /metrics/{ws}/stub-timeseries',
    grants: READERS_OF_ALL,
    summary: 'Resource use of the containers of a stub',
    query: StubSeriesQuery,
    answer: MetricSeries,
    errors: ['not_found'],
    handle: async ({ workspaceId, query }) => {
      if (query.stub_id === undefined) throw badQuery('query parameter stub_id is required');
      const range = rangeOf(query, '1h');
      const stub = isUuid(query.stub_id) ? await directory.stub(query.stub_id as StubId) : undefined;
      if (stub === undefined || stub.workspaceId !== workspaceId) throw new AppError('not_found', 'stub not found');
      return seriesOf(await series.stub(workspaceId, stub.id, range));
    },
  }),
  restRoute({
    http: 'GET /metrics/{ws}/workspace-timeseries',
    grants: READERS_OF_ALL,
    summary: 'Resource use of the containers of a workspace',
    query: WorkspaceSeriesQuery,
    answer: MetricSeries,
    handle: async ({ workspaceId, query }) => {
      const range = rangeOf(query, '1m');
      const filter = {
        ...(query.app_id === undefined ? {} : { appId: query.app_id }),
        ...(query.stub_type === undefined ? {} : { stubKind: kindOf(query.stub_type) }),
      };
      return seriesOf(await series.workspace(workspaceId, filter, range));
    },
  }),
  restRoute({
    http: 'GET /metrics/{ws}/pool-timeseries',
    grants: READERS_OF_ALL,
    summary: "Machines, use and cost of the workspace's pools; of all pools for an administrator's own workspace",
    query: PoolSeriesQuery,
    answer: PoolSeries,
    handle: async ({ caller, workspaceId, query }) => {
      const range = rangeOf(query, '10s');
      if (NAMED_INTERVALS[query.interval ?? ''] !== undefined || range.intervalMs > MOST_POOL_INTERVAL_MS)
        throw badQuery('Invalid metrics interval: it must be a duration from 5s to 2h');
      if (range.toMs - range.fromMs > MOST_POOL_RANGE_MS)
        throw badQuery('Invalid metrics time range: it must be at most 8 days');
      const isEverybodys = caller.isAdmin && caller.workspaceId === workspaceId;
      const read = await series.pools(workspaceId, isEverybodys ? undefined : workspaceId, range);
      const points = [...Map.groupBy(read.buckets, ({ keyMs }) => keyMs)].map(([timestamp, pools]) => ({
        timestamp,
        pools: pools.map((pool) => poolMetricOf(pool, range.intervalMs)),
      }));
      return {
        workspaces: isEverybodys ? ownersOf(read) : [workspaceId],
        points,
        scanned_records: read.scanned,
        truncated: read.truncated,
      };
    },
  }),
];

const badQuery = (text: string): AppError => new AppError('invalid_query', text);

/** @throws AppError `invalid_query` */
function rangeOf(
  query: { readonly start?: string; readonly end?: string; readonly interval?: string },
  standard: string,
): SeriesRange {
  const fromMs = query.start === undefined ? undefined : timeMsOf(query.start);
  if (fromMs === undefined || fromMs < 0) throw badQuery('Invalid start time');
  const toMs = query.end === undefined ? undefined : timeMsOf(query.end);
  if (toMs === undefined) throw badQuery('Invalid end time');
  if (toMs <= fromMs) throw badQuery('Invalid metrics time range');
  const said = query.interval ?? standard;
  const intervalMs = durationMsOf(NAMED_INTERVALS[said] ?? said);
  if (intervalMs === undefined || intervalMs < LEAST_INTERVAL_MS)
    throw badQuery('Invalid metrics interval: it must be a duration of at least 5s, such as 30s, 1m or 1h');
  if ((toMs - fromMs) / intervalMs > MOST_BUCKETS)
    throw badQuery(`Invalid metrics time range: more than ${MOST_BUCKETS} intervals`);
  return { fromMs, toMs, intervalMs };
}

const ownersOf = ({ buckets }: BucketRead<PoolBucket>): WorkspaceId[] =>
  [...new Set(buckets.flatMap(({ workspaceId }) => workspaceId ?? []))].toSorted();

const seriesOf = ({ scanned, truncated, buckets }: BucketRead<SampleBucket>): MetricSeries => ({
  scanned_records: scanned,
  truncated,
  timeseries: { aggregation_buckets: buckets.map(bucketOf) },
});

function bucketOf(bucket: SampleBucket): MetricBucket {
  return {
    key: bucket.keyMs,
    key_as_string: timestampOf(bucket.keyMs),
    doc_count: bucket.samples,
    container_count: { value: bucket.containers },
    cpu_concurrency: { value: bucket.cpuConcurrency },
    gpu_concurrency: { value: bucket.gpuConcurrency },
    disk_read_bytes_per_second_avg: { value: bucket.diskReadRate },
    disk_write_bytes_per_second_avg: { value: bucket.diskWriteRate },
    network_recv_bytes_per_second_avg: { value: bucket.receivedRate },
    network_sent_bytes_per_second_avg: { value: bucket.sentRate },
    cpu_pct_avg: { value: bucket.cpuPct },
    cpu_used_avg: { value: bucket.cpuUsed },
    cpu_total_avg: { value: bucket.cpuTotal },
    memory_rss_bytes_avg: { value: bucket.memoryRss },
    memory_vms_bytes_avg: { value: bucket.memoryVms },
    memory_swap_bytes_avg: { value: bucket.memorySwap },
    memory_total_bytes_avg: { value: bucket.memoryTotal },
    gpu_memory_used_bytes_avg: { value: bucket.gpuMemoryUsed },
    gpu_memory_total_bytes_avg: { value: bucket.gpuMemoryTotal },
    disk_read_bytes_avg: { value: bucket.diskRead },
    disk_write_bytes_avg: { value: bucket.diskWrite },
    network_recv_bytes_avg: { value: bucket.receivedBytes },
    network_sent_bytes_avg: { value: bucket.sentBytes },
    network_recv_packets_avg: { value: bucket.receivedPackets },
    network_sent_packets_avg: { value: bucket.sentPackets },
  };
}

/** Percent of a part; 0 of nothing. */
const pct = (part: number, whole: number): number => (whole > 0 ? (100 * part) / whole : 0);

function poolMetricOf(bucket: PoolBucket, intervalMs: number): PoolMetric {
  return {
    workspace_id: bucket.workspaceId ?? '',
    pool_name: bucket.name,
    machine_count: Math.round(bucket.machines),
    container_count: Math.round(bucket.containers),
    gpu_count: Math.round(bucket.gpus),
    free_gpu_count: Math.round(bucket.freeGpus),
    cpu_utilization_pct: pct(bucket.cpuUsed, bucket.cpuTotal),
    memory_utilization_pct: pct(bucket.memoryUsed, bucket.memoryTotal),
    gpu_utilization_pct: pct(bucket.gpus - bucket.freeGpus, bucket.gpus),
    disk_usage_pct: pct(bucket.diskUsed, bucket.diskTotal),
    hourly_cost: bucket.hourlyCost,
    estimated_cost: (bucket.hourlyCost * intervalMs) / (3600 * SECOND_MS),
  };
}
