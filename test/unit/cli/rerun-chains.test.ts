// Which tasks of a filter run again, where some of them are reruns of others.
import { expect, test } from 'vitest';
import { chosenReruns } from '#cli/commands/rerun-chains.ts';
import type { ChainTask } from '#cli/commands/rerun-chains.ts';

/** `b of a` is a rerun of a; the number of the minute is its place. */
const task = (text: string, status: string, minute: number): ChainTask => {
  const [id = '', rerunOf = ''] = text.split(' of ');
  return { id, rerunOf, status, createdAt: `2026-01-01T00:0${minute}:00Z` };
};
const a = task('a', 'ERROR', 1);

test.for([
  ['runs where it has no rerun', [a], [], ['a'], 0],
  ['is left out where its rerun completed', [a], [task('b of a', 'COMPLETE', 2)], [], 1],
  ['is left out where its rerun waits', [a], [task('b of a', 'PENDING', 2)], [], 1],
  ['is left out where its rerun is tried again', [a], [task('b of a', 'RETRY', 2)], [], 1],
  ['gives way to the rerun that failed, too', [task('b of a', 'TIMEOUT', 2), a], [], ['b'], 1],
  ['runs where its rerun was cancelled', [a], [task('b of a', 'CANCELLED', 2)], ['a'], 0],
  [
    'is left out where the rerun of its rerun completed',
    [task('b of a', 'ERROR', 2), a],
    [task('c of b', 'COMPLETE', 3)],
    [],
    2,
  ],
  [
    'gives way to the newest of two reruns, whose first task is out of the filter',
    [task('c of a', 'ERROR', 3), task('b of a', 'ERROR', 2)],
    [],
    ['c'],
    1,
  ],
  [
    'is left out where a newer rerun of its first task completed',
    [task('b of a', 'ERROR', 2)],
    [task('c of a', 'COMPLETE', 3)],
    [],
    1,
  ],
  ['runs again by its completed status as the newest', [task('b of a', 'COMPLETE', 2)], [], ['b'], 0],
] as const)('a task %s', ([, matching, reruns, ids, leftOut]) => {
  expect(chosenReruns(matching, reruns)).toEqual({ ids, leftOut });
});

test('tasks of other inputs stay, in their order', () => {
  const others = [task('z', 'ERROR', 4), task('y', 'ERROR', 3)];
  expect(chosenReruns([...others, a], [task('b of a', 'COMPLETE', 2)])).toEqual({ ids: ['z', 'y'], leftOut: 1 });
});
