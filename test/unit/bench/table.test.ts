import { expect, test } from 'vitest';
import { measureOf } from '../../../bench/measure.ts';
import type { Measure, Round } from '../../../bench/measure.ts';
import { alignColumns, resultTable, short, spread } from '../../../bench/table.ts';

const rounds = (
  suite: string,
  name: string,
  unit: string,
  pairs: readonly (readonly [number | undefined, number])[],
): Measure => {
  const made = pairs.map(([baseline, product], at): Round => ({
    number: at + 1,
    baseline: baseline === undefined ? undefined : { [name]: baseline },
    product: { [name]: product },
    outside: 0,
    isKept: true,
  }));
  const measure = measureOf(suite, name, unit, made, 1);
  if (measure === undefined) throw new Error('no rounds');
  return measure;
};

test('a row has both sides, the ratio with its extremes, the goal and the verdict', () => {
  const table = resultTable([
    rounds('warm', 'p50', 'ms', [
      [1, 1.2],
      [1, 1.4],
      [2, 2.6],
    ]),
    rounds('throughput', 'rate', '/s', [[4000, 2000]]),
    rounds('start', 'p50', 'ms', [[undefined, 1234.4]]),
  ]);
  expect(table.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['benchmark', 'baseline', 'longshore', 'ratio', 'difference', 'goal'],
    [
      'warm p50',
      '1.00 ms [1.00 .. 2.00]',
      '1.40 ms [1.20 .. 2.60]',
      '1.30 x [1.20 .. 1.40]',
      '0.40 ms [0.20 .. 0.60]',
      'G1 <= 1.5 x',
      'met',
    ],
    ['throughput rate', '4000 /s', '2000 /s', '0.50 x', '-2000 /s', 'G2 >= 0.8 x', 'MISSED'],
    ['start p50', '-', '1234 ms', '-', '-', 'G16 <= 1500 ms', 'met'],
  ]);
});

test('columns line up, and no line ends in blanks', () => {
  const lines = alignColumns([
    ['a', 'bb', ''],
    ['aaa', 'b', 'c'],
  ]).split('\n');
  expect(lines).toEqual(['a    bb', 'aaa  b   c']);
});

test('numbers have three digits that count, and never an exponent', () => {
  expect([0.1234, 1.005, 12.34, 999.6, 43210, -0.5].map(short)).toEqual([
    '0.12',
    '1.00',
    '12.3',
    '1000',
    '43210',
    '-0.50',
  ]);
});

test('extremes are left out where one value was measured', () => {
  expect(spread({ median: 1, min: 1, max: 1, count: 1 }, 'ms')).toBe('1.00 ms');
  expect(spread({ median: 1, min: 1, max: 1, count: 2 }, 'ms')).toBe('1.00 ms [1.00 .. 1.00]');
});
