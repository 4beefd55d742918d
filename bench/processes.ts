// Reads the inputs of outside.ts: /proc/stat, and /proc/<pid>/stat
// of all processes. A process that ends meanwhile is left out.
import { readFileSync, readdirSync } from 'node:fs';
import type { MachineTicks, ProcessTicks } from './outside.ts';

/** Takes some milliseconds; not for the middle of a measurement. */
export function readMachineTicks(): MachineTicks {
  const processes = readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .flatMap((name) => readProcess(Number(name)) ?? []);
  return { ...parseCpuLine(readFileSync('/proc/stat', 'utf8')), processes };
}

/** The first line of /proc/stat. */
export function parseCpuLine(text: string): { readonly busy: number; readonly total: number } {
  const fields = (text.split('\n', 1)[0] ?? '').trim().split(/\s+/).slice(1).map(Number);
  const [user = 0, nice = 0, system = 0, , , , , steal = 0] = fields;
  // Guest time, the last two fields, is in user and nice already.
  const total = fields.slice(0, 8).reduce((sum, value) => sum + value, 0);
  return { busy: user + nice + system + steal, total };
}

/** A line of /proc/<pid>/stat; the name in parentheses may hold anything. */
export function parseProcessLine(text: string): Omit<ProcessTicks, 'containerId'> {
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  const fields = text.slice(close + 2).split(' ');
  const number = (at: number): number => Number(fields[at] ?? 0);
  return {
    pid: Number(text.slice(0, open)),
    parentPid: number(1),
    name: text.slice(open + 1, close),
    own: number(11) + number(12),
    reaped: number(13) + number(14),
  };
}

function readProcess(pid: number): ProcessTicks | undefined {
  try {
    const process = parseProcessLine(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    // The kernel cuts names at 15 characters.
    const isShim = process.name.startsWith('containerd-shim');
    return {
      ...process,
      containerId: isShim ? shimContainer(readFileSync(`/proc/${pid}/cmdline`, 'utf8')) : undefined,
    };
  } catch {
    return undefined;
  }
}

/** The value of `-id` on a shim's command line. */
export function shimContainer(commandLine: string): string | undefined {
  const words = commandLine.split('\0');
  const at = words.indexOf('-id');
  return at < 0 ? undefined : words[at + 1];
}

/** Processor time of all threads, to the nanosecond: at rest the kernel's ticks of 10 ms are too coarse. */
export function processorMs(pid: number): number {
  let ns = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    try {
      ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]);
    } catch {
      // The thread ended meanwhile.
    }
  }
  return ns / 1e6;
}
