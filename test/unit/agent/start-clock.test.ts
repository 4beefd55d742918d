import { expect, test } from 'vitest';
import { StartClock, reportedPhases } from '../../../agent/reconcile/start-clock.ts';

test('the steps of a start together are all of it, and one that is made twice counts twice', () => {
  let now = 0;
  const clock = new StartClock(() => now);
  clock.begin('c');
  for (const [phase, ms] of [
    ['proceed', 5],
    ['create', 10],
    ['create', 3],
    ['start', 100],
    ['hello', 50],
  ] as const) {
    now += ms;
    clock.mark('c', phase);
  }
  clock.missed('c');
  now += 7;
  expect(clock.end('c')).toEqual({
    totalMs: 175,
    cache: 'miss',
    phases: { proceed: 5, create: 13, start: 100, hello: 50, on_start: 7 },
  });
});

test.each([
  ['connects', ['hello'], { create: 10, start: 40, hello: 0, on_start: 9 }],
  ['is ready', [], { create: 10, start: 40, on_start: 0 }],
] as const)('a program that %s before the engine has answered ends the step of the engine', (_, early, phases) => {
  let now = 0;
  const clock = new StartClock(() => now);
  clock.begin('c');
  now += 10;
  clock.mark('c', 'create');
  now += 40;
  for (const phase of early) clock.mark('c', phase);
  const isReady = early.length === 0;
  const first = isReady ? clock.end('c') : undefined;
  now += 5;
  clock.mark('c', 'start');
  now += 4;
  expect(first ?? clock.end('c')).toEqual({ totalMs: isReady ? 50 : 59, cache: 'hit', phases });
});

test('the steps are reported in their order, in whole milliseconds', () => {
  expect(reportedPhases({ phases: { on_start: 7.6, proceed: 0.2, hello: 50 } })).toEqual([
    { name: 'proceed', durationMs: 0 },
    { name: 'hello', durationMs: 50 },
    { name: 'on_start', durationMs: 8 },
  ]);
});

test('a start that another agent began, or that was given up, has no times', () => {
  const clock = new StartClock(() => 0);
  clock.mark('c', 'start');
  expect(clock.end('c')).toBeUndefined();
  clock.begin('d');
  clock.forget('d');
  expect(clock.end('d')).toBeUndefined();
});
