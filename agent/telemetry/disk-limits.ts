/**
 * When to look at what containers have written, and who has written too much. Pure. Looking costs a walk over files, so it follows the free space of the file systems, which costs nothing:
 * whoever passes a limit has taken that much from it. Must stay true: a container is looked at when an eighth of a limit was written since the last look at all, and at least every five minutes.
 */

/** Every container is looked at once in this time, whatever the free space says: somebody else may have freed what it took. */
export const SLOW_MS = 5 * 60_000;
/** Containers whose turn comes within this time are looked at together. */
export const TOGETHER_MS = SLOW_MS / 5;
/** While a disk is nearly full, everybody is looked at so often. */
export const LOW_EVERY_MS = 10_000;
/** Part of a limit that may be written before everybody is looked at; two file systems may each take half of it. */
const SHARE = 1 / 8;

export interface FileSystem {
  readonly freeBytes: number;
  /** Less is free than the agent wants. */
  readonly low: boolean;
}

export interface Watch {
  /** Free space at the last tick, by file system. */
  readonly free: readonly number[];
  /** Bytes written since all containers were counted; bytes that somebody freed are not subtracted. */
  readonly writtenBytes: number;
  readonly allAtMs: number;
  readonly someAtMs: number;
}

export const newWatch = (nowMs: number): Watch => ({ free: [], writtenBytes: 0, allAtMs: nowMs, someAtMs: nowMs });

export interface Tick {
  readonly watch: Watch;
  /** So many containers, those first whose last look is longest ago. */
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
