// Work on files that may hang for ever, as on a network file system whose server is gone: in a child, so that no thread of this process waits with it.
import { spawn } from 'node:child_process';
import { messageOf } from '#shared/errors.ts';
import { NoAnswer } from './driver.ts';

const MOST_OUTPUT = 65_536;

/** Children that did not die of their kill yet: a process waiting for a disk cannot. Each holds a file system that hangs; no more are started than this. */
const MOST_STUCK = 16;
let stuck = 0;

/**
 * Runs a shell script and kills it at the deadline. Whether it dies of that or not, the caller goes on: a process that waits for a dead disk does not die at once.
 * @param args - `$1`, `$2`, …
 * @returns what it printed
 * @throws NoAnswer at the deadline; Error with its last words when it fails
 */
export function runInChild(script: string, args: readonly string[], deadlineMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    if (stuck >= MOST_STUCK) {
      reject(new NoAnswer(`${stuck} processes already wait for file systems that do not answer`));
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
    let late = false;
    child.stdout.on('data', (data: Buffer) => (output = (output + data.toString()).slice(0, MOST_OUTPUT)));
    child.stderr.on('data', (data: Buffer) => (errors = (errors + data.toString()).slice(-MOST_OUTPUT)));
    const timer = setTimeout(() => {
      late = true;
      stuck += 1;
      killGroup(child.pid);
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
    child.on('exit', () => {
      if (late) stuck -= 1;
    });
    child.on('close', (code) => {
      clearTimeout(timer);
      if (code === 0) resolve(output);
      else reject(new Error(errors.trim() || `exit code ${code}`));
    });
  });
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It ended in this moment.
  }
}
