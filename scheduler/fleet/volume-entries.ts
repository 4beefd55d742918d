// Entries of volumes by paths that begin with the volume's name, with wildcards, as published clients write them.
// Invariant: a call looks at a bounded number of folders and entries.
import { compileGlob, hasWildcards } from '#shared/domain/glob.ts';
import { filePathProblem, folderPathProblem } from '#shared/domain/volume-file-paths.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isRecord } from '#shared/json.ts';
import type { VolumeRow } from '../stores/store/queries/volumes.ts';
import type { VolumeAnswer, VolumeCalls } from './volume-calls.ts';
import type { VolumeFiles } from './volume-files.ts';

/** Entries of an answer. */
const MOST_ENTRIES = 10_000;
/** Folders that one pattern is looked for in. */
const MOST_FOLDERS = 200;

export interface FoundEntry {
  /** From the volume's root. */
  readonly path: string;
  readonly isFolder: boolean;
  readonly size: number;
  /** null: not told. */
  readonly modifiedAtMs: number | null;
}

/** A path of a published client: the name of a volume, and a path in it. */
export interface NamedPath {
  readonly volumeName: string;
  /** Without slashes at its ends; empty: the root. */
  readonly path: string;
}

/** Reads `volume/dir/file`. Slashes too many do not count. */
export function readNamedPath(text: string): NamedPath {
  const [volumeName = '', ...rest] = text.split('/').filter((part) => part !== '');
  return { volumeName, path: rest.join('/') };
}

interface Page {
  readonly isFolder: boolean;
  readonly entries: readonly FoundEntry[];
}

export interface VolumeEntriesParts {
  readonly files: Pick<VolumeFiles, 'reachable' | 'hasFiles'>;
  readonly calls: Pick<VolumeCalls, 'ask'>;
}

export class VolumeEntries {
  readonly #parts: VolumeEntriesParts;

  constructor(parts: VolumeEntriesParts) {
    this.#parts = parts;
  }

  /** @throws AppError `volume_not_found`, `volume_is_cache` */
  volume(workspaceId: WorkspaceId, { volumeName }: NamedPath): Promise<VolumeRow> {
    return this.#parts.files.reachable(workspaceId, volumeName);
  }

  /** The entry at a path; undefined: nothing is there. @throws AppError */
  async at(volume: VolumeRow, path: string): Promise<FoundEntry | undefined> {
    if (path === '') return { path, isFolder: true, size: 0, modifiedAtMs: null };
    requirePath(path);
    const pageOf = await this.#pagesOf(volume);
    const found = await pageOf(path, 1);
    if (found === undefined) return undefined;
    return found.isFolder ? { path, isFolder: true, size: 0, modifiedAtMs: null } : found.entries[0];
  }

  /**
   * Entries that a path names: those in a folder, a file itself, or what matches its wildcards.
   * @throws AppError `volume_file_not_found`, `bad_request` (too many)
   */
  async list(volume: VolumeRow, path: string): Promise<readonly FoundEntry[]> {
    if (hasWildcards(path)) return this.matching(volume, path);
    requirePath(path);
    const pageOf = await this.#pagesOf(volume);
    const found = await pageOf(path, MOST_ENTRIES);
    if (found === undefined) throw noFile();
    return found.entries;
  }

  /** Entries that match a path with wildcards, by path. @throws AppError `bad_request` (too many) */
  async matching(volume: VolumeRow, pattern: string): Promise<readonly FoundEntry[]> {
    const parts = pattern.split('/');
    const first = parts.findIndex(hasWildcards);
    if (first < 0) {
      const found = await this.at(volume, pattern);
      return found === undefined ? [] : [found];
    }
    const pageOf = await this.#pagesOf(volume);
    let folders = [parts.slice(0, first).join('/')];
    let looks = 0;
    let found: FoundEntry[] = [];
    for (const [at, part] of parts.slice(first).entries()) {
      const matches = compileGlob(part);
      const isLast = first + at === parts.length - 1;
      found = [];
      for (const folder of folders) {
        if (++looks > MOST_FOLDERS) throw tooMany(`${MOST_FOLDERS} folders`);
        const page = await pageOf(folder, MOST_ENTRIES);
        if (page?.isFolder !== true) continue;
        // A name that is written as it stands counts, whatever wildcards are in it.
        found.push(...page.entries.filter(({ path }) => matches(nameOf(path)) || nameOf(path) === part));
        if (found.length > MOST_ENTRIES) throw tooMany(`${MOST_ENTRIES} entries`);
      }
      folders = isLast ? [] : found.filter(({ isFolder }) => isFolder).map(({ path }) => path);
    }
    return found;
  }

  /** Gives the entries of folders, and files themselves; a volume without files has the root alone. */
  async #pagesOf(volume: VolumeRow): Promise<(path: string, limit: number) => Promise<Page | undefined>> {
    const hasFiles = await this.#parts.files.hasFiles(volume);
    return async (path, limit) => {
      const problem = folderPathProblem(path);
      if (problem !== undefined) throw new AppError('invalid_query', `path ${problem}`);
      if (hasFiles) return this.#page(volume, path, limit);
      return path === '' ? { isFolder: true, entries: [] } : undefined;
    };
  }

  /** Entries of a folder, or a file itself; undefined: nothing is there. */
  async #page(volume: VolumeRow, path: string, limit: number): Promise<Page | undefined> {
    const { calls } = this.#parts;
    let answer: VolumeAnswer;
    try {
      answer = await calls.ask(volume.id, { purpose: 'list', path, recursive: false, limit, cursor: '' });
    } catch (error) {
      if (error instanceof AppError && error.code === 'volume_file_not_found') return undefined;
      throw error;
    }
    const listed = Array.isArray(answer['entries']) ? answer['entries'].filter(isRecord) : [];
    if (limit > 1 && typeof answer['next'] === 'string' && answer['next'] !== '') throw tooMany(`${limit} entries`);
    const isFolder = answer['kind'] === 'folder';
    const base = isFolder ? (path === '' ? '' : `${path}/`) : path.slice(0, path.lastIndexOf('/') + 1);
    return { isFolder, entries: listed.map((entry) => entryOf(base, entry)) };
  }
}

const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

function entryOf(base: string, { path, kind, size, mtimeNs }: VolumeAnswer): FoundEntry {
  const ms = typeof mtimeNs === 'string' && /^\d{1,21}$/.test(mtimeNs) ? Number(BigInt(mtimeNs) / 1_000_000n) : 0;
  return {
    path: `${base}${typeof path === 'string' ? path : ''}`,
    isFolder: kind === 'folder',
    size: typeof size === 'number' && size >= 0 ? size : 0,
    modifiedAtMs: Number.isNaN(new Date(ms).getTime()) ? 0 : ms,
  };
}

function requirePath(path: string): void {
  const problem = path === '' ? undefined : filePathProblem(path);
  if (problem !== undefined) throw new AppError('invalid_query', `path ${problem}`);
}

const noFile = (): AppError => new AppError('volume_file_not_found', 'the volume has no such file');
const tooMany = (what: string): AppError =>
  new AppError('bad_request', `more than ${what}: name a folder below, or use \`longshore volume ls\``);
