import type { Clock } from '#shared/clock.ts';

/** Time as the test tells it. */
export class TestClock implements Clock {
  aheadMs = 0;
  nowMs(): number {
    return Date.now() + this.aheadMs;
  }
  monotonicMs(): number {
    return performance.now() + this.aheadMs;
  }
}
