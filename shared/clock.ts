/** Time as a dependency: wall time for records, monotonic time for durations and deadlines. Tests pass their own. */
export interface Clock {
  /** Epoch milliseconds. */
  nowMs(): number;
  /** Monotonic milliseconds, for durations only. */
  monotonicMs(): number;
}

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
};
