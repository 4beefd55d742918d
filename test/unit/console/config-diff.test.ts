import { expect, test } from 'vitest';
import { configChanges, inWords } from '../../../console/parts/config-diff.ts';

test('each value that differs is named by its place, and variables by their names alone', () => {
  const before = { runtime: { memory: 128, gpus: ['T4'] }, extra: { recipe: 'a' }, env: ['A=1', 'B=2', 'C=3'] };
  const after = { runtime: { memory: 192, gpus: ['T4'] }, extra: { recipe: 'b' }, env: ['A=1', 'B=9'], workers: 2 };
  expect(configChanges(JSON.stringify(before), JSON.stringify(after))).toEqual([
    { field: 'env B', from: '(set)', to: '(set)' },
    { field: 'env C', from: '(set)', to: undefined },
    { field: 'runtime.memory', from: '128', to: '192' },
    { field: 'workers', from: undefined, to: '2' },
  ]);
  expect(configChanges('', '{}')).toEqual([]);
});

test('resources are told in the units of the app', () => {
  const told = [
    { field: 'runtime.cpu', from: '500', to: '250' },
    { field: 'runtime.memory', from: undefined, to: '512' },
    { field: 'workers', from: '1', to: '2' },
  ].map(inWords);
  expect(told.map(({ field, from, to }) => [field, from, to])).toEqual([
    ['cpu', '0.5', '0.25'],
    ['memory', undefined, '512 MiB'],
    ['workers', '1', '2'],
  ]);
});
