import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { maybeOne, msOf, msOrNull, one } from '../rows.ts';

export interface ObjectRow {
  readonly id: ObjectId;
  readonly workspaceId: WorkspaceId;
  /** The client's key; not a checksum of anything. */
  readonly hash: string;
  /** Size as announced, then as received. */
  readonly size: number;
  /** Hash of the bytes as received; null until then. */
  readonly sha256: string | null;
  readonly uploadedAtMs: number | null;
  readonly createdAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  hash: string;
  size: number;
  sha256: string | null;
  uploaded_at: Date | null;
  created_at: Date;
}
const COLUMNS = 'id, workspace_id, hash, size, sha256, uploaded_at, created_at';
const map = (row: Raw): ObjectRow => ({
  id: row.id as ObjectId,
  workspaceId: row.workspace_id as WorkspaceId,
  hash: row.hash,
  size: row.size,
  sha256: row.sha256,
  uploadedAtMs: msOrNull(row.uploaded_at),
  createdAtMs: msOf(row.created_at),
});

/** Uses within so long of each other count once; far shorter than the grace of unused objects. */
const TOUCH_EVERY = "interval '1 hour'";

/**
 * The workspace's object with that hash. The caller is about to use it, so the object
 * is not collected for a whole grace period from now. These are two statements: one
 * that waited for the row's deletion must not find the row again in its own snapshot.
 */
export async function useObjectByHash(
  db: Queryable,
  workspaceId: WorkspaceId,
  hash: string,
): Promise<ObjectRow | undefined> {
  const touched = await maybeOne(
    db,
    `update objects set touched_at = now() where workspace_id = $1 and hash = $2 and touched_at < now() - ${TOUCH_EVERY} returning ${COLUMNS}`,
    [workspaceId, hash],
    map,
  );
  if (touched !== undefined) return touched;
  return maybeOne(db, `select ${COLUMNS} from objects where workspace_id = $1 and hash = $2`, [workspaceId, hash], map);
}

/** Whether the workspace of the object is not being deleted: addresses that were signed before lead nowhere then. */
const IS_OPEN = 'not exists (select 1 from workspaces w where w.id = workspace_id and w.deleting_at is not null)';

/** The object with this id, marked as in `useObjectByHash`; of any workspace, callers compare it. */
export async function useObject(db: Queryable, id: string): Promise<ObjectRow | undefined> {
  const touched = await maybeOne(
    db,
    `update objects set touched_at = now() where id = $1 and touched_at < now() - ${TOUCH_EVERY} and ${IS_OPEN}
     returning ${COLUMNS}`,
    [id],
    map,
  );
  return touched ?? maybeOne(db, `select ${COLUMNS} from objects where id = $1 and ${IS_OPEN}`, [id], map);
}

/**
 * The object with this id, of any workspace: for agents and
 * signed uploads. Callers that act for a workspace compare it.
 */
export function objectById(db: Queryable, id: string): Promise<ObjectRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from objects where id = $1`, [id], map);
}

/**
 * Deletes rows that no stub, no image and no output of a task refers to and nobody has used since, those longest
 * unused first. An object that is being used at this moment is left for the next round.
 * @returns their ids: nothing refers to the bytes any more
 * @throws AppError `database_error` when a stub took one at this moment: nothing was deleted
 */
export async function deleteUnusedObjects(db: Queryable, unusedSinceMs: number, limit: number): Promise<ObjectId[]> {
  const { rows } = await db.query<{ id: string }>(
    `delete from objects where id in (
       select o.id from objects o
       where o.touched_at < $1 and not exists (select 1 from stubs s where s.object_id = o.id)
         and not exists (select 1 from task_outputs t where t.object_id = o.id)
         and not exists (select 1 from images i where lower(i.definition->>'contextObjectId') = o.id)
       order by o.touched_at limit $2 for update skip locked
     ) returning id`,
    [new Date(unusedSinceMs), limit],
  );
  return rows.map((row) => row.id as ObjectId);
}

/** The keys that name neither an object nor the result of a task. */
export async function unknownObjectKeys(db: Queryable, keys: readonly string[]): Promise<string[]> {
  const { rows } = await db.query<{ key: string }>(
    `select k as key from unnest($1::text[]) as k
     where not exists (select 1 from objects where id = k) and not exists (select 1 from tasks where result_object_id = k)`,
    [keys],
  );
  return rows.map((row) => row.key);
}

/** How many of these keys name objects of the workspace. */
export function countObjectsAmong(db: Queryable, workspaceId: WorkspaceId, keys: readonly string[]): Promise<number> {
  return one(
    db,
    'select count(*)::int as count from objects where workspace_id = $1 and id = any($2::text[])',
    [workspaceId, keys],
    (row: { count: number }) => row.count,
  );
}

export interface NewObject {
  readonly newId: ObjectId;
  readonly workspaceId: WorkspaceId;
  readonly hash: string;
  readonly size: number;
}

/** The row of that hash, made with `newId` when there is none; an existing row stays as it is. */
export function getOrCreateObject(db: Queryable, object: NewObject): Promise<ObjectRow> {
  return one(
    db,
    `insert into objects (id, workspace_id, hash, size) values ($1, $2, $3, $4)
     on conflict (workspace_id, hash) do update set touched_at = now() returning ${COLUMNS}`,
    [object.newId, object.workspaceId, object.hash, object.size],
    map,
  );
}

/** Notes how many bytes uploads under way may store. */
export async function reserveObjectBytes(db: Queryable, id: ObjectId, bytes: number): Promise<void> {
  await db.query('update objects set reserved = greatest(reserved, $2) where id = $1', [id, bytes]);
}

/** The same, where that many bytes are counted already. @returns false: they are not */
export async function reserveCountedBytes(db: Queryable, id: ObjectId, bytes: number): Promise<boolean> {
  const sql =
    'update objects set reserved = greatest(reserved, $2) where id = $1 and greatest(size, reserved) >= $2 returning id';
  return (await db.query(sql, [id, bytes])).rowCount > 0;
}

/** Notes that no upload is under way. */
export async function releaseObjectBytes(db: Queryable, id: ObjectId): Promise<void> {
  await db.query('update objects set reserved = 0 where id = $1 and reserved > 0', [id]);
}

export function markObjectUploaded(
  db: Queryable,
  id: ObjectId,
  received: { readonly size: number; readonly sha256: string },
): Promise<ObjectRow | undefined> {
  return maybeOne(
    db,
    `update objects set size = $2, sha256 = $3, uploaded_at = now(), touched_at = now() where id = $1 returning ${COLUMNS}`,
    [id, received.size, received.sha256],
    map,
  );
}
