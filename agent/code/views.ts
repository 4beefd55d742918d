/**
 * Each container's own writable view of its code at /mnt/code. The view is an overlay volume over the unpacked archive,
 * or a copy where the engine or the file system refuses overlays. A view is deleted with its container.
 */
import { chmod, cp, mkdir, readdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Mount } from '../containers/runtime.ts';
import { hasCode } from '../durable.ts';

const OVERLAYFS_MAGIC = 0x794c7630;
const TARGET = '/mnt/code';

export class Views {
  readonly #dir: string;
  readonly #labels: Readonly<Record<string, string>>;
  /** Deletes a folder whose files belong to a container's user, where this process may not. */
  readonly #deleteByContainer: (path: string) => Promise<void>;
  #overlay = true;

  constructor(
    dir: string,
    labels: Readonly<Record<string, string>>,
    deleteByContainer: (path: string) => Promise<void>,
  ) {
    this.#dir = dir;
    this.#labels = labels;
    this.#deleteByContainer = deleteByContainer;
  }

  async open(): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    // An overlay's upper directory may not lie on an overlay; its options cannot hold these characters.
    const { type } = await statfs(this.#dir);
    this.#overlay = type !== OVERLAYFS_MAGIC && !/[,:\\]/.test(this.#dir);
  }

  get mode(): 'overlay' | 'copy' {
    return this.#overlay ? 'overlay' : 'copy';
  }

  /** The engine refused an overlay: copies from now on. */
  refuseOverlay(): void {
    this.#overlay = false;
  }

  volumeName(containerId: string): string {
    return `ls-code-${containerId}`;
  }

  /** Makes the view's folders. @returns how to mount it */
  async make(containerId: string, shortId: string, lower: string): Promise<Mount> {
    const path = join(this.#dir, shortId);
    const upper = this.upperOf(shortId);
    await mkdir(path, { recursive: true, mode: 0o700 });
    if (!this.#overlay) {
      await rm(upper, { recursive: true, force: true });
      await cp(lower, upper, { recursive: true, verbatimSymlinks: true });
      await chmod(upper, 0o777);
      return { kind: 'bind', target: TARGET, readOnly: false, source: upper };
    }
    const work = join(path, 'work');
    await Promise.all([mkdir(upper, { recursive: true }), mkdir(work, { recursive: true })]);
    await chmod(upper, 0o777);
    return {
      kind: 'volume',
      target: TARGET,
      readOnly: false,
      source: '',
      volume: {
        name: this.volumeName(containerId),
        options: { type: 'overlay', device: 'overlay', o: `lowerdir=${lower},upperdir=${upper},workdir=${work}` },
        labels: this.#labels,
      },
    };
  }

  /** The folder of a container's changes to its code; a copied view is there as a whole. */
  upperOf(shortId: string): string {
    return join(this.#dir, shortId, 'upper');
  }

  async remove(shortId: string): Promise<void> {
    const path = join(this.#dir, shortId);
    try {
      await rm(path, { recursive: true, force: true });
    } catch (error) {
      if (!hasCode(error, 'EACCES', 'EPERM')) throw error;
      await this.#deleteByContainer(path);
      await rm(path, { recursive: true, force: true });
    }
  }

  /** Names of the existing views, for removing those of containers that are gone. */
  list(): Promise<string[]> {
    return readdir(this.#dir);
  }
}
