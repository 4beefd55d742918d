import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { Access } from '../../../agent/devices/access.ts';
import type { Inside } from '../../../agent/devices/access.ts';
import { isByCdi } from '../../../agent/containers/engine/options.ts';

/** Runs so many rounds over one container. @returns the number of questions */
async function asked(rounds: number, answer: () => Promise<Inside>): Promise<{ times: number; lost: string[] }> {
  const seen = { times: 0, lost: [] as string[] };
  const access = new Access({
    running: () => [{ containerId: 'c1', dockerId: 'd1' }],
    askInside: () => {
      seen.times += 1;
      return answer();
    },
    onLost: (containerId) => seen.lost.push(containerId),
    log: createLog({ name: 'test', level: 'silent' }),
  });
  for (let round = 0; round < rounds; round += 1) {
    access.round();
    await setImmediate();
  }
  return seen;
}

test('a container where the GPU tool hangs is asked ever more seldom: each question leaves a process in it', async () => {
  const { times } = await asked(40, () => Promise.reject(new Error('no answer')));
  expect(times).toBeGreaterThan(2);
  expect(times).toBeLessThan(10);
});

test('a container that has its devices by CDI is not asked again: no program runs in it', async () => {
  expect((await asked(20, () => Promise.resolve({ kind: 'never' }))).times).toBe(1);
  expect([isByCdi([{ Driver: 'cdi' }]), isByCdi([{ Driver: 'nvidia' }]), isByCdi([])]).toEqual([true, false, false]);
});

test('one that has them by the hook is asked each round, and its loss is told', async () => {
  const seen = await asked(3, () =>
    Promise.resolve({ kind: 'said', text: 'Failed to initialize NVML: Unknown Error' }),
  );
  expect(seen).toEqual({ times: 3, lost: ['c1', 'c1', 'c1'] });
});
