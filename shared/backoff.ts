import { setTimeout as sleepTimer } from 'node:timers/promises';

/** Full-jitter exponential back-off: a random delay below min(cap, base × 2^attempt), never below `floorMs`. */
export function backoffMs(
  attempt: number,
  options: {
    readonly baseMs: number;
    readonly capMs: number;
    readonly floorMs?: number;
    readonly random?: () => number;
  },
): number {
  const ceiling = Math.min(options.capMs, options.baseMs * 2 ** Math.min(attempt, 30));
  const random = options.random ?? Math.random;
  return Math.max(options.floorMs ?? 0, Math.floor(random() * ceiling));
}

/** Sleeps; an abort ends the sleep early without throwing. @returns whether the full time passed */
export async function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  try {
    await sleepTimer(ms, undefined, signal === undefined ? { ref: true } : { ref: true, signal });
    return true;
  } catch (error) {
    if (signal?.aborted) return false;
    throw error;
  }
}

/**
 * Runs `round` until the signal aborts, `everyMs` after the previous round ended,
 * never two at once. A failed round goes to `onFailed` and ends nothing.
 */
export async function repeat(
  everyMs: number,
  signal: AbortSignal,
  round: () => unknown,
  onFailed: (error: unknown) => void,
): Promise<void> {
  while (await sleep(everyMs, signal)) {
    try {
      await round();
    } catch (error) {
      onFailed(error);
    }
  }
}

/** Rejects with `onTimeout()` when `work` takes longer; the timer never keeps the process alive. */
export async function withDeadline<T>(work: Promise<T>, ms: number, onTimeout: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(onTimeout()), ms);
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
