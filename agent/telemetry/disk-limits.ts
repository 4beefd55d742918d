/**
 * Decides when to count containers' writes, and which containers exceed their limit. Pure. A count costs a walk over
 * files, so it follows the free space of the file systems, which costs nothing. A container above its limit has taken
 * that much from it. Must stay true: all containers are counted when an eighth of a limit was written since the last
 * full count, and each at least every five minutes. A count that fails never lifts the limit.
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
  /** Bytes taken since the tick before, on the file system that lost most. */
  readonly takenBytes: number;
}

export function tick(
  before: Watch,
  systems: readonly FileSystem[],
  { limitBytes, containers }: { readonly limitBytes: number; readonly containers: number },
  nowMs: number,
): Tick {
  const free = systems.map(({ freeBytes }) => freeBytes);
  const taken = before.free.map((was, at) => Math.max(0, was - (free[at] ?? was)));
  const takenBytes = Math.max(0, ...taken);
  const writtenBytes = before.writtenBytes + takenBytes;
  const watch = { ...before, free, writtenBytes };
  if (containers === 0) return { watch: { ...watch, writtenBytes: 0 }, look: 0, takenBytes };
  const isLimited = limitBytes > 0;
  const isLow = systems.some(({ low }) => low) && nowMs - before.allAtMs >= LOW_EVERY_MS;
  if (isLimited && (writtenBytes >= limitBytes * SHARE || isLow))
    return { watch: { ...watch, writtenBytes: 0, allAtMs: nowMs, someAtMs: nowMs }, look: containers, takenBytes };
  const passedMs = nowMs - before.someAtMs;
  if (passedMs < Math.max(SLOW_MS / containers, TOGETHER_MS)) return { watch, look: 0, takenBytes };
  const look = Math.min(containers, Math.ceil((containers * passedMs) / SLOW_MS));
  return { watch: { ...watch, someAtMs: nowMs }, look, takenBytes };
}

/** Failed counts in a row from which a container pays for them: an engine may fail once. */
const MOST_FAILED = 2;

/** A part of what a container wrote, as last counted. */
export interface Part {
  readonly bytes: number;
  /** Counts that failed since. */
  readonly failed: number;
  /** Bytes that all file systems together had lost when that count began. */
  readonly takenAtBytes: number;
}

export interface Charge {
  readonly usedBytes: number;
  /** False: a part could not be counted, and all that was written since counts. */
  readonly isCounted: boolean;
}

/**
 * Charges a container. A part that cannot be counted must not lift the limit, so it costs all that
 * anybody has written since its last count.
 * @param tried - the part whose count has just ended
 * @param takenBytes - what all file systems have lost so far
 */
export function chargeOf(countedBytes: number, tried: Part | undefined, takenBytes: number): Charge {
  if (tried === undefined || tried.failed < MOST_FAILED) return { usedBytes: countedBytes, isCounted: true };
  return { usedBytes: countedBytes + takenBytes - tried.takenAtBytes, isCounted: false };
}

/** Containers over the limit, the largest first. */
export const overLimit = <T extends { readonly usedBytes: number }>(used: readonly T[], limitBytes: number): T[] =>
  limitBytes === 0
    ? []
    : used.filter(({ usedBytes }) => usedBytes > limitBytes).toSorted((a, b) => b.usedBytes - a.usedBytes);
