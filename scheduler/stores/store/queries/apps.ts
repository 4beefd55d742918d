import type { AppId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, many, maybeOne, msOf, one } from '../rows.ts';

export interface AppRow {
  readonly id: AppId;
  readonly workspaceId: WorkspaceId;
  readonly name: string;
  readonly description: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  name: string;
  description: string;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS = 'id, workspace_id, name, description, created_at, updated_at';
const map = (row: Raw): AppRow => ({
  id: row.id as AppId,
  workspaceId: row.workspace_id as WorkspaceId,
  name: row.name,
  description: row.description,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** The workspace's app of that name, made with `newId` when there is none; `updatedAtMs` moves either way. */
export function getOrCreateApp(db: Queryable, workspaceId: WorkspaceId, name: string, newId: AppId): Promise<AppRow> {
  return one(
    db,
    `insert into apps (id, workspace_id, name) values ($1, $2, $3)
     on conflict (workspace_id, name) where deleted_at is null do update set updated_at = now() returning ${COLUMNS}`,
    [newId, workspaceId, name],
    map,
  );
}

export function appById(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<AppRow | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS} from apps where workspace_id = $1 and id = $2 and deleted_at is null`,
    [workspaceId, id],
    map,
  );
}

/** The apps among these ids that are not deleted. */
export function liveAppsByIds(db: Queryable, workspaceId: WorkspaceId, ids: readonly AppId[]): Promise<AppRow[]> {
  return many(
    db,
    `select ${COLUMNS} from apps where workspace_id = $1 and id = any ($2::text[]) and deleted_at is null`,
    [workspaceId, ids],
    map,
  );
}

/** The apps of these names. */
export function appsNamed(db: Queryable, workspaceId: WorkspaceId, names: readonly string[]): Promise<AppRow[]> {
  return many(
    db,
    `select ${COLUMNS} from apps where workspace_id = $1 and name = any ($2::text[]) and deleted_at is null`,
    [workspaceId, names],
    map,
  );
}

/** The apps among these ids, deleted ones too. */
export function appsByIds(db: Queryable, workspaceId: WorkspaceId, ids: readonly AppId[]): Promise<AppRow[]> {
  return many(
    db,
    `select ${COLUMNS} from apps where workspace_id = $1 and id = any ($2::text[])`,
    [workspaceId, ids],
    map,
  );
}

export function listApps(db: Queryable, workspaceId: WorkspaceId, limit: number): Promise<AppRow[]> {
  return many(
    db,
    `select ${COLUMNS} from apps where workspace_id = $1 and deleted_at is null order by updated_at desc, id desc limit $2`,
    [workspaceId, limit],
    map,
  );
}

/** A page of the workspace's apps, newest activity first. */
export function pageOfApps(
  db: Queryable,
  filter: {
    readonly workspaceId: WorkspaceId;
    readonly limit: number;
    /** Part of the name; upper and lower case are equal. */
    readonly nameContains?: string;
    /** Last row of the page before: only apps after it are returned. */
    readonly before?: { readonly updatedAtMs: number; readonly id: string };
  },
): Promise<AppRow[]> {
  return many(
    db,
    `select ${COLUMNS} from apps
     where workspace_id = $1 and deleted_at is null
       and ($2::text is null or strpos(lower(name), lower($2)) > 0)
       and ($3::timestamptz is null or (date_trunc('milliseconds', updated_at), id) < ($3::timestamptz, $4::text))
     order by date_trunc('milliseconds', updated_at) desc, id desc limit $5`,
    [
      filter.workspaceId,
      filter.nameContains ?? null,
      dateOrNull(filter.before?.updatedAtMs),
      filter.before?.id ?? null,
      filter.limit,
    ],
    map,
  );
}
