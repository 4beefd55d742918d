// The unix socket where the agent of this machine reaches the
// scheduler without TLS, in a directory that only this user can enter.
// Invariant: the machine's credential is required here as on the port
// for agents, and without that directory the socket does not exist.
import { chmod, lstat, mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Server } from '@grpc/grpc-js';
import { ServerCredentials } from '@grpc/grpc-js';
import { StartupError, messageOf } from '#shared/errors.ts';
import { isPrivateDirectory } from '#shared/socket-path.ts';

/**
 * Lets `server` also listen on `path`. A socket file of an earlier
 * process is removed: the data directory has one owner at a time.
 * @throws StartupError `data_dir_unusable`
 */
export async function listenLocally(server: Server, path: string): Promise<void> {
  const directory = dirname(path);
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    if (!isPrivateDirectory(await lstat(directory))) throw new Error('others may enter its directory');
    await rm(path, { force: true });
    await new Promise<void>((resolve, reject) => {
      server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    await chmod(path, 0o600);
  } catch (error) {
    throw new StartupError(
      'data_dir_unusable',
      `cannot listen on ${path} (${messageOf(error)}): its directory must belong to this user alone (0700)`,
      { cause: error },
    );
  }
}
