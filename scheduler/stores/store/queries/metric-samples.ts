// Samples of containers' resource use, their sums by minute and hour, and the buckets that reads make of them.
import type { ContainerId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { CONTAINER_STEPS, MOST_SCANNED, SAMPLE_STEP } from '../../../domain/series.ts';
import type { Segment } from '../../../domain/series.ts';
import type { Queryable } from '../db.ts';

export interface NewSample {
  readonly atMs: number;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly containerId: ContainerId;
  /** Time that the deltas cover. */
  readonly intervalMs: number;
  /** Requested, as are the memory and the GPUs. */
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpuCount: number;
  readonly cpuUsed: number;
  readonly memoryRss: number;
  readonly memoryVms: number;
  readonly memorySwap: number;
  readonly gpuMemoryUsed: number;
  readonly gpuMemoryTotal: number;
  readonly diskRead: number;
  readonly diskWrite: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  readonly receivedPackets: number;
  readonly sentPackets: number;
}

/** Columns that add up, by the field of a sample. */
const SUMS = {
  interval_ms: 'intervalMs',
  cpu_used: 'cpuUsed',
  memory_rss: 'memoryRss',
  memory_vms: 'memoryVms',
  memory_swap: 'memorySwap',
  gpu_memory_used: 'gpuMemoryUsed',
  gpu_memory_total: 'gpuMemoryTotal',
  disk_read: 'diskRead',
  disk_write: 'diskWrite',
  received_bytes: 'receivedBytes',
  sent_bytes: 'sentBytes',
  received_packets: 'receivedPackets',
  sent_packets: 'sentPackets',
} as const satisfies Readonly<Record<string, keyof NewSample>>;
/** Columns that a container has for its life. */
const REQUESTED = { cpu_millicores: 'cpuMillicores', memory_bytes: 'memoryBytes', gpu_count: 'gpuCount' } as const;

const SUM_NAMES = Object.keys(SUMS);
const REQUESTED_NAMES = Object.keys(REQUESTED);
const NUMBERS = [...REQUESTED_NAMES, ...SUM_NAMES];
const COLUMNS = `workspace_id, stub_id, container_id, samples, ${NUMBERS.join(', ')}`;
const SUM_STEPS = CONTAINER_STEPS.filter((step) => step !== SAMPLE_STEP);

/** Most samples of one statement. */
export const MAX_SAMPLE_BATCH = 250;

/** Written once, and added to the sums once, however often a batch is repeated. Exported for the test of its plan. */
const INSERT = `with r as materialized (
    select * from json_to_recordset($1::json) as r (at_ms double precision, workspace_id text, stub_id text, container_id text,
      ${NUMBERS.map((name) => `${name} bigint`).join(', ')})),
  fresh as (
    insert into metric_samples (step, at, ${COLUMNS})
    select ${SAMPLE_STEP}, to_timestamp(r.at_ms / 1000), r.workspace_id, r.stub_id, r.container_id, 1, ${NUMBERS.map((name) => `r.${name}`).join(', ')} from r
    on conflict do nothing
    returning *)
  insert into metric_samples as m (step, at, ${COLUMNS})
  select s.step, date_bin(make_interval(secs => s.step), f.at, to_timestamp(0)), f.workspace_id, f.stub_id, f.container_id, count(*),
    ${REQUESTED_NAMES.map((name) => `max(f.${name})`).join(', ')}, ${SUM_NAMES.map((name) => `sum(f.${name})`).join(', ')}
  from fresh f cross join unnest(array[${SUM_STEPS.join(', ')}]) as s (step)
  group by 1, 2, 3, 4, 5 order by 1, 4, 2, 5
  on conflict (step, stub_id, at, container_id) do update set samples = m.samples + excluded.samples,
    ${SUM_NAMES.map((name) => `${name} = m.${name} + excluded.${name}`).join(', ')}`;

/** Adds samples, and adds them to the sums of their minutes and hours, in one statement. */
export async function insertSamples(db: Queryable, samples: readonly NewSample[]): Promise<void> {
  if (samples.length === 0) return;
  if (samples.length > MAX_SAMPLE_BATCH) throw new RangeError(`at most ${MAX_SAMPLE_BATCH} samples at a time`);
  const records = samples.map((sample) => ({
    at_ms: sample.atMs,
    workspace_id: sample.workspaceId,
    stub_id: sample.stubId,
    container_id: sample.containerId,
    ...Object.fromEntries(Object.entries({ ...REQUESTED, ...SUMS }).map(([name, field]) => [name, sample[field]])),
  }));
  await db.query(INSERT, [JSON.stringify(records)]);
}

/** Samples of a stub, or of a workspace. */
export interface SampleFilter {
  readonly workspaceId: WorkspaceId;
  readonly stubId?: StubId;
  readonly appId?: string;
  /** Kind of the stub, such as `endpoint`. */
  readonly stubKind?: string;
}

export interface SampleBucket {
  readonly keyMs: number;
  readonly samples: number;
  readonly containers: number;
  readonly cpuConcurrency: number;
  readonly gpuConcurrency: number;
  /** Means over samples. */
  readonly cpuPct: number;
  readonly cpuUsed: number;
  readonly cpuTotal: number;
  readonly memoryRss: number;
  readonly memoryVms: number;
  readonly memorySwap: number;
  readonly memoryTotal: number;
  readonly gpuMemoryUsed: number;
  readonly gpuMemoryTotal: number;
  readonly diskRead: number;
  readonly diskWrite: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  readonly receivedPackets: number;
  readonly sentPackets: number;
  /** Bytes in a second: the sum over containers of each one's mean. */
  readonly diskReadRate: number;
  readonly diskWriteRate: number;
  readonly receivedRate: number;
  readonly sentRate: number;
}

export interface BucketRead<Bucket> {
  /** Rows that were looked at. */
  readonly scanned: number;
  /** More rows than may be looked at: the newest of them count. */
  readonly truncated: boolean;
  readonly buckets: readonly Bucket[];
}

/**
 * The statement that makes buckets, and its parameters. Each segment is read by an index, newest first, and no further
 * than the bound; so is their union. Filters of a workspace's stubs follow the bound. Exported for the test of plans.
 */
export function bucketsStatement(
  filter: SampleFilter,
  segments: readonly Segment[],
  intervalMs: number,
  most: number = MOST_SCANNED,
): readonly [string, readonly unknown[]] {
  const { workspaceId, stubId, appId, stubKind } = filter;
  const params: unknown[] = [intervalMs, stubId ?? workspaceId, workspaceId];
  const param = (value: unknown): string => `$${params.push(value)}`;
  const parts = segments.map(
    ({ step, fromMs, toMs }) => `(select at, ${COLUMNS} from metric_samples
      where step = ${step} and ${stubId === undefined ? 'workspace_id' : 'stub_id'} = $2 and workspace_id = $3
        and at >= ${param(new Date(fromMs))} and at < ${param(new Date(toMs))}
      order by at desc limit ${most + 1})`,
  );
  const stubs = ['s.workspace_id = $3'];
  if (appId !== undefined) stubs.push(`s.app_id = ${param(appId)}`);
  if (stubKind !== undefined) stubs.push(`split_part(s.type, '/', 1) = ${param(stubKind)}`);
  const among = stubs.length === 1 ? '' : `where stub_id in (select s.id from stubs s where ${stubs.join(' and ')})`;
  const rate = (name: string): string => `sum(1000 * ${name} / interval_ms)`;
  const mean = (name: string): string => `sum(${name}) / sum(samples)`;
  return [
    `with scanned as materialized (select * from (${parts.join(' union all ')}) u order by at desc limit ${most + 1}),
     kept as (select * from (select * from scanned order by at desc limit ${most}) k ${among}),
     of_container as (
       select (extract(epoch from at) * 1000)::bigint / $1::bigint * $1::bigint as key, container_id, sum(samples)::float8 as samples,
         ${REQUESTED_NAMES.map((name) => `max(${name}) as ${name}`).join(', ')},
         greatest(sum(interval_ms), 1)::float8 as interval_ms,
         ${SUM_NAMES.filter((name) => name !== 'interval_ms')
           .map((name) => `sum(${name})::float8 as ${name}`)
           .join(', ')}
       from kept group by 1, 2),
     buckets as (
       select key, sum(samples) as samples, count(*)::float8 as containers, sum(cpu_millicores)::float8 as cpu_concurrency,
         sum(gpu_count)::float8 as gpu_concurrency,
         sum(100 * cpu_used / greatest(cpu_millicores, 1)) / sum(samples) as cpu_pct,
         sum(cpu_millicores * samples) / sum(samples) as cpu_total,
         sum(memory_bytes * samples) / sum(samples) as memory_total,
         ${MEANS.map((name) => `${mean(name)} as ${name}`).join(', ')},
         ${RATES.map((name) => `${rate(name)} as ${name}_rate`).join(', ')}
       from of_container group by key)
     select (select count(*) from scanned)::int as scanned, b.* from (select 1) one left join buckets b on true order by b.key`,
    params,
  ];
}

const MEANS = SUM_NAMES.filter((name) => name !== 'interval_ms');
const RATES = ['disk_read', 'disk_write', 'received_bytes', 'sent_bytes'];

interface RawBucket {
  readonly scanned: number;
  readonly key: number | null;
  readonly [column: string]: number | null;
}

/** Buckets of the samples in these segments, in the order of their time; empty ones are left out. */
export async function readBuckets(
  db: Queryable,
  filter: SampleFilter,
  segments: readonly Segment[],
  intervalMs: number,
  most: number = MOST_SCANNED,
): Promise<BucketRead<SampleBucket>> {
  const { rows } = await db.query<RawBucket>(...mutable(bucketsStatement(filter, segments, intervalMs, most)));
  const scanned = rows[0]?.scanned ?? 0;
  return {
    scanned: Math.min(scanned, most),
    truncated: scanned > most,
    buckets: rows.filter((row) => row.key !== null).map(bucketOf),
  };
}

const mutable = ([sql, params]: readonly [string, readonly unknown[]]): [string, readonly unknown[]] => [sql, params];

function bucketOf(row: RawBucket): SampleBucket {
  const number = (column: string): number => row[column] ?? 0;
  return {
    keyMs: Number(row.key),
    samples: number('samples'),
    containers: number('containers'),
    cpuConcurrency: number('cpu_concurrency'),
    gpuConcurrency: number('gpu_concurrency'),
    cpuPct: number('cpu_pct'),
    cpuUsed: number('cpu_used'),
    cpuTotal: number('cpu_total'),
    memoryRss: number('memory_rss'),
    memoryVms: number('memory_vms'),
    memorySwap: number('memory_swap'),
    memoryTotal: number('memory_total'),
    gpuMemoryUsed: number('gpu_memory_used'),
    gpuMemoryTotal: number('gpu_memory_total'),
    diskRead: number('disk_read'),
    diskWrite: number('disk_write'),
    receivedBytes: number('received_bytes'),
    sentBytes: number('sent_bytes'),
    receivedPackets: number('received_packets'),
    sentPackets: number('sent_packets'),
    diskReadRate: number('disk_read_rate'),
    diskWriteRate: number('disk_write_rate'),
    receivedRate: number('received_bytes_rate'),
    sentRate: number('sent_bytes_rate'),
  };
}
