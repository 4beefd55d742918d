import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, one } from '../rows.ts';
import { NOT_ENDED } from './containers.ts';

export interface VolumeRow {
  readonly id: string;
  readonly workspaceId: WorkspaceId;
  readonly name: string;
  readonly driver: VolumeDriverName;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  name: string;
  driver: string;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS = 'id, workspace_id, name, driver, created_at, updated_at';
const map = (row: Raw): VolumeRow => ({
  id: row.id,
  workspaceId: row.workspace_id as WorkspaceId,
  name: row.name,
  driver: row.driver as VolumeDriverName,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/**
 * The workspace's volume of that name, with the driver it was made with;
 * undefined when the volume is missing and the workspace has `most` already.
 */
export function getOrCreateVolume(
  db: Queryable,
  volume: {
    readonly newId: string;
    readonly workspaceId: WorkspaceId;
    readonly name: string;
    readonly driver: VolumeDriverName;
    readonly most: number;
  },
): Promise<VolumeRow | undefined> {
  return maybeOne(
    db,
    `insert into volumes (id, workspace_id, name, driver)
     select $1::text, $2::text, $3::text, $5::text
     where (select count(*) from volumes where workspace_id = $2) < $4
       or exists (select 1 from volumes where workspace_id = $2 and name = $3)
     on conflict (workspace_id, name) do update set name = excluded.name returning ${COLUMNS}`,
    [volume.newId, volume.workspaceId, volume.name, volume.most, volume.driver],
    map,
  );
}

/** The workspace's volumes among these ids. */
export function volumesByIds(db: Queryable, workspaceId: WorkspaceId, ids: readonly string[]): Promise<VolumeRow[]> {
  return many(
    db,
    `select ${COLUMNS} from volumes where workspace_id = $1 and id = any ($2::text[])`,
    [workspaceId, ids],
    map,
  );
}

/** The workspace's volume of that name. */
export function volumeByName(db: Queryable, workspaceId: WorkspaceId, name: string): Promise<VolumeRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from volumes where workspace_id = $1 and name = $2`, [workspaceId, name], map);
}

/** A volume of any workspace that is not being deleted, for a caller who was told its id. */
export function volumeById(db: Queryable, id: string): Promise<VolumeRow | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS} from volumes where id = $1
       and not exists (select 1 from workspaces w where w.id = workspace_id and w.deleting_at is not null)`,
    [id],
    map,
  );
}

/** Ids among these that name no volume of any workspace. */
export async function volumesWithoutRow(db: Queryable, ids: readonly string[]): Promise<string[]> {
  return many<{ id: string }, string>(
    db,
    'select id from unnest($1::text[]) as wanted (id) where not exists (select 1 from volumes v where v.id = wanted.id)',
    [ids],
    (row) => row.id,
  );
}

/** The machines that hold these volumes' directories; a volume that was mounted nowhere yet is absent. */
export async function volumeHomes(db: Queryable, ids: readonly string[]): Promise<ReadonlyMap<string, MachineId>> {
  const rows = await many<{ id: string; home_machine_id: string }, readonly [string, MachineId]>(
    db,
    'select id, home_machine_id from volumes where id = any ($1::text[]) and home_machine_id is not null',
    [ids],
    (row) => [row.id, row.home_machine_id as MachineId],
  );
  return new Map(rows);
}

/** Makes the machine the home of those volumes that have none. @returns whether it is now the home of all of them */
export async function bindVolumes(db: Queryable, ids: readonly string[], machineId: MachineId): Promise<boolean> {
  await db.query(
    'update volumes set home_machine_id = $2, updated_at = now() where id = any ($1::text[]) and home_machine_id is null',
    [ids, machineId],
  );
  const homes = await volumeHomes(db, ids);
  return [...homes.values()].every((home) => home === machineId);
}

/** Volumes of a workspace by name, with their homes. @param after - the last name of the page before */
export function listVolumes(
  db: Queryable,
  workspaceId: WorkspaceId,
  after: string,
  limit: number,
): Promise<(VolumeRow & { readonly homeMachineId: string })[]> {
  return many<Raw & { home_machine_id: string | null }, VolumeRow & { readonly homeMachineId: string }>(
    db,
    `select ${COLUMNS}, home_machine_id from volumes
     where workspace_id = $1 and name collate "C" > $2 order by name collate "C" limit $3`,
    [workspaceId, after, limit],
    (row) => ({ ...map(row), homeMachineId: row.home_machine_id ?? '' }),
  );
}

export interface VolumeUserRow {
  readonly id: string;
  readonly name: string;
  readonly version: number;
  readonly stubType: string;
  readonly active: boolean;
}

/** Whether a stub, `s`, mounts the volume `$2`. */
const MOUNTS = `s.config -> 'volumes' @> jsonb_build_array(jsonb_build_object('volumeId', $2::text))`;
const LIVE_CONTAINERS = `select 1 from containers c join stubs s on s.id = c.stub_id
  where c.workspace_id = $1 and c.${NOT_ENDED} and ${MOUNTS}`;

/** Deployments that mount the volume and are not deleted: active ones first, then newer ones. */
export function deploymentsOfVolume(
  db: Queryable,
  workspaceId: WorkspaceId,
  volumeId: string,
  limit: number,
): Promise<VolumeUserRow[]> {
  return many<{ id: string; name: string; version: number; stub_type: string; active: boolean }, VolumeUserRow>(
    db,
    `select d.id, d.name, d.version, d.stub_type, d.active from deployments d join stubs s on s.id = d.stub_id
     where d.workspace_id = $1 and d.deleted_at is null and ${MOUNTS}
     order by d.active desc, d.created_at desc, d.id limit $3`,
    [workspaceId, volumeId, limit],
    ({ stub_type: stubType, ...row }) => ({ ...row, stubType }),
  );
}

/** Number of live containers that mount the volume. */
export function containersOfVolume(db: Queryable, workspaceId: WorkspaceId, volumeId: string): Promise<number> {
  return one<{ count: number }, number>(
    db,
    `select count(*)::int as count from (${LIVE_CONTAINERS}) as live`,
    [workspaceId, volumeId],
    (row) => row.count,
  );
}

/** Deletes the volume unless an active deployment or a live container mounts it. @returns whether it is gone */
export async function deleteVolume(db: Queryable, workspaceId: WorkspaceId, volumeId: string): Promise<boolean> {
  const deleted = await maybeOne<{ id: string }, string>(
    db,
    `delete from volumes where workspace_id = $1 and id = $2
       and not exists (select 1 from deployments d join stubs s on s.id = d.stub_id
                       where d.workspace_id = $1 and d.active and d.deleted_at is null and ${MOUNTS})
       and not exists (${LIVE_CONTAINERS})
     returning id`,
    [workspaceId, volumeId],
    (row) => row.id,
  );
  return deleted !== undefined;
}
