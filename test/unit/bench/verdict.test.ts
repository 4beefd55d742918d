import { describe, expect, test } from 'vitest';
import { differenceOf } from '../../../bench/against/verdict.ts';
import { inRotation } from '../../../bench/against/sides.ts';
import type { SideName } from '../../../bench/against/sides.ts';
import type { Round } from '../../../bench/measure.ts';

const round = (figure: string, base: number, again: number, ours: number, isKept = true): Round => ({
  number: 1,
  baseline: { [figure]: base },
  again: { [figure]: again },
  product: { [figure]: ours },
  outside: 0,
  isKept,
});

const thrice = (one: Round): Round[] => [one, one, one];

describe('a commit beside another', () => {
  test('is not worse within what the base differs from itself', () => {
    const rounds = [round('p50', 10, 11, 11), round('p50', 10, 10, 10.9), round('p50', 10.5, 10, 11)];
    expect(differenceOf('warm', 'p50', 'ms', rounds)).toMatchObject({ verdict: 'no_difference', spread: 1.1 });
  });

  test('is worse beyond that, and better beyond that', () => {
    const rounds = (ours: number): Round[] => [
      round('p50', 10, 11, ours),
      round('p50', 10, 10, ours),
      round('p50', 10, 10, ours),
    ];
    expect(differenceOf('warm', 'p50', 'ms', rounds(12))?.verdict).toBe('worse');
    expect(differenceOf('warm', 'p50', 'ms', rounds(8))?.verdict).toBe('better');
  });

  test('a rate is better when it grows', () => {
    expect(differenceOf('throughput', 'rate', '/s', thrice(round('rate', 100, 101, 90)))?.verdict).toBe('worse');
    expect(differenceOf('throughput', 'rate', '/s', thrice(round('rate', 100, 101, 120)))?.verdict).toBe('better');
  });

  test('the spread has no direction: a base that was faster the second time counts alike', () => {
    expect(differenceOf('warm', 'p50', 'ms', thrice(round('p50', 12, 10, 12)))?.verdict).toBe('no_difference');
  });

  test('rounds that were disturbed do not count, and without any there is no verdict', () => {
    const disturbed = round('p50', 10, 10, 90, false);
    const rounds = [disturbed, ...thrice(round('p50', 10, 10, 10))];
    expect(differenceOf('warm', 'p50', 'ms', rounds)?.verdict).toBe('no_difference');
    expect(differenceOf('warm', 'p50', 'ms', [disturbed])).toBeUndefined();
  });

  test('fewer than three rounds give no verdict', () => {
    expect(differenceOf('warm', 'p50', 'ms', [round('p50', 10, 10, 90)])?.verdict).toBe('too_few_rounds');
  });

  test('a figure that a side did not measure is named', () => {
    expect(() => differenceOf('warm', 'p99', 'ms', [round('p50', 1, 1, 1)])).toThrow('warm did not measure p99');
  });
});

test('every side begins as often as the others', async () => {
  const order: SideName[] = [];
  const measure = (side: SideName) => {
    order.push(side);
    return Promise.resolve({ p50: order.length });
  };
  const measureRound = inRotation({ figures: { p50: 'ms' }, turns: 3, measure }, new AbortController().signal);
  const figures = await measureRound(true);
  expect(order).toEqual(['base', 'again', 'ours', 'again', 'ours', 'base', 'ours', 'base', 'again']);
  expect(figures).toEqual({ baseline: { p50: 5 }, again: { p50: 5 }, product: { p50: 5 } });
});
