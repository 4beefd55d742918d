import { expect, test } from 'vitest';
import { namedConditions } from '#scheduler/fleet/machine.ts';

test('conditions are names, and few of them, whatever an agent calls wrong', () => {
  expect(namedConditions(['DiskPressure', 'OfANewerAgent'])).toEqual(['DiskPressure', 'OfANewerAgent']);
  expect(namedConditions(['', 'with space', 'x'.repeat(65), 'a"}\n'])).toEqual([]);
  expect(namedConditions(Array.from({ length: 5000 }, (_, at) => `C${at}`))).toHaveLength(32);
});
