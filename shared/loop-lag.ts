// How late the event loop was. Node's own histogram of delays takes 0.4 MiB.

export interface LoopLag {
  /** The longest lag since the call before, in milliseconds; one shorter than the interval may be missed. */
  readonly takeWorstMs: () => number;
  readonly end: () => void;
}

export function watchLoopLag(everyMs: number): LoopLag {
  let worstMs = 0;
  let lookedMs = performance.now();
  const timer = setInterval(() => {
    const nowMs = performance.now();
    worstMs = Math.max(worstMs, nowMs - lookedMs - everyMs);
    lookedMs = nowMs;
  }, everyMs);
  timer.unref();
  return {
    takeWorstMs: () => {
      const taken = worstMs;
      worstMs = 0;
      return taken;
    },
    end: () => clearInterval(timer),
  };
}
