import { expect, test } from 'vitest';
import { segmentAmong, workspaceAmong } from '../../../console/parts/segments.ts';

const ALL = [
  { id: 'a', name: 'team' },
  { id: 'b', name: 'team' },
  { id: 'c', name: 'alone' },
  { id: 'd', name: '' },
  { id: 'e', name: 'c' },
];

test('an address leads back to the workspace that it was made for, also where names are not unique', () => {
  for (const one of ALL) expect(workspaceAmong(ALL, segmentAmong(ALL, one))).toEqual(one);
  expect(ALL.map((one) => segmentAmong(ALL, one))).toEqual(['a', 'b', 'alone', 'd', 'e']);
});

test('a workspace that is not known yet does not take the name of one that is', () => {
  expect(segmentAmong(ALL, { id: 'f', name: 'alone' })).toBe('f');
  expect([segmentAmong(ALL, { id: 'f', name: 'new' }), workspaceAmong(ALL, 'new')]).toEqual(['new', undefined]);
});
