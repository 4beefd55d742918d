// Reads how much of its quotas a workspace uses.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { REGISTRY_BYTES } from './registry-blobs.ts';
import { one } from '../rows.ts';

export interface WorkspaceUse {
  readonly tokens: number;
  readonly volumes: number;
  readonly webhooks: number;
  /** Deployments that are not deleted. */
  readonly deployments: number;
  readonly stacks: number;
  readonly stubs: number;
  readonly objects: number;
  readonly objectBytes: number;
  readonly pools: number;
  readonly unjoinedMachines: number;
  readonly logBytesToday: number;
  /** Bytes of the jobs of asynchronous tasks. */
  readonly queueBytes: number;
  /** Entries of maps, items of queues, and signals. */
  readonly sharedEntries: number;
  readonly sharedBytes: number;
  readonly imageBytes: number;
}

/** The day of UTC, as a date of SQL. */
export const dayOf = (nowMs: number): string => new Date(nowMs).toISOString().slice(0, 10);

export function workspaceUse(db: Queryable, id: WorkspaceId, nowMs: number): Promise<WorkspaceUse> {
  return one(
    db,
    `select (select count(*) from tokens where workspace_id = $1 and type not in ('worker', 'container'))::int as tokens,
       (select count(*) from volumes where workspace_id = $1)::int as volumes,
       (select count(*) from webhooks where workspace_id = $1)::int as webhooks,
       (select count(*) from deployments where workspace_id = $1 and deleted_at is null)::int as deployments,
       (select count(*) from stacks where workspace_id = $1)::int as stacks,
       (select count(*) from stubs where workspace_id = $1)::int as stubs,
       (select count(*) from objects where workspace_id = $1)::int as objects,
       (select coalesce(sum(greatest(size, reserved)), 0) from objects where workspace_id = $1)::float8 as object_bytes,
       (select count(*) from pools where workspace_id = $1 and deleted_at is null)::int as pools,
       (select count(*) from machines m join pools p on p.id = m.pool_id
        where p.workspace_id = $1 and m.joined_at is null and m.deleted_at is null)::int as unjoined_machines,
       coalesce((select log_bytes from workspace_usage where day = $2::date and workspace_id = $1), 0)::float8 as log_bytes,
       ${QUEUE_BYTES}::float8 as queue_bytes,
       (select count(*) from shared_entries where workspace_id = $1 and expires_at > now())::int as shared_entries,
       (select coalesce(sum(bytes), 0) from shared_entries
        where workspace_id = $1 and expires_at > now())::float8 as shared_bytes,
       (${REGISTRY_BYTES})::float8 as image_bytes`,
    [id, dayOf(nowMs)],
    (row: Record<string, number>) => ({
      tokens: row['tokens'] ?? 0,
      volumes: row['volumes'] ?? 0,
      webhooks: row['webhooks'] ?? 0,
      deployments: row['deployments'] ?? 0,
      stacks: row['stacks'] ?? 0,
      stubs: row['stubs'] ?? 0,
      objects: row['objects'] ?? 0,
      objectBytes: row['object_bytes'] ?? 0,
      pools: row['pools'] ?? 0,
      unjoinedMachines: row['unjoined_machines'] ?? 0,
      logBytesToday: row['log_bytes'] ?? 0,
      queueBytes: row['queue_bytes'] ?? 0,
      sharedEntries: row['shared_entries'] ?? 0,
      sharedBytes: row['shared_bytes'] ?? 0,
      imageBytes: row['image_bytes'] ?? 0,
    }),
  );
}

/** A job's text is its input and little else. The database knows the text's length without reading it. */
const QUEUE_BYTES =
  '(select coalesce(sum(octet_length(job)), 0) from tasks where workspace_id = $1 and rank < 3 and job is not null)';

/** Bytes of the jobs of asynchronous tasks that have not ended. */
export function queueBytes(db: Queryable, id: WorkspaceId): Promise<number> {
  return one(db, `select ${QUEUE_BYTES}::float8 as bytes`, [id], (row: { bytes: number }) => row.bytes);
}

/** Number and bytes of the workspace's objects, except the one with that hash. Uploads under way count whole. */
export function objectUse(
  db: Queryable,
  id: WorkspaceId,
  exceptHash: string,
): Promise<{ readonly objects: number; readonly bytes: number }> {
  return one(
    db,
    `select count(*)::int as objects, coalesce(sum(greatest(size, reserved)), 0)::float8 as bytes
     from objects where workspace_id = $1 and hash <> $2`,
    [id, exceptHash],
    (row: { objects: number; bytes: number }) => row,
  );
}
