// Chooses the files of an app's directory to pack: all but those that its ignore file names
// (gitignore syntax) and a few that never travel. This file only looks; archive.ts packs.
import { readFile, readdir, stat } from 'node:fs/promises';
import type { Dirent, Stats } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import ignore from 'ignore';
import type { Ignore } from 'ignore';
import { messageOf } from '#shared/errors.ts';
import { CliError, errorCode } from '../errors.ts';

/** A file to pack. */
export interface AppFile {
  /** Relative to the app's directory, with `/`. */
  readonly path: string;
  readonly fullPath: string;
  readonly size: number;
  readonly mtimeMs: number;
  readonly executable: boolean;
}

export interface AppFiles {
  /** Sorted in the same order on every machine. */
  readonly files: readonly AppFile[];
  readonly totalBytes: number;
  /** Entries left out although no rule names them: broken links, links to directories, sockets. */
  readonly skipped: readonly string[];
}

/** The first file of these that exists is the only one used. */
export const IGNORE_FILES = ['.longshoreignore', '.beamignore', '.beta9ignore'] as const;
/** Names that are never part of an app, whatever the ignore file says. */
const NEVER: ReadonlySet<string> = new Set(['.git', '__pycache__', '.venv', 'node_modules']);

/** Files of a folder that are looked at side by side. */
const STATS_AT_ONCE = 64;
/** An app is code; data belongs in a volume. Both bounds keep a wrong directory (a home) from being read through. */
export const MAX_APP_BYTES = 1024 ** 3;
export const MAX_APP_FILES = 50_000;

/**
 * Walks the directory.
 * @throws CliError when it is too large to be an app, cannot be read, or is a home directory without an ignore file
 */
export async function collectFiles(
  root: string,
  limits: { readonly maxBytes: number; readonly maxFiles: number } = {
    maxBytes: MAX_APP_BYTES,
    maxFiles: MAX_APP_FILES,
  },
  options: { readonly home?: string; readonly ignoreFiles?: readonly string[] } = {},
): Promise<AppFiles> {
  const rules = await readRules(root, options.home ?? homedir(), options.ignoreFiles ?? IGNORE_FILES);
  const files: AppFile[] = [];
  const skipped: string[] = [];
  let totalBytes = 0;

  const visit = async (relative: string): Promise<void> => {
    const wanted: string[] = [];
    for (const entry of await list(join(root, relative))) {
      const path = relative === '' ? entry.name : `${relative}/${entry.name}`;
      if (NEVER.has(entry.name)) continue;
      if (!entry.isDirectory()) {
        if (!rules.ignores(path)) wanted.push(path);
      } else if (!rules.ignores(`${path}/`)) await visit(path);
    }
    for (let from = 0; from < wanted.length; from += STATS_AT_ONCE) {
      const paths = wanted.slice(from, from + STATS_AT_ONCE);
      const stats = await Promise.all(paths.map((path) => stat(join(root, path)).catch(() => undefined)));
      for (const [index, path] of paths.entries()) take(path, stats[index]);
    }
  };
  const take = (path: string, found: Stats | undefined): void => {
    if (found === undefined || !found.isFile()) {
      skipped.push(path);
      return;
    }
    totalBytes += found.size;
    const { size, mtimeMs, mode } = found;
    files.push({ path, fullPath: join(root, path), size, mtimeMs, executable: (mode & 0o100) !== 0 });
    if (totalBytes > limits.maxBytes) throw tooLarge(root, `more than ${Math.floor(limits.maxBytes / 1024 ** 2)} MiB`);
    if (files.length > limits.maxFiles) throw tooLarge(root, `more than ${limits.maxFiles} files`);
  };
  await visit('');
  // Code-unit order, because a locale's order differs between machines, and with it the archive's bytes.
  files.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
  return { files, totalBytes, skipped };
}

/** A home directory holds keys and tokens: without an ignore file it is refused. */
async function readRules(root: string, home: string, names: readonly string[]): Promise<Ignore> {
  for (const name of names) {
    try {
      return ignore().add(await readFile(join(root, name), 'utf8'));
    } catch (error) {
      if (errorCode(error) !== 'ENOENT') {
        throw new CliError(`cannot read ${join(root, name)} (${messageOf(error)})`, { cause: error });
      }
    }
  }
  if (resolve(root) === resolve(home)) {
    throw new CliError(
      `${root} is a home directory, with keys and tokens in it: move the app into a directory of its own, or name what stays behind in ${join(root, IGNORE_FILES[0])}`,
    );
  }
  return ignore();
}

async function list(directory: string): Promise<Dirent[]> {
  try {
    return await readdir(directory, { withFileTypes: true });
  } catch (error) {
    throw new CliError(
      `cannot read ${directory} (${messageOf(error)}): make it readable, or name it in ${IGNORE_FILES[0]}`,
      { cause: error },
    );
  }
}

function tooLarge(root: string, what: string): CliError {
  return new CliError(
    `${root} holds ${what}: name what the handler does not need in ${join(root, IGNORE_FILES[0])}, or deploy from a smaller directory`,
  );
}
