import type { AppId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { readScopes } from '#shared/domain/token-scopes.ts';
import type { TokenScope } from '#shared/domain/token-scopes.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, many, maybeOne, msOf, msOrNull, one } from '../rows.ts';

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
  /** Name for people; empty: none. */
  readonly name: string;
  /** null: never. */
  readonly expiresAtMs: number | null;
  /** Last use, at most a minute older than the true one; null: never used. */
  readonly lastUsedAtMs: number | null;
  /** Scopes to which it is limited; empty: none. */
  readonly scopes: readonly TokenScope[];
  /** The only app for which it counts; null: any. */
  readonly appId: AppId | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

export interface RawToken {
  id: string;
  workspace_id: string;
  workspace_number: number;
  hash: Uint8Array;
  hint: string;
  type: string;
  active: boolean;
  reusable: boolean;
  name: string;
  expires_at: Date | null;
  last_used_at: Date | null;
  scopes: string;
  app_id: string | null;
  created_at: Date;
  updated_at: Date;
}
/** Columns of a token that a statement calls `t`. */
export const TOKEN_COLUMNS = `t.id, t.workspace_id, (select w.number from workspaces w where w.id = t.workspace_id) as workspace_number,
  t.hash, t.hint, t.type, t.active, t.reusable, t.name, t.expires_at, t.last_used_at, t.scopes, t.app_id, t.created_at, t.updated_at`;
export const tokenOf = (row: RawToken): TokenRow => ({
  id: row.id as TokenId,
  workspaceId: row.workspace_id as WorkspaceId,
  workspaceNumber: row.workspace_number,
  hash: row.hash,
  hint: row.hint,
  type: row.type as TokenType,
  active: row.active,
  reusable: row.reusable,
  name: row.name,
  expiresAtMs: msOrNull(row.expires_at),
  lastUsedAtMs: msOrNull(row.last_used_at),
  scopes: readScopes(row.scopes),
  appId: row.app_id as AppId | null,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** Fields of a token that people choose. */
export type TokenChoice = Pick<TokenRow, 'name' | 'expiresAtMs' | 'scopes' | 'appId'>;

export function insertToken(
  db: Queryable,
  token: Pick<TokenRow, 'id' | 'workspaceId' | 'hash' | 'hint' | 'type' | 'reusable'> &
    Partial<TokenChoice> & {
      /** The signing key, by its id; null: the installation's first. */
      readonly keyId?: string | null;
    },
): Promise<TokenRow> {
  return one(
    db,
    `insert into tokens as t (id, workspace_id, hash, hint, type, reusable, key_id, name, expires_at, scopes, app_id)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) returning ${TOKEN_COLUMNS}`,
    [
      token.id,
      token.workspaceId,
      token.hash,
      token.hint,
      token.type,
      token.reusable,
      token.keyId ?? null,
      token.name ?? '',
      dateOrNull(token.expiresAtMs),
      (token.scopes ?? []).join(','),
      token.appId ?? null,
    ],
    tokenOf,
  );
}

/** A token of the workspace, locked until the end of the transaction. */
export function tokenForUpdate(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<TokenRow | undefined> {
  return maybeOne(
    db,
    `select ${TOKEN_COLUMNS} from tokens t where t.workspace_id = $1 and t.id = $2 and t.type not in ('worker', 'container')
     for update of t`,
    [workspaceId, id],
    tokenOf,
  );
}

/** Writes what people choose. */
export function updateToken(
  db: Queryable,
  id: TokenId,
  chosen: TokenChoice & Pick<TokenRow, 'active'>,
): Promise<TokenRow | undefined> {
  return maybeOne(
    db,
    `update tokens t set name = $2, expires_at = $3, scopes = $4, app_id = $5, active = $6, updated_at = now()
     where t.id = $1 returning ${TOKEN_COLUMNS}`,
    [id, chosen.name, dateOrNull(chosen.expiresAtMs), chosen.scopes.join(','), chosen.appId, chosen.active],
    tokenOf,
  );
}

/** Number of the workspace's tokens that people see. */
export async function countTokens(db: Queryable, workspaceId: WorkspaceId): Promise<number> {
  return one(
    db,
    `select count(*)::integer as tokens from tokens where workspace_id = $1 and type not in ('worker', 'container')`,
    [workspaceId],
    (row: { tokens: number }) => row.tokens,
  );
}

/** A use of a token, as some replica saw it. */
export interface TokenUse {
  readonly tokenId: TokenId;
  readonly atMs: number;
}

/** Notes last uses that are a minute or more later than the noted ones. */
export async function noteTokenUses(db: Queryable, uses: readonly TokenUse[]): Promise<void> {
  if (uses.length === 0) return;
  const records = uses.map(({ tokenId, atMs }) => ({ id: tokenId, at_s: atMs / 1000 }));
  // Locked in the order of their ids: replicas that note the same tokens wait for each other, and never deadlock.
  await db.query(
    `with r as materialized (select id, to_timestamp(at_s) as at from json_to_recordset($1::json) as r (id text, at_s double precision)),
     locked as materialized (
       select t.id from tokens t join r using (id)
       where t.last_used_at is null or t.last_used_at <= r.at - interval '55 seconds'
       order by t.id collate "C" for update of t)
     update tokens t set last_used_at = r.at from r join locked using (id) where t.id = r.id`,
    [JSON.stringify(records)],
  );
}

/** The token of that hash, unless its workspace is being deleted. */
export function tokenByHash(db: Queryable, hash: Uint8Array): Promise<TokenRow | undefined> {
  return maybeOne(
    db,
    `select ${TOKEN_COLUMNS} from tokens t join workspaces w on w.id = t.workspace_id and w.deleting_at is null
     where t.hash = $1`,
    [hash],
    tokenOf,
  );
}

/** Tokens of the workspace, newest first, without the internal `worker` and `container` types. */
export function listTokens(db: Queryable, workspaceId: WorkspaceId, limit: number): Promise<TokenRow[]> {
  return many(
    db,
    `select ${TOKEN_COLUMNS} from tokens t where t.workspace_id = $1 and t.type not in ('worker', 'container')
     order by t.created_at desc, t.id desc limit $2`,
    [workspaceId, limit],
    tokenOf,
  );
}

/** Switches a token on or off. */
export function toggleToken(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<TokenRow | undefined> {
  return maybeOne(
    db,
    `update tokens t set active = not t.active, updated_at = now() where t.workspace_id = $1 and t.id = $2 returning ${TOKEN_COLUMNS}`,
    [workspaceId, id],
    tokenOf,
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
    `delete from tokens t where t.workspace_id = $1 and t.id = $2 returning ${TOKEN_COLUMNS}`,
    [workspaceId, id],
    tokenOf,
  );
}
