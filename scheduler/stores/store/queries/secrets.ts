import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf } from '../rows.ts';

/** A secret without its value. */
export interface SecretRow {
  readonly id: string;
  readonly name: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

export interface SealedSecret {
  readonly name: string;
  readonly sealed: Uint8Array;
}

interface Raw {
  id: string;
  name: string;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS = 'id, name, created_at, updated_at';
const map = (row: Raw): SecretRow => ({
  id: row.id,
  name: row.name,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

export function listSecrets(db: Queryable, workspaceId: WorkspaceId): Promise<SecretRow[]> {
  return many(db, `select ${COLUMNS} from secrets where workspace_id = $1 order by name`, [workspaceId], map);
}

/**
 * Inserts a secret. undefined: the workspace has `most` already.
 * @throws a unique violation when it has a secret of that name
 */
export function insertSecret(
  db: Queryable,
  secret: SealedSecret & { readonly id: string; readonly workspaceId: WorkspaceId; readonly most: number },
): Promise<SecretRow | undefined> {
  return maybeOne(
    db,
    `insert into secrets (id, workspace_id, name, sealed)
     select $1::text, $2::text, $3::text, $4::bytea
     where (select count(*) from secrets where workspace_id = $2) < $5
       or exists (select 1 from secrets where workspace_id = $2 and name = $3)
     returning ${COLUMNS}`,
    [secret.id, secret.workspaceId, secret.name, secret.sealed, secret.most],
    map,
  );
}

/** Changes a secret. undefined: there is none of that name. */
export function updateSecret(
  db: Queryable,
  secret: SealedSecret & { readonly workspaceId: WorkspaceId },
): Promise<SecretRow | undefined> {
  return maybeOne(
    db,
    `update secrets set sealed = $3, updated_at = now() where workspace_id = $1 and name = $2 returning ${COLUMNS}`,
    [secret.workspaceId, secret.name, secret.sealed],
    map,
  );
}

/** Deletes a secret. undefined: there was none of that name. */
export function deleteSecret(db: Queryable, workspaceId: WorkspaceId, name: string): Promise<SecretRow | undefined> {
  return maybeOne(
    db,
    `delete from secrets where workspace_id = $1 and name = $2 returning ${COLUMNS}`,
    [workspaceId, name],
    map,
  );
}

/** The workspace's secret of that name, with its sealed value. */
export function secretNamed(
  db: Queryable,
  workspaceId: WorkspaceId,
  name: string,
): Promise<{ readonly row: SecretRow; readonly sealed: Uint8Array } | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS}, sealed from secrets where workspace_id = $1 and name = $2`,
    [workspaceId, name],
    ({ sealed, ...row }: Raw & { sealed: Uint8Array }) => ({ row: map(row), sealed }),
  );
}

/** The workspace's secrets among these names, sealed. */
export function sealedSecrets(
  db: Queryable,
  workspaceId: WorkspaceId,
  names: readonly string[],
): Promise<SealedSecret[]> {
  return many(
    db,
    'select name, sealed from secrets where workspace_id = $1 and name = any ($2::text[])',
    [workspaceId, names],
    (row: { name: string; sealed: Uint8Array }) => row,
  );
}

/** The workspace's secrets whose names begin with the prefix, sealed, in the order of their names. */
export function sealedSecretsLike(
  db: Queryable,
  workspaceId: WorkspaceId,
  prefix: string,
  limit: number,
): Promise<SealedSecret[]> {
  return many(
    db,
    'select name, sealed from secrets where workspace_id = $1 and starts_with(name, $2) order by name limit $3',
    [workspaceId, prefix, limit],
    (row: { name: string; sealed: Uint8Array }) => row,
  );
}
