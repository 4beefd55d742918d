import type { InstanceId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../db.ts';
import { many, maybeOne, msOf, msOrNull, storableText } from '../rows.ts';
import { lockCounts } from './workspaces.ts';

export type ImageState = 'PENDING' | 'BUILDING' | 'READY' | 'FAILED';

export interface ImageRow {
  readonly id: string;
  readonly workspaceId: WorkspaceId;
  /** The definition as stored; its shape belongs to the module that wrote it. */
  readonly definition: object;
  readonly state: ImageState;
  readonly forced: boolean;
  /** Whether a scheduler process that lives has the build. */
  readonly isOwned: boolean;
  readonly error: string;
  /** In the managed registry; empty: it is not there. */
  readonly digest: string;
  /** Why the last push failed; empty: it did not, or there was none. */
  readonly pushError: string;
  readonly createdAtMs: number;
  readonly builtAtMs: number | null;
  readonly usedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  definition: object;
  state: string;
  forced: boolean;
  is_owned: boolean;
  error: string;
  registry_digest: string;
  push_error: string;
  created_at: Date;
  built_at: Date | null;
  used_at: Date;
}
/** Time without a sign of life after which another process may take a build over. */
const OWNED = `(state = 'BUILDING' and renewed_at > now() - interval '30 seconds')`;
const COLUMNS = `id, workspace_id, definition, state, forced, ${OWNED} as is_owned, error, registry_digest, push_error, created_at, built_at, used_at`;
const map = (row: Raw): ImageRow => ({
  id: row.id,
  workspaceId: row.workspace_id as WorkspaceId,
  definition: row.definition,
  state: row.state as ImageState,
  forced: row.forced,
  isOwned: row.is_owned,
  error: row.error,
  digest: row.registry_digest,
  pushError: row.push_error,
  createdAtMs: msOf(row.created_at),
  builtAtMs: msOrNull(row.built_at),
  usedAtMs: msOf(row.used_at),
});

/** An image of the workspace. */
export function imageById(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<ImageRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from images where workspace_id = $1 and id = $2`, [workspaceId, id], map);
}

export function imagesOfWorkspace(db: Queryable, workspaceId: WorkspaceId, most: number): Promise<ImageRow[]> {
  return many(
    db,
    `select ${COLUMNS} from images where workspace_id = $1 order by created_at desc, id limit $2`,
    [workspaceId, most],
    map,
  );
}

/** Output of the last build, as far as it is kept. */
export async function imageOutput(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<string | undefined> {
  return maybeOne<{ output: string }, string>(
    db,
    'select output from images where workspace_id = $1 and id = $2',
    [workspaceId, id],
    ({ output }) => output,
  );
}

/** Begins to use an image: it is not collected for a while. */
export async function touchImage(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<void> {
  await db.query('update images set used_at = now() where workspace_id = $1 and id = $2', [workspaceId, id]);
}

/** Has the next build of an image use no layer again. */
export async function forceImage(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<void> {
  await db.query('update images set forced = true where workspace_id = $1 and id = $2', [workspaceId, id]);
}

/**
 * Gives the build of an image to a process.
 * @returns `owned`: a process that lives has it; `too_many`: the workspace builds as many as it may; `full`: it has
 * as many images as it may
 */
export function claimBuild(
  db: Db,
  image: {
    readonly id: string;
    readonly workspaceId: WorkspaceId;
    readonly definition: object;
    readonly owner: InstanceId;
    readonly most: number;
    readonly mostImages: number;
    /** A new image uses no layer from before, either. */
    readonly forced: boolean;
  },
): Promise<'claimed' | 'owned' | 'too_many' | 'full'> {
  return db.transaction((tx) => claimLocked(tx, image));
}

async function claimLocked(
  tx: Queryable,
  image: Parameters<typeof claimBuild>[1],
): Promise<'claimed' | 'owned' | 'too_many' | 'full'> {
  const { id, workspaceId } = image;
  await lockCounts(tx, workspaceId);
  await tx.query(
    `insert into images (id, workspace_id, definition, forced) select $1::text, $2::text, $3::jsonb, $5::boolean
     where (select count(*) from images where workspace_id = $2) < $4 on conflict (id) do nothing`,
    [id, workspaceId, storableText(JSON.stringify(image.definition)), image.mostImages, image.forced],
  );
  const { rowCount } = await tx.query(
    `update images set state = 'BUILDING', owner = $3, renewed_at = now(), used_at = now(), output = '', error = ''
     where id = $1 and workspace_id = $2 and not ${OWNED}
       and (select count(*) from images where workspace_id = $2 and ${OWNED}) < $4`,
    [id, workspaceId, image.owner, image.most],
  );
  if (rowCount > 0) return 'claimed';
  const row = await imageById(tx, workspaceId, id);
  if (row === undefined) return 'full';
  return row.isOwned ? 'owned' : 'too_many';
}

/** Writes what a build has said, as a sign of life. @returns false: the build is not this process's any more */
export async function renewBuild(db: Queryable, id: string, owner: InstanceId, output: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `update images set renewed_at = now(), output = $3 where id = $1 and owner = $2 and state = 'BUILDING'`,
    [id, owner, storableText(output)],
  );
  return rowCount > 0;
}

export interface BuildEnd {
  readonly id: string;
  readonly owner: InstanceId;
  readonly state: 'READY' | 'FAILED' | 'PENDING';
  readonly error: string;
  readonly output: string;
  /** The machine that has the image now; absent: none got it. */
  readonly place?: { readonly machineId: MachineId; readonly sizeBytes: number };
  /** Absent: nobody tried to push it. */
  readonly push?: PushEnd;
}

/** An image in the registry, or why it is not there. */
export type PushEnd = { readonly digest: string } | { readonly error: string };

/** Ends a build. @returns false: it was not this process's any more, and nothing was written */
export async function endBuild(db: Queryable, end: BuildEnd): Promise<boolean> {
  const { id, owner, state, error, output, place } = end;
  // A build before this one pushed another image.
  const { digest = '', error: pushError = '' } = pushed(end.push);
  const { rowCount } = await db.query(
    `update images set state = $3, owner = null, renewed_at = null, error = $4, output = $5,
       forced = forced and $3 <> 'READY', built_at = case when $3 = 'READY' then now() else built_at end,
       registry_digest = case when $3 = 'READY' then $6 else registry_digest end,
       push_error = case when $3 = 'READY' then $7 else push_error end,
       push_tried_at = case when $8 then now() when $3 = 'READY' then null else push_tried_at end
     where id = $1 and owner = $2 and state = 'BUILDING'`,
    [
      id,
      owner,
      state,
      storableText(error),
      storableText(output),
      digest,
      storableText(pushError),
      end.push !== undefined,
    ],
  );
  if (rowCount === 0 || place === undefined) return rowCount > 0;
  await db.query(
    `insert into image_machines (image_id, machine_id, size_bytes) values ($1, $2, $3)
     on conflict (image_id, machine_id) do update set size_bytes = excluded.size_bytes, built_at = now()`,
    [id, place.machineId, place.sizeBytes],
  );
  return true;
}

const pushed = (push: PushEnd | undefined): { readonly digest?: string; readonly error?: string } => push ?? {};

/** Deletes snapshots whose process gave no sign of life: they cannot be made again. @returns their images */
export function deleteLostSnapshots(db: Queryable): Promise<string[]> {
  return many<{ id: string }, string>(
    db,
    `delete from images where state = 'BUILDING' and not ${OWNED} and definition->>'snapshotOf' is not null returning id`,
    [],
    (row) => row.id,
  );
}

/** Ends builds whose process gave no sign of life. @returns their images */
export function endLostBuilds(db: Queryable): Promise<string[]> {
  return many<{ id: string }, string>(
    db,
    `update images set state = 'PENDING', owner = null, renewed_at = null, error = $1
     where state = 'BUILDING' and not ${OWNED} returning id`,
    ['the build was cut off: begin it again'],
    (row) => row.id,
  );
}

/** An image that is on a machine, and not in the registry. */
export interface UnpushedImage {
  readonly id: string;
  readonly workspaceId: WorkspaceId;
  readonly machineId: MachineId;
  readonly builtAtMs: number;
}

/** Images that nobody tried to push in the last minutes, those that wait longest first. */
export function unpushedImages(
  db: Queryable,
  machines: readonly MachineId[],
  notSinceMinutes: number,
  most: number,
): Promise<UnpushedImage[]> {
  return many<{ id: string; workspace_id: string; machine_id: string; built_at: Date }, UnpushedImage>(
    db,
    `select distinct on (i.push_tried_at, i.id) i.id, i.workspace_id, m.machine_id, i.built_at
     from images i join image_machines m on m.image_id = i.id
     where i.state = 'READY' and i.registry_digest = '' and i.built_at is not null and m.machine_id = any ($1::text[])
       and (i.push_tried_at is null or i.push_tried_at < now() - make_interval(mins => $2))
     order by i.push_tried_at nulls first, i.id, m.built_at desc limit $3`,
    [machines, notSinceMinutes, most],
    (row) => ({
      id: row.id,
      workspaceId: row.workspace_id as WorkspaceId,
      machineId: row.machine_id as MachineId,
      builtAtMs: msOf(row.built_at),
    }),
  );
}

/** Writes the end of a push, unless the image was built again meanwhile. */
export async function endPush(
  db: Queryable,
  { id, builtAtMs }: Pick<UnpushedImage, 'id' | 'builtAtMs'>,
  push: PushEnd,
): Promise<void> {
  const { digest = '', error = '' } = pushed(push);
  await db.query(
    `update images set registry_digest = $3, push_error = $4, push_tried_at = now()
     where id = $1 and state = 'READY' and date_trunc('milliseconds', built_at) = $2`,
    [id, new Date(builtAtMs), digest, storableText(error)],
  );
}

/** The registry does not have an image any more. @returns false: no image of the workspace is that one now */
export async function forgetDigest(db: Queryable, workspaceId: WorkspaceId, digest: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `update images set registry_digest = '', push_tried_at = null, push_error = 'the registry lost it'
     where workspace_id = $1 and registry_digest = $2`,
    [workspaceId, digest],
  );
  return rowCount > 0;
}

/** Images of a workspace, with their digests in the registry; empty: not there. */
export async function digestsOfWorkspace(db: Queryable, workspaceId: string): Promise<ReadonlyMap<string, string>> {
  const rows = await many<{ id: string; registry_digest: string }, readonly [string, string]>(
    db,
    'select id, registry_digest from images where workspace_id = $1',
    [workspaceId],
    (row) => [row.id, row.registry_digest] as const,
  );
  return new Map(rows);
}

/** Images among these that the registry has. */
export function imagesInRegistry(db: Queryable, ids: readonly string[]): Promise<string[]> {
  return many<{ id: string }, string>(
    db,
    `select id from images where id = any ($1::text[]) and registry_digest <> ''`,
    [ids],
    (row) => row.id,
  );
}

export interface ImagePlace {
  readonly imageId: string;
  readonly machineId: MachineId;
  readonly sizeBytes: number;
}

/** Machines that have these images. */
export function imagePlaces(db: Queryable, ids: readonly string[]): Promise<ImagePlace[]> {
  return many<{ image_id: string; machine_id: string; size_bytes: number }, ImagePlace>(
    db,
    'select image_id, machine_id, size_bytes from image_machines where image_id = any ($1::text[])',
    [ids],
    (row) => ({ imageId: row.image_id, machineId: row.machine_id as MachineId, sizeBytes: Number(row.size_bytes) }),
  );
}

/** Images that a machine should have. */
export function imagesOfMachine(db: Queryable, machineId: MachineId): Promise<string[]> {
  return many<{ image_id: string }, string>(
    db,
    'select image_id from image_machines where machine_id = $1',
    [machineId],
    (row) => row.image_id,
  );
}

/** Images among these that are being built, on any machine. */
export function imagesInBuild(db: Queryable, ids: readonly string[]): Promise<string[]> {
  return many<{ id: string }, string>(
    db,
    `select id from images where id = any ($1::text[]) and state = 'BUILDING'`,
    [ids],
    (row) => row.id,
  );
}

/** Forgets that a machine has those images. */
export async function forgetPlaces(db: Queryable, machineId: MachineId, ids: readonly string[]): Promise<void> {
  await db.query('delete from image_machines where machine_id = $1 and image_id = any ($2::text[])', [machineId, ids]);
}

/** A deployment that exists, active or not, keeps its image; so does a build. */
const UNUSED = `state <> 'BUILDING' and not exists (
  select 1 from deployments d join stubs s on s.id = d.stub_id
  where d.workspace_id = images.workspace_id and d.deleted_at is null and s.config->>'imageId' = images.id)`;

/** Deletes an image of the workspace. @returns false: there is none, or something uses it */
export async function deleteImage(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<boolean> {
  const { rowCount } = await db.query(`delete from images where workspace_id = $1 and id = $2 and ${UNUSED}`, [
    workspaceId,
    id,
  ]);
  return rowCount > 0;
}

/** Deletes images that no deployment has and that nobody asked for since. @returns their ids */
export function deleteUnusedImages(db: Queryable, olderThanDays: number, most: number): Promise<string[]> {
  return many<{ id: string }, string>(
    db,
    `delete from images where id in (
       select id from images where used_at < now() - make_interval(days => $1) and ${UNUSED} order by used_at limit $2)
     returning id`,
    [olderThanDays, most],
    (row) => row.id,
  );
}
