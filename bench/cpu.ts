// The share of each process in the time of a call: ticks by role, between two snapshots. Pure. The figures say which
// process is busy, not what is slow; on few cores that bounds the rate of calls.
import { ENGINE } from './outside.ts';
import type { ProcessTicks } from './outside.ts';
import type { Figures, Round } from './measure.ts';
import { median } from './stats.ts';

/** /proc counts in hundredths of a second on every Linux that Node runs on. */
const TICK_US = 10_000;
const PREFIX = 'cpu ';

export interface Roles {
  /** The run's own process, which makes the load. */
  readonly generatorPid: number;
  /** Children by pid. */
  readonly children: ReadonlyMap<number, string>;
  readonly containerIds: ReadonlySet<string>;
}

/** Microseconds of processor time per call, as figures called `cpu <role>`; idle roles are left out. */
export function cpuPerCall(
  before: readonly ProcessTicks[],
  after: readonly ProcessTicks[],
  roles: Roles,
  calls: number,
): Figures {
  const from = ticksByRole(before, roles);
  const figures: Record<string, number> = {};
  for (const [role, ticks] of ticksByRole(after, roles)) {
    const spent = ticks - (from.get(role) ?? 0);
    if (spent > 0 && calls > 0) figures[`${PREFIX}${role}`] = (spent * TICK_US) / calls;
  }
  return figures;
}

function ticksByRole(processes: readonly ProcessTicks[], roles: Roles): Map<string, number> {
  const byPid = new Map(processes.map((process) => [process.pid, process]));
  const ticks = new Map<string, number>();
  for (const process of processes) {
    const role = roleOf(process, byPid, roles);
    if (role !== undefined) ticks.set(role, (ticks.get(role) ?? 0) + process.own + process.reaped);
  }
  return ticks;
}

function roleOf(
  process: ProcessTicks,
  byPid: ReadonlyMap<number, ProcessTicks>,
  { generatorPid, children, containerIds }: Roles,
): string | undefined {
  if (process.pid === generatorPid) return 'load';
  let isRedis = false;
  for (let at: ProcessTicks | undefined = process; at !== undefined; at = byPid.get(at.parentPid)) {
    isRedis ||= at.name === 'redis-server';
    const child = children.get(at.pid);
    // A Redis counts as redis, whether it is a daemon's child or ours.
    if (child !== undefined) return isRedis ? 'redis' : child;
    if (at.pid === generatorPid) return isRedis ? 'redis' : 'other';
    if (at.containerId !== undefined) return containerIds.has(at.containerId) ? 'containers' : undefined;
    if (ENGINE.test(at.name)) return 'engine';
    if (at.parentPid === at.pid) return undefined;
  }
  return undefined;
}

export const isCpuFigure = (name: string): boolean => name.startsWith(PREFIX);

/**
 * `scheduler 640 us, redis 80 us`, largest first, medians over the rounds that count; empty when nothing was counted.
 */
export function cpuText(rounds: readonly Round[], side: 'baseline' | 'product'): string {
  const byRole = new Map<string, number[]>();
  for (const round of rounds) {
    if (!round.isKept) continue;
    for (const [name, value] of Object.entries(round[side] ?? {})) {
      if (!isCpuFigure(name)) continue;
      const role = name.slice(PREFIX.length);
      byRole.set(role, [...(byRole.get(role) ?? []), value]);
    }
  }
  return [...byRole]
    .map(([role, values]) => ({ role, us: Math.round(median(values)) }))
    .toSorted((a, b) => b.us - a.us)
    .map(({ role, us }) => `${role} ${us} us`)
    .join(', ');
}
