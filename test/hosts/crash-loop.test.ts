// A deployment whose containers cannot start, on a real scheduler, agent and engine. The deployment is not started
// again and again, its tasks wait, and explain says why; also after the scheduler died.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import { jsonOf, MAIN, test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const WAIT_MS = 90_000;

async function explain(platform: Platform, id: string): Promise<Explanation> {
  const answer = await platform.call(`/api/v1/explain/${platform.workspaceId}/${id}`);
  expect(answer.status).toBe(200);
  return jsonOf<Explanation>(answer);
}

async function said(platform: Platform, ...args: readonly string[]): Promise<string> {
  const env = { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
  const child = spawn(process.execPath, [MAIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  child.stderr.setEncoding('utf8').on('data', (part: string) => (text += part));
  await once(child, 'close');
  return text;
}

describe('Crash loop', () => {
  test('the breaker opens, the deployment is DEGRADED and says why, its tasks are kept; a person ends it', async ({
    platform,
  }) => {
    const deployment = await platform.deploy({
      app: 'failing.py',
      handler: 'hello',
      name: 'looping',
      onStart: 'bad_start',
      stubType: 'taskqueue/deployment',
    });
    const { deploymentId: id } = deployment;
    const tasks: string[] = [];
    for (let count = 0; count < 2; count += 1) {
      const answer = await platform.call('/taskqueue/looping', { body: {} });
      tasks.push(jsonOf<{ task_id: string }>(answer).task_id);
    }
    const degraded = await waitFor(
      async () => {
        const one = await explain(platform, id);
        return one.state === 'DEGRADED' && one;
      },
      'it is DEGRADED',
      WAIT_MS,
    );
    expect(degraded.scaling?.breaker).toMatchObject({
      phase: 'cooling',
      failures: 3,
      opened: 1,
      last_reason: 'user_error',
    });
    expect(degraded.scaling?.breaker.last_message).toContain('the model is not there');
    for (const taskId of tasks) {
      expect(await explain(platform, taskId)).toMatchObject({
        state: 'PENDING',
        waits_for: 'the end of the cooldown; then one container probes',
        next_steps: [`\`longshore explain looping/v1\` shows why starts fail`],
      });
    }
    await waitFor(async () => (await platform.containers(deployment)).length === 0, 'no container is left');
    const text = await said(platform, 'explain', 'looping');
    expect(text).toContain('looping v1 is DEGRADED: 3 starts in a row failed (user_error)');
    expect(text).toContain('longshore deployment start looping');
    // The container that failed last can still be asked for.
    const failed = await explain(platform, degraded.scaling?.breaker.last_container ?? '');
    expect(failed).toMatchObject({ kind: 'container', state: 'FAILED', container: { reason: 'user_error' } });

    // The next leader goes on from the state that this one has left.
    await platform.scheduler.kill();
    await platform.startScheduler();
    const after = await waitFor(
      async () => {
        const one = await explain(platform, id);
        return one.scaling !== null && one;
      },
      'it leads again',
      WAIT_MS,
    );
    expect(after.state).toBe('DEGRADED');
    expect(after.scaling?.breaker.cools_until).toBe(degraded.scaling?.breaker.cools_until);
    expect((await platform.tasks(deployment)).map((task) => task.status)).toEqual(['PENDING', 'PENDING']);

    await platform.gateway(`/deployments/${id}/start`, {});
    await waitFor(
      async () => {
        const { scaling } = await explain(platform, id);
        return scaling?.breaker.last_container !== degraded.scaling?.breaker.last_container;
      },
      'it is tried at once',
      WAIT_MS,
    );
    const { status } = await platform.call(`/api/v1/gateway/deployments/${id}`, { method: 'DELETE' });
    expect(status).toBe(200);
    await platform.noContainers(deployment, 30_000);
  });

  test('tasks that kill their process hold up no other: each fails by itself, and no start counts as failed', async ({
    platform,
  }) => {
    const deployment = await platform.deploy({
      app: 'failing.py',
      handler: 'may_die',
      name: 'deadly',
      stubType: 'taskqueue/deployment',
      taskPolicy: { maxRetries: 2, timeout: 60 },
    });
    const put = async (body: object): Promise<string> =>
      jsonOf<{ task_id: string }>(await platform.call('/taskqueue/deadly', { body })).task_id;
    for (const how of ['exit', 'abort', 'segfault', 'kill', 'memory']) {
      const poison = await put({ how });
      await platform.taskIs(poison, 'RETRY', WAIT_MS);
      const began = performance.now();
      await platform.taskIs(await put({}), 'COMPLETE', WAIT_MS);
      // A start with nothing in its way takes about a second; the shortest wait of a breaker is a minute.
      expect(performance.now() - began).toBeLessThan(20_000);
      await platform.taskIs(poison, 'ERROR', WAIT_MS);
      const { scaling } = await explain(platform, deployment.deploymentId);
      expect(scaling?.breaker).toMatchObject({ phase: 'closed', failures: 0 });
    }
    const text = await said(platform, 'explain', 'deadly');
    expect(text).not.toContain('in a row');
    expect(text).not.toContain('the last start that failed');
    await platform.gateway(`/deployments/${deployment.deploymentId}/stop`, {});
    await platform.noContainers(deployment, 30_000);
  });
});
