// Chooses the files to pack: of an app's directory all but those that its ignore file names (gitignore syntax) and a
// few that never travel; of a Dockerfile's folder those that Docker would send. This file only looks; archive.ts packs.
import { lstat, readFile, readdir, readlink, realpath, stat } from 'node:fs/promises';
import type { Dirent, Stats } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, relative as relativePath, resolve } from 'node:path';
import ignore from 'ignore';
import { messageOf } from '#shared/errors.ts';
import { CliError, errorCode } from '../errors.ts';
import { readDockerignore } from './dockerignore.ts';
import type { Matched, Sight } from './dockerignore.ts';

/** A file to pack. */
export interface AppFile {
  /** Relative to the app's directory, with `/`. */
  readonly path: string;
  readonly fullPath: string;
  readonly size: number;
  readonly mtimeMs: number;
  readonly executable: boolean;
  /** Permissions: the lowest nine bits. */
  readonly mode: number;
}

/** A folder, or a link: that one has the text `to`. */
export interface AppEntry extends Pick<AppFile, 'path' | 'mtimeMs' | 'mode'> {
  readonly to?: string;
}

export interface AppFiles {
  /** Sorted in the same order on every machine. */
  readonly files: readonly AppFile[];
  /** Folders and links. An app has folders without a file alone, and links to folders of its own alone. */
  readonly others: readonly AppEntry[];
  readonly totalBytes: number;
  /** Entries left out although no rule names them: broken links, links to directories elsewhere, sockets. */
  readonly skipped: readonly string[];
  /** Permissions and times count. */
  readonly isExact: boolean;
}

/** The first file of these that exists is the only one used. */
export const IGNORE_FILES = ['.longshoreignore', '.beamignore', '.beta9ignore'] as const;
/** Names that are never part of an app, whatever the ignore file says. */
const NEVER: ReadonlySet<string> = new Set(['.git', '__pycache__', '.venv', 'node_modules']);
/** A folder with this file is a virtual environment of Python, whatever its name, and no part of an app. */
const VIRTUAL_ENVIRONMENT = 'pyvenv.cfg';

/** Files of a folder that are looked at side by side. */
const STATS_AT_ONCE = 64;
/** An app is code; data belongs in a volume. Both bounds keep a wrong directory (a home) from being read through. */
export const MAX_APP_BYTES = 1024 ** 3;
export const MAX_APP_FILES = 50_000;

export interface FileLimits {
  readonly maxBytes: number;
  readonly maxFiles: number;
}
const LIMITS: FileLimits = { maxBytes: MAX_APP_BYTES, maxFiles: MAX_APP_FILES };

/**
 * The files of an app. Links to files stand for the files.
 * @throws CliError when it is too large to be an app, cannot be read, or is a home directory without an ignore file
 */
export async function collectFiles(
  root: string,
  limits: FileLimits = LIMITS,
  options: { readonly home?: string; readonly leavesOut?: (file: Stats) => boolean } = {},
): Promise<AppFiles> {
  const { name = IGNORE_FILES[0], text } = await readFirst(root, IGNORE_FILES);
  if (text === undefined) refuseHome(root, name, options.home);
  const rules = ignore().add(text ?? '');
  return walk(root, limits, {
    ignoreFile: name,
    isExact: false,
    leavesOut: options.leavesOut,
    rules: {
      look(path, _parent, isFolder) {
        const last = path.slice(path.lastIndexOf('/') + 1);
        const isOut = NEVER.has(last) || rules.ignores(isFolder ? `${path}/` : path);
        return { isOut, mayKeepBelow: !isOut, matched: [] };
      },
    },
  });
}

/**
 * Files of the folder that a Dockerfile copies from, as Docker would take them: all but those of its `.dockerignore`,
 * with permissions, times, folders and links as they are.
 * @param dockerfile - its path, where an ignore file for it alone may be; empty: not known
 * @throws CliError as `collectFiles`
 */
export async function contextFiles(root: string, dockerfile = '', limits: FileLimits = LIMITS): Promise<AppFiles> {
  const own = dockerfile === '' ? [] : [`${resolve(dockerfile)}.dockerignore`];
  const { name = '.dockerignore', text } = await readFirst(root, [...own, '.dockerignore']);
  if (text === undefined) refuseHome(root, name);
  const read = readDockerignore(text ?? '');
  if (read.kind === 'problem') throw new CliError(`${resolve(root, name)}: ${read.problem}`);
  return walk(root, limits, { ignoreFile: name, isExact: true, rules: read.rules });
}

interface Walk {
  /** For advice. */
  readonly ignoreFile: string;
  readonly isExact: boolean;
  /** Files that are no part of the app, beside those of the rules. */
  readonly leavesOut?: ((file: Stats) => boolean) | undefined;
  readonly rules: { look(path: string, parent: Matched, isFolder: boolean): Sight };
}

async function walk(root: string, limits: FileLimits, options: Walk): Promise<AppFiles> {
  const { ignoreFile, isExact, rules } = options;
  const files: AppFile[] = [];
  const others: AppEntry[] = [];
  const skipped: string[] = [];
  let totalBytes = 0;
  const realRoot = await realpath(root).catch(() => root);

  /** @returns false: nothing of the folder belongs to an app */
  const visit = async (relative: string, matched: Matched): Promise<boolean> => {
    const wanted: string[] = [];
    const entries = await list(join(root, relative), ignoreFile);
    if (!isExact && relative !== '' && entries.some(({ name }) => name === VIRTUAL_ENVIRONMENT)) return false;
    for (const entry of entries) {
      const path = relative === '' ? entry.name : `${relative}/${entry.name}`;
      const sight = rules.look(path, matched, entry.isDirectory());
      if (!entry.isDirectory()) {
        if (!sight.isOut) wanted.push(path);
      } else if (sight.mayKeepBelow) {
        const before = files.length + others.length;
        if (!(await visit(path, sight.matched))) continue;
        const hasMore = files.length + others.length > before;
        if (isExact ? hasMore || !sight.isOut : !hasMore) await takeFolder(path);
      }
    }
    for (let from = 0; from < wanted.length; from += STATS_AT_ONCE) {
      const paths = wanted.slice(from, from + STATS_AT_ONCE);
      const found = await Promise.all(paths.map((path) => look(path)));
      for (const one of found) if (one !== undefined) take(one);
    }
    return true;
  };
  const takeFolder = async (path: string): Promise<void> => {
    const found = await stat(join(root, path)).catch(() => undefined);
    if (found !== undefined) take({ path, mtimeMs: found.mtimeMs, mode: found.mode & 0o777 });
  };
  /** @returns the path alone for what cannot travel; undefined: it is to be left out */
  const look = async (path: string): Promise<AppFile | AppEntry | string | undefined> => {
    const fullPath = join(root, path);
    const found = await (isExact ? lstat(fullPath) : stat(fullPath)).catch(() => undefined);
    if (found === undefined) return path;
    if (options.leavesOut?.(found) === true) return undefined;
    const { size, mtimeMs } = found;
    const mode = found.mode & 0o777;
    if (found.isFile()) return { path, fullPath, size, mtimeMs, mode, executable: (mode & 0o100) !== 0 };
    const to = await (found.isSymbolicLink() ? readlink(fullPath) : linkInside(fullPath, found)).catch(() => undefined);
    return to === undefined ? path : { path, mtimeMs, mode, to };
  };
  /** The text of a link to a folder of the app, past other links. */
  const linkInside = async (fullPath: string, found: Stats): Promise<string | undefined> => {
    if (!found.isDirectory()) return undefined;
    const target = await realpath(fullPath);
    if (!target.startsWith(`${realRoot}/`)) return undefined;
    return relativePath(await realpath(dirname(fullPath)), target);
  };
  const take = (one: AppFile | AppEntry | string): void => {
    if (typeof one === 'string') skipped.push(one);
    else if ('fullPath' in one) {
      totalBytes += one.size;
      files.push(one);
    } else others.push(one);
    if (totalBytes > limits.maxBytes)
      throw tooLarge(root, ignoreFile, `more than ${Math.floor(limits.maxBytes / 1024 ** 2)} MiB`);
    if (files.length + others.length > limits.maxFiles)
      throw tooLarge(root, ignoreFile, `more than ${limits.maxFiles} files`);
  };
  await visit('', []);
  return { files: files.toSorted(byPath), others: others.toSorted(byPath), totalBytes, skipped, isExact };
}

/** Code-unit order, because a locale's order differs between machines, and with it the archive's bytes. */
export const byPath = (a: Pick<AppFile, 'path'>, b: Pick<AppFile, 'path'>): number =>
  a.path < b.path ? -1 : a.path > b.path ? 1 : 0;

/** The first of these files that exists. */
async function readFirst(
  root: string,
  names: readonly string[],
): Promise<{ readonly name?: string; readonly text?: string }> {
  for (const name of names) {
    try {
      return { name, text: await readFile(resolve(root, name), 'utf8') };
    } catch (error) {
      if (errorCode(error) !== 'ENOENT') {
        throw new CliError(`cannot read ${resolve(root, name)} (${messageOf(error)})`, { cause: error });
      }
    }
  }
  return {};
}

/** A home directory holds keys and tokens: without an ignore file it is refused. */
function refuseHome(root: string, ignoreFile: string, home = homedir()): void {
  if (resolve(root) === resolve(home)) {
    throw new CliError(
      `${root} is a home directory, with keys and tokens in it: move the app into a directory of its own, or name what stays behind in ${join(root, ignoreFile)}`,
    );
  }
}

async function list(directory: string, ignoreFile: string): Promise<Dirent[]> {
  try {
    return await readdir(directory, { withFileTypes: true });
  } catch (error) {
    throw new CliError(
      `cannot read ${directory} (${messageOf(error)}): make it readable, or name it in ${ignoreFile}`,
      { cause: error },
    );
  }
}

function tooLarge(root: string, ignoreFile: string, what: string): CliError {
  return new CliError(
    `${root} holds ${what}: name what is not needed in ${resolve(root, ignoreFile)}, or deploy from a smaller directory`,
  );
}
