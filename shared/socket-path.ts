import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { lstat, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** The kernel's bound on a unix socket's path. */
const MAX_SOCKET_PATH_BYTES = 107;

/**
 * `<directory>/<name>`, or a short stable substitute in this user's
 * directory under /tmp when the path is too long for a socket.
 */
export function socketPathIn(directory: string, name: string): string {
  return socketPathWithin(directory, name) ?? join(standInDirectory(), `${digestOf(directory)}-${name}`);
}

const standInDirectory = (): string => `/tmp/longshore-${process.getuid?.() ?? 0}`;

const digestOf = (directory: string): string => createHash('sha256').update(directory).digest('hex').slice(0, 16);

/** Creates the directory of a substitute path. @throws Error as `makePrivateDirectory` does */
export async function makeSocketDirectory(socketPath: string): Promise<void> {
  if (dirname(socketPath) === standInDirectory()) await makePrivateDirectory(standInDirectory());
}

/**
 * Creates a directory for this user alone. Everybody may write to /tmp, so
 * an existing directory is trusted only when nobody else can enter it.
 * @throws Error when somebody else made it, others may enter it, or it is a link
 */
export async function makePrivateDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  if (isPrivateDirectory(await lstat(directory))) return;
  const text = `${directory} is not a directory of this user alone (mode 0700): remove it, or shorten the path of the data directory`;
  throw Object.assign(new Error(text), { code: 'EACCES' });
}

/** Whether nobody but this user (and root) can write to or enter the directory. */
export function isPrivateDirectory(found: Stats): boolean {
  return found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
}

/** `<directory>/<name>`, or undefined when that is too long for a socket. */
export function socketPathWithin(directory: string, name: string): string | undefined {
  const path = join(directory, name);
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES ? path : undefined;
}
