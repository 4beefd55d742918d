/**
 * Volumes as plain directories, `<root>/<workspace>/<volume>`, bound into containers: `local` below this machine's data
 * directory, `cache` on its scratch disk, `shared` below a path that the operator mounts on every machine. Must stay
 * true: a host path consists of ids only and lies below the root with no link on the way. A volume is created at its
 * first mount. The directory is open to every user, since any user of an image may write, below folders that nobody
 * else may enter. No call here can hang this process.
 */
import { join } from 'node:path';
import { runInChild } from '../child.ts';
import type { VolumeDriver, VolumeId, VolumeSource } from './driver.ts';
import type { VolumesHome } from './home.ts';

const DEADLINE_MS = 5_000;
/** Deadline of a removal: a volume may hold many files. */
const REMOVE_MS = 10 * 60_000;

/** Enters the root, `$1`, and follows no further link. */
const ENTER = 'set -eu; umask 077; cd -P -- "$1"; root=$(pwd -P); ';

// The mode is set only at creation: the owner may have closed it since. Another container's start may be creating the
// same volume.
const MOUNT = `${ENTER}
[ -L "$2" ] || mkdir -p -- "$2"
if mkdir -- "$2/$3" 2>/dev/null; then chmod 0777 -- "$2/$3"; elif [ ! -e "$2/$3" ] && [ ! -L "$2/$3" ]; then mkdir -- "$2/$3"; chmod 0777 -- "$2/$3"; fi
real=$(cd -P -- "$2/$3" 2>/dev/null && pwd -P) || real=
[ "$real" = "\${root%/}/$2/$3" ] || { echo "\${root%/}/$2/$3 is a link or no directory" >&2; exit 1; }
printf %s "$real"`;

// The volume is set aside first: a half-deleted one is no volume any more. Links are deleted, not followed. The rest of
// a removal that was cut off is deleted first: the volume may have been made anew since.
const SET_ASIDE = `${ENTER}
if [ -e "$2/.gone-$3" ]; then printf 'left %s' "\${root%/}/$2/.gone-$3"; exit 0; fi
[ -e "$2/$3" ] || [ -L "$2/$3" ] || exit 0
[ ! -L "$2" ] && [ ! -L "$2/$3" ] || { echo "\${root%/}/$2/$3 is a link: not deleted" >&2; exit 1; }
mv -T -- "$2/$3" "$2/.gone-$3"
printf 'aside %s' "\${root%/}/$2/.gone-$3"`;

const DELETE = 'rm -rf -- "$1" 2>/dev/null || true; [ ! -e "$1" ] || printf left';

const PROBE = `${ENTER} probe=".probe-$2"; mkdir -p -- "$probe"; rmdir -- "$probe"`;

export interface DirectoriesParts {
  readonly name: 'local' | 'cache' | 'shared';
  /** Absolute path, made before by this agent, unless the operator named it. */
  readonly root: string;
  /** A directory that the operator named. */
  readonly home?: Pick<VolumesHome, 'check'> | undefined;
  /** Empties a folder whose files belong to a container's user, where this process may not. */
  readonly emptyByContainer: (path: string) => Promise<void>;
}

export class DirectoryVolumes implements VolumeDriver {
  readonly deadlineMs = DEADLINE_MS;
  readonly #parts: DirectoriesParts;

  constructor(parts: DirectoriesParts) {
    this.#parts = parts;
  }

  get name(): DirectoriesParts['name'] {
    return this.#parts.name;
  }

  get isWatched(): boolean {
    return this.#parts.home !== undefined;
  }

  async mount({ workspaceId, volumeId }: VolumeId): Promise<VolumeSource> {
    await this.#parts.home?.check();
    const path = await runInChild(MOUNT, [this.#parts.root, workspaceId, volumeId], DEADLINE_MS);
    return { kind: 'bind', path };
  }

  async remove(volume: VolumeId): Promise<void> {
    await this.delete(await this.setAside(volume));
  }

  /** Takes the volume's place away: the next mount makes it anew. @returns what `delete` deletes; empty: nothing */
  async setAside({ workspaceId, volumeId }: VolumeId): Promise<string> {
    for (;;) {
      const said = await runInChild(SET_ASIDE, [this.#parts.root, workspaceId, volumeId], DEADLINE_MS);
      if (!said.startsWith('left ')) return said.replace(/^aside /, '');
      await this.delete(said.replace(/^left /, ''));
    }
  }

  /** Deletes a volume that was set aside. */
  async delete(aside: string): Promise<void> {
    if (aside === '' || (await runInChild(DELETE, [aside], REMOVE_MS)) === '') return;
    await this.#parts.emptyByContainer(aside);
    if ((await runInChild(DELETE, [aside], REMOVE_MS)) !== '') throw new Error(`${aside} could not be deleted`);
  }

  /** Reads and writes, since a file system may have stopped either. */
  async probe(): Promise<void> {
    await this.#parts.home?.check();
    await runInChild(PROBE, [this.#parts.root, String(process.pid)], DEADLINE_MS);
  }
}

/** Root of `local` volumes. */
export const localRoot = (dataDir: string): string => join(dataDir, 'volumes');
