import { expect, test } from 'vitest';
import { afterTry, pauseMs, wordOf } from '#scheduler/tasks/webhooks/decide.ts';
import type { Outcome } from '#scheduler/tasks/webhooks/decide.ts';

const POLICY = { attempts: 3, baseMs: 500, lifeMs: 1e9 };
const answered = (status: number): Outcome => ({ kind: 'answered', status });
const again = (afterMs: number) => ({ kind: 'retry', afterMs });

test.each([
  [answered(200), 'accepted', { kind: 'delivered' }],
  [answered(204), 'accepted', { kind: 'delivered' }],
  [answered(301), 'redirected', { kind: 'failed' }],
  [answered(304), 'redirected', { kind: 'failed' }],
  [answered(400), 'refused', { kind: 'failed' }],
  [answered(404), 'refused', { kind: 'failed' }],
  [answered(408), 'refused', again(500)],
  [answered(410), 'refused', { kind: 'failed' }],
  [answered(425), 'refused', again(500)],
  [answered(429), 'refused', again(500)],
  [answered(500), 'server_error', again(500)],
  [answered(503), 'server_error', again(500)],
  [{ kind: 'connection_failed' }, 'connection_failed', again(500)],
  // The receiver may be at work on it: a repeated message is worse than one that is told once.
  [{ kind: 'timed_out' }, 'timed_out', { kind: 'failed' }],
  [{ kind: 'blocked' }, 'blocked', { kind: 'failed' }],
] as const)('after %o', (outcome, word, verdict) => {
  expect(wordOf(outcome)).toBe(word);
  expect(afterTry(outcome, 1, POLICY)).toEqual(verdict);
});

test('the waits double, and the last try is the last', () => {
  expect(afterTry(answered(500), 1, POLICY)).toEqual(again(500));
  expect(afterTry(answered(500), 2, POLICY)).toEqual(again(1000));
  expect(afterTry(answered(500), 3, POLICY)).toEqual({ kind: 'failed' });
  expect(afterTry(answered(200), 3, POLICY)).toEqual({ kind: 'delivered' });
});

test('what was not tried for want of a place is put off, longer each time, whatever was tried before', () => {
  const noPlace: Outcome = { kind: 'no_place' };
  expect(wordOf(noPlace)).toBe('no_place');
  expect(afterTry(noPlace, 1, POLICY, 1)).toEqual({ kind: 'postpone', afterMs: 5_000 });
  expect(afterTry(noPlace, 3, POLICY, 4)).toEqual({ kind: 'postpone', afterMs: 40_000 });
  expect(afterTry(noPlace, 3, POLICY, 29)).toEqual({ kind: 'postpone', afterMs: 900_000 });
});

test('what cannot be made rests twice as long each time, up to an hour', () => {
  expect([0, 1, 2, 6, 7, 30, 5_000].map((before) => pauseMs(before) / 1000)).toEqual([
    30, 60, 120, 1920, 3600, 3600, 3600,
  ]);
});
