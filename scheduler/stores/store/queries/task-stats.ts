// Sums of tasks that ended, by deployment or stub, five minutes and status. Written with the tasks' records, in the
// same transaction; never counted from tasks.
import type { DeploymentId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { FINAL_TASK_STATUSES } from '#shared/domain/status.ts';
import { BINS, BUCKET_MS, binOf, noBins, packBins } from '../../../domain/task-histogram.ts';
import type { Queryable } from '../db.ts';
import { arrayText, many } from '../rows.ts';
import type { TaskRecordRow } from './tasks.ts';

/** A task that ended. */
export type EndedRecord = Pick<
  TaskRecordRow,
  'workspaceId' | 'stubId' | 'deploymentId' | 'status' | 'createdAtMs' | 'startedAtMs' | 'endedAtMs'
>;

interface Sum {
  readonly workspaceId: WorkspaceId;
  readonly bucketMs: number;
  readonly stubId: StubId;
  readonly deploymentId: string;
  readonly status: string;
  calls: number;
  /** Waits, then runs. */
  readonly bins: number[];
}

/** Sums of tasks, in the order in which every writer locks their rows. */
export function sumsOf(ended: readonly EndedRecord[]): readonly Sum[] {
  const sums = new Map<string, Sum>();
  for (const record of ended) {
    const { workspaceId, stubId, status, createdAtMs, startedAtMs } = record;
    const endedAtMs = record.endedAtMs ?? createdAtMs;
    const bucketMs = Math.floor(endedAtMs / BUCKET_MS) * BUCKET_MS;
    const deploymentId = record.deploymentId ?? '';
    const key = `${workspaceId} ${bucketMs} ${stubId} ${deploymentId} ${status}`;
    const known = sums.get(key);
    const sum = known ?? {
      workspaceId,
      bucketMs,
      stubId,
      deploymentId,
      status,
      calls: 0,
      bins: noBins(2 * BINS),
    };
    if (known === undefined) sums.set(key, sum);
    sum.calls += 1;
    count(sum.bins, binOf((startedAtMs ?? endedAtMs) - createdAtMs));
    if (startedAtMs !== null) count(sum.bins, BINS + binOf(endedAtMs - startedAtMs));
  }
  return [...sums].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, sum]) => sum);
}

function count(bins: number[], bin: number): void {
  bins[bin] = (bins[bin] ?? 0) + 1;
}

/** All bins are one number, because adding arrays took a third of the statement's time. */
const ADD = `insert into task_stats (workspace_id, bucket, stub_id, deployment_id, status, calls, counts)
  select workspace_id, to_timestamp(bucket_s), stub_id, deployment_id, status, calls, counts
  from unnest($1::text[], $2::double precision[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::numeric[])
    as r (workspace_id, bucket_s, stub_id, deployment_id, status, calls, counts)
  on conflict (workspace_id, bucket, stub_id, deployment_id, status) do update
    set calls = task_stats.calls + excluded.calls, counts = task_stats.counts + excluded.counts`;

/** Adds tasks that ended to the sums. Call it once for each of them. */
export async function addTaskStats(tx: Queryable, ended: readonly EndedRecord[]): Promise<void> {
  if (ended.length === 0) return;
  const sums = sumsOf(ended);
  await tx.query(
    ADD,
    [
      arrayText(sums.map((sum) => sum.workspaceId)),
      arrayText(sums.map((sum) => sum.bucketMs / 1000)),
      arrayText(sums.map((sum) => sum.stubId)),
      arrayText(sums.map((sum) => sum.deploymentId)),
      arrayText(sums.map((sum) => sum.status)),
      arrayText(sums.map((sum) => sum.calls)),
      `{${sums.map((sum) => packBins(sum.bins)).join(',')}}`,
    ],
    { isPrepared: true },
  );
}

export interface TaskStatsFilter {
  readonly workspaceId: WorkspaceId;
  readonly fromMs: number;
  readonly toMs: number;
  readonly stubIds?: readonly string[];
  readonly deploymentIds?: readonly string[];
  /** Only stubs of this app. */
  readonly appId?: string;
}

/** Asks for a range of time. */
export interface TaskStatsQuestion extends TaskStatsFilter {
  /** Length of the intervals, which begin at `fromMs`. */
  readonly intervalMs: number;
  /** How many intervals of each deployment are told; 0: none. */
  readonly bars: number;
  /** Most sums that are added up, the newest first. */
  readonly mostSums: number;
  /** Most deployments and stubs, those with most tasks first. */
  readonly mostOwners: number;
}

/** A sum of an interval, or of a deployment or stub over the whole range. */
export interface TaskStatsRow {
  /** Null: of a deployment or stub. */
  readonly interval: number | null;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  /** Sums that it is made of. */
  readonly sums: number;
  readonly calls: number;
  readonly statuses: Readonly<Record<string, number>>;
  /** Calls by interval, of a deployment or stub. */
  readonly bars: readonly number[];
  /** Waits, then runs, as `unpackBins` reads them. */
  readonly counts: string;
}

interface Raw {
  interval: number | null;
  stub_id: string | null;
  deployment_id: string | null;
  sums: number;
  calls: number;
  statuses: string;
  bars: string;
  counts: string;
}

const callsWhere = (condition: string): string => `coalesce(sum(calls) filter (where ${condition}), 0)`;
const STATUSES = FINAL_TASK_STATUSES.map((status) => callsWhere(`status = '${status}'`)).join(', ');

/**
 * Adds up the sums of a range of time, by interval and by deployment or stub. The database adds, so that few rows come:
 * the intervals, then deployments and stubs, of which one more than the most may come.
 */
export function taskStats(db: Queryable, question: TaskStatsQuestion): Promise<TaskStatsRow[]> {
  const { workspaceId, fromMs, toMs, stubIds, deploymentIds, appId, intervalMs, bars } = question;
  const ofBars = Array.from({ length: bars }, (_, at) => callsWhere(`"interval" = ${at}`)).join(', ');
  return many(
    db,
    `with added as (
       select floor((extract(epoch from bucket)::double precision - $7) / $8)::integer as "interval",
         stub_id, deployment_id, status, calls, counts
       from task_stats
       where workspace_id = $1 and bucket >= $2 and bucket < $3
         and ($4::text[] is null or stub_id = any ($4::text[])) and ($5::text[] is null or deployment_id = any ($5::text[]))
         and ($6::text is null or stub_id in (select id from stubs where app_id = $6::text))
       order by bucket desc limit $9
     )
     select "interval", stub_id, deployment_id, count(*)::integer as sums, sum(calls) as calls,
       array[${STATUSES}]::text as statuses, array[${ofBars}]::bigint[]::text as bars, sum(counts)::text as counts
     from added group by grouping sets (("interval"), (stub_id, deployment_id))
     order by grouping("interval"), calls desc, deployment_id, stub_id limit $10`,
    [
      workspaceId,
      new Date(fromMs),
      new Date(toMs),
      stubIds === undefined ? null : arrayText(stubIds),
      deploymentIds === undefined ? null : arrayText(deploymentIds),
      appId ?? null,
      fromMs / 1000,
      intervalMs / 1000,
      question.mostSums,
      Math.ceil((toMs - fromMs) / intervalMs) + question.mostOwners + 1,
    ],
    (row: Raw) => {
      const statuses = numbersOf(row.statuses);
      return {
        interval: row.interval,
        stubId: (row.stub_id ?? '') as StubId,
        deploymentId: (row.deployment_id || null) as DeploymentId | null,
        sums: row.sums,
        calls: Number(row.calls),
        statuses: Object.fromEntries(
          FINAL_TASK_STATUSES.flatMap((status, at) => ((statuses[at] ?? 0) > 0 ? [[status, statuses[at] ?? 0]] : [])),
        ),
        bars: numbersOf(row.bars),
        counts: row.counts,
      };
    },
  );
}

const numbersOf = (array: string): number[] => JSON.parse(`[${array.slice(1, -1)}]`) as number[];
