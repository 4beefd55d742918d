// The files of an app as they are here and as a container has them, and the changes between the two.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { collectFiles } from '../deploy/files.ts';
import type { AppFile, AppFiles } from '../deploy/files.ts';

/** A file and, for small ones, its content's hash: a file that was only touched does not travel again. */
export interface KnownFile extends AppFile {
  readonly sha256?: string;
}

/** Files by their paths. */
export type Tree = ReadonlyMap<string, KnownFile>;

export interface Changes {
  readonly written: readonly KnownFile[];
  /** Paths of files, and of folders that have no file left. A folder stands for all in it. */
  readonly removed: readonly string[];
}

/** Larger files count as changed by their size and time. */
const MOST_HASHED_BYTES = 8 * 1024 * 1024;

export const treeOf = (files: readonly KnownFile[]): Tree => new Map(files.map((file) => [file.path, file]));

/** Reads the tree again; the hashes of files that stand as they were are taken over. */
export async function readTree(root: string, before: Tree): Promise<Tree> {
  return withHashes(await collectFiles(root), before);
}

/** Adds the hashes. A file that vanishes meanwhile is left out. */
export async function withHashes({ files }: Pick<AppFiles, 'files'>, before: Tree): Promise<Tree> {
  const known: KnownFile[] = [];
  for (const file of files) {
    const old = before.get(file.path);
    if (old !== undefined && isSameByStat(old, file)) known.push(old);
    else if (file.size > MOST_HASHED_BYTES) known.push(file);
    else {
      const bytes = await readFile(file.fullPath).catch(() => undefined);
      if (bytes !== undefined) known.push({ ...file, sha256: createHash('sha256').update(bytes).digest('hex') });
    }
  }
  return treeOf(known);
}

/** Changes by which `there` becomes `here`. */
export function changesBetween(there: Tree, here: Tree): Changes {
  const written = [...here.values()].filter((file) => {
    const old = there.get(file.path);
    return old === undefined || !isSame(old, file);
  });
  const left = new Set([...here.keys()].flatMap(foldersOf));
  const removed = new Set<string>();
  for (const path of there.keys()) {
    if (here.has(path)) continue;
    // A file that takes the place of a folder, or a folder that of a file, needs the old one away first.
    removed.add(foldersOf(path).find((folder) => !left.has(folder)) ?? path);
  }
  return { written, removed: [...removed].toSorted() };
}

/** Folders above a path, the outermost first. */
function foldersOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'));
}

const isSameByStat = (a: AppFile, b: AppFile): boolean =>
  a.size === b.size && a.mtimeMs === b.mtimeMs && a.executable === b.executable;

function isSame(a: KnownFile, b: KnownFile): boolean {
  if (a.sha256 === undefined || b.sha256 === undefined) return isSameByStat(a, b);
  return a.sha256 === b.sha256 && a.executable === b.executable;
}
