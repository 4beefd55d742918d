// Memory of a replica about the attempts of others: how long it lasts, and what follows from what it has forgotten.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { KnownAttempts } from '#scheduler/tasks/lines/known.ts';
import { judgeRecall, KNOWN_MS } from '#scheduler/tasks/lines/owner.ts';
import type { Known } from '#scheduler/tasks/lines/owner.ts';

const idOf = (number: number): TaskId => `t${number}` as TaskId;
const SENT: Known = { attempt: 1, what: { kind: 'sent' } };

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

test('the last word about an attempt is remembered, for ten minutes from then', () => {
  const known = new KnownAttempts();
  known.remember(idOf(1), { attempt: 1, what: { kind: 'taken' } });
  known.remember(idOf(2), SENT);
  vi.advanceTimersByTime(KNOWN_MS - 1);
  known.remember(idOf(1), SENT);
  expect(known.get(idOf(1))).toMatchObject(SENT);
  expect(known.size).toBe(2);
  vi.advanceTimersByTime(2);
  known.remember(idOf(3), SENT);
  expect([known.get(idOf(1))?.attempt, known.get(idOf(2)), known.size]).toEqual([1, undefined, 2]);
});

test('of more than it may remember, those go first of which nothing was heard for longest; it knows since when', () => {
  const known = new KnownAttempts(100);
  expect(known.keptMs()).toBe(KNOWN_MS);
  const remember = (number: number): void => {
    known.remember(idOf(number), SENT);
    vi.advanceTimersByTime(1_000);
  };
  for (let number = 0; number < 100; number += 1) remember(number);
  expect(known.keptMs()).toBe(KNOWN_MS);
  remember(0);
  for (let number = 100; number < 150; number += 1) remember(number);
  expect(known.size).toBe(100);
  const isKnown = (number: number): boolean => known.get(idOf(number)) !== undefined;
  expect([0, 50, 51, 149].map(isKnown)).toEqual([true, false, true, true]);
  // The youngest that had to go was remembered 101 seconds ago: whatever is younger is remembered.
  expect(known.keptMs()).toBe(101_000);
});

test('an attempt that may have been forgotten counts as sent, a younger one that is not known never arrived', () => {
  const known = new KnownAttempts(1);
  const self = newInstanceId();
  const asked = (ageMs: number) =>
    judgeRecall(known.get(idOf(1)), { attempt: 1, ageMs, self, keptMs: known.keptMs() })?.word.kind;
  expect([asked(KNOWN_MS), asked(1_000)]).toEqual(['has', 'refused']);
  known.remember(idOf(1), SENT);
  vi.advanceTimersByTime(800);
  known.remember(idOf(2), SENT);
  expect([asked(1_000), asked(10)]).toEqual(['has', 'refused']);
});
