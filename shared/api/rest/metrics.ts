// Series of metrics. Field names are those of the interface (reference, REST §2.9, §2.10 and §8).
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Time } from './lists.ts';
import { QueryId, QueryText } from './query.ts';

const Value = (description: string) => Type.Object({ value: Type.Number() }, { description });

/** Metrics of a bucket beside its key and its number of samples. */
export const METRICS = {
  container_count: Value('distinct containers'),
  cpu_concurrency: Value('requested millicores of these containers'),
  gpu_concurrency: Value('GPUs of these containers'),
  disk_read_bytes_per_second_avg: Value("sum of the containers' mean rates"),
  disk_write_bytes_per_second_avg: Value("sum of the containers' mean rates"),
  network_recv_bytes_per_second_avg: Value("sum of the containers' mean rates"),
  network_sent_bytes_per_second_avg: Value("sum of the containers' mean rates"),
  cpu_pct_avg: Value('used of the requested cores, from 0; above 100 where a container may use more'),
  cpu_used_avg: Value('millicores'),
  cpu_total_avg: Value('requested millicores'),
  memory_rss_bytes_avg: Value('anonymous and shared memory'),
  memory_vms_bytes_avg: Value('address space'),
  memory_swap_bytes_avg: Value('mean over samples'),
  memory_total_bytes_avg: Value('limit'),
  gpu_memory_used_bytes_avg: Value('of all GPUs of a container together'),
  gpu_memory_total_bytes_avg: Value('of all GPUs of a container together'),
  disk_read_bytes_avg: Value('in a sample'),
  disk_write_bytes_avg: Value('in a sample'),
  network_recv_bytes_avg: Value('in a sample'),
  network_sent_bytes_avg: Value('in a sample'),
  network_recv_packets_avg: Value('in a sample'),
  network_sent_packets_avg: Value('in a sample'),
};

export const MetricBucket = Type.Object({
  key: Count('begin of the bucket, epoch milliseconds'),
  key_as_string: Time(),
  doc_count: Count('samples'),
  ...METRICS,
});
export type MetricBucket = Static<typeof MetricBucket>;

const SCANNED = {
  scanned_records: Count('stored rows that were looked at, each a sample or the sum of a minute or an hour'),
  truncated: Type.Boolean({ description: 'there were more rows than may be looked at: only the newest count' }),
};

export const MetricSeries = Type.Object({
  ...SCANNED,
  timeseries: Type.Object({ aggregation_buckets: Type.Array(MetricBucket) }),
});
export type MetricSeries = Static<typeof MetricSeries>;

const RANGE = {
  start: QueryText('required: RFC 3339, inclusive'),
  end: QueryText('required: RFC 3339, exclusive; at most 1000 intervals after start'),
};
const DURATION = 'a duration from 5s, such as 30s or 1h30m, or minute or hour';

export const StubSeriesQuery = Type.Object({
  stub_id: QueryId('required'),
  ...RANGE,
  interval: QueryText(`${DURATION}; 1h when absent`),
});
export type StubSeriesQuery = Static<typeof StubSeriesQuery>;

export const WorkspaceSeriesQuery = Type.Object({
  ...RANGE,
  interval: QueryText(`${DURATION}; 1m when absent`),
  stub_type: QueryText('kind of the stubs, such as endpoint, or a type of theirs'),
  app_id: QueryId(),
});
export type WorkspaceSeriesQuery = Static<typeof WorkspaceSeriesQuery>;

export const PoolSeriesQuery = Type.Object({
  start: RANGE.start,
  end: QueryText('required: RFC 3339, exclusive; at most 8 days and 1000 intervals after start'),
  interval: QueryText('a duration from 5s to 2h; 10s when absent'),
});
export type PoolSeriesQuery = Static<typeof PoolSeriesQuery>;

export const PoolMetric = Type.Object({
  workspace_id: Type.String({ description: 'owner of the pool; empty: shared' }),
  pool_name: Type.String(),
  machine_count: Count(),
  container_count: Count(),
  gpu_count: Count(),
  free_gpu_count: Count(),
  cpu_utilization_pct: Type.Number({ description: 'weighted by cores, from 0 to 100' }),
  memory_utilization_pct: Type.Number({ description: 'from 0 to 100' }),
  gpu_utilization_pct: Type.Number({ description: 'GPUs that containers have, from 0 to 100' }),
  disk_usage_pct: Type.Number({ description: 'of the file systems that hold images, from 0 to 100' }),
  hourly_cost: Type.Number({ description: "machines times the pool's hourlyCost" }),
  estimated_cost: Type.Number({ description: 'of the interval' }),
});
export type PoolMetric = Static<typeof PoolMetric>;

export const PoolSeries = Type.Object({
  workspaces: Type.Array(Type.String(), {
    description: 'owners of the pools that the answer has; shared ones have none',
  }),
  points: Type.Array(
    Type.Object({
      timestamp: Count('begin of the interval, epoch milliseconds'),
      pools: Type.Array(PoolMetric),
    }),
  ),
  ...SCANNED,
});
export type PoolSeries = Static<typeof PoolSeries>;
