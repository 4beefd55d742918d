// Tells when something below a folder may have changed. The system's notes are hints: whoever is told looks for itself.
import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { join } from 'node:path';

/** Time for further notes of one save: editors write several files, and rename them. */
const QUIET_MS = 30;
/** Interval of looks without a note: some file systems send none. */
const LOOK_MS = 2_000;
/** The same where the system watches no more folders. */
const LOOK_OFTEN_MS = 500;

export interface Watching {
  /** Watches these folders, relative to the root, and no others; nothing once it is closed. */
  follow(folders: Iterable<string>): void;
  close(): void;
}

/**
 * @param isOwn - whether a path is a file whose changes are no hints
 * @param onHint - called once for several notes close together
 */
export function watchFolders(root: string, isOwn: (path: string) => boolean, onHint: () => void): Watching {
  const watchers = new Map<string, FSWatcher>();
  let quiet: NodeJS.Timeout | undefined;
  let isBlind = false;
  let isClosed = false;
  let looks = setInterval(onHint, LOOK_MS);
  const hint = (): void => {
    clearTimeout(quiet);
    quiet = setTimeout(onHint, QUIET_MS);
  };
  const add = (folder: string): void => {
    try {
      const watcher = watch(join(root, folder), { persistent: true }, (_kind, name) => {
        if (name === null || !isOwn(join(root, folder, name))) hint();
      });
      watcher.on('error', () => remove(folder));
      watchers.set(folder, watcher);
    } catch {
      // Too many, or it has gone: the looks find what changes.
      if (isBlind) return;
      isBlind = true;
      clearInterval(looks);
      looks = setInterval(onHint, LOOK_OFTEN_MS);
    }
  };
  const remove = (folder: string): void => {
    watchers.get(folder)?.close();
    watchers.delete(folder);
  };
  return {
    follow: (folders) => {
      if (isClosed) return;
      const wanted = new Set(['', ...folders]);
      for (const folder of watchers.keys()) if (!wanted.has(folder)) remove(folder);
      for (const folder of wanted) if (!watchers.has(folder)) add(folder);
    },
    close: () => {
      isClosed = true;
      clearTimeout(quiet);
      clearInterval(looks);
      for (const folder of [...watchers.keys()]) remove(folder);
    },
  };
}

/** Folders of files, each once. */
export function foldersIn(paths: Iterable<string>): Set<string> {
  const folders = new Set<string>();
  for (const path of paths) {
    for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) folders.add(path.slice(0, at));
  }
  return folders;
}
