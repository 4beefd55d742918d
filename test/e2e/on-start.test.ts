// `on_start` runs once per container, even when its serving processes die.
import { describe, expect } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Served {
  readonly lines: number;
  readonly value: string;
  readonly pid: number;
}

interface Doubled {
  readonly doubled: number;
  readonly pid: number;
  readonly started_by: number;
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

describe('a library that bears neither a fork nor two threads', () => {
  const double = async (platform: Platform, deployment: Deployment, x: number): Promise<Doubled> => {
    const answer = await platform.invoke(deployment, { x });
    expect(answer).toMatchObject({ status: 200 });
    return jsonOf<Doubled>(answer);
  };
  const explain = async (platform: Platform, { deploymentId }: Deployment): Promise<Explanation> =>
    jsonOf<Explanation>(await platform.call(`/api/v1/explain/${platform.workspaceId}/${deploymentId}`));
  const request = {
    app: 'fragile.py',
    handler: 'handler',
    onStart: 'load',
    workers: 2,
    memory: 256,
    keepWarmSeconds: 60,
  };

  test('is served by one worker when nobody chose; log and explain name the choice, and it counts as one slot', async ({
    platform,
  }) => {
    const deployment = await platform.deploy({ ...request, name: 'undecided' });
    const answers = await Promise.all([1, 2, 3].map((x) => double(platform, deployment, x)));
    expect(answers.map((one) => one.doubled)).toEqual([2, 4, 6]);
    expect(new Set(answers.map((one) => one.pid)).size).toBe(1);
    await platform.logSays(`deployment_id=${deployment.deploymentId}`, 'one worker instead of 2: 2 threads run');
    const { details, next_steps, scaling } = await explain(platform, deployment);
    expect(details.join()).toContain('each container serves with one worker instead of 2');
    expect(next_steps.join()).toContain('set worker_mode to "spawn"');
    expect(scaling?.containers.map((one) => one.slots)).toEqual([1]);
  });

  test('is served by a process for each worker with worker_mode spawn', async ({ platform }) => {
    const deployment = await platform.deploy({ ...request, name: 'spawned', extra: '{"workerMode":"spawn"}' });
    const answers: Doubled[] = [];
    await waitFor(
      async () => {
        answers.push(...(await Promise.all([1, 2].map((x) => double(platform, deployment, x)))));
        return new Set(answers.map((one) => one.pid)).size === 2;
      },
      'both workers have answered',
      20_000,
    );
    expect(answers.every((one, index) => one.doubled === 2 + 2 * (index % 2) && one.pid === one.started_by)).toBe(true);
    expect(await platform.containers(deployment)).toHaveLength(1);
    const { details, scaling } = await explain(platform, deployment);
    expect(details.join()).not.toContain('one worker');
    expect(scaling?.containers.map((one) => one.slots)).toEqual([2]);
  });
});
