// Work on files that may hang for ever, as on a network file system whose server is gone: in a child, so that no thread of this process waits with it.
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { messageOf } from '#shared/errors.ts';
import { NoAnswer } from './driver.ts';

const MOST_OUTPUT = 65_536;

/** Groups of processes that were killed and may not have died of it: a process waiting for a disk cannot. Each holds a file system that hangs; no more are started than this. */
const MOST_STUCK = 16;
const killed = new Set<number>();

/** The shell may have died and left what it waited for: a group is there as long as one of its processes. */
function stuck(): number {
  for (const group of killed) if (!signalled(group, 0)) killed.delete(group);
  if (killed.size < MOST_STUCK) return killed.size;
  // Dead ones that nobody collects are there, too, and hold nothing. All processes are read only where it matters.
  const living = livingGroups();
  for (const group of killed) if (!living.has(group)) killed.delete(group);
  return killed.size;
}

function livingGroups(): ReadonlySet<number> {
  const groups = new Set<number>();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      // After the name, which may have blanks: state, parent, group.
      const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (state !== 'Z') groups.add(Number(group));
    } catch {
      // It ended in this moment.
    }
  }
  return groups;
}

/**
 * Runs a shell script and kills it, and what it started, at the deadline. Whether it dies of that or not, the caller goes on: a process that waits for a dead disk does not die at once.
 * @param args - `$1`, `$2`, …
 * @param onOutput - is told all that it printed so far whenever it prints, and the deadline begins anew
 * @returns what it printed
 * @throws NoAnswer at the deadline; Error with its last words when it fails
 */
export function runInChild(
  script: string,
  args: readonly string[],
  deadlineMs: number,
  onOutput?: (output: string) => void,
): Promise<string> {
  return new Promise((resolve, reject) => {
    if (stuck() >= MOST_STUCK) {
      reject(new NoAnswer(`${MOST_STUCK} processes already wait for file systems that do not answer`));
      return;
    }
    const child = spawn('/bin/sh', ['-c', script, 'sh', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: '/',
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' },
      // A group of its own, so that what the shell started is killed with it.
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
      // Nothing of it keeps this process alive.
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

/** @returns whether the group is there */
function signalled(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    // All of it has ended.
    return false;
  }
}
