// Entries of maps, items of queues and signals of a workspace. An entry whose time has come is not seen any more; the
// leader deletes it later (retention).
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../db.ts';
import { arrayText, many, maybeOne, msOf, one, storableText } from '../rows.ts';
import { COUNT_MARGIN, lockCounts, writeCounted } from './workspaces.ts';

export type SharedKind = 'map' | 'queue' | 'signal';
export type SharedEncoding = 'json' | 'pickle';

export interface SharedPlace {
  readonly workspaceId: WorkspaceId;
  readonly kind: SharedKind;
  readonly name: string;
}

export interface SharedValue {
  readonly encoding: SharedEncoding;
  readonly value: string;
  /** The stub whose container wrote it; null: a token of the workspace. */
  readonly putBy: StubId | null;
}

export interface SharedEntry extends SharedValue {
  /** Grows with each write to the same place. */
  readonly id: number;
  readonly key: string | null;
  readonly expiresAtMs: number;
}

/** Bounds of a workspace, and of the queue where the item goes. */
export interface SharedRoom {
  readonly entries: number;
  readonly bytes: number;
  /** Most items of the queue; absent: no bound of its own. */
  readonly items?: number;
}

interface Raw {
  id: number | bigint;
  key: string | null;
  encoding: SharedEncoding;
  value: string;
  put_by: StubId | null;
  expires_at: Date;
}
const COLUMNS = 'id, key, encoding, value, put_by, expires_at';
const map = (row: Raw): SharedEntry => ({
  id: Number(row.id),
  key: row.key,
  encoding: row.encoding,
  value: row.value,
  putBy: row.put_by,
  expiresAtMs: msOf(row.expires_at),
});
/** Bytes to the bound from which writes take turns: those at one moment have fewer in all. */
const BYTES_MARGIN = 128 * 1024 * 1024;
const roomOf = ({ entries, bytes }: SharedRoom, hasTurn: boolean): readonly [number, number] =>
  hasTurn ? [entries, bytes] : [entries - COUNT_MARGIN, bytes - BYTES_MARGIN];
const PLACE = 'workspace_id = $1 and kind = $2 and name = $3 and expires_at > now()';
const place = ({ workspaceId, kind, name }: SharedPlace): readonly string[] => [workspaceId, kind, storableText(name)];

/**
 * Writes the entry of a key, also over an earlier one, which then has a new id.
 * @returns its id; undefined: the workspace has no room for it
 */
export function putSharedEntry(
  db: Db,
  at: SharedPlace & { readonly key: string },
  entry: SharedValue & { readonly livesMs: number },
  room: SharedRoom,
): Promise<number | undefined> {
  return writeCounted(db, at.workspaceId, (on, hasTurn) => putWithin(on, at, entry, roomOf(room, hasTurn)));
}

function putWithin(
  db: Queryable,
  at: SharedPlace & { readonly key: string },
  entry: SharedValue & { readonly livesMs: number },
  room: readonly [number, number],
): Promise<number | undefined> {
  const key = storableText(at.key);
  const value = storableText(entry.value);
  return maybeOne(
    db,
    `insert into shared_entries (workspace_id, kind, name, key, encoding, value, bytes, put_by, expires_at)
     select $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::int, $8::text,
       now() + $9::float8 * interval '1 millisecond'
     from (select count(*) as entries, coalesce(sum(bytes), 0) as bytes from shared_entries
       where workspace_id = $1 and expires_at > now() and not (kind = $2 and name = $3 and key = $4)) as used
     where used.entries < $10::float8 and used.bytes + $7 <= $11::float8
     on conflict (workspace_id, kind, name, key) do update set encoding = excluded.encoding, value = excluded.value,
       bytes = excluded.bytes, put_by = excluded.put_by, expires_at = excluded.expires_at,
       id = default
     returning id`,
    [
      ...place(at),
      key,
      entry.encoding,
      value,
      Buffer.byteLength(at.name) + Buffer.byteLength(key) + Buffer.byteLength(value),
      entry.putBy,
      entry.livesMs,
      ...room,
    ],
    (row: { id: number | bigint }) => Number(row.id),
  );
}

/** Adds an item at the end of a queue. @returns its id; undefined: there is no room for it */
export function pushSharedItem(
  db: Db,
  at: SharedPlace,
  item: SharedValue & { readonly livesMs: number },
  room: SharedRoom,
): Promise<number | undefined> {
  const push = (on: Queryable, hasTurn: boolean) => pushWithin(on, at, item, roomOf(room, hasTurn), room.items);
  if (room.items === undefined) return writeCounted(db, at.workspaceId, push);
  // The queue's own bound may be 1, so there is no margin to it.
  return db.transaction(async (tx) => {
    await lockCounts(tx, at.workspaceId);
    return await push(tx, true);
  });
}

function pushWithin(
  db: Queryable,
  at: SharedPlace,
  item: SharedValue & { readonly livesMs: number },
  room: readonly [number, number],
  mostItems: number | undefined,
): Promise<number | undefined> {
  const value = storableText(item.value);
  return maybeOne(
    db,
    `insert into shared_entries (workspace_id, kind, name, key, encoding, value, bytes, put_by, expires_at)
     select $1::text, $2::text, $3::text, null, $4::text, $5::text, $6::int, $7::text,
       now() + $8::float8 * interval '1 millisecond'
     from (select count(*) as entries, coalesce(sum(bytes), 0) as bytes from shared_entries
       where workspace_id = $1 and expires_at > now()) as used
     where used.entries < $9::float8 and used.bytes + $6 <= $10::float8
       and ($11::float8 is null or (select count(*) from shared_entries where ${PLACE}) < $11::float8)
     returning id`,
    [
      ...place(at),
      item.encoding,
      value,
      Buffer.byteLength(at.name) + Buffer.byteLength(value),
      item.putBy,
      item.livesMs,
      ...room,
      mostItems ?? null,
    ],
    (row: { id: number | bigint }) => Number(row.id),
  );
}

/** The entry of a key. */
export function sharedEntry(
  db: Queryable,
  at: SharedPlace & { readonly key: string },
): Promise<SharedEntry | undefined> {
  const sql = `select ${COLUMNS} from shared_entries where ${PLACE} and key = $4`;
  return maybeOne(db, sql, [...place(at), storableText(at.key)], map);
}

/** The signals among these that are set, each with the number of its last setting. */
export function signalRevisions(
  db: Queryable,
  signals: readonly { readonly workspaceId: WorkspaceId; readonly name: string }[],
): Promise<{ readonly workspaceId: WorkspaceId; readonly name: string; readonly revision: number }[]> {
  return many(
    db,
    `select e.workspace_id, e.name, e.id from unnest($1::text[], $2::text[]) as asked (workspace_id, name)
     join shared_entries e on e.workspace_id = asked.workspace_id and e.kind = 'signal' and e.name = asked.name
       and e.key = '' and e.expires_at > now()`,
    [arrayText(signals.map((one) => one.workspaceId)), arrayText(signals.map((one) => storableText(one.name)))],
    (row: { workspace_id: WorkspaceId; name: string; id: number | bigint }) => ({
      workspaceId: row.workspace_id,
      name: row.name,
      revision: Number(row.id),
    }),
  );
}

/** Keys in their order, after the given one. */
export function sharedKeys(db: Queryable, at: SharedPlace, after: string, limit: number): Promise<string[]> {
  return many(
    db,
    `select key from shared_entries where ${PLACE} and key > $4 order by key limit $5`,
    [...place(at), storableText(after), limit],
    (row: { key: string }) => row.key,
  );
}

/** Number of entries of a map, or of items of a queue. */
export function sharedCount(db: Queryable, at: SharedPlace): Promise<number> {
  const sql = `select count(*)::int as n from shared_entries where ${PLACE}`;
  return one(db, sql, place(at), (row: { n: number }) => row.n);
}

/** A map or a queue of a workspace. */
export interface SharedName {
  readonly name: string;
  readonly entries: number;
  readonly bytes: number;
}

/** Names of a kind in their order, after the given one. A workspace's bound of entries is that of the rows read. */
export function sharedNames(
  db: Queryable,
  { workspaceId, kind }: Pick<SharedPlace, 'workspaceId' | 'kind'>,
  after: string,
  limit: number,
): Promise<SharedName[]> {
  return many(
    db,
    `select name, count(*)::int as entries, sum(bytes) as bytes from shared_entries
     where workspace_id = $1 and kind = $2 and name > $3 and expires_at > now() group by name order by name limit $4`,
    [workspaceId, kind, storableText(after), limit],
    (row: { name: string; entries: number; bytes: number | bigint }) => ({ ...row, bytes: Number(row.bytes) }),
  );
}

/** Deletes entries of a map, or items of a queue, the oldest first. @returns how many */
export async function clearShared(db: Queryable, at: SharedPlace, most: number): Promise<number> {
  const { rowCount } = await db.query(
    `delete from shared_entries where id = any (array(
       select id from shared_entries where ${PLACE} order by id limit $4 for update))`,
    [...place(at), most],
  );
  return rowCount;
}

/** Deletes the entry of a key. @returns whether there was one */
export async function deleteSharedEntry(db: Queryable, at: SharedPlace & { readonly key: string }): Promise<boolean> {
  const sql = `delete from shared_entries where ${PLACE} and key = $4`;
  const { rowCount } = await db.query(sql, [...place(at), storableText(at.key)]);
  return rowCount > 0;
}

/** The oldest item of a queue. */
export function firstSharedItem(db: Queryable, at: SharedPlace): Promise<SharedEntry | undefined> {
  const sql = `select ${COLUMNS} from shared_entries where ${PLACE} order by id limit 1`;
  return maybeOne(db, sql, place(at), map);
}

/** The oldest item of a queue that nobody else is taking, locked until the transaction ends. */
export function lockFirstSharedItem(tx: Queryable, at: SharedPlace): Promise<SharedEntry | undefined> {
  const sql = `select ${COLUMNS} from shared_entries where ${PLACE} order by id limit 1 for update skip locked`;
  return maybeOne(tx, sql, place(at), map);
}

export async function deleteSharedItem(tx: Queryable, id: number): Promise<void> {
  await tx.query('delete from shared_entries where id = $1', [id]);
}
