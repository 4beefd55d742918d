import { expect, test } from 'vitest';
import { decideRollout } from '#scheduler/control/rollouts/decide.ts';
import type { RolloutFacts } from '#scheduler/control/rollouts/decide.ts';

const NOW = 1_000_000;
const failed = { containerId: 'c-1', reason: 'user_error', message: 'Traceback\nValueError: no model\n' };
const some = (changed: Partial<RolloutFacts> = {}): RolloutFacts => ({
  sinceMs: NOW - 10_000,
  limitMs: 900_000,
  pulledAtMs: 0,
  newer: { version: 2, active: true, ready: 0, live: 1 },
  failed: undefined,
  older: { version: 1, active: true, ready: 2, live: 2 },
  ...changed,
});

test('calls stay with the older version while the newer one starts', () => {
  expect(decideRollout(some(), NOW)).toEqual({ kind: 'wait', untilMs: NOW + 890_000 });
});

test('calls move when a container of the newer version is ready, whatever failed before', () => {
  const ready = { version: 2, active: true, ready: 1, live: 1 };
  expect(decideRollout(some({ newer: ready, failed }), NOW)).toMatchObject({ kind: 'move', why: 'ready' });
  expect(decideRollout(some({ newer: ready, older: null }), NOW)).toMatchObject({ why: 'ready' });
});

test('a start that fails leaves the older version serving, and its last line is the reason', () => {
  expect(decideRollout(some({ failed }), NOW)).toEqual({
    kind: 'fail',
    text: 'the start of c-1 failed (user_error): ValueError: no model',
  });
  const silent = { ...failed, message: '' };
  expect(decideRollout(some({ failed: silent }), NOW)).toMatchObject({ text: 'the start of c-1 failed (user_error)' });
  // The older version starts containers when work comes again; the newer one cannot.
  const idle = { version: 1, active: true, ready: 0, live: 0 };
  expect(decideRollout(some({ failed, older: idle }), NOW)).toMatchObject({ kind: 'fail' });
});

test('calls move at once when no older version can serve them', () => {
  const older = { version: 1, active: true, ready: 0, live: 0 };
  expect(decideRollout(some({ older: null, failed }), NOW)).toMatchObject({ why: 'nothing_serves' });
  expect(decideRollout(some({ older: { ...older, active: false }, failed }), NOW)).toMatchObject({
    why: 'nothing_serves',
    text: 'v1 was stopped or deleted',
  });
  expect(decideRollout(some({ older }), NOW)).toMatchObject({ why: 'nothing_serves' });
  // A container that is replaced at this moment counts.
  expect(decideRollout(some({ older: { ...older, live: 1 } }), NOW)).toMatchObject({ kind: 'wait' });
});

test('calls move at the start limit, and not before', () => {
  expect(decideRollout(some(), NOW + 889_999)).toMatchObject({ kind: 'wait' });
  const decision = decideRollout(some(), NOW + 890_000);
  expect(decision).toMatchObject({ kind: 'move', why: 'start_limit' });
  expect(decision).toHaveProperty('text', 'none of its containers was ready within 15 minutes, and calls wait for one');
});

test('calls stay while the image of the newer version is on its way, for hours at most', () => {
  const later = NOW + 3600_000;
  expect(decideRollout(some({ pulledAtMs: later - 1_000 }), later)).toEqual({ kind: 'wait', untilMs: later + 899_000 });
  expect(decideRollout(some({ pulledAtMs: later - 900_000 }), later)).toMatchObject({
    kind: 'move',
    text: 'none of its containers was ready within 60 minutes, and calls wait for one',
  });
  const nextDay = NOW + 24 * 3600_000;
  expect(decideRollout(some({ pulledAtMs: nextDay }), nextDay)).toMatchObject({ kind: 'move', why: 'start_limit' });
});
