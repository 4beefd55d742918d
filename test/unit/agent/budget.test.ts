import { expect, test } from 'vitest';
import { BYTES_PER_SECOND, CallBudget, FRAMES_PER_SECOND, SocketBudget } from '../../../agent/slots/budget.ts';

test('a second of frames or bytes is free, and what is above waits as long as its rate says', () => {
  const budget = new SocketBudget(1);
  expect(budget.read(0, FRAMES_PER_SECOND, 0)).toBe(0);
  expect(budget.read(0, FRAMES_PER_SECOND / 2, 0)).toBeCloseTo(500);
  // The debt is paid off, and a whole second of budget is free again.
  expect(budget.read(0, FRAMES_PER_SECOND, 1500)).toBeCloseTo(0);
  expect(new SocketBudget(1).read(2 * BYTES_PER_SECOND, 1, 0)).toBeCloseTo(1000);
});

test('a container within the rate never waits', () => {
  const budget = new SocketBudget(1);
  for (let ms = 0; ms < 10_000; ms += 10) expect(budget.read(1000, FRAMES_PER_SECOND / 100, ms)).toBe(0);
});

test('rare events have a burst for each process, come back with time, and are a violation beyond', () => {
  for (const workers of [1, 8]) {
    const budget = new SocketBudget(workers);
    let allowed = 0;
    while (budget.rare(1, 0)) allowed += 1;
    expect(allowed).toBe(400 * (1 + workers));
  }
  const budget = new SocketBudget(1);
  for (let second = 0; second < 600; second += 1) expect(budget.rare(40, second * 1000)).toBe(true);
});

test('a flood of lines is cut to the rate, and lines behind it do not pay for it', () => {
  const budget = new SocketBudget(1);
  const admitted = (count: number, nowMs: number): number =>
    Array.from({ length: count }, () => budget.line(nowMs)).filter(Boolean).length;
  expect(admitted(50_000, 0)).toBe(10_000);
  expect(admitted(50_000, 1000)).toBe(2000);
  expect(admitted(1, 1001)).toBe(1);
});

test('calls wait above their rate; refusals that nobody heeds are a violation', () => {
  const budget = new CallBudget();
  const waits = Array.from({ length: 3000 }, () => budget.call(0));
  expect(waits[1999]).toBe(0);
  expect(waits[2999]).toBeCloseTo(500);
  let refused = 0;
  while (budget.refused(0)) refused += 1;
  expect(refused).toBe(10_000);
});
