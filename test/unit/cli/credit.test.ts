import { expect, test } from 'vitest';
import { shown } from '#cli/commands/credit.ts';
import { microsIn } from '#cli/credit-resources.ts';

test.for([
  ['25', 25_000_000],
  ['0.5', 500_000],
  ['0.000001', 1],
  ['12.345678', 12_345_678],
] as const)('the amount %s is exact micro-units', ([text, micros]) => {
  expect(microsIn(text)).toBe(micros);
});

test.for(['', '-5', '1e6', '0.0000001', '1,5', ' 1', 'none'])('%j is no amount', (text) => {
  expect(() => microsIn(text)).toThrow('must be an amount');
});

test.for([
  [0, '0.00'],
  [25_000_000, '25.00'],
  [-500_000, '-0.50'],
  [1, '0.000001'],
  [12_340_000, '12.34'],
  [12_345_600, '12.3456'],
] as const)('%i micro-units are shown as %s', ([micros, text]) => {
  expect(shown(micros)).toBe(text);
});
