// Runs work on files in a child process, so that no thread of this process waits: the files may hang for ever, as on a
// network file system without its server.
import { readFileSync, readdirSync } from 'node:fs';
import { runProgram, signalGroup } from '#shared/child-process.ts';
import { messageOf } from '#shared/errors.ts';

/** The files did not answer in time: the file system below hangs. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
}

/**
 * Bound on process groups that may have survived their kill: a process that waits for a disk does. Each is bound to a
 * hanging file system; above the bound no more start.
 */
const MOST_STUCK = 16;
const killed = new Set<number>();

/** Number of groups with a surviving process: the shell may have died and left a process that it waited for. */
function stuck(most: number): number {
  for (const group of killed) if (!signalGroup(group, 0)) killed.delete(group);
  if (killed.size < most) return killed.size;
  // Uncollected dead processes keep a group too, and hold nothing. All processes are read only if such groups remain.
  const living = livingGroups();
  for (const group of killed) if (!living.has(group)) killed.delete(group);
  return killed.size;
}

function livingGroups(): ReadonlySet<number> {
  const groups = new Set<number>();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      // Fields after the name, which may have blanks: state, parent, group.
      const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (state !== 'Z') groups.add(Number(group));
    } catch {
      // The process has just ended.
    }
  }
  return groups;
}

/**
 * Runs a shell script, and at the deadline kills it and all processes that it started. The caller goes on even if the
 * kill fails: a process that waits for a dead disk does not die at once.
 * @param args - `$1`, `$2`, …
 * @param options.onOutput - called with the whole output so far at each piece; each piece restarts the deadline
 * @param options.most - number of killed groups with a surviving process at which the script is refused
 * @returns the script's output
 * @throws NoAnswer at the deadline; Error with the last output when it fails
 */
export async function runInChild(
  script: string,
  args: readonly string[],
  deadlineMs: number,
  { onOutput, most = MOST_STUCK }: { readonly onOutput?: (output: string) => void; readonly most?: number } = {},
): Promise<string> {
  if (stuck(most) >= most) throw new NoAnswer(`${most} processes already wait for file systems that do not answer`);
  const end = await runProgram('/bin/sh', ['-c', script, 'sh', ...args], {
    deadlineMs,
    ...(onOutput === undefined ? {} : { onOutput }),
    cwd: '/',
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' },
  });
  if (end.kind === 'not_started') throw new Error(`cannot run /bin/sh: ${messageOf(end.error)}`, { cause: end.error });
  if (end.kind === 'timeout') {
    if (signalGroup(end.group, 0)) killed.add(end.group);
    throw new NoAnswer(`no answer within ${deadlineMs / 1000} s`);
  }
  if (end.exitCode !== 0) throw new Error(end.stderr.trim() || `exit code ${end.exitCode}`);
  return end.stdout;
}
