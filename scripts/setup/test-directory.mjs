/**
 * Where a test run keeps its files: in memory where there is room. A copy of the embedded database has a thousand
 * files; on a disk it takes ten times as much of a processor, and tests make hundreds of databases.
 */
import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

const IN_MEMORY = '/dev/shm';
const TMPFS = 0x01021994;
/** A whole run has had 1.5 GiB at once. */
const LEAST_ROOM = 6 * 1024 ** 3;
/** Memory for the files and the programs of the tests. */
const LEAST_MEMORY = 10 * 1024 ** 3;

/** @returns the directory in which a run makes its own; TMPDIR, where somebody has set it, has the last word */
export function testParent() {
  if (process.env.TMPDIR) return tmpdir();
  return hasRoom() ? IN_MEMORY : tmpdir();
}

function hasRoom() {
  try {
    accessSync(IN_MEMORY, constants.W_OK);
    const { type, bavail, bsize } = statfsSync(IN_MEMORY);
    const mount = readFileSync('/proc/mounts', 'utf8')
      .split('\n')
      .find((line) => line.split(' ')[1] === IN_MEMORY);
    const options = mount?.split(' ')[3]?.split(',') ?? ['noexec'];
    const [, available] = /^MemAvailable: +(\d+) kB/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? [];
    return (
      type === TMPFS &&
      bavail * bsize >= LEAST_ROOM &&
      Number(available) * 1024 >= LEAST_MEMORY &&
      !options.includes('noexec')
    );
  } catch {
    return false;
  }
}
