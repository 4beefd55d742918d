/**
 * A daemon of `s3fs`, which serves one mount: started, watched, ended. A daemon outlives the helper that started it,
 * and the next helper takes it up by its process id and start time. Must stay true: no call here waits for files of the
 * mount without a deadline; a mount is gone when its daemon is killed, whatever waited for it.
 */
import { closeSync, openSync, readFileSync } from 'node:fs';
import { mkdir, readFile, readdir, readlink, rm, stat, statfs, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { runProgram, startProgram } from '#shared/child-process.ts';
import { messageOf } from '#shared/errors.ts';
import { isAlive, startTicks } from '#shared/process-facts.ts';
import { NoAnswer, runInChild } from '../child.ts';
import { causeOf, daemonArguments, daemonEnvironment } from './store.ts';
import type { Store } from './store.ts';

/** Deadline of a mount: the daemon asks the store for the bucket first. */
const MOUNT_MS = 45_000;
const LOOK_MS = 20;
/** Deadline of a question to the daemon that needs no answer of the store. */
const PROBE_MS = 10_000;
const UNMOUNT_MS = 10_000;
/** Time for a daemon to write what is open, and to end. */
const END_MS = 20_000;
/** The same time after a failed mount: the cause comes into the log at the end. */
const FAILED_MS = 2_000;
const MOST_LOG_BYTES = 1024 * 1024;
const MIB = 1024 * 1024;
const RESERVE_SHARE = 0.05;
const BLOCK_BYTES = 512;

/** A failed mount. */
export class MountFailed extends Error {
  override readonly name = 'MountFailed';
  /** The store did not answer. */
  readonly silent: boolean;

  constructor(text: string, silent = false) {
    super(text);
    this.silent = silent;
  }
}

/** A running daemon. */
export interface DaemonFacts {
  readonly pid: number;
  readonly ticks: string;
  readonly path: string;
  readonly cacheDir: string;
}

export interface StartDaemon {
  readonly program: string;
  readonly hasCompatDir: boolean;
  readonly store: Store;
  readonly path: string;
  readonly cacheDir: string;
  readonly logPath: string;
  readonly caBundle: string | undefined;
  /** URL of the guard; undefined: the store is the operator's own. */
  readonly proxy: string | undefined;
}

/** Mounts a bucket. @throws MountFailed */
export async function startDaemon(start: StartDaemon): Promise<DaemonFacts> {
  const { program, hasCompatDir, store, path, cacheDir, logPath, caBundle, proxy } = start;
  await mkdir(cacheDir, { recursive: true, mode: 0o700 });
  await mkdir(path, { recursive: true, mode: 0o700 });
  const place = { path, cacheDir, leaveFreeMib: await reserveOf(cacheDir), hasCompatDir };
  await rm(logPath, { force: true });
  const log = openSync(logPath, 'a', 0o600);
  const env = daemonEnvironment(store, { home: cacheDir, caBundle, ...(proxy === undefined ? {} : { proxy }) });
  const { child, ended } = startProgram(program, daemonArguments(store, place), {
    cwd: '/',
    env,
    // A group of its own, which a signal to the helper does not reach.
    detached: true,
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  child?.unref();
  let end: { readonly error?: Error } | undefined;
  void ended.then((how) => (end = 'error' in how ? { error: how.error } : {}));
  const untilMs = performance.now() + MOUNT_MS;
  const pid = child?.pid;
  const ticks = pid === undefined ? undefined : startTicks(pid);
  while (end === undefined && performance.now() < untilMs && !mountsBelow(path).includes(path)) await sleep(LOOK_MS);
  // The daemon answers only once it has asked for the bucket: its mount appears before. One that was refused ends, and
  // may answer a single question on its way.
  const asks = (): Promise<boolean> => answersNow(path, Math.max(1_000, untilMs - performance.now()));
  const answers = end === undefined && (await asks()) && (await asks());
  if (answers && pid !== undefined && ticks !== undefined && isAlive(pid, ticks)) return { pid, ticks, path, cacheDir };
  if (end?.error !== undefined) throw new MountFailed(`${program} cannot be run: ${messageOf(end.error)}`, true);
  if (pid !== undefined && ticks !== undefined) await endDaemon({ pid, ticks, path, cacheDir }, FAILED_MS);
  const cause = causeOf(await readFile(logPath, 'utf8').catch(() => ''));
  throw new MountFailed(cause.text, cause.silent || performance.now() >= untilMs);
}

/** Whether the daemon answers; the store is not asked. */
async function answersNow(path: string, deadlineMs: number): Promise<boolean> {
  try {
    await runInChild('stat -f -- "$1" >/dev/null', [path], deadlineMs);
    return true;
  } catch {
    return false;
  }
}

/** Why the mount is broken; undefined: it is not. */
export async function brokenBy({ pid, ticks, path }: DaemonFacts): Promise<'ended' | 'silent' | undefined> {
  if (!isAlive(pid, ticks) || !mountsBelow(path).includes(path)) return 'ended';
  try {
    await runInChild('stat -f -- "$1" >/dev/null', [path], PROBE_MS);
    return undefined;
  } catch (error) {
    return error instanceof NoAnswer ? 'silent' : 'ended';
  }
}

/**
 * Unmounts, and ends the daemon. Containers keep their mount of a daemon that lives; it ends with the last of them, or
 * is killed after `graceMs`. @param graceMs - 0: killed at once
 */
export async function endDaemon({ pid, ticks, path, cacheDir }: DaemonFacts, graceMs = END_MS): Promise<void> {
  await unmount(path);
  const untilMs = performance.now() + graceMs;
  while (isAlive(pid, ticks) && performance.now() < untilMs) await sleep(100);
  if (isAlive(pid, ticks)) process.kill(pid, 'SIGKILL');
  await rm(cacheDir, { recursive: true, force: true });
}

/** Takes the mount away from this machine's directories; programs that use it keep theirs. */
export async function unmount(path: string): Promise<void> {
  const options = { deadlineMs: UNMOUNT_MS, env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C' } };
  for (let left = mountsBelow(path); left.length > 0; left = mountsBelow(path)) {
    const end = await runProgram('umount', ['-l', '--', left.at(-1) ?? path], options);
    if (end.kind !== 'ended' || end.exitCode !== 0) return;
  }
}

/** Mount points at a directory and below it, in the order of the mounts. */
export function mountsBelow(directory: string): string[] {
  const lines = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const paths = lines.map((line) =>
    (line.split(' ')[4] ?? '').replace(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 8))),
  );
  return paths.filter((path) => path === directory || path.startsWith(`${directory}/`));
}

/** MiB to leave free on the disk of open files: a twentieth of it, and never more than half of what is free. */
async function reserveOf(directory: string): Promise<number> {
  const { bsize, blocks, bavail } = await statfs(directory);
  return Math.floor(Math.min(blocks * RESERVE_SHARE, bavail / 2) * (bsize / MIB));
}

/** Bytes on the disk of the files that the daemon has open; most of them have no name. */
export async function cachedBytes({ pid, cacheDir }: DaemonFacts): Promise<number> {
  const folder = `/proc/${pid}/fd`;
  const counted = await Promise.all(
    (await readdir(folder).catch(() => [])).map(async (name) => {
      try {
        if (!(await readlink(join(folder, name))).startsWith(`${cacheDir}/`)) return 0;
        return (await stat(join(folder, name))).blocks * BLOCK_BYTES;
      } catch {
        return 0;
      }
    }),
  );
  return counted.reduce((sum, one) => sum + one, 0);
}

/** Resident memory of a process; 0: it is gone. */
export async function residentBytes(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

/** Keeps a daemon's log within its bound. The daemon appends, so that it goes on at the new end. */
export async function boundLog(path: string): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found !== undefined && found.size > MOST_LOG_BYTES) await truncate(path, 0);
}

/** Version of the program, and whether it knows `compat_dir`. @throws MountFailed when it cannot be run */
export async function lookAtProgram(
  program: string,
): Promise<{ readonly version: string; readonly hasCompatDir: boolean }> {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C' };
  const [version, help] = await Promise.all(
    ['--version', '--help'].map((flag) => runProgram(program, [flag], { deadlineMs: 10_000, env })),
  );
  if (version?.kind !== 'ended' || version.exitCode !== 0)
    throw new MountFailed(`${program} cannot be run: install the package s3fs, or set LONGSHORE_S3FS`);
  const number = /V(\d+(?:\.\d+)+)/.exec(version.stdout)?.[1] ?? 'unknown';
  return { version: number, hasCompatDir: help?.kind === 'ended' && /^\s*compat_dir\b/m.test(help.stdout) };
}
