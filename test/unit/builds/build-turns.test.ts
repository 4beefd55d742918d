// Whose build begins next on a machine: workspaces take turns, and none fills the machine.
import { expect, test } from 'vitest';
import { nextBuild } from '#agent/builds/turns.ts';

const build = (name: string) => ({ id: name, workspaceId: name.charAt(0) });
const next = (waiting: string, running: string, atOnce: number, began: Record<string, number> = {}) =>
  nextBuild({
    waiting: waiting.split(' ').filter(Boolean).map(build),
    running: running.split(' ').filter(Boolean).map(build),
    beganAt: new Map(Object.entries(began)),
    atOnce,
  })?.id;

test('the first that came begins, as long as there is room', () => {
  expect(next('a1 b1', '', 2)).toBe('a1');
  expect(next('a1', 'b1 c1', 2)).toBeUndefined();
  expect(next('', '', 2)).toBeUndefined();
  expect(next('a1', '', 0)).toBeUndefined();
});

test('a workspace with many builds lets another one go first', () => {
  expect(next('a2 a3 b1', 'a1', 4)).toBe('b1');
  expect(next('a1 b1', '', 1, { a: 5 })).toBe('b1');
  expect(next('a1 b1', '', 1, { a: 5, b: 6 })).toBe('a1');
});

test('one workspace takes at most half of the places', () => {
  expect(next('a2', 'a1', 2)).toBeUndefined();
  expect(next('a2 b1', 'a1', 2)).toBe('b1');
  expect(next('a2', 'a1', 3)).toBe('a2');
  expect(next('a1', '', 1)).toBe('a1');
});
