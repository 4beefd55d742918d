// A unix socket where the agent of this machine reaches the scheduler without TLS, in a directory that only this user
// can enter.
// Invariant: without that directory the socket does not exist.
import { chmod, lstat, mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { StartupError, messageOf } from '#shared/errors.ts';
import { isPrivateDirectory } from '#shared/socket-path.ts';

/**
 * Listens on `path`. A socket file of an earlier process is removed: the data directory has one owner at a time.
 * @param listen - makes the socket
 * @throws StartupError `data_dir_unusable`
 */
export async function listenPrivately(path: string, listen: (path: string) => Promise<unknown>): Promise<void> {
  const directory = dirname(path);
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    if (!isPrivateDirectory(await lstat(directory))) throw new Error('others may enter its directory');
    await rm(path, { force: true });
    await listen(path);
    await chmod(path, 0o600);
  } catch (error) {
    throw new StartupError(
      'data_dir_unusable',
      `cannot listen on ${path} (${messageOf(error)}): its directory must belong to this user alone (0700)`,
      { cause: error },
    );
  }
}
