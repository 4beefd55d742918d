// Finds the listener of a unix socket. Node gives no SO_PEERCRED, so the kernel's
// socket table is compared with the open files of the process said to listen.
import { readFile, readdir, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

const SOCKETS = '/proc/net/unix';

/**
 * Whether process `pid` belongs to this user and holds a socket bound to
 * `path`. So a pid that another process names for itself proves nothing.
 * @returns undefined without such a kernel table (no Linux)
 */
export async function isListenerOurs(path: string, pid: number): Promise<boolean | undefined> {
  const table = await readFile(SOCKETS, 'utf8').catch(() => undefined);
  if (table === undefined) return undefined;
  const inodes = await inodesBoundTo(path, table);
  try {
    if ((await stat(`/proc/${pid}`)).uid !== process.getuid?.()) return false;
    for (const file of await readdir(`/proc/${pid}/fd`)) {
      const target = await readlink(`/proc/${pid}/fd/${file}`).catch(() => '');
      const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
      if (inode !== undefined && inodes.has(inode)) return true;
    }
  } catch {
    // The process is gone, or belongs to another user, whose files are unreadable.
  }
  return false;
}

/** The inodes bound to `path`. The table holds paths as given to bind, and a directory may have several names. */
async function inodesBoundTo(path: string, table: string): Promise<ReadonlySet<string>> {
  const [name, directory] = [basename(path), await realpath(dirname(path))];
  const found = new Set<string>();
  for (const line of table.split('\n')) {
    // Num RefCount Protocol Flags Type St Inode Path
    const [, inode, bound] = /^\S+ \S+ \S+ \S+ \S+ \S+ +(\d+) (\/.*)$/.exec(line) ?? [];
    if (inode === undefined || bound === undefined || basename(bound) !== name) continue;
    const where = await realpath(dirname(bound)).catch(() => undefined);
    if (where !== undefined && join(where, name) === join(directory, name)) found.add(inode);
  }
  return found;
}
