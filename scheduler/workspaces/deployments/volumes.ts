// Volumes: named directories of a workspace that outlive containers, and the rules for where a stub may mount them.
// Called by the volume operation and by stubs.ts. The path rules are pure; the agent checks them again.
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import { VOLUME_DRIVERS, isVolumeDriver, isVolumeName } from '#shared/domain/volume-drivers.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { randomUUID } from 'node:crypto';
import type { Caller } from '../identity/caller.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  containersOfVolume,
  deleteVolume,
  deploymentsOfVolume,
  getOrCreateVolume,
  listVolumes,
  volumeHomes,
  volumesByIds,
} from '../../stores/store/queries/volumes.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import type { VolumeRow, VolumeUserRow } from '../../stores/store/queries/volumes.ts';

/** Volumes of a workspace whose limits do not set the number. */
const MAX_VOLUMES = 1_000;

/** Most deployments of a volume that are told. */
const MAX_USERS = 100;

export type VolumeOutcome =
  | { readonly kind: 'volume'; readonly volume: VolumeRow; readonly isNew: boolean }
  | { readonly kind: 'refused'; readonly text: string };

export class Volumes {
  readonly #db: Db;
  readonly #driver: VolumeDriverName;
  readonly #mostOf: (workspaceId: WorkspaceId) => number | Promise<number>;

  /**
   * Volumes of all workspaces.
   * @param driver - `LONGSHORE_VOLUME_DRIVER`: of volumes that name none
   * @param mostOf - number of volumes that a workspace may have
   */
  constructor(
    db: Db,
    driver: VolumeDriverName,
    mostOf: (workspaceId: WorkspaceId) => number | Promise<number> = () => MAX_VOLUMES,
  ) {
    this.#db = db;
    this.#driver = driver;
    this.#mostOf = mostOf;
  }

  /**
   * The workspace's volume of that name, made when there is none.
   * @param driver - empty: the volume's own, or the installation's for a new one
   */
  async getOrCreate(caller: Pick<Caller, 'workspaceId'>, name: string, driver = ''): Promise<VolumeOutcome> {
    if (!isVolumeName(name)) {
      return {
        kind: 'refused',
        text: 'name must be letters, digits, dot, dash or underscore, at most 63, and begin with a letter or digit',
      };
    }
    if (driver !== '' && !isVolumeDriver(driver))
      return { kind: 'refused', text: `driver must be one of ${VOLUME_DRIVERS.join(', ')}` };
    const { workspaceId } = caller;
    const most = await this.#mostOf(workspaceId);
    const newId = randomUUID();
    const wanted = { newId, workspaceId, name, driver: driver === '' ? this.#driver : driver, most };
    const volume = await this.#db.transaction(async (tx) => {
      await lockCounts(tx, workspaceId);
      return await getOrCreateVolume(tx, wanted);
    });
    if (volume === undefined) return { kind: 'refused', text: `a workspace may have ${most} volumes` };
    if (driver !== '' && volume.driver !== driver)
      return {
        kind: 'refused',
        text: `volume ${name} is there with driver ${volume.driver}, and a driver does not change; choose another name`,
      };
    return { kind: 'volume', volume, isNew: volume.id === newId };
  }

  /** Volumes in the order of their names, with their homes. @param after - the last name of the page before */
  list(workspaceId: WorkspaceId, after: string, limit: number): ReturnType<typeof listVolumes> {
    return listVolumes(this.#db, workspaceId, after, limit);
  }

  /** The machine that has a local volume; empty: none yet, or no local volume. */
  async homeOf({ id }: Pick<VolumeRow, 'id'>): Promise<string> {
    return (await volumeHomes(this.#db, [id])).get(id) ?? '';
  }

  /** Deployments that mount the volume, and the number of live containers that do. */
  async usersOf({ workspaceId, id }: Pick<VolumeRow, 'workspaceId' | 'id'>): Promise<{
    readonly deployments: readonly VolumeUserRow[];
    readonly containers: number;
  }> {
    const [deployments, containers] = await Promise.all([
      deploymentsOfVolume(this.#db, workspaceId, id, MAX_USERS),
      containersOfVolume(this.#db, workspaceId, id),
    ]);
    return { deployments, containers };
  }

  /** Forgets the volume. @returns false: an active deployment or a live container mounts it */
  forget({ workspaceId, id }: Pick<VolumeRow, 'workspaceId' | 'id'>): Promise<boolean> {
    return deleteVolume(this.#db, workspaceId, id);
  }

  /**
   * The volume of that name among these ids; refused: none of them has it. Serves
   * calls of a container, which has only the volumes that its stub mounts.
   */
  async among(caller: Pick<Caller, 'workspaceId'>, ids: readonly string[], name: string): Promise<VolumeOutcome> {
    const rows = await volumesByIds(this.#db, caller.workspaceId, ids);
    const volume = rows.find((row) => row.name === name);
    return volume === undefined
      ? { kind: 'refused', text: 'Unauthorized Access' }
      : { kind: 'volume', volume, isNew: false };
  }

  /** Drivers of the volumes among these. @returns the drivers of those that belong to this workspace */
  async drivers(
    caller: Pick<Caller, 'workspaceId'>,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, VolumeDriverName>> {
    if (ids.length === 0) return new Map();
    const known = await volumesByIds(this.#db, caller.workspaceId, ids.filter(isUuid));
    return new Map(known.map((row) => [row.id, row.driver]));
  }
}
