import type { Clock } from '#shared/clock.ts';

/** A clock that a test moves. */
export class TestClock implements Clock {
  aheadMs = 0;
  /** Milliseconds by which the wall clock alone was set. */
  steppedMs = 0;
  nowMs(): number {
    return Date.now() + this.aheadMs + this.steppedMs;
  }
  monotonicMs(): number {
    return performance.now() + this.aheadMs;
  }
}
