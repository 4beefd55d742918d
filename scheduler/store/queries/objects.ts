import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { maybeOne, msOf, msOrNull, one } from '../rows.ts';

export interface ObjectRow {
  readonly id: ObjectId;
  readonly workspaceId: WorkspaceId;
  /** The client's key; not a checksum of anything. */
  readonly hash: string;
  /** Announced, then as received. */
  readonly size: number;
  /** Of the bytes as received; null until then. */
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

export function objectByHash(db: Queryable, workspaceId: WorkspaceId, hash: string): Promise<ObjectRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from objects where workspace_id = $1 and hash = $2`, [workspaceId, hash], map);
}

/** Of any workspace: for agents and signed uploads. Callers with a workspace compare it. */
export function objectById(db: Queryable, id: string): Promise<ObjectRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from objects where id = $1`, [id], map);
}

/** The row of that hash, made with `newId` when there is none; an existing row keeps what it has. */
export function getOrCreateObject(
  db: Queryable,
  object: { readonly newId: ObjectId; readonly workspaceId: WorkspaceId; readonly hash: string; readonly size: number },
): Promise<ObjectRow> {
  return one(
    db,
    `insert into objects (id, workspace_id, hash, size) values ($1, $2, $3, $4)
     on conflict (workspace_id, hash) do update set hash = excluded.hash returning ${COLUMNS}`,
    [object.newId, object.workspaceId, object.hash, object.size],
    map,
  );
}

export function markObjectUploaded(
  db: Queryable,
  id: ObjectId,
  received: { readonly size: number; readonly sha256: string },
): Promise<ObjectRow | undefined> {
  return maybeOne(
    db,
    `update objects set size = $2, sha256 = $3, uploaded_at = now() where id = $1 returning ${COLUMNS}`,
    [id, received.size, received.sha256],
    map,
  );
}
