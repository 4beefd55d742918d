import { expect, test } from 'vitest';
import { StartClock } from '../../../agent/reconcile/start-clock.ts';

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

test('a start that another agent began, or that was given up, has no times', () => {
  const clock = new StartClock(() => 0);
  clock.mark('c', 'start');
  expect(clock.end('c')).toBeUndefined();
  clock.begin('d');
  clock.forget('d');
  expect(clock.end('d')).toBeUndefined();
});
