// A data directory belongs to one process: two PGlites on the same files destroy them. The lock is a listening socket,
// because the kernel closes it when its process is killed.
import { connect, createServer } from 'node:net';
import type { Server } from 'node:net';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import { StartupError, messageOf } from '#shared/errors.ts';
import { sleep, withDeadline } from '#shared/backoff.ts';
import { makeSocketDirectory, socketPathIn } from '#shared/socket-path.ts';

export interface DataDirLock {
  release(): Promise<void>;
}

const LOCK_NAME = 'pglite.lock.sock';
const MKDIR_DEADLINE_MS = 10_000;
const CONNECT_DEADLINE_MS = 2_000;
const TAKEOVER_TRIES = 20;

/** @throws StartupError `data_dir_in_use`, `data_dir_unusable` */
export async function lockDataDir(dataDir: string): Promise<DataDirLock> {
  try {
    // A file system that hangs (a lost network mount) must not hang the start.
    await withDeadline(mkdir(dataDir, { recursive: true, mode: 0o700 }), MKDIR_DEADLINE_MS, () =>
      Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' }),
    );
  } catch (error) {
    throw unusable(dataDir, error);
  }
  const path = socketPathIn(dataDir, LOCK_NAME);
  try {
    await makeSocketDirectory(path);
  } catch (error) {
    const text = `the data directory ${dataDir} has no safe place for its lock: ${messageOf(error)}`;
    throw new StartupError('data_dir_unusable', text, { cause: error });
  }
  const server = (await listen(path, dataDir)) ?? (await takeOver(path, dataDir));
  try {
    await chmod(path, 0o600);
  } catch (error) {
    await closeServer(server);
    throw unusable(dataDir, error);
  }
  // The lock alone keeps no process alive.
  server.unref();
  return { release: () => closeServer(server) };
}

/**
 * The lock file exists: its owner lives, or was killed. Two processes may try to remove a dead
 * owner's lock, and the slower one must not remove the new lock of the faster one. The processes
 * take turns by an abstract socket name, which the kernel gives to one process at a time.
 */
async function takeOver(path: string, dataDir: string): Promise<Server> {
  const turn = `\0longshore-lock-${createHash('sha256').update(path).digest('hex').slice(0, 32)}`;
  for (let attempt = 0; attempt < TAKEOVER_TRIES; attempt++) {
    if (await answers(path)) throw inUse(dataDir);
    const mine = await listen(turn, dataDir);
    if (mine === undefined) {
      await sleep(50);
      continue;
    }
    try {
      if (await answers(path)) throw inUse(dataDir);
      await rm(path, { force: true });
      const server = await listen(path, dataDir);
      if (server !== undefined) return server;
    } finally {
      await closeServer(mine);
    }
  }
  throw inUse(dataDir);
}

/** Listens on the socket; undefined: the address is taken. */
function listen(path: string, dataDir: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(unusable(dataDir, error));
    });
    server.listen(path, () => resolve(server));
  });
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const settle = (alive: boolean): void => {
      socket.destroy();
      resolve(alive);
    };
    // An owner whose queue of connections is full is alive, and so is an owner that does not answer in time.
    socket.setTimeout(CONNECT_DEADLINE_MS, () => settle(true));
    socket.once('connect', () => settle(true));
    socket.once('error', (error: NodeJS.ErrnoException) =>
      settle(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'),
    );
  });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}

const inUse = (dataDir: string): StartupError =>
  new StartupError(
    'data_dir_in_use',
    `the data directory ${dataDir} is in use by another Longshore process: stop that one, or set LONGSHORE_DATA_DIR to another directory`,
  );

function unusable(dataDir: string, error: unknown): StartupError {
  const code = (error as NodeJS.ErrnoException).code ?? 'error';
  return new StartupError(
    'data_dir_unusable',
    `cannot write to the data directory ${dataDir} (${code}): make it writable for this user, or set LONGSHORE_DATA_DIR to a directory that is`,
    { cause: error },
  );
}
