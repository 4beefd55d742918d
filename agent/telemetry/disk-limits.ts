/**
 * Decides when to count containers' writes, and which containers exceed their limit. Pure. A count costs a walk over
 * files, so it follows the free space of the file systems, which costs nothing. A container above its limit has taken
 * that much from it. Must stay true: all containers are counted when an eighth of a limit was written since the last
 * full count, and each at least every five minutes.
 */

/** Longest time between two looks at a container in any case: freed space elsewhere may have hidden its writes. */
export const SLOW_MS = 5 * 60_000;
/** Containers due within this time are looked at together. */
export const TOGETHER_MS = SLOW_MS / 5;
/** Interval of full counts while a disk is nearly full. */
export const LOW_EVERY_MS = 10_000;
/** Share of a limit that may be written before a full count; two file systems may each take half of it. */
const SHARE = 1 / 8;

export interface FileSystem {
  readonly freeBytes: number;
  /** Free space is below the agent's minimum. */
  readonly low: boolean;
}

export interface Watch {
  /** Free space at the last tick, by file system. */
  readonly free: readonly number[];
  /** Bytes written since the last full count; freed bytes are not subtracted. */
  readonly writtenBytes: number;
  readonly allAtMs: number;
  readonly someAtMs: number;
}

export const newWatch = (nowMs: number): Watch => ({ free: [], writtenBytes: 0, allAtMs: nowMs, someAtMs: nowMs });

export interface Tick {
  readonly watch: Watch;
  /** Number of containers to look at, those with the oldest last look first. */
  readonly look: number;
}

export function tick(
  before: Watch,
  systems: readonly FileSystem[],
  { limitBytes, containers }: { readonly limitBytes: number; readonly containers: number },
  nowMs: number,
): Tick {
  const free = systems.map(({ freeBytes }) => freeBytes);
  const taken = before.free.map((was, at) => Math.max(0, was - (free[at] ?? was)));
  const writtenBytes = before.writtenBytes + Math.max(0, ...taken);
  const watch = { ...before, free, writtenBytes };
  if (containers === 0) return { watch: { ...watch, writtenBytes: 0 }, look: 0 };
  const isLimited = limitBytes > 0;
  const isLow = systems.some(({ low }) => low) && nowMs - before.allAtMs >= LOW_EVERY_MS;
  if (isLimited && (writtenBytes >= limitBytes * SHARE || isLow))
    return { watch: { ...watch, writtenBytes: 0, allAtMs: nowMs, someAtMs: nowMs }, look: containers };
  const passedMs = nowMs - before.someAtMs;
  if (passedMs < Math.max(SLOW_MS / containers, TOGETHER_MS)) return { watch, look: 0 };
  const look = Math.min(containers, Math.ceil((containers * passedMs) / SLOW_MS));
  return { watch: { ...watch, someAtMs: nowMs }, look };
}

/** Containers over the limit, the largest first. */
export const overLimit = <T extends { readonly usedBytes: number }>(used: readonly T[], limitBytes: number): T[] =>
  limitBytes === 0
    ? []
    : used.filter(({ usedBytes }) => usedBytes > limitBytes).toSorted((a, b) => b.usedBytes - a.usedBytes);
