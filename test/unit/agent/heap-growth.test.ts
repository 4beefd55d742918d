import { expect, test } from 'vitest';
import { HeapGrowth } from '#agent/heap-growth.ts';

test('the heap may grow while many tasks pass, and is kept small again when few do; V8 is told once of each', () => {
  let taken = 100_000;
  const said: string[] = [];
  const growth = new HeapGrowth(
    () => taken,
    (flag) => said.push(flag),
  );
  const after = (tasks: number): readonly string[] => {
    taken += tasks;
    growth.check();
    return said.splice(0);
  };
  // Tasks before the first look do not count.
  expect(after(0)).toEqual([]);
  expect(after(499)).toEqual([]);
  expect(after(500)).toEqual(['--no-optimize-for-size']);
  expect(after(10_000)).toEqual([]);
  expect(after(499)).toEqual(['--optimize-for-size']);
  expect(after(0)).toEqual([]);
});
