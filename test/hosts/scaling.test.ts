// The slow example under load: its line, the number of serving containers, and none left at the end.
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { AppRequest } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Slept {
  readonly slept: number;
  readonly container: string;
}

const slow = (name: string, fields: Partial<AppRequest> = {}): AppRequest => ({
  app: 'examples/slow/app.py',
  handler: 'handler',
  name,
  cpu: 250,
  keepWarmSeconds: 2,
  maxPendingTasks: 500,
  autoscaler: { type: 'queue_depth', maxContainers: 3, tasksPerContainer: 1, minContainers: 0 },
  ...fields,
});

describe('the slow example', () => {
  test('under twelve calls is served by exactly three containers, and by none after keep-warm', async ({
    platform,
  }) => {
    const deployment = await platform.deploy(slow('slow'));
    const seconds = Array.from({ length: 12 }, (_, index) => 0.5 + index / 100);
    let most = 0;
    let done = false;
    const watching = (async () => {
      while (!done) most = Math.max(most, (await platform.containers(deployment)).length);
    })();
    const answers = await Promise.all(seconds.map((one) => platform.invoke(deployment, { seconds: one })));
    done = true;
    await watching;
    expect(answers.map((one) => one.status)).toEqual(seconds.map(() => 200));
    const slept = answers.map((one) => jsonOf<Slept>(one));
    expect(slept.map((one) => one.slept)).toEqual(seconds);
    expect(new Set(slept.map((one) => one.container)).size).toBe(3);
    expect(most).toBe(3);
    await platform.noContainers(deployment, 20_000);
  });

  test('lists its waiting and running calls under their own ids', async ({ platform }) => {
    const deployment = await platform.deploy(slow('listed'));
    const calls = Array.from({ length: 8 }, () => platform.invoke(deployment, { seconds: 1 }));
    const listed = await waitFor(
      async () => {
        const tasks = await platform.tasks(deployment);
        const count = (wanted: string): number => tasks.filter(({ status }) => status === wanted).length;
        return count('RUNNING') === 3 && count('PENDING') === 5 && tasks.map(({ id }) => id);
      },
      'three calls run and five wait',
      30_000,
    );
    const answers = await Promise.all(calls);
    expect(answers.map((one) => one.status)).toEqual(answers.map(() => 200));
    expect(answers.map((one) => one.taskId).toSorted()).toEqual(listed.toSorted());
  });

  test('takes as many of 300 calls as may be pending, and refuses the others with 429', async ({ platform }) => {
    const deployment = await platform.deploy(slow('bounded', { maxPendingTasks: 100 }));
    // Nothing can be served before all have come, so that the numbers are exact.
    platform.agent.freeze();
    const refused: string[] = [];
    const calls = Array.from({ length: 300 }, async () => {
      const answer = await platform.invoke(deployment, { seconds: 0.05 });
      if (answer.status === 429) refused.push(answer.text);
      return answer;
    });
    try {
      await waitFor(() => refused.length >= 200, '200 calls are refused', 20_000);
    } finally {
      platform.agent.thaw();
    }
    const answers = await Promise.all(calls);
    expect(answers.filter((one) => one.status === 200)).toHaveLength(100);
    expect(refused).toHaveLength(200);
    expect(new Set(refused)).toEqual(new Set(['{"error":"exceeded max pending tasks: 100"}']));
    for (const answer of answers.filter((one) => one.status === 200))
      expect(jsonOf<Slept>(answer)).toMatchObject({ slept: 0.05 });
    const tasks = await platform.tasks(deployment);
    expect(tasks.filter(({ status }) => status === 'COMPLETE').length).toBeGreaterThanOrEqual(100);
    expect(tasks.filter(({ status }) => status === 'PENDING' || status === 'RUNNING')).toEqual([]);
  });
});
