// Sums of tasks that ended, by deployment or stub, five minutes and status. Written with the tasks' records, in the
// same transaction; never counted from tasks.
import type { DeploymentId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { BINS, BUCKET_MS, binOf, noBins } from '../../../domain/task-histogram.ts';
import type { Queryable } from '../db.ts';
import { arrayText, many, msOf } from '../rows.ts';
import type { TaskRecordRow } from './tasks.ts';

/** A task that ended. */
export type EndedRecord = Pick<
  TaskRecordRow,
  'workspaceId' | 'stubId' | 'deploymentId' | 'status' | 'createdAtMs' | 'startedAtMs' | 'endedAtMs' | 'durationMs'
>;

interface Sum {
  readonly workspaceId: WorkspaceId;
  readonly bucketMs: number;
  readonly stubId: StubId;
  readonly deploymentId: string;
  readonly status: string;
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
      bins: noBins(2 * BINS),
    };
    if (known === undefined) sums.set(key, sum);
    count(sum.bins, binOf((startedAtMs ?? endedAtMs) - createdAtMs));
    if (startedAtMs !== null) count(sum.bins, BINS + binOf(record.durationMs ?? endedAtMs - startedAtMs));
  }
  return [...sums].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, sum]) => sum);
}

function count(bins: number[], bin: number): void {
  bins[bin] = (bins[bin] ?? 0) + 1;
}

/** An array of both sorts of bins costs half of two. */
const ADD = `insert into task_stats (workspace_id, bucket, stub_id, deployment_id, status, bins)
  select workspace_id, to_timestamp(bucket_s), stub_id, deployment_id, status, bins::integer[]
  from unnest($1::text[], $2::double precision[], $3::text[], $4::text[], $5::text[], $6::text[])
    as r (workspace_id, bucket_s, stub_id, deployment_id, status, bins)
  on conflict (workspace_id, bucket, stub_id, deployment_id, status) do update
    set bins = array(select a + b from unnest(task_stats.bins, excluded.bins) as u (a, b))`;

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
      arrayText(sums.map((sum) => `{${sum.bins.join(',')}}`)),
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

/** A sum of tasks that ended in the five minutes. */
export interface TaskStatsRow {
  readonly bucketMs: number;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly status: string;
  /** Numbers of tasks by their span from creation to start, or to the end where they never started. */
  readonly waits: readonly number[];
  /** Numbers of tasks that started, by their span from start to end. */
  readonly runs: readonly number[];
}

interface Raw {
  bucket: Date;
  stub_id: string;
  deployment_id: string;
  status: string;
  bins: number[];
}

/** Sums of a range of time. @param limit - most rows, the newest first */
export function taskStats(db: Queryable, filter: TaskStatsFilter, limit: number): Promise<TaskStatsRow[]> {
  const { workspaceId, fromMs, toMs, stubIds, deploymentIds, appId } = filter;
  return many(
    db,
    `select bucket, stub_id, deployment_id, status, bins from task_stats
     where workspace_id = $1 and bucket >= $2 and bucket < $3
       and ($4::text[] is null or stub_id = any ($4::text[])) and ($5::text[] is null or deployment_id = any ($5::text[]))
       and ($6::text is null or stub_id in (select id from stubs where app_id = $6::text))
     order by bucket desc, stub_id, deployment_id, status limit $7`,
    [
      workspaceId,
      new Date(fromMs),
      new Date(toMs),
      stubIds === undefined ? null : arrayText(stubIds),
      deploymentIds === undefined ? null : arrayText(deploymentIds),
      appId ?? null,
      limit,
    ],
    (row: Raw) => ({
      bucketMs: msOf(row.bucket),
      stubId: row.stub_id as StubId,
      deploymentId: row.deployment_id === '' ? null : (row.deployment_id as DeploymentId),
      status: row.status,
      waits: row.bins.slice(0, BINS),
      runs: row.bins.slice(BINS),
    }),
  );
}
