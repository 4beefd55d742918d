import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compare, median, percentile, summarise } from '../../../bench/stats.ts';

const figures = fc.array(fc.double({ min: 0.001, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 50 });

describe('percentile', () => {
  test('the 50th of an odd count is the middle value, whatever the order', () => {
    expect(percentile([9, 1, 5], 50)).toBe(5);
  });

  test('the 99th of a hundred values is the second largest', () => {
    const values = Array.from({ length: 100 }, (_, at) => at + 1);
    expect(percentile(values, 99)).toBe(99);
  });

  test('the 99th of a few values is the largest', () => {
    expect(percentile([3, 1, 2], 99)).toBe(3);
  });

  test('numbers are compared as numbers', () => {
    expect(percentile([100, 20, 3], 50)).toBe(20);
  });

  test('it is always a value that was measured, with at least so many at or below it', () => {
    fc.assert(
      fc.property(figures, fc.integer({ min: 0, max: 100 }), (values, percent) => {
        const found = percentile(values, percent);
        expect(values).toContain(found);
        const below = values.filter((value) => value <= found).length;
        expect(below / values.length).toBeGreaterThanOrEqual(percent / 100 - 1e-9);
      }),
    );
  });

  test('no values and impossible percentages are refused', () => {
    expect(() => percentile([], 50)).toThrow('a percentile of no values');
    expect(() => percentile([1], 101)).toThrow('got 101');
    expect(() => percentile([1], Number.NaN)).toThrow('got NaN');
  });
});

describe('median and summary', () => {
  test('of an even count the two in the middle are averaged', () => {
    expect(median([4, 1, 3, 2])).toBe(2.5);
  });

  test('the extremes stand beside the median', () => {
    expect(summarise([2, 9, 4])).toEqual({ median: 4, min: 2, max: 9, count: 3 });
  });

  test('the values given are left as they are', () => {
    const values = [3, 1, 2];
    median(values);
    expect(values).toEqual([3, 1, 2]);
  });

  test('no values are refused', () => {
    expect(() => summarise([])).toThrow('a median of no values');
  });
});

describe('compare', () => {
  test('ratios are taken inside each round, so that a round on a slow machine counts like any other', () => {
    const rounds = [
      { baseline: 1, product: 1.5 },
      { baseline: 10, product: 15 },
      { baseline: 2, product: 3 },
    ];
    const { ratio, difference } = compare(rounds);
    expect(ratio).toEqual({ median: 1.5, min: 1.5, max: 1.5, count: 3 });
    expect(difference).toEqual({ median: 1, min: 0.5, max: 5, count: 3 });
  });

  test('the median lies between the extremes', () => {
    fc.assert(
      fc.property(figures, (values) => {
        const { ratio } = compare(values.map((value) => ({ baseline: 2, product: value })));
        expect(ratio.median).toBeGreaterThanOrEqual(ratio.min);
        expect(ratio.median).toBeLessThanOrEqual(ratio.max);
      }),
    );
  });
});
