// Rows of the failure table about the engine of a host: stopped, killed and hung, on simulated hosts.
import { describe, expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import type { HostsPlatform } from '../helpers/hosts.ts';
import { waitFor } from '../helpers/services.ts';

const test = testOnHosts();

/** An endpoint with one warm container, and where that is. */
async function oneWarm(fleet: HostsPlatform, name: string) {
  const deployment = await fleet.deploy({
    app: 'counted.py',
    handler: 'either',
    name,
    keepWarmSeconds: 600,
    timeout: 60,
  });
  const answer = await fleet.invoke(deployment, { key: 'first', seconds: 0 });
  expect(answer).toMatchObject({ status: 200 });
  const { container } = jsonOf<{ container: string }>(answer);
  const member = await fleet.memberOf(container);
  if (member === undefined) throw new Error('the container is nowhere');
  return { deployment, container, member };
}

describe.skipIf(whyNoHosts !== undefined)('Docker restart / hang', () => {
  test('an engine that hangs is DockerDown: nothing is reported dead, what runs serves on, nothing is placed there until it answers', async ({
    fleet,
  }) => {
    const { deployment, container, member } = await oneWarm(fleet, 'hung');
    member.host.freezeEngine();
    await waitFor(() => member.host.hasCondition('DockerDown'), 'the agent says DockerDown', 60_000);
    const queue = await fleet.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'placed',
      stubType: 'taskqueue/deployment',
      cpu: 600,
      autoscaler: { type: 'queue_depth', maxContainers: 3, tasksPerContainer: 1 },
    });
    const ids = await Promise.all(
      fleet.members.map((_member, at) => fleet.put(queue, { key: `placed-${at}`, seconds: 0, held: true })),
    );
    const others = fleet.members.filter((one) => one !== member);
    const placed = async (): Promise<readonly string[]> => {
      const found = await Promise.all(
        others.map(({ host }) => host.containers([`io.longshore.deployment=${queue.deploymentId}`])),
      );
      return found.flat().map(({ Labels }) => Labels['io.longshore.container'] ?? '');
    };
    await waitFor(async () => (await placed()).length === 2, 'the other two hosts have it', 30_000);
    const waiting = await waitFor(
      async () => {
        const views = await fleet.containerViews();
        return views.find(({ status, deploymentId }) => status === 'PENDING' && deploymentId === queue.deploymentId);
      },
      'the third has no place',
      30_000,
    );
    expect((await fleet.containerSection(waiting.containerId)).rejections).toMatchObject({ condition: 1 });
    // The warm container answers, and is thought alive.
    expect(jsonOf(await fleet.invoke(deployment, { key: 'hung', seconds: 0 }))).toMatchObject({ container, runs: 1 });
    expect((await fleet.containerSection(container)).status).toBe('RUNNING');
    member.host.thawEngine();
    await waitFor(async () => !(await member.host.hasCondition('DockerDown')), 'DockerDown is over', 30_000);
    for (const id of ids) await fleet.taskIs(id, 'RUNNING', 60_000);
    expect(jsonOf(await fleet.invoke(deployment, { key: 'after', seconds: 0 }))).toMatchObject({ container, runs: 1 });
  });

  test('an engine that is killed: its containers serve on; when it comes back and ends them that is noticed, and calls are served', async ({
    fleet,
  }) => {
    const { deployment, container, member } = await oneWarm(fleet, 'killed');
    await member.host.killEngine();
    expect(jsonOf(await fleet.invoke(deployment, { key: 'away', seconds: 0 }))).toMatchObject({ container, runs: 1 });
    expect((await fleet.containerSection(container)).status).toBe('RUNNING');
    await member.host.startEngine();
    await waitFor(async () => (await fleet.containerSection(container)).status === '', 'its end is noticed', 60_000);
    expect((await fleet.containerSection(container)).reason).toBe('engine_restarted');
    const answer = await fleet.invoke(deployment, { key: 'back', seconds: 0 });
    expect(answer).toMatchObject({ status: 200 });
    expect(jsonOf<{ container: string }>(answer).container).not.toBe(container);
  });

  test('an engine that is stopped ends its containers: no fault of theirs, and a task without retries runs again', async ({
    fleet,
  }) => {
    const queue = await fleet.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'stopped',
      stubType: 'taskqueue/deployment',
      retries: 0,
      autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 1 },
    });
    const id = await fleet.put(queue, { key: 'stopped', seconds: 0, held: true });
    const { container_id: first } = await fleet.taskIs(id, 'RUNNING', 60_000);
    const member = await fleet.memberOf(first);
    await member?.host.stopEngine();
    await member?.host.startEngine();
    const again = await waitFor(
      async () => {
        const task = await fleet.task(id);
        return task.status === 'RUNNING' && task.container_id !== first && task;
      },
      'it runs again',
      60_000,
    );
    // An engine that stops may still answer, and ends the container's network first.
    expect(['engine_restarted', 'killed', 'lost']).toContain((await fleet.containerSection(first)).reason);
    await fleet.exec(again.container_id, 'touch /tmp/go-stopped');
    await fleet.taskIs(id, 'COMPLETE', 30_000);
  });
});
