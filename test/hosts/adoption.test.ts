// Twenty tasks in the middle of their handlers while the scheduler is killed, and a handler that ignores its stop.
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const TASKS = 20;

/** Runs a shell command in the deployment's one container. */
async function inContainer(platform: Platform, deployment: Deployment, command: string): Promise<void> {
  const [container] = await platform.containers(deployment);
  const exec = await platform.engine.client.getContainer(container?.Id ?? '').exec({ Cmd: ['sh', '-c', command] });
  const stream = await exec.start({});
  stream.resume();
  // An exec that has not started yet does not run either, and has no exit code.
  const code = await waitFor(async () => (await exec.inspect()).ExitCode ?? undefined, `${command} ends`, 60_000);
  expect(code).toBe(0);
}

const keys = Array.from({ length: TASKS }, (_value, index) => `k${index}`);
const touch = (some: readonly string[]): string => some.map((key) => `touch /tmp/go-${key}`).join(' && ');

describe('a scheduler that was killed in the middle of 20 tasks', () => {
  test('adopts them: the same attempts, one run each, all COMPLETE', async ({ platform }) => {
    const deployment = await platform.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'twenty',
      stubType: 'taskqueue/deployment',
      concurrentRequests: TASKS,
      keepWarmSeconds: 120,
      timeout: 300,
      retries: 3,
      autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: TASKS },
    });
    const ids: string[] = [];
    for (const key of keys) {
      const answer = await platform.invoke(deployment, { key, seconds: 0, held: true });
      expect(answer).toMatchObject({ status: 200 });
      ids.push(answer.taskId === '' ? String(jsonOf<{ task_id: string }>(answer).task_id) : answer.taskId);
    }
    for (const id of ids) await platform.taskIs(id, 'RUNNING', 60_000);
    await inContainer(
      platform,
      deployment,
      `for key in ${keys.join(' ')}; do for i in $(seq 400); do test -e /tmp/ran-$key && break; sleep 0.05; done; test -e /tmp/ran-$key || exit 1; done`,
    );
    const redis = platform.redis();
    const locks = (): Promise<(string | null)[]> =>
      redis.mget(ids.map((id) => `ls:tq-${deployment.deploymentId}:${id}:lock`));
    const before = await locks();
    expect(before.every((lock) => typeof lock === 'string')).toBe(true);
    const [container] = await platform.containerIds(deployment);

    await platform.scheduler.kill();
    // Some tasks end while no scheduler listens.
    await inContainer(platform, deployment, touch(keys.slice(0, 5)));
    await platform.startScheduler();
    for (const id of ids.slice(0, 5)) await platform.taskIs(id, 'COMPLETE', 60_000);
    for (const id of ids.slice(5)) {
      expect(await platform.taskIs(id, 'RUNNING', 30_000)).toMatchObject({ container_id: container });
    }
    // The same lock still holds each task, so the attempt is the same.
    expect((await locks()).slice(5)).toEqual(before.slice(5));
    await inContainer(platform, deployment, touch(keys.slice(5)));
    for (const [index, id] of ids.entries()) {
      const task = await platform.taskIs(id, 'COMPLETE', 60_000);
      expect(task.result).toEqual({ runs: 1, container, key: keys[index] });
    }
    expect(await platform.containerIds(deployment)).toEqual([container]);
  });
});

describe('a handler that does not let itself be stopped', () => {
  test('its task is CANCELLED at once, and the container killed in its stead serves nobody any more', async ({
    platform,
  }) => {
    const deployment = await platform.deploy({
      app: 'stubborn.py',
      handler: 'handler',
      name: 'stubborn',
      stubType: 'taskqueue/deployment',
      keepWarmSeconds: 120,
      timeout: 600,
      autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 10 },
    });
    const idOf = async (input: object): Promise<string> =>
      String(jsonOf<{ task_id: string }>(await platform.invoke(deployment, input)).task_id);
    const stuck = await idOf({ seconds: 500 });
    const { container_id: first } = await platform.taskIs(stuck, 'RUNNING', 60_000);
    const next = await idOf({ seconds: 0 });
    const stopped = await platform.gateway('/tasks/stop', { taskIds: [stuck] });
    expect(stopped).toMatchObject({ ok: true });
    expect(await platform.task(stuck)).toMatchObject({ status: 'CANCELLED' });
    // The slot is not free: the handler ignored the signal, and its process is killed ten seconds later.
    const served = await platform.taskIs(next, 'COMPLETE', 120_000);
    expect(served.container_id).not.toBe(first);
    expect(await platform.task(stuck)).toMatchObject({ status: 'CANCELLED' });
  });
});
