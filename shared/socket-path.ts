import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { join } from 'node:path';

/** The kernel's bound on a unix socket's path. */
const MAX_SOCKET_PATH_BYTES = 107;

/** `<directory>/<name>`, or a short stable stand-in under /tmp when that is too long for a socket. */
export function socketPathIn(directory: string, name: string): string {
  const path = join(directory, name);
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  const digest = createHash('sha256').update(directory).digest('hex').slice(0, 16);
  return `/tmp/longshore-${process.getuid?.() ?? 0}-${digest}-${name}`;
}

/** Whether nobody but this user (and root) can put or reach anything in there. */
export function isPrivateDirectory(found: Stats): boolean {
  return found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
}

/** `<directory>/<name>`, or undefined where that is too long for a socket. */
export function socketPathWithin(directory: string, name: string): string | undefined {
  const path = join(directory, name);
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES ? path : undefined;
}
