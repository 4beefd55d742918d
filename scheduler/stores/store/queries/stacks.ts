// Stacks: named groups of apps. A row has the ids of its apps; apps that were deleted are passed over by readers.
import type { AppId, StackId, WorkspaceId } from '#shared/domain/ids.ts';
import { JsonText } from '#shared/json-text.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, many, maybeOne, msOf } from '../rows.ts';

export interface StackRow {
  readonly id: StackId;
  readonly workspaceId: WorkspaceId;
  readonly name: string;
  readonly appIds: readonly AppId[];
  readonly layout: JsonText;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: StackId;
  workspace_id: WorkspaceId;
  name: string;
  app_ids: AppId[];
  layout: string;
  created_at: Date;
  updated_at: Date;
}
// A driver would parse the column's JSON.
const COLUMNS = 'id, workspace_id, name, app_ids, layout::text as layout, created_at, updated_at';
const map = (row: Raw): StackRow => ({
  id: row.id,
  workspaceId: row.workspace_id,
  name: row.name,
  appIds: row.app_ids,
  layout: new JsonText(row.layout),
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** A page of the workspace's stacks, the last changed first. */
export function pageOfStacks(
  db: Queryable,
  filter: {
    readonly workspaceId: WorkspaceId;
    readonly limit: number;
    /** Last row of the page before: only stacks after it are returned. */
    readonly before?: { readonly updatedAtMs: number; readonly id: string };
  },
): Promise<StackRow[]> {
  return many(
    db,
    `select ${COLUMNS} from stacks
     where workspace_id = $1
       and ($2::timestamptz is null or (date_trunc('milliseconds', updated_at), id) < ($2::timestamptz, $3::text))
     order by date_trunc('milliseconds', updated_at) desc, id desc limit $4`,
    [filter.workspaceId, dateOrNull(filter.before?.updatedAtMs), filter.before?.id ?? null, filter.limit],
    map,
  );
}

export async function countStacks(db: Queryable, workspaceId: WorkspaceId): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    'select count(*)::int as count from stacks where workspace_id = $1',
    [workspaceId],
  );
  return rows[0]?.count ?? 0;
}

export type StackContent = Pick<StackRow, 'name' | 'appIds' | 'layout'>;

/** Inserts a stack. undefined: the workspace has one of that name. */
export function insertStack(
  db: Queryable,
  stack: StackContent & Pick<StackRow, 'id' | 'workspaceId'>,
): Promise<StackRow | undefined> {
  return maybeOne(
    db,
    `insert into stacks (id, workspace_id, name, app_ids, layout) values ($1, $2, $3, $4::text[], $5::json)
     on conflict (workspace_id, name) do nothing returning ${COLUMNS}`,
    [stack.id, stack.workspaceId, stack.name, stack.appIds, stack.layout.text],
    map,
  );
}

/** The stack, whose row is locked until the transaction ends. */
export function lockStack(tx: Queryable, workspaceId: WorkspaceId, id: string): Promise<StackRow | undefined> {
  return maybeOne(
    tx,
    `select ${COLUMNS} from stacks where workspace_id = $1 and id = $2 for update`,
    [workspaceId, id],
    map,
  );
}

/** @throws a unique violation when another stack has the name */
export function updateStack(db: Queryable, id: StackId, content: StackContent): Promise<StackRow | undefined> {
  return maybeOne(
    db,
    `update stacks set name = $2, app_ids = $3::text[], layout = $4::json, updated_at = now() where id = $1
     returning ${COLUMNS}`,
    [id, content.name, content.appIds, content.layout.text],
    map,
  );
}

/** Whether there was such a stack. */
export async function deleteStack(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<boolean> {
  const { rows } = await db.query('delete from stacks where workspace_id = $1 and id = $2 returning id', [
    workspaceId,
    id,
  ]);
  return rows.length > 0;
}
