// `on_start` runs once per container, whatever becomes of the processes that serve.
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Served {
  readonly lines: number;
  readonly value: string;
  readonly pid: number;
}

/** Calls side by side until `count` processes answered; gives all answers. */
async function answersOf(
  platform: Platform,
  deployment: Deployment,
  isEnough: (pids: ReadonlySet<number>) => boolean,
): Promise<readonly Served[]> {
  const all: Served[] = [];
  await waitFor(
    async () => {
      const calls = Array.from({ length: 4 }, () => platform.invoke(deployment, { seconds: 0.3 }));
      for (const answer of await Promise.all(calls)) {
        expect(answer).toMatchObject({ status: 200 });
        all.push(jsonOf<Served>(answer));
      }
      return isEnough(new Set(all.map((one) => one.pid)));
    },
    'the processes wanted have answered',
    20_000,
  );
  return all;
}

describe('on_start', () => {
  test('runs once for four processes, also after one of them was killed and forked again', async ({ platform }) => {
    const deployment = await platform.deploy({
      app: 'kept.py',
      handler: 'handler',
      onStart: 'load',
      name: 'kept',
      workers: 4,
      memory: 256,
      keepWarmSeconds: 60,
    });
    const before = await answersOf(platform, deployment, (pids) => pids.size === 4);
    const value = before[0]?.value;
    const pids = new Set(before.map((one) => one.pid));

    const killed = await platform.invoke(deployment, { die: true });
    expect(killed).toMatchObject({ status: 500, text: '{"error":"process exited (code 137)"}' });
    await platform.taskIs(killed.taskId, 'ERROR');
    const after = await answersOf(
      platform,
      deployment,
      (seen) => seen.size === 4 && [...seen].some((pid) => !pids.has(pid)),
    );

    expect(new Set(after.map((one) => one.pid)).intersection(pids).size).toBe(3);
    expect(new Set([...before, ...after].map((one) => one.value))).toEqual(new Set([value]));
    expect(new Set([...before, ...after].map((one) => one.lines))).toEqual(new Set([1]));
    expect(await platform.containers(deployment)).toHaveLength(1);
  });
});
