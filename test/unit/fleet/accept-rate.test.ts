import { expect, test } from 'vitest';
import { redialWaitMs } from '#agent/upstream/redial.ts';
import { AcceptRate, FIRST_PER_SECOND, MOST_AT_ONCE, reconnectWindowMs } from '#scheduler/fleet/accept-rate.ts';

/** Plays so many machines that say hello, `atOnce` at a time; each is taken up `everyMs` after the one before. */
function taken(rate: AcceptRate, clock: { ms: number }, machines: number, atOnce: number, everyMs: number): void {
  const open: (() => void)[] = [];
  for (let machine = 0; machine < machines; machine += 1) {
    while (open.length < atOnce) open.push(rate.begin() ?? expect.fail('it is full'));
    clock.ms += everyMs;
    open.shift()?.();
  }
  for (const end of open) {
    clock.ms += everyMs;
    end();
  }
}

test('the window gives a scheduler the time that it needs for all of its machines', () => {
  expect([1, 100, 500, 5_000, 100_000].map((machines) => reconnectWindowMs(machines, 200))).toEqual([
    500, 500, 2_500, 25_000, 60_000,
  ]);
});

test('the rate is that of machines which wait for each other; those that come one by one say nothing', () => {
  const clock = { ms: 0 };
  const rate = new AcceptRate({ monotonicMs: () => clock.ms });
  taken(rate, clock, 500, 4, 1_000);
  expect(rate.perSecond).toBe(FIRST_PER_SECOND);
  taken(rate, clock, 500, 64, 2);
  expect(rate.perSecond).toBeGreaterThan(450);
  expect(rate.perSecond).toBeLessThanOrEqual(510);
  taken(rate, clock, 500, 64, 20);
  expect(rate.perSecond).toBeGreaterThan(45);
  expect(rate.perSecond).toBeLessThan(60);
});

test('machines that come all at once are taken up some at a time, the others later', () => {
  const rate = new AcceptRate({ monotonicMs: () => 0 });
  const taken = Array.from({ length: MOST_AT_ONCE }, () => rate.begin());
  expect(rate.begin()).toBeUndefined();
  taken[0]?.();
  expect(rate.begin()).toBeDefined();
  expect(rate.begin()).toBeUndefined();
});

test('an agent whose link broke is back within half a second; one that nobody answers waits for its place in the window', () => {
  expect(redialWaitMs(true, 8_000, 1)).toBe(500);
  expect(redialWaitMs(false, 8_000, 1)).toBe(8_000);
  expect(redialWaitMs(false, 8_000, 0.25)).toBe(2_000);
  expect(redialWaitMs(false, 0, 1)).toBe(500);
});

test('agents whose links are given up together dial one after the other; one alone is back within half a second', () => {
  const clock = { ms: 1_000 };
  const rate = new AcceptRate({ monotonicMs: () => clock.ms });
  const windowMs = (): number => reconnectWindowMs(rate.gaveUp(), rate.perSecond);
  const burst = Array.from({ length: 1_000 }, windowMs);
  expect([burst[0], burst[49], burst[499], burst[999]]).toEqual([500, 500, 5_000, 10_000]);
  clock.ms += 5_000;
  expect(windowMs()).toBe(5_010);
  clock.ms += 10_000;
  for (let second = 0; second < 100; second += 1) {
    for (let link = 0; link < FIRST_PER_SECOND / 2; link += 1) expect(windowMs()).toBe(500);
    clock.ms += 1_000;
  }
});
