// Files of a folder of this machine. Links are told and not followed, but for the path that the person names.
import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, statSync } from 'node:fs';
import type { BigIntStats } from 'node:fs';
import { basename, join } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import { CliError } from '../errors.ts';
import { joinPath } from './places.ts';

/** Begin of the names of files that a download has not completed. */
export const PART_PREFIX = '.longshore-part-';

export interface LocalFile {
  readonly fullPath: string;
  /** Path from the target's folder. */
  readonly path: string;
  readonly size: number;
  readonly mtimeNs: bigint;
  readonly isExecutable: boolean;
  /** 16 hex digits that stand for these bytes: an upload goes on only with the same ones. */
  readonly key: string;
}

export interface LocalTree {
  readonly files: readonly LocalFile[];
  /** Folders without entries, which no file's path makes. */
  readonly emptyFolders: readonly string[];
  /** Links, pipes and devices. */
  readonly leftOut: number;
  /** Names that cannot be looked at: they are no UTF-8, or vanished meanwhile. */
  readonly unread: readonly string[];
}

/**
 * Looks through a file or a folder.
 * @param path - of the result's files: a file's own path, or the folder that a folder's files come into
 * @throws CliError when something cannot be read
 */
export function localTree(fullPath: string, path: string): LocalTree {
  const files: LocalFile[] = [];
  const emptyFolders: string[] = [];
  const unread: string[] = [];
  let leftOut = 0;
  // Calls that wait for the disk: with thousands of small files, each of the others would cost more.
  const look = (at: string, below: string): void => {
    const names = readdirSync(at, { withFileTypes: true }).filter(({ name }) => !name.startsWith(PART_PREFIX));
    if (names.length === 0 && below !== '') emptyFolders.push(below);
    for (const entry of names) {
      const full = join(at, entry.name);
      const inner = joinPath(below, entry.name);
      if (entry.isDirectory()) look(full, inner);
      else if (!entry.isFile()) leftOut += 1;
      else {
        const found = lstatSync(full, { bigint: true, throwIfNoEntry: false });
        if (found?.isFile() === true) files.push(fileOf(full, inner, found));
        else unread.push(inner);
      }
    }
  };
  try {
    const found = statSync(fullPath, { bigint: true });
    if (found.isDirectory()) look(fullPath, path);
    else if (found.isFile()) files.push(fileOf(fullPath, path === '' ? basename(fullPath) : path, found));
    else throw new CliError(`${fullPath} is neither a file nor a folder`);
    return { files, emptyFolders, leftOut, unread };
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(`cannot read ${fullPath} (${messageOf(error)})`, { cause: error });
  }
}

function fileOf(fullPath: string, path: string, { size, mtimeNs, mode, ino, dev }: BigIntStats): LocalFile {
  const facts = `${fullPath}\n${size}\n${mtimeNs}\n${dev}\n${ino}`;
  return {
    fullPath,
    path,
    size: Number(size),
    mtimeNs,
    isExecutable: (mode & 0o100n) !== 0n,
    key: createHash('sha256').update(facts).digest('hex').slice(0, 16),
  };
}

const NEAR_NS = 2_000_000n;
/** Whether two times of change are the same, as far as every file system keeps them. */
export const isSameTime = (a: bigint, b: bigint): boolean => (a > b ? a - b : b - a) < NEAR_NS;
