// Deletion of a workspace: its begin, what it still has, and its end. The rows that go in batches are in
// workspace-rows.ts.
import type {
  ContainerId,
  DeploymentId,
  MachineId,
  QueueName,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, one } from '../rows.ts';
import { NOT_ENDED } from './containers.ts';

/** A pool of the workspace, with its machines and instances that have not ended. */
export interface OwnPool {
  readonly name: string;
  readonly machines: number;
  /** Whether a provider makes machines for it. */
  readonly isProvided: boolean;
}

/** Locks the workspace until the transaction ends: nothing that refers to it is added meanwhile. */
export function lockForDeletion(
  tx: Queryable,
  id: string,
): Promise<{ readonly name: string; readonly isAdmin: boolean; readonly isDeleting: boolean } | undefined> {
  return maybeOne(
    tx,
    'select name, is_admin, deleting_at is not null as deleting from workspaces where id = $1 for update',
    [id],
    (row: { name: string; is_admin: boolean; deleting: boolean }) => ({
      name: row.name,
      isAdmin: row.is_admin,
      isDeleting: row.deleting,
    }),
  );
}

/** Pools of the workspace that have machines, or get them from a provider. */
export function occupiedPools(db: Queryable, id: WorkspaceId): Promise<OwnPool[]> {
  return many(
    db,
    `select name, machines, provided from (
       select p.id, p.name, p.deleted_at is null and p.settings ? 'provider' as provided,
         greatest((select count(*) from machines m where m.pool_id = p.id and m.deleted_at is null),
           (select count(*) from provisioned_machines r where r.pool_id = p.id and r.state not in ('gone', 'failed')))::int as machines
       from pools p where p.workspace_id = $1) own
     where machines > 0 or provided order by id`,
    [id],
    (row: { name: string; machines: number; provided: boolean }) => ({
      name: row.name,
      machines: row.machines,
      isProvided: row.provided,
    }),
  );
}

/**
 * Revokes the workspace's enrolment tokens. A host that joins by such a token holds its row, so machines that are read
 * afterwards are all that ever come in by them.
 */
export async function revokeEnrolmentTokens(tx: Queryable, id: WorkspaceId): Promise<void> {
  await tx.query('update enrolment_tokens set revoked_at = now() where workspace_id = $1 and revoked_at is null', [id]);
}

/** Begins a deletion: from the commit on no token and no webhook of the workspace counts. */
export async function closeWorkspace(tx: Queryable, id: WorkspaceId): Promise<void> {
  await tx.query('update workspaces set deleting_at = now(), updated_at = now() where id = $1', [id]);
  await tx.query('delete from tokens where workspace_id = $1', [id]);
  await tx.query(
    `update webhooks set active = false, inactive_reason = 'workspace_deleted' where workspace_id = $1 and active`,
    [id],
  );
}

/** Writes what the deletion waits for, where that changed. @returns whether it did */
export async function holdDeletion(db: Queryable, id: WorkspaceId, hold: string): Promise<boolean> {
  const { rows } = await db.query(
    'update workspaces set deletion_hold = $2 where id = $1 and deletion_hold <> $2 returning id',
    [id, hold],
  );
  return rows.length > 0;
}

/** Things that a workspace has. */
export interface WorkspaceContents {
  readonly deployments: number;
  readonly containers: number;
  readonly volumes: number;
  readonly objects: number;
  readonly objectBytes: number;
  readonly images: number;
  readonly secrets: number;
  readonly models: number;
  readonly machines: number;
}

export function workspaceContents(db: Queryable, id: WorkspaceId): Promise<WorkspaceContents> {
  return one(
    db,
    `select (select count(*) from deployments where workspace_id = $1 and deleted_at is null)::int as deployments,
       (select count(*) from containers where workspace_id = $1 and ${NOT_ENDED})::int as containers,
       (select count(*) from volumes where workspace_id = $1)::int as volumes,
       (select count(*) from objects where workspace_id = $1)::int as objects,
       (select coalesce(sum(size), 0) from objects where workspace_id = $1)::float8 as object_bytes,
       (select count(*) from images where workspace_id = $1)::int as images,
       (select count(*) from secrets where workspace_id = $1)::int as secrets,
       (select count(*) from models where workspace_id = $1)::int as models,
       (select count(*) from machines m join pools p on p.id = m.pool_id
        where p.workspace_id = $1 and m.deleted_at is null)::int as machines`,
    [id],
    ({ object_bytes: objectBytes = 0, ...row }: Record<string, number>) => ({
      deployments: row['deployments'] ?? 0,
      containers: row['containers'] ?? 0,
      volumes: row['volumes'] ?? 0,
      objects: row['objects'] ?? 0,
      objectBytes,
      images: row['images'] ?? 0,
      secrets: row['secrets'] ?? 0,
      models: row['models'] ?? 0,
      machines: row['machines'] ?? 0,
    }),
  );
}

// ---- what still runs -----------------------------------------------------------------------------------------------
/** Deployments that are not deleted. */
export function deploymentsLeft(
  db: Queryable,
  id: WorkspaceId,
  limit: number,
): Promise<{ readonly id: DeploymentId; readonly stubId: StubId }[]> {
  return many(
    db,
    `select id, stub_id from deployments where workspace_id = $1 and deleted_at is null
     order by created_at desc limit $2`,
    [id, limit],
    (row: { id: string; stub_id: string }) => ({ id: row.id as DeploymentId, stubId: row.stub_id as StubId }),
  );
}

/** Tasks that have not ended, in the queues of the workspace's deployments and stubs. */
export function openTasksLeft(db: Queryable, id: WorkspaceId, limit: number): Promise<TaskId[]> {
  return many(
    db,
    `select t.id from (
       select 'tq-' || d.id as queue from deployments d where d.workspace_id = $1
       union all select 'tq-' || s.id from stubs s where s.workspace_id = $1) q
     cross join lateral (
       select id from tasks where queue = q.queue and rank < 3 order by created_at limit $2) t limit $2`,
    [id, limit],
    (row: { id: string }) => row.id as TaskId,
  );
}

/** Calls of models that wait or run. */
export function openDeferredCallsLeft(db: Queryable, id: WorkspaceId, limit: number): Promise<TaskId[]> {
  return many(
    db,
    `select task_id from deferred_calls where workspace_id = $1 and state in ('waiting', 'running')
     order by created_at limit $2`,
    [id, limit],
    (row: { task_id: string }) => row.task_id as TaskId,
  );
}

/** Containers that have not ended, with the machines that have them. */
export function containersLeft(
  db: Queryable,
  id: WorkspaceId,
): Promise<{ readonly id: ContainerId; readonly machineId: string | null }[]> {
  return many(
    db,
    `select id, machine_id from containers where workspace_id = $1 and ${NOT_ENDED} order by created_at`,
    [id],
    (row: { id: string; machine_id: string | null }) => ({ id: row.id as ContainerId, machineId: row.machine_id }),
  );
}

/** Takes builds of the workspace from their processes, which end them at their next sign of life. */
export async function endBuildsOf(db: Queryable, id: WorkspaceId): Promise<void> {
  await db.query(
    `update images set state = 'PENDING', owner = null, renewed_at = null
     where workspace_id = $1 and state = 'BUILDING'`,
    [id],
  );
}

/** Machines in pools of the workspace. */
export function machinesLeft(db: Queryable, id: WorkspaceId, limit: number): Promise<MachineId[]> {
  return many(
    db,
    `select m.id from machines m join pools p on p.id = m.pool_id
     where p.workspace_id = $1 and m.deleted_at is null order by m.id limit $2`,
    [id, limit],
    (row: { id: string }) => row.id as MachineId,
  );
}

/** Names of pools that are not deleted. */
export function poolsLeft(db: Queryable, id: WorkspaceId): Promise<string[]> {
  return many(
    db,
    'select name from pools where workspace_id = $1 and deleted_at is null order by id',
    [id],
    (row: { name: string }) => row.name,
  );
}

export function imagesLeft(db: Queryable, id: WorkspaceId, limit: number): Promise<string[]> {
  return many(
    db,
    'select id from images where workspace_id = $1 order by id limit $2',
    [id, limit],
    (row: { id: string }) => row.id,
  );
}

// ---- stubs ---------------------------------------------------------------------------------------------------------
export function stubsLeft(db: Queryable, id: WorkspaceId, limit: number): Promise<StubId[]> {
  return many(
    db,
    'select id from stubs where workspace_id = $1 order by id limit $2',
    [id, limit],
    (row: { id: string }) => row.id as StubId,
  );
}

/** Deletes stubs with their deployments, and what their queues have beside them. */
export async function deleteStubs(tx: Queryable, ids: readonly StubId[]): Promise<void> {
  const { rows } = await tx.query<{ id: string }>(
    'delete from deployments where stub_id = any ($1::text[]) returning id',
    [ids],
  );
  const queues = [...rows.map((row) => row.id), ...ids].map((id) => `tq-${id}` as QueueName);
  await tx.query('delete from breakers where queue = any ($1::text[])', [queues]);
  await tx.query('delete from stubs where id = any ($1::text[])', [ids]);
}
