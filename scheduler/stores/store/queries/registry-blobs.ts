// Contents of the managed registry for a workspace, by name and bytes: blobs (`sha256:…`), manifests
// (`manifest sha256:…`), uploads (`upload …`), and writes whose name the registry has yet to say (`begun …`).
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../db.ts';
import { many, one } from '../rows.ts';

/** The registry discards an upload a day after its begin. Its bytes count for longer, because nobody can look. */
const UPLOADS_COUNT = `interval '2 days'`;
/** Each blob takes files and a row, however small it is. */
const MOST_NAMES = 50_000;

/** A row, and the request that writes it. */
export interface BlobWriter {
  readonly workspaceId: WorkspaceId;
  readonly name: string;
  readonly writer: string;
}

/** Statement for the bytes of workspace $1 in the registry. */
export const REGISTRY_BYTES = 'select coalesce(sum(bytes), 0) from registry_blobs where workspace_id = $1';

/** Bytes of a workspace in the registry. */
export function registryBytes(db: Queryable, workspaceId: WorkspaceId): Promise<number> {
  return one(db, `select (${REGISTRY_BYTES})::float8 as bytes`, [workspaceId], (row: { bytes: number }) => row.bytes);
}

/**
 * Takes bytes of the workspace's allowance for a write, in turn with everybody who takes of the same allowance.
 * @param asked - need: bytes that are there now; wish: bytes that would save further questions; most: the allowance
 * @param isNew - whether the write begins something; one that goes on needs its row
 * @returns the bytes that it took, at least `need`; `over`: that many are not left; `busy`: another request writes;
 * `unknown`: there is no such upload
 */
export function takeRegistryBytes(
  db: Db,
  { workspaceId, name, writer }: BlobWriter,
  {
    isNew,
    need,
    wish,
    most,
  }: { readonly isNew: boolean; readonly need: number; readonly wish: number; readonly most: number },
): Promise<number | 'over' | 'busy' | 'unknown'> {
  return db.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 47))', [workspaceId]);
    const {
      bytes,
      names,
      is_known: isKnown,
    } = await one(
      tx,
      `select coalesce(sum(bytes), 0)::float8 as bytes, count(*)::int as names,
         coalesce(bool_or(name = $2), false) as is_known
       from registry_blobs where workspace_id = $1`,
      [workspaceId, name],
      (row: { bytes: number; names: number; is_known: boolean }) => row,
    );
    if (!isNew && !isKnown) return 'unknown';
    const left = most - bytes;
    if ((need > 0 && need > left) || (!isKnown && names >= MOST_NAMES)) return 'over';
    // Uploads side by side share the rest, so none takes much ahead of its need when little is left.
    const taken = Math.max(need, Math.min(wish, Math.floor(Math.max(0, left) / 16)));
    const { rowCount } = await tx.query(
      `insert into registry_blobs as b (workspace_id, name, bytes, writer) values ($1, $2, $3, $4)
       on conflict (workspace_id, name) do update
         set bytes = b.bytes + excluded.bytes, writer = excluded.writer, touched_at = now()
       where b.writer is null or b.writer = excluded.writer`,
      [workspaceId, name, taken, writer],
    );
    return rowCount === 1 ? taken : 'busy';
  });
}

/** Ends a write, and gives back bytes that it took ahead and did not send. */
export async function endRegistryWrite(db: Queryable, by: BlobWriter, unsent: number): Promise<void> {
  await db.query(
    `update registry_blobs set bytes = greatest(0, bytes - $4), writer = null, touched_at = now()
     where workspace_id = $1 and name = $2 and writer = $3`,
    [by.workspaceId, by.name, by.writer, unsent],
  );
}

/**
 * Ends a write that broke off, or of whose end nobody knows. The upload takes no other one, because the registry may
 * still write what it got.
 * @param mayBe - what the registry may have made of it, which counts besides until the registry is seen not to have it
 */
export async function breakRegistryWrite(
  db: Queryable,
  by: BlobWriter,
  unsent: number,
  mayBe: string | null,
): Promise<void> {
  await db.query(
    `with broken as (
       update registry_blobs set bytes = greatest(0, bytes - $4), touched_at = now()
       where workspace_id = $1 and name = $2 and writer = $3 returning bytes)
     insert into registry_blobs (workspace_id, name, bytes)
     select $1::text, $5::text, bytes from broken where $5::text is not null on conflict do nothing`,
    [by.workspaceId, by.name, by.writer, unsent, mayBe],
  );
}

/** Ends a write whose thing has another name now. Where the registry had that name before, it keeps one copy. */
export async function renameRegistryBlob(db: Queryable, by: BlobWriter, to: string, unsent: number): Promise<void> {
  await db.query(
    `with gone as (
       delete from registry_blobs where workspace_id = $1 and name = $2 and writer = $3 returning bytes)
     insert into registry_blobs (workspace_id, name, bytes) select $1::text, $4::text, greatest(0, bytes - $5) from gone
     on conflict (workspace_id, name) do update set touched_at = now()`,
    [by.workspaceId, by.name, by.writer, to, unsent],
  );
}

/** Ends a write of which the registry has kept nothing. */
export async function forgetRegistryWrite(db: Queryable, by: BlobWriter): Promise<void> {
  await db.query('delete from registry_blobs where workspace_id = $1 and name = $2 and writer = $3', [
    by.workspaceId,
    by.name,
    by.writer,
  ]);
}

export interface KeptBlob {
  readonly workspaceId: WorkspaceId;
  readonly name: string;
}

/**
 * Deletes uploads that the registry has discarded, at most `limit`. One whose last writer was about to make a blob of
 * it, and has not said how that ended, counts as that blob, which is to be looked for.
 */
export async function deleteOldUploads(db: Queryable, limit: number): Promise<void> {
  await db.query(
    `with old as (
       delete from registry_blobs where ctid = any (array(
         select ctid from registry_blobs
         where touched_at < now() - ${UPLOADS_COUNT} and name not like '%sha256:%' limit $1))
       returning workspace_id, bytes, substring(writer from 'sha256:[0-9a-f]{64}$') as may_be)
     insert into registry_blobs (workspace_id, name, bytes, touched_at)
     select workspace_id, may_be, max(bytes), now() - ${UPLOADS_COUNT} from old where may_be is not null group by 1, 2
     on conflict do nothing`,
    [limit],
  );
}

/** Blobs and manifests that nobody has seen in the registry for the longest time. */
export function unseenBlobs(db: Queryable, hours: number, limit: number): Promise<KeptBlob[]> {
  return many(
    db,
    `select workspace_id, name from registry_blobs
     where touched_at < now() - make_interval(hours => $1) and name like '%sha256:%' order by touched_at limit $2`,
    [hours, limit],
    (row: { workspace_id: string; name: string }) => ({
      workspaceId: row.workspace_id as WorkspaceId,
      name: row.name,
    }),
  );
}

/** Puts blobs about which the registry said nothing behind all others that are to be looked for. */
export async function putBehind(db: Queryable, hours: number, blobs: readonly KeptBlob[]): Promise<void> {
  await db.query(
    `update registry_blobs b set touched_at = now() - make_interval(hours => $3)
     from unnest($1::text[], $2::text[]) as l (workspace_id, name)
     where b.workspace_id = l.workspace_id and b.name = l.name
       and b.touched_at < now() - make_interval(hours => $3)`,
    [blobs.map(({ workspaceId }) => workspaceId), blobs.map(({ name }) => name), hours],
  );
}

/** Notes what the registry has of them. One that was written since it was read as unseen stays. */
export async function noteSeenBlobs(
  db: Queryable,
  hours: number,
  seen: readonly KeptBlob[],
  gone: readonly KeptBlob[],
): Promise<void> {
  const isStillUnseen = 'b.touched_at < now() - make_interval(hours => $3)';
  const lists = (blobs: readonly KeptBlob[]) => [
    blobs.map(({ workspaceId }) => workspaceId),
    blobs.map(({ name }) => name),
    hours,
  ];
  const which = `from unnest($1::text[], $2::text[]) as l (workspace_id, name)`;
  const matches = `b.workspace_id = l.workspace_id and b.name = l.name and ${isStillUnseen}`;
  await db.query(`update registry_blobs b set touched_at = now() ${which} where ${matches}`, lists(seen));
  await db.query(`delete from registry_blobs b using (select * ${which}) l where ${matches}`, lists(gone));
}
