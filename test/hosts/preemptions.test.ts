/**
 * Containers that end for those of another workspace, on a real agent and engine: tasks save their work during the
 * notice and go on elsewhere, and the other workspace has its place soon after it.
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { expect } from 'vitest';
import { Platform, jsonOf, test as base } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import { docker, waitFor } from '../helpers/services.ts';

const NOTICE_SECONDS = 10;
const RUNS = ['a', 'b', 'c'];
const WAIT_MS = 120_000;

const test = base.extend('platform', { scope: 'file' }, async ({}, { onCleanup }): Promise<Platform> => {
  const platform = new Platform(await docker(), (daemon) =>
    daemon === 'agent'
      ? {}
      : {
          LONGSHORE_RESTART_GRACE_SECONDS: '0',
          LONGSHORE_RECLAIM_AFTER: '0',
          LONGSHORE_RECLAIM_NOTICE: String(NOTICE_SECONDS),
          LONGSHORE_RECLAIM_MIN_RUN: '0',
        },
  );
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});

/** CPU of a container, of which three fit on the machine, and no fourth one. */
async function aQuarterAndMore(platform: Platform): Promise<number> {
  const { workers } = await waitFor(async () => {
    const found = await platform.gateway<{ workers: readonly { totalCpu: number; status: string }[] }>('/workers');
    return found.workers[0]?.status === 'available' && found;
  }, 'the machine is ready');
  return Math.floor(Number(workers[0]?.totalCpu) * 0.3);
}

const running = async (platform: Platform, deployment: Deployment): Promise<number> =>
  (await platform.containers(deployment)).filter((one) => one.State === 'running').length;

async function seconds(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return (performance.now() - from) / 1000;
}

test('a workspace gets what is guaranteed to it soon after the notice, and the task that made room goes on where it was', async ({
  platform,
}) => {
  const cpu = await aQuarterAndMore(platform);
  const tasks = await platform.deploy({
    app: 'training.py',
    handler: 'train',
    stubType: 'taskqueue/deployment',
    cpu,
    retries: 0,
    timeout: 0,
    extra: JSON.stringify({ interruptible: true }),
    autoscaler: { type: 'queue_depth', minContainers: 0, maxContainers: RUNS.length, tasksPerContainer: 1 },
  });
  const taskIds: string[] = [];
  for (const run of RUNS) taskIds.push(jsonOf<{ task_id: string }>(await platform.invoke(tasks, { run })).task_id);
  for (const taskId of taskIds) await platform.logSays(`task_id=${taskId}`, 'begins with step 0');

  const made = await platform.call('/api/v1/workspace', { body: { name: 'claims' } });
  const { id, token } = jsonOf<{ id: string; token: string }>(made);
  const share = await platform.call(`/api/v1/workspace/${id}/share`, {
    method: 'PUT',
    body: { guaranteed: { cpu: Math.ceil(cpu / 1000) } },
  });
  expect(share.status).toBe(200);

  const admin = platform.token;
  platform.token = token;
  const claims = await platform.deploy({
    app: 'training.py',
    handler: 'idle',
    cpu,
    autoscaler: { type: 'queue_depth', minContainers: 1, maxContainers: 1 },
  });
  const reclaimed = await seconds(() =>
    waitFor(async () => (await running(platform, claims)) === 1, 'the claim has its place', WAIT_MS),
  );
  const stopped = await seconds(async () => {
    await platform.gateway(`/deployments/${claims.deploymentId}/stop`, {});
    await platform.noContainers(claims, WAIT_MS);
  });
  platform.token = admin;
  const plain = NOTICE_SECONDS + stopped;
  process.stdout.write(
    `reclaim took ${reclaimed.toFixed(1)} s: ${(reclaimed / plain).toFixed(2)} times the notice of ${NOTICE_SECONDS} s and a plain stop of ${stopped.toFixed(1)} s\n`,
  );

  const over = await platform.call(`/api/v1/map/${platform.workspaceId}/entry`, {
    method: 'PUT',
    body: { name: 'saved', key: 'over', encoding: 'json', value: 'true', ttl_seconds: 600 },
  });
  expect(over.status).toBe(200);
  const ends: number[] = [];
  for (const taskId of taskIds) {
    const { result } = await platform.taskIs(taskId, 'COMPLETE', WAIT_MS);
    ends.push((result as { first: number }).first);
  }
  // The task of the container that ended had saved its steps, and began with them.
  expect(ends.filter((first) => first > 0)).toHaveLength(1);
  expect(ends.filter((first) => first === 0)).toHaveLength(RUNS.length - 1);
});

test('an operator has a container leave: its task goes on elsewhere, and a call ends where he says so', async ({
  platform,
}) => {
  const calls = await platform.deploy({ app: 'counted.py', handler: 'handler', name: 'held', keepWarmSeconds: 60 });
  const held = platform.invoke(calls, { key: 'held', held: true });
  const id = await waitFor(async () => (await platform.containerIds(calls))[0], 'it has a container', WAIT_MS);
  await waitFor(async () => (await platform.tasks(calls)).some(({ status }) => status === 'RUNNING'), 'it is called');
  const preempt = (said: object) => platform.call(`/api/v1/container/${id}/preempt`, { body: said });
  expect((await preempt({ end_calls: 'yes' })).status).toBe(422);
  const answer = await preempt({ end_calls: true });
  expect(jsonOf(answer)).toMatchObject({ container_id: id, notice_seconds: NOTICE_SECONDS, ends_calls: true });
  expect((await preempt({})).status).toBe(409);
  // The next call has another container while the first one is still held.
  const next = jsonOf<{ container: string }>(await platform.invoke(calls, { key: 'next', seconds: 0 }));
  expect(next.container).not.toBe(id);
  expect((await held).status).toBe(502);
  const trail = await platform.call(
    `/api/v1/events/${platform.workspaceId}/history?event_types=audit.container.preempted`,
  );
  const [entry] = jsonOf<{ events: readonly { data: object }[] }>(trail).events;
  expect(entry?.data).toMatchObject({ target: { type: 'container', id }, attrs: { end_calls: true } });
  const explained = await platform.call(`/api/v1/explain/${platform.workspaceId}/${id}`);
  expect(explained.text).toContain('an administrator had it leave');
});
