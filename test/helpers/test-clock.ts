import type { Clock } from '#shared/clock.ts';

/** Time as the test tells it. */
export class TestClock implements Clock {
  aheadMs = 0;
  /** How far the wall clock alone was set. */
  steppedMs = 0;
  nowMs(): number {
    return Date.now() + this.aheadMs + this.steppedMs;
  }
  monotonicMs(): number {
    return performance.now() + this.aheadMs;
  }
}
