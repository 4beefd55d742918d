/**
 * Where a test run keeps its files: in memory where there is room. A copy of the embedded database has a thousand
 * files; on a disk it takes ten times as much of a processor, and tests make hundreds of databases.
 */
import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

const IN_MEMORY = '/dev/shm';
const TMPFS = 0x01021994;
/** A whole run had 0.8 GiB at once. */
const LEAST_ROOM = 6 * 1024 ** 3;
/** Memory for the files and the programs of the tests. */
const LEAST_MEMORY = 10 * 1024 ** 3;

/** @returns the directory in which a run makes its own; TMPDIR, where somebody has set it, has the last word */
export function testParent(env = process.env) {
  if (env.TMPDIR) return env.TMPDIR;
  try {
    accessSync(IN_MEMORY, constants.W_OK);
    const { type, bavail, bsize } = statfsSync(IN_MEMORY);
    const [mounts, memory] = ['mounts', 'meminfo'].map((name) => readFileSync(`/proc/${name}`, 'utf8'));
    return isRoomy({ type, freeBytes: bavail * bsize, mounts, memory }) ? IN_MEMORY : tmpdir();
  } catch {
    return tmpdir();
  }
}

/**
 * Whether a run may have its files in memory, by what the kernel says.
 * @param {{ type: number, freeBytes: number, mounts: string, memory: string }} said - `type`, `freeBytes`: of the
 *   file system; `mounts`, `memory`: texts of `/proc/mounts` and `/proc/meminfo`
 */
export function isRoomy({ type, freeBytes, mounts, memory }) {
  const mount = mounts.split('\n').find((line) => line.split(' ')[1] === IN_MEMORY);
  const options = mount?.split(' ')[3]?.split(',') ?? ['noexec'];
  const [, available] = /^MemAvailable: +(\d+) kB/m.exec(memory) ?? [];
  return (
    type === TMPFS && freeBytes >= LEAST_ROOM && Number(available) * 1024 >= LEAST_MEMORY && !options.includes('noexec')
  );
}
