/**
 * Packages that builds downloaded, a folder for each workspace, so that the next build does not download them again.
 * Called by builder.ts. Must stay true: a step sees the folder of its own workspace alone; all folders together
 * keep within their bound between builds, and a workspace within half of it.
 */
import { chmod, mkdir, readdir, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Mount } from '../containers/runtime.ts';
import { chooseFolders } from './packages-choice.ts';

/** Where steps find them. */
export const PACKAGES_TARGET = '/var/cache/longshore';

export interface PackagesParts {
  readonly directory: string;
  /** Bound in bytes; 0: none are kept. */
  readonly mostBytes: number;
  /** Bytes of each folder below the directory, whoever owns the files. */
  readonly sizes: () => Promise<ReadonlyMap<string, number>>;
  readonly empty: (path: string) => Promise<void>;
  readonly log: Log;
}

export class Packages {
  readonly #parts: PackagesParts;
  /** Builds that have each folder. */
  readonly #users = new Map<string, number>();
  /** Bytes of each folder, as counted last. */
  #counted: ReadonlyMap<string, number> = new Map();
  #settling: Promise<void> = Promise.resolve();

  constructor(parts: PackagesParts) {
    this.#parts = parts;
  }

  get isKept(): boolean {
    return this.#parts.mostBytes > 0;
  }

  /** Bytes of all folders, as counted last. */
  get bytes(): number {
    return [...this.#counted.values()].reduce((sum, one) => sum + one, 0);
  }

  /** The folder of a workspace, for its build. Every use is followed by a `release`. */
  async take(workspaceId: string): Promise<Mount> {
    const name = nameOf(workspaceId);
    const path = join(this.#parts.directory, name);
    this.#users.set(name, (this.#users.get(name) ?? 0) + 1);
    await this.#settling;
    await mkdir(path, { recursive: true });
    // A step may run as any user of its image. The directory above is closed to other users of this machine.
    await chmod(path, 0o777).catch(() => undefined);
    const now = new Date();
    await utimes(path, now, now).catch(() => undefined);
    return { kind: 'bind', target: PACKAGES_TARGET, readOnly: false, source: path };
  }

  /** Bytes of a workspace's folder, as counted last. */
  countedOf(workspaceId: string): number {
    return this.#counted.get(nameOf(workspaceId)) ?? 0;
  }

  /** Bytes of a workspace's folder now. */
  async bytesOf(workspaceId: string): Promise<number> {
    return (await this.#parts.sizes()).get(nameOf(workspaceId)) ?? 0;
  }

  /** The build has ended: folders beyond the bound are emptied in the background. */
  release(workspaceId: string): void {
    const name = nameOf(workspaceId);
    const left = (this.#users.get(name) ?? 1) - 1;
    if (left > 0) this.#users.set(name, left);
    else this.#users.delete(name);
    this.settle();
  }

  /** Counts the folders, and empties some where they pass their bound. */
  settle(): void {
    this.#settling = this.#settling
      .then(() => this.#settle())
      .catch((error: unknown) => this.#parts.log.info({ err: error }, 'downloaded packages could not be counted'));
  }

  async idle(): Promise<void> {
    await this.#settling;
  }

  async #settle(): Promise<void> {
    const { directory, mostBytes, sizes, empty, log } = this.#parts;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const names = await readdir(directory);
    if (names.length === 0) return;
    const bytes = await sizes();
    const folders = await Promise.all(
      names.map(async (name) => ({
        name,
        bytes: bytes.get(name) ?? 0,
        usedAtMs: (await stat(join(directory, name))).mtimeMs,
        inUse: this.#users.has(name),
      })),
    );
    const chosen = chooseFolders(folders, mostBytes);
    for (const name of chosen) await empty(join(directory, name));
    if (chosen.length > 0) log.info({ folders: chosen.length }, 'downloaded packages were removed');
    this.#counted = new Map(folders.map((one) => [one.name, chosen.includes(one.name) ? 0 : one.bytes]));
  }
}

const nameOf = (workspaceId: string): string => sha256Hex(workspaceId).slice(0, 24);
