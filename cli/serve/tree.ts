// The files of an app as they are here and as a container has them, and the changes between the two.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { sleep } from '#shared/backoff.ts';
import { MOST_READ_WHOLE_BYTES, packFiles } from '../deploy/archive.ts';
import type { Archive } from '../deploy/archive.ts';
import { collectFiles } from '../deploy/files.ts';
import type { AppFile, AppFiles } from '../deploy/files.ts';
import type { OwnOutput } from './own-output.ts';

/**
 * A file and its content's hash: a file that was only touched does not travel again. Files above
 * MOST_READ_WHOLE_BYTES have no hash, and count as changed by their size and time.
 */
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

export const treeOf = (files: readonly KnownFile[]): Tree => new Map(files.map((file) => [file.path, file]));

/** The files that a container begins with. */
export interface PackedFolder {
  readonly found: AppFiles;
  /** Packed from the same reads as the tree's hashes. */
  readonly archive: Archive;
  readonly tree: Tree;
}

export async function packFolder(root: string, own: OwnOutput, signal: AbortSignal): Promise<PackedFolder> {
  const found = await filesOf(root, own);
  const hashes = new Map<string, string>();
  const onContent = ({ path }: AppFile, sha256: string): void => void hashes.set(path, sha256);
  const archive = await packFiles(found, { onContent, signal });
  const known = found.files.map((file) => {
    const sha256 = hashes.get(file.path);
    return sha256 === undefined ? file : { ...file, sha256 };
  });
  return { found, archive, tree: treeOf(known) };
}

const filesOf = (root: string, own: OwnOutput): Promise<AppFiles> =>
  collectFiles(root, undefined, { leavesOut: (file) => own.has(file) });

/** Reads the tree again; the hashes of files that stand as they were are taken over. Vanished files are left out. */
export async function readTree(root: string, own: OwnOutput, before: Tree): Promise<Tree> {
  const known: KnownFile[] = [];
  for (const file of (await filesOf(root, own)).files) {
    const old = before.get(file.path);
    if (old !== undefined && isSameByStat(old, file)) known.push(old);
    else if (file.size > MOST_READ_WHOLE_BYTES) known.push(file);
    else {
      const bytes = await readFile(file.fullPath).catch(() => undefined);
      if (bytes !== undefined) known.push({ ...file, sha256: createHash('sha256').update(bytes).digest('hex') });
    }
  }
  return treeOf(known);
}

/** Age at which a written file counts as saved. */
const SAVED_AFTER_MS = 30;
/** Reads of a tree in which files are being written all the time; the last one counts. */
const MOST_READS = 10;

/**
 * Reads the tree again once no change is younger than `savedAfterMs`: an editor that empties a file and
 * then fills it has not saved it in between.
 * @param trees - the files as they were read last, and as the container has them
 */
export async function readSettledTree(
  root: string,
  own: OwnOutput,
  { here, there }: { readonly here: Tree; readonly there: Tree },
  signal: AbortSignal,
  savedAfterMs = SAVED_AFTER_MS,
): Promise<Tree> {
  let tree = await readTree(root, own, here);
  for (let reads = 1; reads < MOST_READS && !signal.aborted; reads += 1) {
    const written = Math.max(...changesBetween(there, tree).written.map(({ mtimeMs }) => mtimeMs));
    const ageMs = Date.now() - written;
    // A time far in the future is of another clock and says nothing.
    if (Math.abs(ageMs) >= savedAfterMs) break;
    await sleep(savedAfterMs - ageMs, signal);
    tree = await readTree(root, own, tree);
  }
  return tree;
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
