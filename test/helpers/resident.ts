// Resident memory of other processes, and the most that it was while work went on.
import { readFileSync } from 'node:fs';

const SAMPLE_MS = 50;

/** Processes by name. */
type Pids<Name extends string> = Readonly<Record<Name, number>>;

export function residentMib<Name extends string>(pids: Pids<Name>): Record<Name, number> {
  const measured = Object.entries<number>(pids).map(([name, pid]) => {
    const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    if (kib === undefined) throw new Error(`the ${name} has no memory any more`);
    return [name, Number(kib) / 1024];
  });
  return Object.fromEntries(measured) as Record<Name, number>;
}

/** The most of each process, in MiB, sampled until the work has ended. */
export async function peakDuring<Name extends string>(
  pids: Pids<Name>,
  work: () => Promise<void>,
): Promise<Record<Name, number>> {
  const peak = residentMib(pids);
  const sample = (): void => {
    const now = residentMib(pids);
    for (const name of Object.keys(now) as Name[]) peak[name] = Math.max(peak[name], now[name]);
  };
  const timer = setInterval(sample, SAMPLE_MS);
  try {
    await work();
    sample();
    return peak;
  } finally {
    clearInterval(timer);
  }
}
