// Inputs of tasks that ended. Those of asynchronous tasks move here from the task's row, without passing through the
// scheduler; those of synchronous calls that failed come with their last record.
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { DEAD_LETTER_DAYS, DEAD_STATUSES, INLINE_INPUT_BYTES } from '../../../domain/task-inputs.ts';
import type { Queryable } from '../db.ts';
import { arrayText, storableText } from '../rows.ts';
import { PRUNE } from './retention.ts';

/** A record of a task that ended. */
export interface EndedTask {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly deploymentId: string | null;
  readonly sync: boolean;
  readonly status: string;
  readonly endedAtMs: number | null;
  readonly inputBytes?: number | undefined;
  /** The queue entry of a synchronous call whose input is kept; absent: none is. */
  readonly keptJob?: string | undefined;
}

/** Condition on a kept input `i` and its task `t`, which is dead. It may have completed late. */
export const DEAD = `i.dead_until > now() and t.rank >= 3 and t.status in ('${DEAD_STATUSES.join("', '")}')`;

/** Time of a task's end in seconds, if it failed for good; null: it did not. */
const diedAtOf = ({ status, endedAtMs }: EndedTask): number | null =>
  endedAtMs !== null && DEAD_STATUSES.some((one) => one === status) ? endedAtMs / 1000 : null;

/** A record that was refused may have kept the input before, so that the last end counts. */
const KEEP = `insert into task_inputs (task_id, workspace_id, deployment_id, bytes, job, kept_at, dead_until)
  select t.id, t.workspace_id, t.deployment_id, greatest(octet_length(t.job), coalesce(t.input_bytes, 0)), t.job,
    coalesce(to_timestamp(r.died_s), now()), to_timestamp(r.died_s) + make_interval(days => nullif(
      coalesce((select (s.config ->> 'deadLetterDays')::int from stubs s where s.id = t.stub_id), ${DEAD_LETTER_DAYS}), 0))
  from unnest($1::text[], $2::double precision[]) as r (id, died_s) join tasks t on t.id = r.id
  where t.rank < 3 and t.job is not null and t.input_state = 'kept'
  on conflict (task_id) do update set kept_at = excluded.kept_at, dead_until = excluded.dead_until
  returning workspace_id, bytes::float8 as bytes`;

/**
 * Keeps the inputs of tasks that end in this transaction; call it before their records are written, which empties the
 * rows. That of a task that failed for good makes it dead for as long as its stub says.
 * @returns the bytes that each workspace has more
 */
export async function keepInputs(
  tx: Queryable,
  ended: readonly EndedTask[],
): Promise<ReadonlyMap<WorkspaceId, number>> {
  const added = new Map<WorkspaceId, number>();
  const count = (rows: readonly { workspace_id: string; bytes: number }[]): void => {
    for (const { workspace_id: id, bytes } of rows)
      added.set(id as WorkspaceId, (added.get(id as WorkspaceId) ?? 0) + bytes);
  };
  const moved = ended.filter((task) => !task.sync);
  if (moved.length > 0) {
    const { rows } = await tx.query<{ workspace_id: string; bytes: number }>(
      KEEP,
      [arrayText(moved.map(({ taskId }) => taskId)), arrayText(moved.map(diedAtOf))],
      { isPrepared: true },
    );
    count(rows);
  }
  const given = ended.filter((task) => task.keptJob !== undefined);
  if (given.length > 0) {
    const sent = given.map(({ taskId, workspaceId, deploymentId, inputBytes = 0, keptJob = '' }) => ({
      task_id: taskId,
      workspace_id: workspaceId,
      deployment_id: deploymentId,
      bytes: Math.max(inputBytes, keptJob.length),
      job: storableText(keptJob),
    }));
    const { rows } = await tx.query<{ workspace_id: string; bytes: number }>(
      `insert into task_inputs (task_id, workspace_id, deployment_id, bytes, job)
       select task_id, workspace_id, deployment_id, bytes, job from json_to_recordset($1::json)
         as r (task_id text, workspace_id text, deployment_id text, bytes bigint, job text)
       on conflict (task_id) do nothing returning workspace_id, bytes::float8 as bytes`,
      [JSON.stringify(sent)],
    );
    count(rows);
  }
  return added;
}

const DELETED = 'select 1 from deployments d where d.id = i.deployment_id and d.deleted_at is not null';

/** The queue entry of a task that has not ended, as far as records are written; undefined: see `keptJobOf`. */
export async function openJobOf(db: Queryable, taskId: TaskId): Promise<string | undefined> {
  const { rows } = await db.query<{ job: string | null }>(
    `select job from tasks i where id = $1 and rank < 3 and not exists (${DELETED})`,
    [taskId],
  );
  return rows[0]?.job ?? undefined;
}

/** The queue entry with the input of a task that ended; undefined: none is kept, or its deployment was deleted. */
export async function keptJobOf(db: Queryable, taskId: TaskId): Promise<string | undefined> {
  const { rows } = await db.query<{ job: string }>(
    `select job from task_inputs i where task_id = $1 and not exists (${DELETED})`,
    [taskId],
  );
  return rows[0]?.job;
}

/** Whether the input of a task that ended is kept. */
export async function hasKeptInput(db: Queryable, taskId: TaskId): Promise<boolean> {
  const { rows } = await db.query('select 1 from task_inputs where task_id = $1', [taskId]);
  return rows.length > 0;
}

/** Inputs that were deleted. */
export interface GoneInputs {
  readonly gone: number;
  /** Tasks whose input may be an object, which nothing refers to from now on. */
  readonly large: readonly TaskId[];
}

const GONE = 'returning task_id, bytes::float8 as bytes';
const goneOf = (rows: readonly { task_id: string; bytes: number }[]): GoneInputs => ({
  gone: rows.length,
  large: rows.filter(({ bytes }) => bytes > INLINE_INPUT_BYTES).map((row) => row.task_id as TaskId),
});

/** Deletes inputs of deployments that were deleted since. */
export async function deleteInputsOfDeleted(db: Queryable, sinceMs: number, limit: number): Promise<GoneInputs> {
  const { rows } = await db.query<{ task_id: string; bytes: number }>(
    `delete from task_inputs where ctid = any (array(select i.ctid from deployments d
       join task_inputs i on i.deployment_id = d.id where d.deleted_at > $1 limit $2)) ${GONE}`,
    [new Date(sinceMs), limit],
  );
  return goneOf(rows);
}

/** Workspaces with more bytes of inputs than that. */
export async function workspacesAbove(db: Queryable, bytes: number): Promise<WorkspaceId[]> {
  const { rows } = await db.query<{ workspace_id: string }>(
    `select workspace_id from (select workspace_id, bytes from task_inputs where dead_until is null
         union all select workspace_id, bytes from task_inputs where dead_until is not null) i
       group by workspace_id having sum(bytes) > $1`,
    [bytes],
  );
  return rows.map((row) => row.workspace_id as WorkspaceId);
}

/** Deletes the oldest inputs of a workspace beyond its bound; those of dead tasks go when no others are left. */
export async function trimInputs(db: Queryable, id: WorkspaceId, bytes: number, limit: number): Promise<GoneInputs> {
  const oldest = (is: 'is null' | 'is not null', column: string): string =>
    `(select task_id, kept_at, bytes, ${column} as is_dead from task_inputs
      where workspace_id = $1 and dead_until ${is} order by kept_at, task_id limit $3)`;
  const sumOf = (is: 'is null' | 'is not null'): string =>
    `(select coalesce(sum(bytes), 0) from task_inputs where workspace_id = $1 and dead_until ${is})`;
  const { rows } = await db.query<{ task_id: string; bytes: number }>(
    `delete from task_inputs where task_id = any (array(select task_id from (
         select task_id, sum(bytes) over (order by is_dead, kept_at, task_id) - bytes as before
         from (${oldest('is null', 'false')} union all ${oldest('is not null', 'true')}) oldest) o
       where before < ${sumOf('is null')} + ${sumOf('is not null')} - $2
       order by before limit $3)) ${GONE}`,
    [id, bytes, limit],
  );
  return goneOf(rows);
}

/** Deletes inputs of a workspace that is being deleted. */
export async function deleteInputsOf(db: Queryable, id: WorkspaceId, limit: number): Promise<GoneInputs> {
  const { rows } = await db.query<{ task_id: string; bytes: number }>(
    `delete from task_inputs where ctid = any (array(
       select ctid from task_inputs where workspace_id = $1 limit $2)) ${GONE}`,
    [id, limit],
  );
  return goneOf(rows);
}

/** Deletes inputs that were kept before. */
export async function deleteInputsBefore(db: Queryable, beforeMs: number, limit: number): Promise<GoneInputs> {
  const { rows } = await db.query<{ task_id: string; bytes: number }>(PRUNE.task_inputs, [new Date(beforeMs), limit]);
  return goneOf(rows);
}
