// Moments in sentences of the scheduler, by the clock of the reader.
import { expect, test } from 'vitest';
import { MOMENT, clockOf, momentOf } from '../../../console/parts/time.ts';

test('a sentence is parted at its moments', () => {
  const at = '2026-11-30T22:37:32.305Z';
  expect(`kept until ${at}, then gone`.split(MOMENT)).toEqual(['kept until ', at, ', then gone']);
  expect('no moment: 2026-11-30'.split(MOMENT)).toHaveLength(1);
});

test('a moment has its day unless that is today', () => {
  const at = '2026-11-30T12:00:00Z';
  expect(momentOf(at, Date.parse(at) + 1000)).toBe(clockOf(at));
  const before = momentOf(at, Date.parse(at) + 3 * 86_400_000);
  expect(before.endsWith(clockOf(at))).toBe(true);
  expect(before).toContain('2026');
});
