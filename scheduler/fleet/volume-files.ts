// Files of volumes: signed addresses, the machine whose agent serves a volume, and the bounds of transfers. The bytes
// themselves pass in api/http/ops/volume-files.ts; calls on folders and entries are in volume-calls.ts.
// Invariant: an address leads to one file, or to packs below one folder, of one volume, for one direction. Its
// signature is the credential.
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { isVolumeName, volumesDownCondition } from '#shared/domain/volume-drivers.ts';
import { filePathProblem, folderPathProblem } from '#shared/domain/volume-file-paths.ts';
import type { Clock } from '#shared/clock.ts';
import { Places, SharedPlaces } from '#shared/places.ts';
import { mayUsePool } from '../domain/pools.ts';
import type { Queryable } from '../stores/store/db.ts';
import { bindVolumes, volumeById, volumeByName, volumeHomes } from '../stores/store/queries/volumes.ts';
import type { VolumeRow } from '../stores/store/queries/volumes.ts';
import type { Machine } from './machine.ts';
import { cachesHere, isSchedulable } from './machine.ts';
import { readPart, readUploadId, uploadIdOf } from './parted-uploads.ts';
import type { Part } from './parted-uploads.ts';
import type { VolumeStreams } from './volume-streams.ts';

/** Path of the files' addresses; the volume's id follows, with `path`, `expires` and `signature` in the query. */
export const VOLUME_FILES_PATH = '/api/v1/gateway/volumes/files/';
/** Path of the addresses of packs: many files in one request. */
export const VOLUME_PACKS_PATH = '/api/v1/gateway/volumes/packs/';
/** Life of an address. */
export const FILE_ADDRESS_LIFE_MS = 86_400_000;
/** Most transfers through this replica at once. */
export const MOST_OF_WORKSPACE = 16;
export const MOST_OF_MACHINE = 32;

/**
 * Direction of an address. For one file: `get` serves GET and HEAD, `put` serves PUT and HEAD, and `part` serves PUT of
 * one part. For packs below a folder: `pack` reads by POST, `unpack` writes by PUT.
 */
export type FilePurpose = 'get' | 'put' | 'part' | 'pack' | 'unpack';
const isPack = (purpose: FilePurpose): boolean => purpose === 'pack' || purpose === 'unpack';
const isWrite = (purpose: FilePurpose): boolean => purpose === 'put' || purpose === 'unpack';
/** Everything that an address's signature covers. */
interface Addressed {
  readonly purpose: FilePurpose;
  readonly volumeId: string;
  readonly path: string;
  readonly expires: string;
  readonly part?: Part;
}
const pathProblem = (purpose: FilePurpose, path: string): string | undefined =>
  isPack(purpose) ? folderPathProblem(path) : filePathProblem(path);

export interface SignedFileQuery {
  readonly path?: string;
  readonly expires?: string;
  /** Id of an upload in parts, and the number of one. */
  readonly upload?: string;
  readonly part?: string;
  readonly signature?: string;
}

/** An open transfer. */
export interface OpenedFile {
  readonly bytes: Duplex;
  /** Gives the place of the transfer back; further calls have no effect. */
  readonly done: () => void;
  /** Bound on an upload. Absent: there is none. */
  readonly bound?: UploadBound;
}

export interface UploadBound {
  readonly bytes: number;
  /** `volume_quota_reached`, for an upload that brings more. */
  readonly exceeded: () => AppError;
}

type Keys = readonly [Uint8Array, ...Uint8Array[]];

export interface VolumeFilesParts {
  readonly db: Queryable;
  readonly machines: { all(): Iterable<Machine>; get(machineId: MachineId): Machine | undefined };
  readonly streams: Pick<VolumeStreams, 'open'>;
  /** Bytes of a workspace's `local` volumes, as last counted, and their bound; null: none. */
  readonly quotaOf: (workspaceId: WorkspaceId) => Promise<{ readonly used: number; readonly most: number | null }>;
  /** Keys of addresses: the first signs, all verify. */
  readonly keys: () => Keys;
  readonly clock: Pick<Clock, 'nowMs'>;
}

export class VolumeFiles {
  readonly #parts: VolumeFilesParts;
  readonly #ofWorkspace = new Places<string>(MOST_OF_WORKSPACE);
  readonly #ofMachine = new SharedPlaces<string, string>(MOST_OF_MACHINE);

  constructor(parts: VolumeFilesParts) {
    this.#parts = parts;
  }

  /** The volume of that name. @throws AppError `volume_not_found` */
  async named(workspaceId: WorkspaceId, name: string): Promise<VolumeRow> {
    // Checked first, since no database can compare every text.
    const volume = isVolumeName(name) ? await volumeByName(this.#parts.db, workspaceId, name) : undefined;
    if (volume === undefined) throw new AppError('volume_not_found', 'the workspace has no volume of that name');
    return volume;
  }

  /** The volume of that name, whose files can be reached. @throws AppError `volume_not_found`, `volume_is_cache` */
  async reachable(workspaceId: WorkspaceId, name: string): Promise<VolumeRow> {
    const volume = await this.named(workspaceId, name);
    if (volume.driver !== 'cache') return volume;
    const text = `volume ${name} is a cache: each machine has its own copy, which containers fill and which may leave. Its files are reached in a container alone; use a local volume for files of your own`;
    throw new AppError('volume_is_cache', text);
  }

  /** The machines that have a cache volume, with the bytes of each. */
  copiesOf({ id }: Pick<VolumeRow, 'id'>): readonly { readonly machineId: MachineId; readonly bytes: number }[] {
    return [...this.#parts.machines.all()].flatMap((machine) =>
      cachesHere(machine).flatMap(({ volumeId, bytes }) =>
        volumeId === id && bytes > 0 ? { machineId: machine.row.id, bytes } : [],
      ),
    );
  }

  /**
   * Signs an address of a file, or of packs below a folder, which need not be there.
   * @throws AppError `invalid_query`, `volume_not_found`, `volume_without_home`, `volume_is_cache`
   */
  async sign(
    workspaceId: WorkspaceId,
    volumeName: string,
    path: string,
    purpose: Exclude<FilePurpose, 'part'>,
    lifeMs = FILE_ADDRESS_LIFE_MS,
  ): Promise<{ readonly path: string; readonly untilMs: number }> {
    const problem = pathProblem(purpose, path);
    if (problem !== undefined) throw new AppError('invalid_query', `path ${problem}`, { details: { field: 'path' } });
    const volume = await this.reachable(workspaceId, volumeName);
    if (isWrite(purpose)) await this.takes(volume, 0);
    else await this.#homeOf(volume);
    const untilMs = this.#parts.clock.nowMs() + lifeMs;
    const expires = expiryOf(untilMs);
    return { path: this.#addressOf({ purpose, volumeId: volume.id, path, expires }), untilMs };
  }

  /**
   * Prepares a volume for bytes that will come.
   * @throws AppError `volume_quota_reached`, `volume_without_home`
   */
  async takes(volume: VolumeRow, bytes: number): Promise<void> {
    await this.#requireRoom(volume, bytes);
    await this.settle(volume);
  }

  /** Signs an address for each part of an upload of that file. */
  signParts({ id: volumeId }: Pick<VolumeRow, 'id'>, path: string, parts: readonly Part[]): readonly string[] {
    const expires = expiryOf(this.#parts.clock.nowMs() + FILE_ADDRESS_LIFE_MS);
    return parts.map((part) => this.#addressOf({ purpose: 'part', volumeId, path, expires, part }));
  }

  #addressOf(addressed: Addressed): string {
    const { purpose, volumeId, path, expires, part } = addressed;
    const signature = signatureOf(this.#parts.keys()[0], addressed);
    const ofPart = part === undefined ? '' : `&upload=${uploadIdOf(part.upload)}&part=${part.number}`;
    const query = `path=${encodeURIComponent(path)}&expires=${expires}${ofPart}&signature=${signature}`;
    return `${isPack(purpose) ? VOLUME_PACKS_PATH : VOLUME_FILES_PATH}${volumeId}?${query}`;
  }

  /**
   * Gives a local volume a home, unless it has one: the named machine, or the only one that the workspace can use.
   * @throws AppError `volume_without_home`, `machine_not_found`, `invalid_body`
   */
  async settle(volume: VolumeRow, machineId?: string): Promise<void> {
    const { db, machines } = this.#parts;
    if (volume.driver !== 'local') {
      if (machineId !== undefined) throw new AppError('invalid_body', 'machine_id is for local volumes alone');
      return;
    }
    const home = (await volumeHomes(db, [volume.id])).get(volume.id);
    if (home !== undefined) {
      if (machineId === undefined || machineId === home) return;
      throw new AppError('invalid_body', 'machine_id: the volume has a home already, which does not change');
    }
    const able = [...machines.all()].filter((machine) => isConnected(machine) && mayServe(machine, volume));
    const chosen = machineId === undefined ? able : able.filter(({ row }) => row.id === machineId);
    const [only] = chosen;
    if (only === undefined && machineId !== undefined) {
      throw new AppError('machine_not_found', 'machine_id names no connected machine that the workspace can use');
    }
    if (only === undefined || chosen.length > 1) {
      const text = `no machine has the volume yet, and ${able.length} could: make it with a machine_id, or start a container that mounts it`;
      throw new AppError('volume_without_home', text);
    }
    if (!(await bindVolumes(db, [volume.id], only.row.id)) && machineId !== undefined) {
      throw new AppError('invalid_body', 'machine_id: the volume has got another home meanwhile');
    }
  }

  /** Whether the volume has files that can be reached: a local one without a home has none yet, a cache has none. */
  async hasFiles({ id, driver }: VolumeRow): Promise<boolean> {
    if (driver === 'cache') return false;
    return driver !== 'local' || (await volumeHomes(this.#parts.db, [id])).has(id);
  }

  /** Whether the address lets its bearer do that. */
  verify(purpose: FilePurpose, volumeId: string, query: SignedFileQuery): boolean {
    const { path, expires, signature } = query;
    // A parameter that comes twice is a list.
    if (typeof path !== 'string' || typeof expires !== 'string' || typeof signature !== 'string') return false;
    if (!isUuid(volumeId) || !/^\d{1,15}$/.test(expires) || pathProblem(purpose, path) !== undefined) return false;
    const part = purpose === 'part' ? partIn(query) : undefined;
    if (purpose === 'part' && part === undefined) return false;
    const given = Buffer.from(signature);
    const addressed = { purpose, volumeId, path, expires, ...(part === undefined ? {} : { part }) };
    const isOurs = this.#parts.keys().some((key) => {
      const expected = Buffer.from(signatureOf(key, addressed));
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
    return isOurs && Number(expires) * 1000 > this.#parts.clock.nowMs();
  }

  /**
   * Opens a transfer of a verified address.
   * @param announced - bytes that it brings, 0 where it does not say; undefined: it only reads
   * @throws AppError `volume_not_found`, `volume_without_home`, `machine_away`, `machine_silent`, `too_many_transfers`,
   * `volume_quota_reached`
   */
  async open(volumeId: string, signal: AbortSignal, announced?: number): Promise<OpenedFile> {
    const volume = await volumeById(this.#parts.db, volumeId);
    if (volume === undefined) throw new AppError('volume_not_found', 'the volume is not there any more');
    const bound = announced === undefined ? undefined : await this.#requireRoom(volume, announced);
    const opened = await this.openOf(volume, signal);
    return bound === undefined ? opened : { ...opened, bound };
  }

  /**
   * Opens a transfer of a volume that the caller has found.
   * @throws AppError `volume_without_home`, `machine_away`, `machine_silent`, `too_many_transfers`
   */
  async openOf(volume: VolumeRow, signal: AbortSignal): Promise<OpenedFile> {
    const machineId = await this.#machineOf(volume);
    const { workspaceId, driver, id: volumeId } = volume;
    const done = this.#take(workspaceId, machineId);
    try {
      const bytes = await this.#parts.streams.open(machineId, { workspaceId, volumeId, driver }, signal);
      bytes.once('close', done);
      return { bytes, done };
    } catch (error) {
      done();
      throw error;
    }
  }

  async #homeOf({ id, driver }: VolumeRow): Promise<MachineId | undefined> {
    if (driver !== 'local') return undefined;
    const home = (await volumeHomes(this.#parts.db, [id])).get(id);
    if (home !== undefined) return home;
    const text = 'no container has mounted the volume yet, so no machine has it: start one that mounts it';
    throw new AppError('volume_without_home', text);
  }

  async #machineOf(volume: VolumeRow): Promise<MachineId> {
    const { machines } = this.#parts;
    const home = await this.#homeOf(volume);
    if (home !== undefined) {
      const machine = machines.get(home);
      if (machine === undefined || !isConnected(machine)) {
        throw new AppError('machine_away', `the machine that has the volume is not connected (${home})`);
      }
      return home;
    }
    const able = [...machines.all()].filter((machine) => isConnected(machine) && mayServe(machine, volume));
    // A machine that is linked here spares the bytes a replica.
    const chosen = able.find(({ sessionId }) => sessionId !== undefined) ?? able[0];
    if (chosen === undefined) {
      throw new AppError('machine_away', `no connected machine has ${volume.driver} volumes for this workspace`);
    }
    return chosen.row.id;
  }

  /**
   * @returns what an upload may bring; undefined: any number of bytes, as other drivers may
   * @throws AppError `volume_quota_reached`: those bytes would pass the workspace's bound
   */
  async #requireRoom({ workspaceId, driver }: VolumeRow, bytes: number): Promise<UploadBound | undefined> {
    if (driver !== 'local') return undefined;
    const { used, most } = await this.#parts.quotaOf(workspaceId);
    if (most === null) return undefined;
    const reached = (more: string): AppError => {
      const text = `the volumes of this workspace have ${used} bytes, as last counted; its limit bytes.volumes is ${most}${more}. Remove files (\`longshore volume rm\`; they are counted soon after), or have an administrator raise it (\`longshore workspace limits\`).`;
      return new AppError('volume_quota_reached', text, { details: { limit: 'bytes.volumes' } });
    };
    if (used >= most || used + bytes > most) throw reached(bytes === 0 ? '' : `; with ${bytes} more they exceed it`);
    return { bytes: most - used, exceeded: () => reached('; this upload brings more') };
  }

  #take(workspaceId: string, machineId: string): () => void {
    const workspaceDone = this.#ofWorkspace.take(workspaceId);
    if (workspaceDone === undefined)
      throw tooMany(`this workspace has ${MOST_OF_WORKSPACE} transfers of files at once`);
    const machineDone = this.#ofMachine.take(machineId, workspaceId);
    if (machineDone === undefined) {
      workspaceDone();
      throw tooMany(
        `the volume's machine has ${MOST_OF_MACHINE} transfers of files at once, and a workspace at most as many as are left`,
      );
    }
    return () => {
      workspaceDone();
      machineDone();
    };
  }
}

const isConnected = ({ health }: Machine): boolean => health === 'READY' || health === 'RECONCILING';

function mayServe(machine: Machine, { workspaceId, driver }: VolumeRow): boolean {
  const { row, inventory, conditions } = machine;
  const has = driver === 'local' || inventory?.volumeDrivers.includes(driver) === true;
  if (!isSchedulable(machine) || !has) return false;
  if (conditions.includes(volumesDownCondition(driver))) return false;
  const { requiresPoolSelector } = row.poolSettings;
  const pool = { poolName: row.poolName, poolOwner: row.poolWorkspaceId, requiresPoolSelector };
  return mayUsePool(pool, { workspaceId, poolName: requiresPoolSelector ? row.poolName : '' });
}

const tooMany = (text: string): AppError =>
  new AppError('too_many_transfers', text, { details: { retryAfterSeconds: 5 } });

/** The part that an address names; undefined: it names none. */
export const partIn = ({ upload, part }: SignedFileQuery): Part | undefined =>
  typeof upload === 'string' && typeof part === 'string' ? readPart(readUploadId(upload), part) : undefined;

const expiryOf = (untilMs: number): string => String(Math.floor(untilMs / 1000));

const signatureOf = (key: Uint8Array, { purpose, volumeId, path, expires, part }: Addressed): string => {
  // The path comes last, since it may have newlines.
  const ofPart = part === undefined ? '' : `${uploadIdOf(part.upload)}\n${part.number}\n`;
  return createHmac('sha256', key).update(`${purpose}\n${volumeId}\n${expires}\n${ofPart}${path}`).digest('hex');
};
