// Samples of pools, their sums by one and five minutes, and the buckets that reads make of them.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { MOST_SCANNED, POOL_STEPS, SAMPLE_STEP } from '../../../domain/series.ts';
import type { Segment } from '../../../domain/series.ts';
import type { Queryable } from '../db.ts';
import type { BucketRead } from './metric-samples.ts';

export interface PoolSample {
  readonly poolId: number;
  readonly machines: number;
  readonly containers: number;
  readonly gpus: number;
  readonly freeGpus: number;
  /** Machines that do not report their use are left out of all sums of use. */
  readonly cpuUsed: number;
  readonly cpuTotal: number;
  readonly memoryUsed: number;
  readonly memoryTotal: number;
  readonly diskUsed: number;
  readonly diskTotal: number;
  readonly hourlyCost: number;
}

const SUMS = {
  machines: 'machines',
  containers: 'containers',
  gpus: 'gpus',
  free_gpus: 'freeGpus',
  cpu_used: 'cpuUsed',
  cpu_total: 'cpuTotal',
  memory_used: 'memoryUsed',
  memory_total: 'memoryTotal',
  disk_used: 'diskUsed',
  disk_total: 'diskTotal',
  hourly_cost: 'hourlyCost',
} as const satisfies Readonly<Record<string, keyof PoolSample>>;
const NAMES = Object.keys(SUMS);
const SUM_STEPS = POOL_STEPS.filter((step) => step !== SAMPLE_STEP);

export const MAX_POOL_SAMPLE_BATCH = 1_000;

/** The first row of a pool for a moment counts: a second leader for a moment adds nothing. */
const INSERT = `with r as materialized (
    select * from json_to_recordset($1::json) as r (pool_id bigint, ${NAMES.map((name) => `${name} double precision`).join(', ')})),
  fresh as (
    insert into pool_samples (step, at, pool_id, samples, ${NAMES.join(', ')})
    select ${SAMPLE_STEP}, $2::timestamptz, r.pool_id, 1, ${NAMES.map((name) => `r.${name}`).join(', ')} from r
    on conflict do nothing
    returning *)
  insert into pool_samples as m (step, at, pool_id, samples, ${NAMES.join(', ')})
  select s.step, date_bin(make_interval(secs => s.step), f.at, to_timestamp(0)), f.pool_id, 1, ${NAMES.map((name) => `f.${name}`).join(', ')}
  from fresh f cross join unnest(array[${SUM_STEPS.join(', ')}]) as s (step)
  order by 1, 3
  on conflict (step, pool_id, at) do update set samples = m.samples + excluded.samples,
    ${NAMES.map((name) => `${name} = m.${name} + excluded.${name}`).join(', ')}`;

/** Adds a sample of each pool for this moment, and adds them to the sums, in one statement. */
export async function insertPoolSamples(db: Queryable, atMs: number, samples: readonly PoolSample[]): Promise<void> {
  if (samples.length === 0) return;
  if (samples.length > MAX_POOL_SAMPLE_BATCH) throw new RangeError(`at most ${MAX_POOL_SAMPLE_BATCH} pools at a time`);
  const records = samples.map((sample) => ({
    pool_id: sample.poolId,
    ...Object.fromEntries(Object.entries(SUMS).map(([name, field]) => [name, sample[field]])),
  }));
  await db.query(INSERT, [JSON.stringify(records), new Date(atMs)]);
}

export interface PoolBucket extends Omit<PoolSample, 'poolId'> {
  readonly keyMs: number;
  readonly name: string;
  /** Owner of the pool; null: shared. */
  readonly workspaceId: WorkspaceId | null;
}

/**
 * The statement that makes buckets of means, and its parameters. Exported for the test of its plan.
 * @param owner - undefined: every pool; null: the shared ones
 */
export function poolBucketsStatement(
  owner: WorkspaceId | null | undefined,
  segments: readonly Segment[],
  intervalMs: number,
  most: number = MOST_SCANNED,
): readonly [string, readonly unknown[]] {
  const params: unknown[] = [intervalMs];
  const param = (value: unknown): string => `$${params.push(value)}`;
  const columns = `m.at, m.pool_id, m.samples, ${NAMES.map((name) => `m.${name}`).join(', ')}`;
  const owned = owner === undefined ? '' : param(owner);
  const parts = segments.map(({ step, fromMs, toMs }) => {
    const rows = (of: string): string =>
      `select ${columns} from pool_samples m where m.step = ${step} ${of} and m.at >= ${param(new Date(fromMs))}
         and m.at < ${param(new Date(toMs))} order by m.at desc limit ${most + 1}`;
    if (owner === undefined) return `(${rows('')})`;
    return `(select m.* from pools p cross join lateral (${rows('and m.pool_id = p.id')}) m
      where p.workspace_id is not distinct from ${owned}::text order by m.at desc limit ${most + 1})`;
  });
  return [
    `with scanned as materialized (select * from (${parts.join(' union all ')}) u order by at desc limit ${most + 1}),
     kept as (select * from scanned order by at desc limit ${most}),
     buckets as (
       select (extract(epoch from at) * 1000)::bigint / $1::bigint * $1::bigint as key, pool_id,
         ${NAMES.map((name) => `(sum(${name}) / sum(samples))::float8 as ${name}`).join(', ')}
       from kept group by 1, 2)
     select (select count(*) from scanned)::int as scanned, b.*, p.name, p.workspace_id
     from (select 1) one left join (buckets b join pools p on p.id = b.pool_id) on true
     order by b.key, p.workspace_id nulls first, p.name`,
    params,
  ];
}

type RawPoolBucket = Readonly<Record<keyof typeof SUMS, number>> & {
  readonly scanned: number;
  readonly key: number | null;
  readonly name: string;
  readonly workspace_id: string | null;
};

/** Buckets of the pools' samples in these segments, in the order of their time, then of owners and names. */
export async function readPoolBuckets(
  db: Queryable,
  owner: WorkspaceId | null | undefined,
  segments: readonly Segment[],
  intervalMs: number,
  most: number = MOST_SCANNED,
): Promise<BucketRead<PoolBucket>> {
  const [sql, params] = poolBucketsStatement(owner, segments, intervalMs, most);
  const { rows } = await db.query<RawPoolBucket>(sql, params);
  const scanned = rows[0]?.scanned ?? 0;
  return {
    scanned: Math.min(scanned, most),
    truncated: scanned > most,
    buckets: rows
      .filter((row) => row.key !== null)
      .map((row) => ({
        keyMs: Number(row.key),
        name: row.name,
        workspaceId: row.workspace_id as WorkspaceId | null,
        machines: row.machines,
        containers: row.containers,
        gpus: row.gpus,
        freeGpus: row.free_gpus,
        cpuUsed: row.cpu_used,
        cpuTotal: row.cpu_total,
        memoryUsed: row.memory_used,
        memoryTotal: row.memory_total,
        diskUsed: row.disk_used,
        diskTotal: row.disk_total,
        hourlyCost: row.hourly_cost,
      })),
  };
}
