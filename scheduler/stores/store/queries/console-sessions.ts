import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf } from '../rows.ts';
import { TOKEN_COLUMNS, tokenOf } from './tokens.ts';
import type { RawToken, TokenRow } from './tokens.ts';

export interface ConsoleSessionRow {
  readonly id: string;
  readonly createdAtMs: number;
  readonly usedAtMs: number;
  readonly expiresAtMs: number;
  readonly endsAtMs: number;
  readonly address: string;
}

/** Times of a session or link, in epoch milliseconds. */
export interface SessionTimes {
  readonly nowMs: number;
  readonly expiresAtMs: number;
  readonly endsAtMs: number;
}

/** The two secrets of a session, as hashes. */
export interface SessionHashes {
  readonly cookie: Uint8Array;
  readonly key: Uint8Array;
}

interface RawSession {
  session_id: string;
  session_key_hash: Uint8Array;
  session_address: string;
  session_created_at: Date;
  session_used_at: Date;
  session_expires_at: Date;
  session_ends_at: Date;
}

const sessionOf = (row: Omit<RawSession, 'session_key_hash'>): ConsoleSessionRow => ({
  id: row.session_id,
  createdAtMs: msOf(row.session_created_at),
  usedAtMs: msOf(row.session_used_at),
  expiresAtMs: msOf(row.session_expires_at),
  endsAtMs: msOf(row.session_ends_at),
  address: row.session_address,
});

const dates = ({ nowMs, expiresAtMs, endsAtMs }: SessionTimes): readonly Date[] =>
  [nowMs, expiresAtMs, endsAtMs].map((ms) => new Date(ms));

/** Locks the token, so that what is counted for it is counted by one at a time. @returns false: it is gone */
export async function lockTokenOfSessions(db: Queryable, tokenId: TokenId): Promise<boolean> {
  return (await db.query('select id from tokens where id = $1 for update', [tokenId])).rowCount > 0;
}

/** Keeps a link that nobody has entered. */
export async function insertConsoleLink(
  db: Queryable,
  of: { readonly id: string; readonly workspaceId: WorkspaceId; readonly tokenId: TokenId; readonly hash: Uint8Array },
  times: SessionTimes,
): Promise<void> {
  await db.query(
    `insert into console_sessions (id, workspace_id, token_id, link_hash, created_at, used_at, expires_at, ends_at)
     values ($1, $2, $3, $4, $5, $5, $6, $7)`,
    [of.id, of.workspaceId, of.tokenId, of.hash, ...dates(times)],
  );
}

/** Makes a session of a link, for the first who comes in time. @returns false: there is no such link any more */
export async function enterConsoleLink(
  db: Queryable,
  linkHash: Uint8Array,
  hashes: SessionHashes,
  address: string,
  times: SessionTimes,
): Promise<boolean> {
  const { rowCount } = await db.query(
    `update console_sessions set link_hash = null, cookie_hash = $2, key_hash = $3, address = $4,
       created_at = $5, used_at = $5, expires_at = $6, ends_at = $7
     where link_hash = $1 and expires_at > $5`,
    [linkHash, hashes.cookie, hashes.key, address, ...dates(times)],
  );
  return rowCount === 1;
}

/** Deletes the sessions and links of a token that were not used for the longest time, beyond as many as it may have. */
export async function trimConsoleSessions(db: Queryable, tokenId: TokenId, most: number): Promise<void> {
  await db.query(
    `delete from console_sessions where id in (
       select id from console_sessions where token_id = $1 order by used_at desc, id desc offset $2)`,
    [tokenId, most],
  );
}

/** The session of a cookie, entered and not over, with its token; the key is compared by the caller. */
export function consoleSessionByCookie(
  db: Queryable,
  cookieHash: Uint8Array,
  nowMs: number,
): Promise<
  { readonly session: ConsoleSessionRow; readonly keyHash: Uint8Array; readonly token: TokenRow } | undefined
> {
  return maybeOne(
    db,
    `select ${TOKEN_COLUMNS}, s.id as session_id, s.key_hash as session_key_hash, s.address as session_address,
       s.created_at as session_created_at, s.used_at as session_used_at, s.expires_at as session_expires_at,
       s.ends_at as session_ends_at
     from console_sessions s join tokens t on t.id = s.token_id
     join workspaces w on w.id = t.workspace_id and w.deleting_at is null
     where s.cookie_hash = $1 and s.expires_at > $2`,
    [cookieHash, new Date(nowMs)],
    (row: RawToken & RawSession) => ({
      session: sessionOf(row),
      keyHash: row.session_key_hash,
      token: tokenOf(row),
    }),
  );
}

/** Notes a use. The session then lasts until the time given, but not beyond its end. */
export async function noteConsoleUse(db: Queryable, id: string, nowMs: number, expiresAtMs: number): Promise<void> {
  await db.query(
    `update console_sessions set used_at = $2, expires_at = least(ends_at, $3)
     where id = $1 and used_at < $2 and expires_at > $2`,
    [id, new Date(nowMs), new Date(expiresAtMs)],
  );
}

/** A session with the token behind it. */
export interface ListedSession extends ConsoleSessionRow {
  readonly tokenId: TokenId;
  readonly tokenName: string;
}

/** Sessions of a workspace's tokens that are entered and not over, those used last first. */
export function consoleSessionsOf(
  db: Queryable,
  workspaceId: WorkspaceId,
  nowMs: number,
  most: number,
): Promise<ListedSession[]> {
  return many(
    db,
    `select s.id as session_id, s.address as session_address, s.created_at as session_created_at,
       s.used_at as session_used_at, s.expires_at as session_expires_at, s.ends_at as session_ends_at,
       t.id as token_id, t.name as token_name
     from console_sessions s join tokens t on t.id = s.token_id
     where s.workspace_id = $1 and s.expires_at > $2 and s.cookie_hash is not null
     order by s.used_at desc, s.id limit $3`,
    [workspaceId, new Date(nowMs), most],
    (row: Omit<RawSession, 'session_key_hash'> & { token_id: string; token_name: string }) => ({
      ...sessionOf(row),
      tokenId: row.token_id as TokenId,
      tokenName: row.token_name,
    }),
  );
}

/** @returns false: the workspace has no such session */
export async function deleteConsoleSession(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<boolean> {
  const text = 'delete from console_sessions where workspace_id = $1 and id = $2 and cookie_hash is not null';
  return (await db.query(text, [workspaceId, id])).rowCount === 1;
}
