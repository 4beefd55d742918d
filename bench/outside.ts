// The machine's use by processes outside the run: the kernel's count of busy time minus the time of ours. Pure:
// snapshots in, a share out; processes.ts takes the snapshots. A process that ended in between is in the count of the
// parent that reaped it. So nothing of ours is lost unless a parent ignores its children.

/** Processor use of one process, in the kernel's ticks. */
export interface ProcessTicks {
  readonly pid: number;
  readonly parentPid: number;
  readonly name: string;
  /** Ticks of the process itself. */
  readonly own: number;
  /** Ticks of the children that the process reaped. */
  readonly reaped: number;
  /** The container whose shim this is. */
  readonly containerId: string | undefined;
}

export interface MachineTicks {
  /** user + nice + system + steal of all cores. Not interrupts: the kernel charges those to nobody. */
  readonly busy: number;
  /** All ticks of all cores, idle ones too. */
  readonly total: number;
  readonly processes: readonly ProcessTicks[];
}

const INIT_PID = 1;
const KERNEL_PID = 2;
/** Names of the engine's own processes. */
export const ENGINE = /^(?:dockerd|containerd|runc)/;

/**
 * @param rootPid - the run's own process; its descendants count as the run's
 * @param containerIds - the run's containers, also those that are gone by now
 * @returns from 0 to 1
 */
export function outsideShare(
  before: MachineTicks,
  after: MachineTicks,
  rootPid: number,
  containerIds: ReadonlySet<string>,
): number {
  const total = after.total - before.total;
  if (total <= 0) return 0;
  const ours = ownTicks(after.processes, rootPid, containerIds) - ownTicks(before.processes, rootPid, containerIds);
  const outside = after.busy - before.busy - ours;
  return Math.min(1, Math.max(0, outside / total));
}

/** Ticks of the run: its process tree, its containers, the engine that works for it, and the kernel's own threads. */
export function ownTicks(
  processes: readonly ProcessTicks[],
  rootPid: number,
  containerIds: ReadonlySet<string>,
): number {
  const byPid = new Map(processes.map((process) => [process.pid, process]));
  let ticks = 0;
  for (const process of processes) {
    // Shims of containers that went away were adopted by init, and their time with them.
    if (process.pid === INIT_PID) ticks += process.reaped;
    else if (isOwn(process, byPid, rootPid, containerIds)) ticks += process.own + process.reaped;
  }
  return ticks;
}

function isOwn(
  process: ProcessTicks,
  byPid: ReadonlyMap<number, ProcessTicks>,
  rootPid: number,
  containerIds: ReadonlySet<string>,
): boolean {
  // Another owner's container is not ours, though the shim above it is the engine's.
  let isFirst = true;
  for (let at: ProcessTicks | undefined = process; at !== undefined; at = byPid.get(at.parentPid)) {
    if (at.pid === rootPid || at.pid === KERNEL_PID) return true;
    if (at.containerId !== undefined) return isFirst || containerIds.has(at.containerId);
    if (ENGINE.test(at.name)) return true;
    if (at.pid === INIT_PID || at.parentPid === at.pid) return false;
    isFirst = false;
  }
  return false;
}
