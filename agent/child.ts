// Runs work on files in a child process, so that no thread of this process waits: the files may hang for ever, as on a
// network file system without its server.
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { messageOf } from '#shared/errors.ts';

/** The files did not answer in time: the file system below hangs. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
}

const MOST_OUTPUT = 65_536;

/**
 * Bound on process groups that may have survived their kill: a process that waits for a disk does. Each is bound to a
 * hanging file system; above the bound no more start.
 */
const MOST_STUCK = 16;
const killed = new Set<number>();

/** Number of groups with a surviving process: the shell may have died and left a process that it waited for. */
function stuck(most: number): number {
  for (const group of killed) if (!signalled(group, 0)) killed.delete(group);
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
export function runInChild(
  script: string,
  args: readonly string[],
  deadlineMs: number,
  { onOutput, most = MOST_STUCK }: { readonly onOutput?: (output: string) => void; readonly most?: number } = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    if (stuck(most) >= most) {
      reject(new NoAnswer(`${most} processes already wait for file systems that do not answer`));
      return;
    }
    const child = spawn('/bin/sh', ['-c', script, 'sh', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: '/',
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' },
      // The child has its own group, so that its own children are killed with it.
      detached: true,
    });
    let output = '';
    let errors = '';
    child.stdout.on('data', (data: Buffer) => {
      output = (output + data.toString()).slice(0, MOST_OUTPUT);
      if (onOutput === undefined) return;
      timer.refresh();
      onOutput(output);
    });
    child.stderr.on('data', (data: Buffer) => (errors = (errors + data.toString()).slice(-MOST_OUTPUT)));
    const timer = setTimeout(() => {
      if (child.pid !== undefined && signalled(child.pid, 'SIGKILL')) killed.add(child.pid);
      // The handles must not keep this process alive.
      child.unref();
      child.stdout.destroy();
      child.stderr.destroy();
      reject(new NoAnswer(`no answer within ${deadlineMs / 1000} s`));
    }, deadlineMs);
    child.on('error', (error) => {
      clearTimeout(timer);
      reject(new Error(`cannot run /bin/sh: ${messageOf(error)}`, { cause: error }));
    });
    child.on('close', (code) => {
      clearTimeout(timer);
      if (code === 0) resolve(output);
      else reject(new Error(errors.trim() || `exit code ${code}`));
    });
  });
}

/** @returns whether the group exists */
function signalled(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    // The whole group has ended.
    return false;
  }
}
