/**
 * Volumes as plain directories of this machine, `<data dir>/volumes/<workspace>/<volume>`, bound into containers. Called by the executor before it creates a
 * container. Must stay true: a host path is made of ids only and lies below our own folder with no link on the way; a volume is made when it is first mounted and
 * never emptied or removed here; a volume directory is open to every user, since any user of an image may write, below folders that nobody else may enter.
 */
import { chmod, lstat, mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '#shared/errors.ts';
import { mountPathsProblem, mountPlaces } from '#shared/domain/mount-paths.ts';
import type { Mount } from '../containers/runtime.ts';
import { hasCode } from '../durable.ts';

/** One directory name: what ids look like, which is neither `.` nor `..` nor a path. */
const ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,100}$/;
const MAX_VOLUMES = 64;

/** A volume as an assignment names it. */
export interface WantedVolume {
  readonly volumeId: string;
  readonly mountPath: string;
}

/** @returns why these cannot be mounted, naming the field; undefined when they can */
export function volumesProblem(workspaceId: string, volumes: readonly WantedVolume[]): string | undefined {
  if (volumes.length === 0) return undefined;
  if (volumes.length > MAX_VOLUMES) return `spec.volumes: more than ${MAX_VOLUMES}`;
  if (!ID.test(workspaceId)) return 'spec.workspace_id is not an id';
  if (volumes.some((volume) => !ID.test(volume.volumeId))) return 'spec.volumes: volume_id is not an id';
  const problem = mountPathsProblem(volumes.map((volume) => volume.mountPath));
  return problem === undefined ? undefined : `spec.volumes: mount_path ${problem}`;
}

/** The volumes' home on this machine. */
export class VolumeDirectories {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  /** Before the first `mounts`. */
  async open(): Promise<void> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
  }

  /**
   * Makes what is missing, and says how to mount it.
   * @param code - the unpacked archive below `/mnt/code`, in which a mount point must be free
   * @throws AppError `code_error` where the code has a file or link in the way, `mount_error` when a directory cannot be made or is not ours
   */
  async mounts(workspaceId: string, volumes: readonly WantedVolume[], code: string): Promise<Mount[]> {
    const problem = volumesProblem(workspaceId, volumes);
    if (problem !== undefined) throw new AppError('mount_error', problem);
    const mounts: Mount[] = [];
    for (const { volumeId, mountPath } of volumes) {
      const places = mountPlaces(mountPath);
      if ('problem' in places) continue;
      const source = await this.#directory(workspaceId, volumeId);
      for (const target of places.targets) {
        if (target.startsWith('/mnt/code/')) await mustBeFree(code, target.slice('/mnt/code/'.length), mountPath);
        mounts.push({ kind: 'bind', target, readOnly: false, source });
      }
    }
    return mounts;
  }

  async #directory(workspaceId: string, volumeId: string): Promise<string> {
    const workspace = join(this.#root, workspaceId);
    const path = join(workspace, volumeId);
    try {
      await mkdir(workspace, { recursive: true, mode: 0o700 });
      try {
        await mkdir(path, { mode: 0o777 });
        // The umask took what every user of an image needs. Only at first: its owner may have closed it since.
        await chmod(path, 0o777);
      } catch (error) {
        if (!hasCode(error, 'EEXIST')) throw error;
      }
      const real = await realpath(path);
      if (real === join(await realpath(this.#root), workspaceId, volumeId) && (await lstat(real)).isDirectory())
        return real;
    } catch (error) {
      throw new AppError('mount_error', `cannot make the directory of volume ${volumeId}`, { cause: error });
    }
    throw new AppError('mount_error', `${path} is a link or no directory: volume ${volumeId} is not mounted`);
  }
}

/** A directory is mounted over a directory, or over nothing: a file in the way would be the engine's error, and a link would lead elsewhere. */
async function mustBeFree(code: string, relative: string, mountPath: string): Promise<void> {
  let path = code;
  for (const part of relative.split('/')) {
    path = join(path, part);
    let found;
    try {
      found = await lstat(path);
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ENOTDIR')) return;
      throw error;
    }
    if (found.isDirectory()) continue;
    const what = found.isSymbolicLink() ? 'link' : 'file';
    throw new AppError(
      'code_error',
      `volume at ${mountPath}: the code has a ${what} of that name (${path.slice(code.length + 1)}); rename one of them`,
    );
  }
}
