import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, msOrNull, one } from '../rows.ts';

export interface EnrolmentTokenRow {
  readonly id: string;
  readonly poolId: number;
  readonly poolName: string;
  readonly isPoolDeleted: boolean;
  /** Owner, as of the pool; null: shared. */
  readonly workspaceId: WorkspaceId | null;
  readonly name: string;
  readonly maxMachines: number;
  readonly expiresAtMs: number;
  readonly revokedAtMs: number | null;
  readonly lastUsedAtMs: number | null;
  /** Machines by it that are not deleted. */
  readonly machines: number;
  /** Machines that ever joined by it. */
  readonly joined: number;
  readonly createdBy: string;
  readonly createdAtMs: number;
}

interface Raw {
  id: string;
  pool_id: number;
  pool_name: string;
  pool_deleted: boolean;
  workspace_id: string | null;
  name: string;
  max_machines: number;
  expires_at: Date;
  revoked_at: Date | null;
  last_used_at: Date | null;
  machines: number;
  joined: number;
  created_by: string;
  created_at: Date;
}
const COLUMNS = `t.id, t.pool_id, p.name as pool_name, p.deleted_at is not null as pool_deleted, t.workspace_id, t.name, t.max_machines,
  t.expires_at, t.revoked_at, t.last_used_at, t.joined::float8 as joined, t.created_by, t.created_at,
  (select count(*)::int from machines m where m.enrolment_token_id = t.id and m.deleted_at is null) as machines`;
const map = (row: Raw): EnrolmentTokenRow => ({
  id: row.id,
  poolId: row.pool_id,
  poolName: row.pool_name,
  isPoolDeleted: row.pool_deleted,
  workspaceId: row.workspace_id as WorkspaceId | null,
  name: row.name,
  maxMachines: row.max_machines,
  expiresAtMs: msOf(row.expires_at),
  revokedAtMs: msOrNull(row.revoked_at),
  lastUsedAtMs: msOrNull(row.last_used_at),
  machines: row.machines,
  joined: row.joined,
  createdBy: row.created_by,
  createdAtMs: msOf(row.created_at),
});

export function insertEnrolmentToken(
  tx: Queryable,
  token: {
    readonly id: string;
    readonly poolId: number;
    readonly workspaceId: WorkspaceId | null;
    readonly name: string;
    readonly secretHash: Uint8Array;
    readonly maxMachines: number;
    readonly expiresAtMs: number;
    readonly createdBy: string;
    readonly nowMs: number;
  },
): Promise<EnrolmentTokenRow> {
  return one(
    tx,
    `with t as (
       insert into enrolment_tokens (id, pool_id, workspace_id, name, secret_hash, max_machines, expires_at, created_by, created_at)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning *
     ) select ${COLUMNS} from t join pools p on p.id = t.pool_id`,
    [
      token.id,
      token.poolId,
      token.workspaceId,
      token.name,
      token.secretHash,
      token.maxMachines,
      new Date(token.expiresAtMs),
      token.createdBy,
      new Date(token.nowMs),
    ],
    map,
  );
}

/** The owner's tokens, newest first, also those that count no more. */
export function listEnrolmentTokens(db: Queryable, workspaceId: WorkspaceId | null): Promise<EnrolmentTokenRow[]> {
  return many(
    db,
    `select ${COLUMNS} from enrolment_tokens t join pools p on p.id = t.pool_id
     where t.workspace_id is not distinct from $1::text order by t.created_at desc, t.id`,
    [workspaceId],
    map,
  );
}

/** The token of that secret, locked until the transaction ends: hosts that join by it take turns. */
export async function lockEnrolmentToken(
  tx: Queryable,
  secretHash: Uint8Array,
): Promise<EnrolmentTokenRow | undefined> {
  const { rows } = await tx.query<{ id: string }>(
    'select id from enrolment_tokens where secret_hash = $1 for no key update',
    [secretHash],
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  // A statement of its own: machines that joined while the lock was waited for count.
  return maybeOne(
    tx,
    `select ${COLUMNS} from enrolment_tokens t join pools p on p.id = t.pool_id where t.id = $1`,
    [row.id],
    map,
  );
}

export async function usedEnrolmentToken(tx: Queryable, id: string, nowMs: number): Promise<void> {
  await tx.query('update enrolment_tokens set last_used_at = $2, joined = joined + 1 where id = $1', [
    id,
    new Date(nowMs),
  ]);
}

/** Revokes the owner's token. @returns undefined: there is none, or it is revoked already */
export function revokeEnrolmentToken(
  tx: Queryable,
  workspaceId: WorkspaceId | null,
  id: string,
  nowMs: number,
): Promise<EnrolmentTokenRow | undefined> {
  return maybeOne(
    tx,
    `with t as (
       update enrolment_tokens set revoked_at = $3
       where id = $1 and workspace_id is not distinct from $2::text and revoked_at is null returning *
     ) select ${COLUMNS} from t join pools p on p.id = t.pool_id`,
    [id, workspaceId, new Date(nowMs)],
    map,
  );
}

export async function deleteEnrolmentTokens(tx: Queryable, ids: readonly string[]): Promise<void> {
  await tx.query('delete from enrolment_tokens where id = any ($1::text[])', [ids]);
}
