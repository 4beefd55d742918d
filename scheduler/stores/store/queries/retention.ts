// Deletion by age, a batch at a time. Each statement finds its rows by an index and deletes them by their place. A
// batch therefore costs only its own rows, however large the table is. Locked rows are left for the next round.
import type { MachineId, ObjectId, StubId } from '#shared/domain/ids.ts';
import { SAMPLE_STEP } from '../../../domain/series.ts';
import type { Queryable } from '../db.ts';
import { msOf } from '../rows.ts';

/** Time when a final task ended. Rows of old versions may lack it. */
const TASK_END = 'coalesce(ended_at, created_at)';
const TERMINAL = "state in ('STOPPED', 'FAILED', 'LOST')";
/** Milliseconds that a line's date may be ahead: a machine's clock may be wrong. */
const TOO_FAR_AHEAD_MS = 86_400_000;

/** Tables whose rows are deleted by age. */
export type PrunedTable =
  | 'tasks'
  | 'containers'
  | 'log_lines'
  | 'deliveries'
  | 'webhook_deliveries'
  | 'machines'
  | 'idempotency_keys'
  | 'console_sessions'
  | 'workspace_usage'
  | 'task_stats'
  | 'shared_entries'
  | 'task_outputs'
  | 'task_inputs'
  | 'deployments'
  | 'deleted_machines'
  | 'stubs'
  | SampleTable
  | 'events';

/** Rows of samples: table and step. */
const SAMPLE_TABLES = {
  metric_samples: ['metric_samples', SAMPLE_STEP],
  metric_minutes: ['metric_samples', 60],
  metric_hours: ['metric_samples', 3600],
  pool_samples: ['pool_samples', SAMPLE_STEP],
  pool_minutes: ['pool_samples', 60],
  pool_five_minutes: ['pool_samples', 300],
} as const;
export type SampleTable = keyof typeof SAMPLE_TABLES;

const ofSamples = (sql: (table: string, step: number) => string): Readonly<Record<SampleTable, string>> =>
  Object.fromEntries(Object.entries(SAMPLE_TABLES).map(([name, [table, step]]) => [name, sql(table, step)])) as Record<
    SampleTable,
    string
  >;

/**
 * The statements, each with `$1`: older than, `$2`: rows. The statement for log lines has `$1`: the last id looked at,
 * `$2`: rows, `$3`: older than, `$4`: later than. The one for events has a workspace as `$3`, from which on it looks at
 * workspaces. Exported for the test of their plans.
 */
export const PRUNE: Readonly<Record<PrunedTable, string>> = {
  tasks: `delete from tasks where ctid = any (array(
      select ctid from tasks where rank >= 3 and ${TASK_END} < $1 order by ${TASK_END} limit $2 for update skip locked
    )) returning result_object_id`,
  containers: `delete from containers where ctid = any (array(
      select ctid from containers where ended_at < $1 and ${TERMINAL} order by ended_at limit $2 for update skip locked
    ))`,
  deliveries: `delete from deliveries where ctid = any (array(
      select ctid from deliveries where due_at is null and updated_at < $1 order by updated_at limit $2 for update skip locked
    ))`,
  webhook_deliveries: `delete from webhook_deliveries where ctid = any (array(
      select ctid from webhook_deliveries where due_at is null and updated_at < $1 order by updated_at limit $2 for update skip locked
    ))`,
  machines: `delete from machines where ctid = any (array(
      select ctid from machines where joined_at is null and join_expires_at < $1 order by join_expires_at limit $2 for update skip locked
    )) returning id`,
  idempotency_keys: `delete from idempotency_keys where ctid = any (array(
      select ctid from idempotency_keys where expires_at < $1 order by expires_at limit $2 for update skip locked
    ))`,
  console_sessions: `delete from console_sessions where ctid = any (array(
      select ctid from console_sessions where expires_at < $1 order by expires_at limit $2 for update skip locked
    ))`,
  workspace_usage: `delete from workspace_usage where ctid = any (array(
      select ctid from workspace_usage where day < $1::timestamptz::date order by day limit $2 for update skip locked
    ))`,
  task_stats: `delete from task_stats where ctid = any (array(
      select ctid from task_stats where bucket < $1 order by bucket limit $2 for update skip locked
    ))`,
  shared_entries: `delete from shared_entries where ctid = any (array(
      select ctid from shared_entries where expires_at < $1 order by expires_at limit $2 for update skip locked
    ))`,
  task_outputs: `delete from task_outputs where ctid = any (array(
      select ctid from task_outputs where created_at < $1 order by created_at limit $2 for update skip locked
    ))`,
  task_inputs: `delete from task_inputs where ctid = any (array(
      select ctid from task_inputs where kept_at < $1 order by kept_at limit $2 for update skip locked
    )) returning task_id, bytes::float8 as bytes`,
  deployments: `delete from deployments where ctid = any (array(
      select ctid from deployments where deleted_at < $1 order by deleted_at limit $2 for update skip locked
    ))`,
  deleted_machines: `delete from machines where ctid = any (array(
      select ctid from machines where deleted_at < $1 order by deleted_at limit $2 for update skip locked
    ))`,
  // A stub in use is looked at again after the same time.
  stubs: `with batch as materialized (
      select id from stubs where touched_at < $1 order by touched_at limit $2 for update skip locked),
    used as materialized (select id from batch b where coalesce(
      (select id from deployments where stub_id = b.id limit 1),
      (select id from containers where stub_id = b.id order by created_at desc limit 1),
      (select id from tasks where stub_id = b.id order by created_at desc limit 1)) is not null),
    kept as (update stubs set touched_at = now() where id = any (array(select id from used))),
    gone as (delete from stubs where id = any (array(select id from batch except select id from used)) returning id),
    breaks as (delete from breakers where queue = any (array(select 'tq-' || id from gone)))
    select (select count(*) from batch)::int as seen, array(select id from gone) as gone`,
  ...ofSamples(
    (table, step) => `delete from ${table} where ctid = any (array(
      select ctid from ${table} where step = ${step} and at < $1 order by at limit $2 for update skip locked
    ))`,
  ),
  log_lines: `with batch as materialized (select ctid, id, at from log_lines where id > $1 order by id limit $2),
    gone as (delete from log_lines where ctid = any (array(select ctid from batch where at < $3 or at > $4)) returning 1)
    select (select count(*) from batch)::int as seen, coalesce((select max(id) from batch), $1::bigint) as last_id,
      (select count(*) from gone)::int as gone`,
  // Events lie in the order of their numbers, about in that of their time: the first of a workspace tells its age.
  events: `with old as materialized (
      select c.workspace_id from event_counters c cross join lateral (
        select stored_at from events where workspace_id = c.workspace_id order by seq limit 1) head
      where c.workspace_id >= $3 and head.stored_at < $1 order by c.workspace_id limit 5),
    batch as materialized (
      select r.ctid, old.workspace_id from old cross join lateral (
        select w.ctid from (select ctid, stored_at from events where workspace_id = old.workspace_id order by seq limit $2) w
        where w.stored_at < $1) r
      order by old.workspace_id limit $2),
    gone as (delete from events where ctid = any (array(select ctid from batch)) returning 1)
    select (select count(*) from gone)::int as gone, (select max(workspace_id) from batch) as last`,
};

/**
 * Deletes at most `limit` final tasks that ended before.
 * @returns the number of deleted rows, and the objects that hold their results, which nothing refers to from now on
 */
export async function deleteTasksEndedBefore(
  db: Queryable,
  beforeMs: number,
  limit: number,
): Promise<{ readonly gone: number; readonly resultObjectIds: readonly ObjectId[] }> {
  const { rows } = await db.query<{ result_object_id: string | null }>(PRUNE.tasks, [new Date(beforeMs), limit]);
  const kept = rows.map((row) => row.result_object_id).filter((id) => id !== null);
  return { gone: rows.length, resultObjectIds: kept as ObjectId[] };
}

/**
 * Deletes at most `limit` terminal containers, ended deliveries, expired keys, counted days of workspaces, samples,
 * deleted deployments or machines, from before.
 * @returns the number of deleted rows
 */
export async function deleteEndedBefore(
  db: Queryable,
  table:
    | 'containers'
    | 'deliveries'
    | 'webhook_deliveries'
    | 'idempotency_keys'
    | 'console_sessions'
    | 'workspace_usage'
    | 'task_stats'
    | 'shared_entries'
    | 'task_outputs'
    | 'deployments'
    | 'deleted_machines'
    | SampleTable,
  beforeMs: number,
  limit: number,
): Promise<number> {
  return (await db.query(PRUNE[table], [new Date(beforeMs), limit])).rowCount;
}

/** Deletes at most `limit` machines that never joined and whose token expired before. @returns the deleted machines */
export async function deleteUnjoinedBefore(db: Queryable, beforeMs: number, limit: number): Promise<MachineId[]> {
  const { rows } = await db.query<{ id: string }>(PRUNE.machines, [new Date(beforeMs), limit]);
  return rows.map((row) => row.id as MachineId);
}

/**
 * Looks at `limit` stubs that nobody asked for since, and deletes those of which no deployment, container or task is
 * there.
 * @returns the number of stubs looked at, and the deleted ones
 */
export async function deleteStubsUntouchedSince(
  db: Queryable,
  sinceMs: number,
  limit: number,
): Promise<{ readonly seen: number; readonly gone: readonly StubId[] }> {
  const { rows } = await db.query<{ seen: number; gone: string[] }>(PRUNE.stubs, [new Date(sinceMs), limit]);
  const [{ seen, gone } = { seen: 0, gone: [] }] = rows;
  return { seen, gone: gone as StubId[] };
}

/**
 * Looks at the next `limit` rows of lines in the order of their arrival and deletes those that are older. No index on
 * the time is needed: lines arrive about in the order of their time. That of a row is the time of its first line.
 * @param afterId - id of the last row that was looked at
 * @returns the number of rows looked at, the last one's id, and the number of deleted rows
 */
export async function deleteLogLinesBefore(
  db: Queryable,
  beforeMs: number,
  limit: number,
  afterId: number,
  nowMs: number,
): Promise<{ readonly seen: number; readonly lastId: number; readonly gone: number }> {
  const { rows } = await db.query<{ seen: number; last_id: number; gone: number }>(PRUNE.log_lines, [
    afterId,
    limit,
    new Date(beforeMs),
    new Date(nowMs + TOO_FAR_AHEAD_MS),
  ]);
  const [row] = rows;
  return { seen: row?.seen ?? 0, lastId: row?.last_id ?? afterId, gone: row?.gone ?? 0 };
}

/**
 * Deletes at most `limit` events that were stored before, of workspaces from that one on.
 * @returns the number of deleted events, and the workspace to go on with
 */
export async function deleteEventsBefore(
  db: Queryable,
  beforeMs: number,
  limit: number,
  fromWorkspace: string,
): Promise<{ readonly gone: number; readonly lastWorkspace: string }> {
  const { rows } = await db.query<{ gone: number; last: string | null }>(PRUNE.events, [
    new Date(beforeMs),
    limit,
    fromWorkspace,
  ]);
  return { gone: rows[0]?.gone ?? 0, lastWorkspace: rows[0]?.last ?? fromWorkspace };
}

/** Statements that find the oldest row. Exported for the test of their plans. */
export const OLDEST: Readonly<Record<PrunedTable, string>> = {
  tasks: `select ${TASK_END} as at from tasks where rank >= 3 order by ${TASK_END} limit 1`,
  containers: `select ended_at as at from containers where ended_at is not null and ${TERMINAL} order by ended_at limit 1`,
  log_lines: 'select at from log_lines order by id limit 1',
  deliveries: 'select updated_at as at from deliveries where due_at is null order by updated_at limit 1',
  webhook_deliveries:
    'select updated_at as at from webhook_deliveries where due_at is null order by updated_at limit 1',
  idempotency_keys: 'select expires_at as at from idempotency_keys order by expires_at limit 1',
  console_sessions: 'select expires_at as at from console_sessions order by expires_at limit 1',
  shared_entries: 'select expires_at as at from shared_entries order by expires_at limit 1',
  task_inputs: 'select kept_at as at from task_inputs order by kept_at limit 1',
  task_outputs: 'select created_at as at from task_outputs order by created_at limit 1',
  deployments: 'select deleted_at as at from deployments where deleted_at is not null order by deleted_at limit 1',
  deleted_machines: 'select deleted_at as at from machines where deleted_at is not null order by deleted_at limit 1',
  stubs: 'select touched_at as at from stubs order by touched_at limit 1',
  ...ofSamples((table, step) => `select at from ${table} where step = ${step} order by at limit 1`),
  // A day counts as old only when it is over in every time zone.
  task_stats: 'select bucket as at from task_stats order by bucket limit 1',
  workspace_usage: "select day::timestamptz + interval '2 days' as at from workspace_usage order by day limit 1",
  events: `select head.stored_at as at from event_counters c cross join lateral (
    select stored_at from events where workspace_id = c.workspace_id order by seq limit 1) head order by 1 limit 1`,
  machines: 'select join_expires_at as at from machines where joined_at is null order by join_expires_at limit 1',
};

/** When the oldest row ended that will be deleted once it is old enough; undefined: there is none. */
export async function oldestOf(db: Queryable, table: PrunedTable): Promise<number | undefined> {
  const { rows } = await db.query<{ at: Date | null }>(OLDEST[table]);
  const at = rows[0]?.at ?? null;
  return at === null ? undefined : msOf(at);
}
