// Files that must survive a crash, and the lock that keeps a second agent from the same state directory.
import { createHash } from 'node:crypto';
import { mkdir, open, readFile, realpath, rename, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { dirname } from 'node:path';
import { StartupError } from '#shared/errors.ts';

/**
 * Writes a file so that a crash leaves the old or the new text, never a part: temporary file, fsync, rename, fsync of
 * the folder.
 */
export async function writeDurably(path: string, text: string, mode = 0o600): Promise<void> {
  const temporary = `${path}.new`;
  const file = await open(temporary, 'w', mode);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  await syncFolder(dirname(path));
}

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Reads a file; undefined when there is none. */
export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
}

/** The limit of a unix socket's path on Linux, less the closing zero. */
const MAX_SOCKET_PATH = 107;
/** The suffix that the agent appends to its state directory: `/s/<12 characters>/agent.sock`. */
const SOCKET_SUFFIX = '/s/0123456789ab/agent.sock';

/**
 * Makes the state directory and proves that it can be written.
 * @throws StartupError `state_not_writable`, `state_path_too_long`
 */
export async function prepareStateDir(path: string): Promise<string> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    const probe = `${path}/.probe`;
    await writeDurably(probe, '');
    await rm(probe);
  } catch (error) {
    throw new StartupError(
      'state_not_writable',
      `cannot write to the agent's state directory ${path}; give this user the directory, or set LONGSHORE_DATA_DIR to one it may write`,
      { cause: error },
    );
  }
  const real = await realpath(path);
  if (Buffer.byteLength(real + SOCKET_SUFFIX) > MAX_SOCKET_PATH) {
    throw new StartupError(
      'state_path_too_long',
      `the agent's state directory ${real} is too long a path for unix sockets (${MAX_SOCKET_PATH - SOCKET_SUFFIX.length} bytes at most); set LONGSHORE_DATA_DIR to a shorter one`,
    );
  }
  return real;
}

/**
 * Takes the single-owner lock of a state directory: a listening socket in Linux's abstract namespace. The kernel gives
 * the name to one process and frees it when the process dies, so no stale lock remains.
 * @returns a function that releases the lock
 * @throws StartupError `state_in_use`
 */
export async function lockStateDir(path: string): Promise<() => Promise<void>> {
  const name = createHash('sha256').update(path).digest('hex').slice(0, 32);
  const server: Server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(
        hasCode(error, 'EADDRINUSE')
          ? new StartupError(
              'state_in_use',
              `another agent already runs on ${path}; stop that one, or give this one its own LONGSHORE_DATA_DIR`,
              { cause: error },
            )
          : error,
      );
    });
    server.listen({ path: `\0longshore-agent-${name}` }, resolve);
  });
  server.unref();
  return () => new Promise<void>((resolve) => server.close(() => resolve()));
}
