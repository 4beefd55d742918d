import { describe, expect, test } from 'vitest';
import { GOALS, goalText, verdictOn } from '../../../bench/goals.ts';
import type { Goal } from '../../../bench/goals.ts';
import { measureOf } from '../../../bench/measure.ts';
import type { Round } from '../../../bench/measure.ts';

const latency: Goal = { id: 'G', kind: 'at_most', factor: 1.5, plus: 0 };
const rate: Goal = { id: 'G', kind: 'at_least', factor: 0.8, plus: 0 };
const added: Goal = { id: 'G', kind: 'at_most', factor: 1, plus: 60 };
const bound: Goal = { id: 'G', kind: 'at_most', factor: 0, plus: 1500 };

describe('a goal', () => {
  test('on a latency is met up to its multiple of the baseline', () => {
    expect(verdictOn(latency, [{ baseline: 2, product: 3 }])).toBe('met');
    expect(verdictOn(latency, [{ baseline: 2, product: 3.01 }])).toBe('missed');
  });

  test('on a rate is met from its share of the baseline', () => {
    expect(verdictOn(rate, [{ baseline: 1000, product: 800 }])).toBe('met');
    expect(verdictOn(rate, [{ baseline: 1000, product: 799 }])).toBe('missed');
  });

  test('may allow a number of milliseconds over the baseline', () => {
    expect(verdictOn(added, [{ baseline: 300, product: 360 }])).toBe('met');
    expect(verdictOn(added, [{ baseline: 300, product: 361 }])).toBe('missed');
  });

  test('may be a bound without a baseline', () => {
    expect(verdictOn(bound, [{ baseline: 0, product: 1500 }])).toBe('met');
    expect(verdictOn(bound, [{ baseline: 0, product: 1501 }])).toBe('missed');
  });

  test('is judged by the median round: one bad round of three does not matter, two do', () => {
    const good = { baseline: 2, product: 2 };
    const bad = { baseline: 2, product: 9 };
    expect(verdictOn(latency, [good, bad, good])).toBe('met');
    expect(verdictOn(latency, [bad, good, bad])).toBe('missed');
  });

  test('is looser by the slack, for either kind', () => {
    expect(verdictOn(latency, [{ baseline: 2, product: 4.5 }], 1.5)).toBe('met');
    expect(verdictOn(latency, [{ baseline: 2, product: 4.6 }], 1.5)).toBe('missed');
    expect(verdictOn(rate, [{ baseline: 1500, product: 800 }], 1.5)).toBe('met');
    expect(verdictOn(rate, [{ baseline: 1500, product: 799 }], 1.5)).toBe('missed');
  });

  test('whose summand was set for a faster machine may be met in proportion', () => {
    const goal: Goal = { id: 'G', kind: 'at_most', factor: 1, plus: 2, plusAt: 0.1 };
    expect(verdictOn(goal, [{ baseline: 0.4, product: 2.4 }])).toBe('met');
    expect(verdictOn(goal, [{ baseline: 0.4, product: 8.4 }])).toBe('in_proportion');
    expect(verdictOn(goal, [{ baseline: 0.4, product: 8.5 }])).toBe('missed');
    // On a faster machine nothing shrinks.
    expect(verdictOn(goal, [{ baseline: 0.05, product: 2.05 }])).toBe('met');
    expect(goalText(goal, 'ms')).toBe('G <= 1 x + 2 ms (at 0.1 ms)');
  });

  test('reads as a person would write it', () => {
    expect(goalText(latency, 'ms')).toBe('G <= 1.5 x');
    expect(goalText(added, 'ms')).toBe('G <= 1 x + 60 ms');
    expect(goalText(rate, '/s')).toBe('G >= 0.8 x');
    expect(goalText(bound, 'ms')).toBe('G <= 1500 ms');
  });
});

const round = (number: number, product: number, isKept = true): Round => ({
  number,
  baseline: { p50: 1 },
  product: { p50: product },
  outside: isKept ? 0 : 0.5,
  isKept,
});

describe('a measure', () => {
  test('leaves discarded rounds out', () => {
    const measure = measureOf('warm', 'p50', 'ms', [round(1, 1.4), round(2, 50, false), round(3, 1.2)], 1);
    expect(measure?.product).toEqual({ median: (1.4 + 1.2) / 2, min: 1.2, max: 1.4, count: 2 });
    expect(measure?.verdict).toBe('met');
  });

  test('does not exist when every round was discarded', () => {
    expect(measureOf('warm', 'p50', 'ms', [round(1, 1, false)], 1)).toBeUndefined();
  });

  test('has a verdict only where there is a goal', () => {
    expect(GOALS['warm rate']).toBeUndefined();
    const rounds = [{ ...round(1, 1), baseline: { rate: 1 }, product: { rate: 2 } }];
    expect(measureOf('warm', 'rate', '/s', rounds, 1)?.verdict).toBeUndefined();
  });

  test('without a baseline has no ratio, and is held to the bound', () => {
    const rounds = [{ ...round(1, 1400), baseline: undefined }];
    const measure = measureOf('start', 'p50', 'ms', rounds, 1);
    expect(measure?.comparison).toBeUndefined();
    expect(measure?.verdict).toBe('met');
  });

  test('that nobody measured is a mistake of the benchmark, named', () => {
    expect(() => measureOf('warm', 'p99', 'ms', [round(1, 1)], 1)).toThrow('warm did not measure p99');
  });
});
