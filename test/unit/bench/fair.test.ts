// The made-up fleet of the suite `fair`, for a shorter time.
import { expect, test } from 'vitest';
import { amongOnes, crowd } from '../../../bench/suites/fair.ts';

test('beside a workspace with a hundred times the load, the others wait as if it were served last', () => {
  const minutes = 5 * 60_000;
  const [beside, before] = [crowd(1, minutes), crowd(1e-6, minutes)];
  expect(beside['others p95']).toBeLessThanOrEqual(1.5 * (before['others p95'] ?? 0));
  expect(beside['jain']).toBeGreaterThanOrEqual(0.98);
});

test('who needs a whole machine gets the reserved one when its last container has ended, and the others lose little', () => {
  const minutes = 5 * 60_000;
  const [beside, before] = [amongOnes(true, minutes), amongOnes(false, minutes)];
  expect(beside.waitS).toBeLessThanOrEqual(1.2 * beside.boundS);
  expect(beside.ones).toBeGreaterThanOrEqual(0.95 * before.ones);
});
