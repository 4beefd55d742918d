// Facts about processes from /proc. A bare `kill(pid, 0)` is not enough: the number may belong
// to another process by now, and a dead process that nobody has reaped still answers.
import { readFileSync } from 'node:fs';

/** When the process started, in the kernel's ticks since boot: with the number, a name that is never used twice. */
export function startTicks(pid: number): string | undefined {
  const fields = statFields(pid);
  return fields === undefined || fields.state === 'Z' || fields.state === 'X' ? undefined : fields.startTicks;
}

/** Is exactly that process still there (and not only waiting to be reaped)? */
export function isAlive(pid: number, ticks: string): boolean {
  return startTicks(pid) === ticks;
}

function statFields(pid: number): { readonly state: string; readonly startTicks: string } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may hold spaces: count from the last closing one.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', startTicks: fields[19] ?? '' };
  } catch {
    return undefined;
  }
}
