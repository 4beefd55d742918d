// Turns of readings: a share of the time for all of a workspace, in the order in which they came.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Turns } from '#scheduler/api/http/rest/live-turns.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});
const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
const sleep = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

/** Topics that want to be read again at once. */
function greedy(turns: Turns, topics: number, tookMs: number) {
  const seen = { readings: 0, busyMs: 0, atOnce: 0, most: 0, byTopic: Array.from({ length: topics }, () => 0) };
  let sinceMs = 0;
  for (let at = 0; at < topics; at += 1) {
    const read = async (): Promise<void> => {
      seen.readings += 1;
      seen.byTopic[at]! += 1;
      seen.atOnce += 1;
      seen.most = Math.max(seen.most, seen.atOnce);
      if (seen.atOnce === 1) sinceMs = Date.now();
      if (tookMs > 0) await sleep(tookMs);
      seen.atOnce -= 1;
      if (seen.atOnce === 0) seen.busyMs += Date.now() - sinceMs;
      turns.wait(read);
    };
    turns.wait(read);
  }
  return seen;
}

test.each([
  [200, 2],
  [200, 40],
  [20, 500],
  [3, 1_000],
])('%i topics whose readings take %i ms are read in a fifth of the time together', async (topics, tookMs) => {
  const seen = greedy(new Turns(() => Date.now()), topics, tookMs);
  await pass(300_000);
  // A fifth of 300 s, and what was saved up before.
  expect(seen.busyMs).toBeLessThan(64_000);
  expect(seen.most).toBeLessThanOrEqual(4);
});

test('readings that take no time are bounded in their number', async () => {
  const seen = greedy(new Turns(() => Date.now()), 200, 0);
  await pass(60_000);
  expect(seen.readings).toBeLessThan(60 * 25 + 200 + 4);
  expect(seen.readings).toBeGreaterThan(1_000);
});

test('topics take turns', async () => {
  const { byTopic } = greedy(new Turns(() => Date.now()), 50, 20);
  await pass(300_000);
  expect(Math.max(...byTopic) - Math.min(...byTopic)).toBeLessThanOrEqual(1);
});

test('a reading that hangs delays the next by seconds, and the others are read meanwhile', async () => {
  const turns = new Turns(() => Date.now());
  const read: string[] = [];
  turns.wait(() => sleep(600));
  turns.wait(async () => Promise.resolve(void read.push('beside')));
  await pass(0);
  expect(read).toEqual(['beside']);
  turns.wait(() => sleep(60_000));
  await pass(60_000);
  turns.wait(async () => Promise.resolve(void read.push('after')));
  await pass(11_000);
  expect(read).toEqual(['beside', 'after']);
});

test('one that leaves is not read, and nothing is left behind', async () => {
  const turns = new Turns(() => Date.now());
  turns.wait(() => sleep(5_000));
  await pass(5_000);
  const never = vi.fn(() => Promise.resolve());
  turns.wait(never);
  expect(vi.getTimerCount()).toBe(1);
  turns.leave(never);
  expect([vi.getTimerCount(), turns.isRested]).toEqual([0, false]);
  await pass(60_000);
  expect([never.mock.calls.length, turns.isRested]).toEqual([0, true]);
});
