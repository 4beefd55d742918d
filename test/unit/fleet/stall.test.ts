import { expect, test } from 'vitest';
import type { Clock } from '#shared/clock.ts';
import { createLog } from '#shared/log.ts';
import { StallDetector } from '#scheduler/fleet/stall.ts';
import { SteadyDeadlines } from '#scheduler/fleet/steady-deadlines.ts';

/** Two clocks that the test moves. */
function aClock() {
  const at = { wallMs: 1_700_000_000_000, monotonicMs: 5_000 };
  const clock: Clock = { nowMs: () => at.wallMs, monotonicMs: () => at.monotonicMs };
  const pass = (ms: number): void => {
    at.wallMs += ms;
    at.monotonicMs += ms;
  };
  return { at, clock, pass };
}

const quiet = createLog({ level: 'silent', name: 'test' });

test('a process that stood still for two seconds knows it, whichever timer comes first', () => {
  const { at, clock, pass } = aClock();
  const stall = new StallDetector(clock, quiet);
  stall.start();
  stall.stop();
  for (const ms of [250, 260, 1_500, 2_000]) {
    pass(ms);
    stall.tick();
  }
  expect(stall.stalledAtMs()).toBeNull();
  expect(stall.sinceStallMs()).toBe(Infinity);
  pass(2_300);
  expect(stall.stalledAtMs()).toBe(at.monotonicMs);
  pass(1_000);
  expect([stall.sinceStallMs(), stall.calmMs()]).toEqual([1_000, 1_000]);
});

test.each([600_000, -600_000])('a wall clock that is set by %i ms is no stall, and is noticed at once', (stepMs) => {
  const { at, clock, pass } = aClock();
  const stall = new StallDetector(clock, quiet);
  pass(100);
  expect(stall.calmMs()).toBe(Infinity);
  at.wallMs += stepMs;
  expect(stall.calmMs()).toBe(0);
  pass(250);
  stall.tick();
  expect(stall.calmMs()).toBe(250);
  expect(stall.sinceStallMs()).toBe(Infinity);
});

test('a clock that drifts is not set', () => {
  const { at, clock, pass } = aClock();
  const stall = new StallDetector(clock, quiet);
  for (let tick = 0; tick < 1_000; tick += 1) {
    pass(250);
    at.wallMs += 10;
    stall.tick();
  }
  expect(stall.calmMs()).toBe(Infinity);
});

test('a deadline of a row comes after the time that was left at the first look, however the clock is set', () => {
  const { at, clock, pass } = aClock();
  const deadlines = new SteadyDeadlines<string>(clock);
  const untilMs = at.wallMs + 60_000;
  expect(deadlines.isOver('a', untilMs)).toBe(false);
  at.wallMs += 600_000;
  expect(deadlines.isOver('a', untilMs)).toBe(false);
  at.wallMs -= 1_200_000;
  pass(59_999);
  expect(deadlines.isOver('a', untilMs)).toBe(false);
  pass(1);
  expect(deadlines.isOver('a', untilMs)).toBe(true);
  // Another deadline is judged anew; an infinite one is never over.
  expect(deadlines.isOver('a', at.wallMs + 10)).toBe(false);
  expect(deadlines.isOver('b', Infinity)).toBe(false);
  for (const key of ['a', 'b']) deadlines.forget(key);
  expect(deadlines.size).toBe(0);
});
