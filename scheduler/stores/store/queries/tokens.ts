import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, one } from '../rows.ts';

export type TokenType =
  | 'admin'
  | 'workspace_primary'
  | 'workspace'
  | 'workspace_restricted'
  | 'worker'
  | 'worker_private'
  | 'machine'
  | 'container';

export interface TokenRow {
  readonly id: TokenId;
  readonly workspaceId: WorkspaceId;
  readonly workspaceNumber: number;
  /** sha256 of the token. */
  readonly hash: Uint8Array;
  /** Last 4 characters of the token. */
  readonly hint: string;
  readonly type: TokenType;
  readonly active: boolean;
  readonly reusable: boolean;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  workspace_number: number;
  hash: Uint8Array;
  hint: string;
  type: string;
  active: boolean;
  reusable: boolean;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS = `t.id, t.workspace_id, (select w.number from workspaces w where w.id = t.workspace_id) as workspace_number,
  t.hash, t.hint, t.type, t.active, t.reusable, t.created_at, t.updated_at`;
const map = (row: Raw): TokenRow => ({
  id: row.id as TokenId,
  workspaceId: row.workspace_id as WorkspaceId,
  workspaceNumber: row.workspace_number,
  hash: row.hash,
  hint: row.hint,
  type: row.type as TokenType,
  active: row.active,
  reusable: row.reusable,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

export function insertToken(
  db: Queryable,
  token: Pick<TokenRow, 'id' | 'workspaceId' | 'hash' | 'hint' | 'type' | 'reusable'> & {
    /** The signing key, by its id; null: the installation's first. */
    readonly keyId?: string | null;
  },
): Promise<TokenRow> {
  return one(
    db,
    `insert into tokens as t (id, workspace_id, hash, hint, type, reusable, key_id) values ($1, $2, $3, $4, $5, $6, $7) returning ${COLUMNS}`,
    [token.id, token.workspaceId, token.hash, token.hint, token.type, token.reusable, token.keyId ?? null],
    map,
  );
}

export function tokenByHash(db: Queryable, hash: Uint8Array): Promise<TokenRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from tokens t where t.hash = $1`, [hash], map);
}

/** Tokens of the workspace, newest first, without the internal `worker` and `container` types. */
export function listTokens(db: Queryable, workspaceId: WorkspaceId, limit: number): Promise<TokenRow[]> {
  return many(
    db,
    `select ${COLUMNS} from tokens t where t.workspace_id = $1 and t.type not in ('worker', 'container')
     order by t.created_at desc, t.id desc limit $2`,
    [workspaceId, limit],
    map,
  );
}

/** Switches a token on or off. */
export function toggleToken(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<TokenRow | undefined> {
  return maybeOne(
    db,
    `update tokens t set active = not t.active, updated_at = now() where t.workspace_id = $1 and t.id = $2 returning ${COLUMNS}`,
    [workspaceId, id],
    map,
  );
}

/** Uses up a one-use token. True for the caller that was first. */
export async function spendToken(db: Queryable, hash: Uint8Array): Promise<boolean> {
  const { rowCount } = await db.query(
    'update tokens set active = false, updated_at = now() where hash = $1 and active and not reusable',
    [hash],
  );
  return rowCount === 1;
}

export function deleteToken(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<TokenRow | undefined> {
  return maybeOne(
    db,
    `delete from tokens t where t.workspace_id = $1 and t.id = $2 returning ${COLUMNS}`,
    [workspaceId, id],
    map,
  );
}
