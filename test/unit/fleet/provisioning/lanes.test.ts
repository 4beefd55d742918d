import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Lanes, MOST_AT_ONCE } from '#scheduler/fleet/provisioning/lanes.ts';

test('so many calls of a provider run at once, the others after them in their order, and failures free a lane', async () => {
  const lanes = new Lanes();
  const calls = Array.from({ length: MOST_AT_ONCE + 2 }, () => Promise.withResolvers<void>());
  const begun: number[] = [];
  const outcomes = calls.map(({ promise }, index) =>
    lanes.run('cloud', async () => {
      begun.push(index);
      await promise;
    }),
  );
  const ended = Promise.allSettled(outcomes);
  await turn();
  expect(begun).toEqual([0, 1, 2, 3]);
  // Another provider has lanes of its own.
  expect(await lanes.run('other', () => Promise.resolve('ran'))).toBe('ran');
  calls[2]?.reject(new Error('quota'));
  await turn();
  expect(begun).toEqual([0, 1, 2, 3, 4]);
  for (const call of calls) call.resolve();
  await turn();
  expect((await ended).map(({ status }) => status === 'rejected')).toEqual([false, false, true, false, false, false]);
  expect(begun).toEqual([0, 1, 2, 3, 4, 5]);
});
