/** Directories, logs and caches of mounts: what is removed with a mount, and what a helper that died has left. */
import { readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { mountsBelow, unmount } from './daemon.ts';

export interface KnownMount {
  readonly id: string;
  readonly path: string;
  readonly cacheDir: string;
  readonly lost: string | undefined;
}

export class Leftovers {
  readonly #directory: string;
  readonly #cacheDir: string;

  constructor(directory: string, cacheDir: string) {
    this.#directory = directory;
    this.#cacheDir = cacheDir;
  }

  logOf(id: string): string {
    return join(this.#directory, 'log', id);
  }

  /** Removes what a mount that has ended leaves. */
  async forget({ id, path }: Pick<KnownMount, 'id' | 'path'>): Promise<void> {
    await rm(this.logOf(id), { force: true });
    // Only an empty directory goes: files below would be a bucket's.
    await rmdir(path).catch(() => undefined);
    await rmdir(join(path, '..')).catch(() => undefined);
  }

  /** Removes mounts and directories that no record knows, of a helper that died between two steps. */
  async clear(mounts: readonly KnownMount[]): Promise<void> {
    const [directory, cacheDir] = [this.#directory, this.#cacheDir];
    const known = new Set(mounts.filter(({ lost }) => lost === undefined).map(({ path }) => path));
    for (const path of mountsBelow(directory)) if (!known.has(path) && path !== directory) await unmount(path);
    for (const kind of ['b', 's3'])
      for (const workspace of await readdir(join(directory, kind))) {
        for (const id of await readdir(join(directory, kind, workspace)))
          if (!known.has(join(directory, kind, workspace, id)))
            await this.forget({ id, path: join(directory, kind, workspace, id) });
        await rmdir(join(directory, kind, workspace)).catch(() => undefined);
      }
    const caches = new Set(mounts.map((mount) => mount.cacheDir));
    for (const name of await readdir(cacheDir))
      if (/^[0-9a-f]{16}$/.test(name) && !caches.has(join(cacheDir, name)))
        await rm(join(cacheDir, name), { recursive: true, force: true });
  }
}
