/**
 * Cache volumes as directories of the scratch disk, with the time of their last use. Must stay true: a volume is set
 * aside only while nobody mounts it, and a mount and a removal of one volume never run together. The time of use is a
 * file beside the volume, where no container can write. A removal that was cut off is taken up again.
 */
import { runInChild } from '../child.ts';
import type { DirectoryVolumes } from './directories.ts';
import type { VolumeDriver, VolumeId, VolumeSource } from './driver.ts';
import type { VolumesHome } from './home.ts';
import { VOLUME_ID } from '../containers/volumes-problem.ts';

const DEADLINE_MS = 5_000;

/** Marks the use of a volume, `$2/$3`, of the root, `$1`. */
const USED = 'set -eu; umask 077; cd -P -- "$1"; mkdir -p -- "$2"; : > "$2/.used-$3"';
const FORGET = 'set -eu; cd -P -- "$1"; rm -f -- "$2/.used-$3"; rmdir -- "$2" 2>/dev/null || true';
const LIST = `set -eu; cd -P -- "$1"
for used in */.used-*; do [ ! -f "$used" ] || stat -c '%Y %n' -- "$used" 2>/dev/null || true; done`;

/** A cache volume of this machine. */
export interface CacheDirectory extends VolumeId {
  readonly usedAtMs: number;
}

export interface CacheDirectoriesParts {
  readonly root: string;
  /** A directory that the operator named. */
  readonly home?: Pick<VolumesHome, 'check'> | undefined;
  readonly directories: DirectoryVolumes;
  /** Why the volume may not be mounted now. */
  readonly refusal: (volume: VolumeId) => string | undefined;
  readonly onMount: (volume: VolumeId) => void;
}

export class CacheDirectories implements VolumeDriver {
  readonly name = 'cache';
  readonly deadlineMs: number;
  readonly #parts: CacheDirectoriesParts;
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(parts: CacheDirectoriesParts) {
    this.#parts = parts;
    this.deadlineMs = parts.directories.deadlineMs;
  }

  mount(volume: VolumeId): Promise<VolumeSource> {
    const { directories, refusal, onMount } = this.#parts;
    return this.#inTurn(volume, async () => {
      const refused = refusal(volume);
      if (refused !== undefined) throw new Error(refused);
      onMount(volume);
      await this.#run(USED, volume);
      return directories.mount(volume);
    });
  }

  /** Removes the volume. @param mayLeave - asked last, when no mount of the volume is under way */
  async removeIf(volume: VolumeId, mayLeave: () => boolean): Promise<boolean> {
    const { directories } = this.#parts;
    const aside = await this.#inTurn(volume, async () => (mayLeave() ? directories.setAside(volume) : undefined));
    if (aside === undefined) return false;
    await directories.delete(aside);
    await this.#inTurn(volume, async () => {
      if (mayLeave()) await this.#run(FORGET, volume);
    });
    return true;
  }

  async remove(volume: VolumeId): Promise<void> {
    await this.removeIf(volume, () => true);
  }

  get isWatched(): boolean {
    return this.#parts.home !== undefined;
  }

  async probe(): Promise<void> {
    await this.#parts.home?.check();
    await this.#parts.directories.probe();
  }

  /** Notes that containers use the volume now. */
  touch(volume: VolumeId): Promise<void> {
    return this.#run(USED, volume);
  }

  /** Every cache volume of this machine, also those whose removal was cut off. */
  async list(): Promise<readonly CacheDirectory[]> {
    await this.#parts.home?.check();
    const listed = await runInChild(LIST, [this.#parts.root], DEADLINE_MS);
    return listed.split('\n').flatMap((line) => {
      const [, seconds, workspaceId = '', volumeId = ''] = /^(\d+) ([^/]+)\/\.used-(.+)$/.exec(line) ?? [];
      if (!VOLUME_ID.test(workspaceId) || !VOLUME_ID.test(volumeId)) return [];
      return [{ workspaceId, volumeId, usedAtMs: Number(seconds) * 1000 }];
    });
  }

  async #run(script: string, { workspaceId, volumeId }: VolumeId): Promise<void> {
    await this.#parts.home?.check();
    await runInChild(script, [this.#parts.root, workspaceId, volumeId], DEADLINE_MS);
  }

  /** Runs work on one volume after the other of the same volume. */
  async #inTurn<T>({ workspaceId, volumeId }: VolumeId, work: () => Promise<T>): Promise<T> {
    const key = `${workspaceId}/${volumeId}`;
    const before = this.#turns.get(key) ?? Promise.resolve();
    const turn = before.then(work, work);
    this.#turns.set(key, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(key) === turn) this.#turns.delete(key);
    }
  }
}
