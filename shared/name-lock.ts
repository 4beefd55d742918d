import { createHash } from 'node:crypto';
import { createServer } from 'node:net';

/** A lock held until `release`, or until the process ends, however it ends. */
export interface NameLock {
  release(): Promise<void>;
}

/**
 * Takes a name for this process: a listening socket in Linux's abstract namespace. The
 * kernel gives it to one process at a time and takes it back when that process ends.
 * @param scope - the purpose of the lock: the same path may be locked for different purposes
 * @returns undefined when another process has it
 */
export async function takeName(scope: string, path: string): Promise<NameLock | undefined> {
  const digest = createHash('sha256').update(path).digest('hex').slice(0, 32);
  const server = createServer((socket) => socket.destroy());
  const taken = await new Promise<boolean>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(false);
      else reject(error);
    });
    server.listen({ path: `\0longshore-${scope}-${digest}` }, () => resolve(true));
  });
  if (!taken) return undefined;
  // The lock alone keeps no process alive.
  server.unref();
  return { release: () => new Promise((resolve) => void server.close(() => resolve())) };
}
