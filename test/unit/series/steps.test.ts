// The steps of stored sums that a read takes, and durations as callers write them.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { durationMsOf } from '#shared/domain/duration.ts';
import { CONTAINER_STEPS, POOL_STEPS, segmentsOf, stepOf } from '#scheduler/domain/series.ts';

const S = 1_000;
const M = 60 * S;
const H = 60 * M;

describe('the step of a bucket', () => {
  test.each([
    [5 * S, 5],
    [7 * S, 5],
    [59 * S, 5],
    [M, 60],
    // Minutes make it up, although no minute lies within it.
    [90 * S, 60],
    [61 * S, 60],
    [5 * M, 60],
    [59 * M, 60],
    [H, 3600],
    [90 * M, 60],
    [24 * H, 3600],
  ])('of %i ms is %i s', (intervalMs, step) => {
    expect(stepOf(intervalMs, CONTAINER_STEPS)).toBe(step);
  });

  test('of pools has five minutes and no hours', () => {
    expect([10 * S, M, 12 * M, 15 * M, 2 * H].map((ms) => stepOf(ms, POOL_STEPS))).toEqual([5, 60, 60, 300, 300]);
  });
});

describe('the segments of a range', () => {
  const told = (fromMs: number, toMs: number, step: number) =>
    segmentsOf({ fromMs, toMs }, step, CONTAINER_STEPS).map((one) => [one.step, one.fromMs, one.toMs]);

  test('are whole steps, and smaller ones at the edges', () => {
    expect(told(H, 3 * H, 3600)).toEqual([[3600, H, 3 * H]]);
    expect(told(H - M - S, 2 * H + 5 * S, 3600)).toEqual([
      [5, H - M - S, H - M],
      [60, H - M, H],
      [3600, H, 2 * H],
      [5, 2 * H, 2 * H + 5 * S],
    ]);
    expect(told(M + S, 2 * M - S, 3600)).toEqual([[5, M + S, 2 * M - S]]);
    expect(told(5, 6, 5)).toEqual([[5, 5, 6]]);
    expect(told(5, 5, 60)).toEqual([]);
  });

  test('follow each other, cover the range and hold whole steps only', () => {
    const time = fc.integer({ min: 0, max: 10 * H });
    fc.assert(
      fc.property(time, time, fc.constantFrom(...CONTAINER_STEPS), (one, other, step) => {
        const [fromMs, toMs] = [Math.min(one, other), Math.max(one, other)];
        let at = fromMs;
        for (const segment of segmentsOf({ fromMs, toMs }, step, CONTAINER_STEPS)) {
          expect(segment.fromMs).toBe(at);
          expect(segment.toMs).toBeGreaterThan(at);
          expect(segment.step).toBeLessThanOrEqual(step);
          if (segment.step > 5) expect([at % (segment.step * S), segment.toMs % (segment.step * S)]).toEqual([0, 0]);
          at = segment.toMs;
        }
        expect(at).toBe(toMs);
      }),
      { numRuns: 10_000 },
    );
  });
});

describe('a duration', () => {
  test.each([
    ['5s', 5 * S],
    ['1m', M],
    ['1h30m', 90 * M],
    ['1.5h', 90 * M],
    ['.5m', 30 * S],
    ['90s', 90 * S],
    ['1500ms', 1500],
    ['2us', 0],
    ['1m0.5s', M + 500],
    ['0', 0],
  ])('%s', (text, ms) => {
    expect(durationMsOf(text)).toBe(ms);
  });

  test.each(['', '5', '5 s', 's', '-5s', '5sec', '1d', '1m 30s', 'minute', '5s!', '.s', '1e3s', '9'.repeat(400) + 'h'])(
    '%s is none',
    (text) => {
      expect(durationMsOf(text)).toBeUndefined();
    },
  );
});
