import { once } from 'node:events';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import type { Leadership } from '#scheduler/cluster/leader.ts';
import { LeaderLoop } from '#scheduler/cluster/leader-loop.ts';
import type { LeaderLoopOptions } from '#scheduler/cluster/leader-loop.ts';
import { waitFor } from '../../helpers/programs.ts';

/** A loop under a leadership that tests give and take. */
function aLoop<T>(round: LeaderLoopOptions<T>['round'], restMs?: (given: T) => number) {
  const state = { isLeading: false, listeners: new Set<(now: Leadership) => void>() };
  const leader = {
    isLeader: () => state.isLeading,
    onChange: (listener: (now: Leadership) => void) => {
      state.listeners.add(listener);
      return () => state.listeners.delete(listener);
    },
  };
  const log = pino({ level: 'silent' });
  const rest = restMs === undefined ? {} : { restMs };
  const loop = new LeaderLoop({ name: 'a loop', leader, everyMs: 5, round, ...rest, failed: 'it failed', log });
  onTestFinished(() => loop.stop());
  loop.start();
  const lead = (isLeading: boolean): void => {
    state.isLeading = isLeading;
    const now: Leadership = isLeading ? { kind: 'leading', fence: 1 } : { kind: 'following', why: 'lease_ran_out' };
    for (const listener of state.listeners) listener(now);
  };
  return { loop, lead, state };
}

test('rounds run while this replica leads, and not before', async () => {
  let rounds = 0;
  const { lead, state } = aLoop(() => (rounds += 1) && undefined);
  lead(true);
  await waitFor(() => rounds > 2, 'rounds run');
  lead(false);
  const ran = rounds;
  lead(true);
  await waitFor(() => rounds > ran, 'they go on');
  // The lease ran out and nobody has said so yet.
  state.isLeading = false;
  const seen = rounds;
  await new Promise((resolve) => setTimeout(resolve, 30));
  expect(rounds).toBe(seen);
});

test('the round under way hears that this replica leads no more; the next one begins when it has ended', async () => {
  const signals: AbortSignal[] = [];
  let under = 0;
  const { lead } = aLoop(async (signal) => {
    signals.push(signal);
    expect((under += 1)).toBe(1);
    if (!signal.aborted) await once(signal, 'abort');
    under -= 1;
  });
  lead(true);
  await waitFor(() => signals.length === 1, 'the first round');
  lead(false);
  expect(signals[0]?.aborted).toBe(true);
  lead(true);
  await waitFor(() => signals.length === 2, 'the second round');
  expect(signals[1]?.aborted).toBe(false);
});

test('its stop waits for the round, and a failed round is tried again', async () => {
  let rounds = 0;
  let hasEnded = false;
  const { loop, lead } = aLoop(async (signal) => {
    rounds += 1;
    if (rounds < 3) throw new Error('not yet');
    await once(signal, 'abort');
    await new Promise((resolve) => setImmediate(resolve));
    hasEnded = true;
  });
  lead(true);
  await waitFor(() => rounds === 3, 'the third round');
  await loop.stop();
  expect(hasEnded).toBe(true);
});

test('what a round gave may say when the next one comes', async () => {
  let rounds = 0;
  const { lead } = aLoop(
    () => (rounds += 1),
    (count) => (count < 3 ? 1 : 60_000),
  );
  lead(true);
  await waitFor(() => rounds === 3, 'two more follow at once');
  await new Promise((resolve) => setTimeout(resolve, 30));
  expect(rounds).toBe(3);
});
