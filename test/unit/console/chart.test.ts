import { expect, test } from 'vitest';
import { pathOf } from '../../../console/parts/chart-path.ts';

test('a line is drawn in pieces where values are missing, from the bottom to the top', () => {
  expect(pathOf([0, 5, null, 10], 10)).toBe('M0.0 118.0 L200.0 60.0 M600.0 2.0');
  expect(pathOf([0, 0], 0)).toBe('M0.0 118.0 L600.0 118.0');
  expect([pathOf([7], 7), pathOf([], 0), pathOf([null], 0)]).toEqual(['M0.0 2.0', '', '']);
});
