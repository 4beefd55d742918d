// Rows of the failure table about one container on a host. The rows: out of memory, too many lines, a process that
// cannot be killed, a machine that is deleted under it.
import { describe, expect, onTestFinished } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import type { HostsPlatform } from '../helpers/hosts.ts';
import { waitFor } from '../helpers/services.ts';

const test = testOnHosts({
  count: 1,
  settings: { LONGSHORE_RESTART_GRACE_SECONDS: '0' },
  agentSettings: () => ({ LONGSHORE_AGENT_CPU: '1', LONGSHORE_AGENT_MEMORY: '2048' }),
});

const onlyMember = (fleet: HostsPlatform) => {
  const [member] = fleet.members;
  if (member === undefined) throw new Error('there is no host');
  return member;
};

describe.skipIf(whyNoHosts !== undefined)('on a simulated host', () => {
  test('OOM: the reason is oom, it is the user’s, and nothing is tried again', async ({ fleet }) => {
    const queue = await fleet.deploy({
      app: 'failing.py',
      handler: 'eats_memory',
      name: 'oom',
      stubType: 'taskqueue/deployment',
      retries: 0,
    });
    const id = await fleet.put(queue, {});
    const task = await fleet.taskIs(id, 'ERROR', 60_000);
    expect(task.result).toEqual({ error: 'process ran out of memory' });
    expect((await fleet.containerSection(task.container_id)).reason).toBe('oom');
    const explained = await fleet.explain(id);
    expect(explained.task).toMatchObject({ losses: 0, retries_used: 0 });
    expect(explained.task?.attempts).toHaveLength(1);
  });

  test('Log flood / slow sink: lines are dropped with a marker, and the container does not notice, though the scheduler takes none', async ({
    fleet,
  }) => {
    const queue = await fleet.deploy({
      app: 'failing.py',
      handler: 'floods',
      name: 'flood',
      stubType: 'taskqueue/deployment',
      keepWarmSeconds: 60,
    });
    const id = await fleet.put(queue, { lines: 50_000 });
    const { container_id: container } = await fleet.taskIs(id, 'RUNNING', 60_000);
    onTestFinished(() => fleet.scheduler.thaw());
    fleet.scheduler.freeze();
    // The task ends while the scheduler takes none of its lines.
    await fleet.exec(
      container,
      'touch /tmp/go-flood; for i in $(seq 400); do test -e /tmp/flooded && exit 0; sleep 0.05; done; exit 1',
    );
    fleet.scheduler.thaw();
    const task = await fleet.taskIs(id, 'COMPLETE', 60_000);
    // The task printed as fast as it could: nothing held it back.
    expect((task.result as { seconds: number }).seconds).toBeLessThan(10);
    await fleet.logSays(`container_id=${container}`, 'lines dropped]');
    const again = await fleet.put(queue, { lines: 1, held: false });
    expect(await fleet.taskIs(again, 'COMPLETE', 30_000)).toMatchObject({ container_id: container });
    // Lines behind the flood are whole.
    await fleet.logSays(`task_id=${again}`, 'flood 0 x');
  });

  test('Unkillable container: Stuck; what it holds stays held until it is gone, and then it is free again', async ({
    fleet,
  }) => {
    const member = onlyMember(fleet);
    const deployment = await fleet.deploy({
      app: 'counted.py',
      handler: 'either',
      name: 'stuck',
      cpu: 600,
      keepWarmSeconds: 600,
    });
    expect(await fleet.invoke(deployment, { key: 'first', seconds: 0 })).toMatchObject({ status: 200 });
    const [container] = await fleet.containers(deployment);
    const thaw = member.host.freezeProcesses(container?.Id ?? '');
    onTestFinished(thaw);
    await fleet.gateway(`/deployments/${deployment.deploymentId}/stop`, {});
    await waitFor(() => member.host.hasCondition('StuckContainer'), 'the agent says StuckContainer', 150_000);
    // The next container needs more than the stuck one leaves free.
    const next = await fleet.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'next',
      cpu: 600,
      stubType: 'taskqueue/deployment',
    });
    const id = await fleet.put(next, { key: 'next', seconds: 0 });
    const waiting = await waitFor(
      async () => (await fleet.containerViews()).find(({ deploymentId }) => deploymentId === next.deploymentId),
      'a container waits',
    );
    await waitFor(
      async () => ((await fleet.containerSection(waiting.containerId)).rejections['cpu'] ?? 0) === 1,
      'for the cores that the stuck one holds',
      20_000,
    );
    expect((await fleet.containers(deployment)).map(({ Id }) => Id)).toEqual([container?.Id]);
    thaw();
    await fleet.taskIs(id, 'COMPLETE', 120_000);
    await fleet.noContainers(deployment, 30_000);
    await waitFor(async () => !(await member.host.hasCondition('StuckContainer')), 'StuckContainer is over', 60_000);
  }, 400_000);

  test('Drain past deadline: what the container has is handed back at once, though it does not end; blockedBy says what is waited for; after an uncordon the task runs again, its retries untouched', async ({
    fleet,
  }) => {
    const member = onlyMember(fleet);
    const queue = await fleet.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'drained',
      // The size lets two of these containers fit.
      cpu: 300,
      stubType: 'taskqueue/deployment',
      retries: 0,
      autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 1 },
    });
    const id = await fleet.put(queue, { key: 'drained', seconds: 0, held: true });
    const { container_id: first } = await fleet.taskIs(id, 'RUNNING', 60_000);
    const [frozen] = await fleet.containers(queue);
    const thaw = member.host.freezeProcesses(frozen?.Id ?? '');
    onTestFinished(thaw);
    await fleet.gateway(`/workers/${member.machineId()}/drain`, { deadlineSeconds: 1 });
    await fleet.taskIs(id, 'PENDING', 60_000);
    const drain = async () => (await fleet.worker(member))?.drain;
    expect(await drain()).toMatchObject({
      total: 1,
      remaining: 1,
      blockedBy: [{ containerId: first, why: 'stopping', attempts: 1 }],
    });
    await fleet.gateway(`/workers/${member.machineId()}/uncordon`, {});
    expect(await drain()).toBeNull();
    const again = await waitFor(
      async () => {
        const task = await fleet.task(id);
        return task.status === 'RUNNING' && task.container_id !== first && task;
      },
      'it runs again, beside the container that does not end',
      60_000,
    );
    expect((await fleet.containers(queue)).map(({ Id }) => Id)).toContain(frozen?.Id);
    expect((await fleet.explain(id)).task).toMatchObject({ losses: 1, retries_used: 0 });
    // The first attempt can end now; its result, if any, counts no more.
    await fleet.exec(first, 'touch /tmp/go-drained').catch(() => undefined);
    thaw();
    await waitFor(
      async () => (await fleet.containers(queue)).every(({ Id }) => Id !== frozen?.Id),
      'the first container is gone',
      150_000,
    );
    expect(await fleet.task(id)).toMatchObject({ status: 'RUNNING', container_id: again.container_id });
    await fleet.exec(again.container_id, 'touch /tmp/go-drained');
    expect(await fleet.taskIs(id, 'COMPLETE', 30_000)).toMatchObject({ container_id: again.container_id });
  }, 400_000);

  test('DeleteMachine with work: refused, and the work goes on', async ({ fleet }) => {
    const member = onlyMember(fleet);
    const queue = await fleet.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'deleted',
      stubType: 'taskqueue/deployment',
    });
    const id = await fleet.put(queue, { key: 'deleted', seconds: 0, held: true });
    const { container_id: container } = await fleet.taskIs(id, 'RUNNING', 60_000);
    const answer = await fleet.call(`/api/v1/gateway/machines/${member.machineId()}`, { method: 'DELETE' });
    expect(jsonOf(answer)).toEqual({ ok: false, errMsg: 'machine must be drained before deletion: drain it first' });
    expect(await fleet.inHealth('READY')).toBe(1);
    await fleet.exec(container, 'touch /tmp/go-deleted');
    expect(await fleet.taskIs(id, 'COMPLETE', 30_000)).toMatchObject({ container_id: container });
  });
});
