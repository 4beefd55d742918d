import type { DeploymentId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many } from '../rows.ts';
import type { AcceptedTask } from './tasks.ts';
import { acceptedTasksInsert } from './tasks.ts';

/** The place of a key in the table. */
export interface KeyPlace {
  readonly workspaceId: WorkspaceId;
  readonly scope: string;
  readonly key: string;
}

export interface NewKey extends KeyPlace {
  /** The caller has a token of the workspace. */
  readonly isOwn: boolean;
  readonly fingerprint: string;
  readonly taskId: TaskId;
  readonly deploymentId: DeploymentId | null;
}

export interface KeyBounds {
  /** Most keys of a workspace. */
  readonly most: number;
  /** Keys of the workspace from callers without one of its tokens; part of `most`. */
  readonly mostOfOthers: number;
  readonly keptSeconds: number;
}

export interface KeyRow extends KeyPlace {
  readonly fingerprint: string;
  readonly taskId: TaskId;
  readonly deploymentId: DeploymentId | null;
  readonly isAccepted: boolean;
  /** Milliseconds since the key was claimed for this task, by the database's clock. */
  readonly ageMs: number;
}

interface RawKey {
  readonly workspace_id: string;
  readonly scope: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly task_id: string;
  readonly deployment_id: string | null;
  readonly is_accepted: boolean;
  readonly age_s: number;
}

const map = (row: RawKey): KeyRow => ({
  workspaceId: row.workspace_id as WorkspaceId,
  scope: row.scope,
  key: row.key,
  fingerprint: row.fingerprint,
  taskId: row.task_id as TaskId,
  deploymentId: row.deployment_id as DeploymentId | null,
  isAccepted: row.is_accepted,
  ageMs: Math.max(0, row.age_s * 1000),
});

/** Keys of that text in any of these scopes; expired ones are left out. */
export function idempotencyKeysIn(
  db: Queryable,
  workspaceId: WorkspaceId,
  scopes: readonly string[],
  key: string,
): Promise<KeyRow[]> {
  return many(
    db,
    `select workspace_id, scope, key, fingerprint, task_id, deployment_id, is_accepted,
       extract(epoch from now() - claimed_at)::double precision as age_s
     from idempotency_keys where workspace_id = $1 and scope = any ($2::text[]) and key = $3 and expires_at > now()`,
    [workspaceId, scopes, key],
    map,
  );
}

/**
 * Writes a key that nobody has; the primary key decides races.
 * @returns false: another call has the key, or the workspace has as many keys as it may
 */
export async function insertIdempotencyKey(db: Queryable, key: NewKey, bounds: KeyBounds): Promise<boolean> {
  const { rowCount } = await db.query(
    `insert into idempotency_keys (workspace_id, scope, key, is_own, fingerprint, task_id, deployment_id, expires_at)
     select $1, $2, $3, $4::boolean, $5, $6, $7, now() + make_interval(secs => $10)
     where (select count(*) from (select 1 from idempotency_keys
         where workspace_id = $1 and expires_at > now() limit $8) as held) < $8
       and ($4 or (select count(*) from (select 1 from idempotency_keys
         where workspace_id = $1 and not is_own and expires_at > now() limit $9) as held) < $9)
     on conflict (workspace_id, scope, key) do update set is_own = excluded.is_own, fingerprint = excluded.fingerprint,
       task_id = excluded.task_id, deployment_id = excluded.deployment_id, is_accepted = false, claimed_at = now(),
       expires_at = excluded.expires_at
     where idempotency_keys.expires_at <= now()
     returning task_id`,
    [
      key.workspaceId,
      key.scope,
      key.key,
      key.isOwn,
      key.fingerprint,
      key.taskId,
      key.deploymentId,
      bounds.most,
      bounds.mostOfOthers,
      bounds.keptSeconds,
    ],
  );
  return rowCount === 1;
}

/**
 * Gives a key whose task never ran to another task.
 * @param held - the key as it was read: a task whose commit came since keeps it
 * @returns false: another call did so first, the key was accepted meanwhile, or it expired
 */
export async function moveIdempotencyKey(
  db: Queryable,
  held: Pick<KeyRow, 'workspaceId' | 'scope' | 'key' | 'taskId' | 'isAccepted'>,
  next: { readonly taskId: TaskId; readonly deploymentId: DeploymentId | null },
  keptSeconds: number,
): Promise<boolean> {
  const { rowCount } = await db.query(
    `update idempotency_keys set task_id = $5, deployment_id = $6, is_accepted = false, claimed_at = now(),
       expires_at = now() + make_interval(secs => $7)
     where workspace_id = $1 and scope = $2 and key = $3 and task_id = $4 and is_accepted = $8
       and expires_at > now() returning task_id`,
    [held.workspaceId, held.scope, held.key, held.taskId, next.taskId, next.deploymentId, keptSeconds, held.isAccepted],
  );
  return rowCount === 1;
}

/** Marks the task of these keys as accepted. @returns the tasks that still hold their keys */
export async function acceptIdempotencyKeys(
  db: Queryable,
  keys: readonly (KeyPlace & { readonly taskId: TaskId })[],
): Promise<ReadonlySet<TaskId>> {
  if (keys.length === 0) return new Set();
  const { rows } = await db.query<{ task_id: string }>(`${acceptOf('$1')} returning k.task_id`, [placesOf(keys)]);
  return new Set(rows.map((row) => row.task_id as TaskId));
}

/**
 * Deletes the key of a refused call, so that it leaves none. A commit of its task that comes later finds no key, and
 * writes nothing. One that came before has accepted the key, which then stays.
 * @returns whether the key stands for the task for good
 */
export async function releaseIdempotencyKey(
  db: Queryable,
  held: KeyPlace & { readonly taskId: TaskId },
): Promise<boolean> {
  const place = 'workspace_id = $1 and scope = $2 and key = $3 and task_id = $4';
  const params = [held.workspaceId, held.scope, held.key, held.taskId];
  const { rowCount } = await db.query(`delete from idempotency_keys where ${place} and not is_accepted`, params);
  if (rowCount > 0) return false;
  // A second statement: the first may have waited for the commit, and does not see what it wrote.
  return (await db.query(`select 1 from idempotency_keys where ${place} and is_accepted`, params)).rowCount > 0;
}

export interface KeyedTask extends AcceptedTask {
  readonly key: KeyPlace;
}

/**
 * Commits asynchronous tasks with their keys, in one statement.
 * @returns the tasks that still held their keys; nothing is written of the others
 */
export async function insertKeyedTasks(db: Queryable, tasks: readonly KeyedTask[]): Promise<ReadonlySet<TaskId>> {
  if (tasks.length === 0) return new Set();
  const insert = acceptedTasksInsert(tasks);
  const { rows } = await db.query<{ task_id: string }>(
    `with held as (${acceptOf(`$${insert.params.length + 1}`)} returning k.task_id),
       written as (${insert.sql('where r.id in (select task_id from held)')} returning id)
     select task_id from held`,
    [...insert.params, placesOf(tasks.map(({ key, record }) => ({ ...key, taskId: record.taskId })))],
  );
  return new Set(rows.map((row) => row.task_id as TaskId));
}

const acceptOf = (param: string): string => `update idempotency_keys k set is_accepted = true
  from json_to_recordset(${param}::json) as a (workspace_id text, scope text, key text, task_id text)
  where k.workspace_id = a.workspace_id and k.scope = a.scope and k.key = a.key and k.task_id = a.task_id`;

const placesOf = (keys: readonly (KeyPlace & { readonly taskId: TaskId })[]): string =>
  JSON.stringify(
    keys.map(({ workspaceId, scope, key, taskId }) => ({ workspace_id: workspaceId, scope, key, task_id: taskId })),
  );
