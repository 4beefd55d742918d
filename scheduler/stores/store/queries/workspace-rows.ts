// Rows of a workspace that is being deleted: a batch at a time, and the end of the workspace's own row.
// Invariant: every table with a workspace is either here or in KEPT; a test compares them with the schema.
import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable, Transaction } from '../db.ts';
import { lockForDeletion } from './workspace-deletion.ts';

/** Rows of the workspace `$1`, as the tail of a statement. */
const OWN = 'where workspace_id = $1';
const OF_OWN_POOLS = 'where pool_id in (select id from pools where workspace_id = $1) and deleted_at is not null';

/**
 * Tables whose rows go in batches, in an order that references allow, each with the rows to delete. Tasks and objects
 * have bytes elsewhere, and have statements of their own; so have stubs with their deployments.
 */
export const BATCHED = {
  log_lines: OWN,
  metric_samples: `${OWN} and step in (5, 60, 3600)`,
  webhook_deliveries: 'where webhook_id in (select id from webhooks where workspace_id = $1)',
  events: `${OWN} and type not like 'audit.%'`,
  task_outputs: OWN,
  deliveries: OWN,
  idempotency_keys: OWN,
  task_singles: OWN,
  shared_entries: OWN,
  deferred_calls: OWN,
  containers: OWN,
  workspace_usage: OWN,
  task_stats: OWN,
  webhooks: OWN,
  models: OWN,
  stacks: OWN,
  secrets: OWN,
  deployment_versions: OWN,
  enrolment_tokens: OWN,
  console_sessions: OWN,
  machines: OF_OWN_POOLS,
  pools: `${OWN} and deleted_at is not null and not exists (select 1 from machines m where m.pool_id = pools.id)`,
  log_clocks: OWN,
  registry_blobs: OWN,
} as const satisfies Readonly<Record<string, string>>;
export type BatchedTable = keyof typeof BATCHED;

/** Tables that other steps of a deletion empty. */
export const BY_STEPS = [
  'tasks',
  'task_inputs',
  'objects',
  'deployments',
  'stubs',
  'apps',
  'volumes',
  'images',
  'tokens',
] as const;

/** Tables whose rows outlive their workspace, and why. */
export const KEPT: Readonly<Record<string, string>> = {
  events: 'lines of the audit trail, until their age deletes them',
  event_counters: 'numbers of the audit trail, by which its age is found',
  export_positions: 'how far the audit trail was exported',
  credit_ledger: 'bills of the past',
  credit_accounts: 'the balance at the end',
};

/** Deletes at most `limit` rows of a table. @returns the number of deleted rows */
export async function deleteRowsOf(
  db: Queryable,
  table: BatchedTable,
  id: WorkspaceId,
  limit: number,
): Promise<number> {
  const sql = `delete from ${table} where ctid = any (array(select ctid from ${table} ${BATCHED[table]} limit $2))`;
  return (await db.query(sql, [id, limit])).rowCount;
}

/** Deletes tasks. @returns the number of deleted rows, and the objects with their results */
export async function deleteTasksOf(
  db: Queryable,
  id: WorkspaceId,
  limit: number,
): Promise<{ readonly gone: number; readonly resultObjectIds: readonly ObjectId[] }> {
  const { rows } = await db.query<{ result_object_id: string | null }>(
    `delete from tasks where ctid = any (array(select ctid from tasks ${OWN} limit $2)) returning result_object_id`,
    [id, limit],
  );
  const kept = rows.map((row) => row.result_object_id).filter((one) => one !== null);
  return { gone: rows.length, resultObjectIds: kept as ObjectId[] };
}

/** Objects whose bytes can go. */
export async function objectsLeft(db: Queryable, id: WorkspaceId, limit: number): Promise<ObjectId[]> {
  const { rows } = await db.query<{ id: string }>(`select id from objects ${OWN} order by id limit $2`, [id, limit]);
  return rows.map((row) => row.id as ObjectId);
}

export async function deleteObjects(db: Queryable, ids: readonly ObjectId[]): Promise<void> {
  await db.query('delete from objects where id = any ($1::text[])', [ids]);
}

/** Deletes apps, which nothing refers to once the stubs are gone. @returns the number of deleted rows */
export async function deleteAppsOf(db: Queryable, id: WorkspaceId, limit: number): Promise<number> {
  const sql = `delete from apps where ctid = any (array(select ctid from apps ${OWN} limit $2))`;
  return (await db.query(sql, [id, limit])).rowCount;
}

/** Whether a table still has a row to delete, each as a condition on the workspace `$1`. */
const LEFT = [
  ...Object.entries(BATCHED).map(([table, rows]) => `exists (select 1 from ${table} ${rows})`),
  ...BY_STEPS.filter((table) => table !== 'tokens').map((table) => `exists (select 1 from ${table} ${OWN})`),
  `exists (select 1 from pools ${OWN})`,
].join('\n  or ');

/**
 * Ends the deletion: the row of the workspace goes, and its name and number are kept.
 * @returns false: rows are left, perhaps late ones, and nothing was changed
 */
export async function endDeletion(tx: Transaction, id: WorkspaceId): Promise<boolean> {
  const row = await lockForDeletion(tx, id);
  if (row === undefined) return true;
  const { rows } = await tx.query<{ is_left: boolean }>(`select ${LEFT} as is_left`, [id]);
  if (!row.isDeleting || rows[0]?.is_left !== false) return false;
  await tx.query(
    `insert into deleted_workspaces (id, number, name, created_at)
     select id, number, name, created_at from workspaces where id = $1`,
    [id],
  );
  await tx.query('delete from workspaces where id = $1', [id]);
  return true;
}

/** Whether a workspace of that id was deleted. */
export async function wasDeleted(db: Queryable, id: string): Promise<boolean> {
  const { rows } = await db.query<{ found: boolean }>(
    'select exists (select 1 from deleted_workspaces where id = $1) as found',
    [id],
  );
  return rows[0]?.found === true;
}
