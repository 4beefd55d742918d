// Two machines, their agents on one engine: one of them is drained while clients call the containers on it.
import { join } from 'node:path';
import { afterAll, describe, expect } from 'vitest';
import { Daemon, MAIN, jsonOf, plainEnv, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { runProgram, waitFor } from '../helpers/services.ts';

const CLIENTS = 10;

interface Worker {
  readonly id: string;
  readonly status: string;
  readonly activeContainers: readonly { readonly containerId: string; readonly status: string }[];
  readonly drain: { readonly total: number; readonly remaining: number } | null;
}

const workers = async (platform: Platform): Promise<readonly Worker[]> =>
  (await platform.gateway<{ workers: readonly Worker[] }>('/workers')).workers;
const worker = async (platform: Platform, id: string): Promise<Worker> => {
  const found = (await workers(platform)).find((one) => one.id === id);
  if (found === undefined) throw new Error(`there is no worker ${id}`);
  return found;
};

/** Containers that take tasks, on all machines at one moment. */
async function servingNow(platform: Platform): Promise<number> {
  const containers = (await workers(platform)).flatMap((one) => one.activeContainers);
  return containers.filter((one) => one.status === 'RUNNING').length;
}

/** A machine beside the installation's own. */
async function aMachine(platform: Platform, name: string): Promise<{ readonly agent: Daemon; readonly id: string }> {
  const made = await platform.gateway<{ machine: { id: string }; agentUpstreamToken: string }>('/machines', {
    poolName: 'default',
  });
  const agent = new Daemon('agent', join(platform.directory, `${name}.log`), () => ({
    ...platform.env(),
    LONGSHORE_DATA_DIR: join(platform.directory, name),
    LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
    LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
    LONGSHORE_AGENT_NETWORK: `${platform.network}-${name}`,
    LONGSHORE_JOIN_TOKEN: made.agentUpstreamToken,
  }));
  await agent.start();
  return { agent, id: made.machine.id };
}

/** Calls in a row until `going` is false; collects the answers other than 200, and the containers that served. */
function aClient(platform: Platform, deployment: Deployment, number: number, going: () => boolean) {
  const served = { calls: 0, wrong: [] as string[], containers: new Set<string>() };
  const done = (async () => {
    while (going()) {
      const answer = await platform.invoke(deployment, { key: `c${number}-${served.calls}`, seconds: 0.1 });
      served.calls += 1;
      if (answer.status === 200) served.containers.add(jsonOf<{ container: string }>(answer).container);
      else served.wrong.push(`${answer.status} ${answer.text}`);
    }
  })();
  return { served, done };
}

describe('a drain', () => {
  let second: Awaited<ReturnType<typeof aMachine>> | undefined;
  let stopSecond = (): Promise<void> => Promise.resolve();
  afterAll(() => stopSecond());

  test('of a busy worker loses no request: 10 clients keep calling while its two containers move', async ({
    platform,
  }) => {
    const first = platform.machineId() ?? '';
    const deployment = await platform.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'busy',
      keepWarmSeconds: 60,
      concurrentRequests: CLIENTS,
      autoscaler: { type: 'queue_depth', minContainers: 2, maxContainers: 2, tasksPerContainer: 5 },
    });
    await waitFor(
      async () => (await platform.containers(deployment)).filter((one) => one.State === 'running').length === 2,
      'two containers run',
      60_000,
    );
    second = await aMachine(platform, 'second');
    const { agent, id } = second;
    stopSecond = () => agent.stop({ kind: 'stop', containers: 'stop' });
    await waitFor(
      async () => (await worker(platform, id)).status === 'available',
      'the second machine is ready',
      30_000,
    );
    const before = (await worker(platform, first)).activeContainers.map((one) => one.containerId);
    expect(before).toHaveLength(2);

    let going = true;
    const clients = Array.from({ length: CLIENTS }, (_, number) => aClient(platform, deployment, number, () => going));
    const served = (): number => clients.reduce((sum, client) => sum + client.served.calls, 0);
    await waitFor(() => served() >= 2 * CLIENTS, 'the clients are served', 60_000);
    const env = { ...plainEnv(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
    const draining = runProgram(process.execPath, [MAIN, 'worker', 'drain', first, '--wait'], { env }, 90_000);
    // The deployment needs both containers all the time: one leaves only when another serves in its place.
    let isOver = false;
    let fewest = Infinity;
    const watching = (async () => {
      while (!isOver) fewest = Math.min(fewest, await servingNow(platform));
    })();
    const told = await draining.finally(() => (isOver = true));
    await watching;
    expect(fewest).toBe(2);
    // Clients are served by the new containers, too.
    const drainedAfter = served();
    await waitFor(() => served() >= drainedAfter + 2 * CLIENTS, 'the clients are served on', 60_000);
    going = false;
    await Promise.all(clients.map(({ done }) => done));

    expect(clients.flatMap((client) => client.served.wrong)).toEqual([]);
    expect(told).toMatch(/of 2 containers left: .*wait for a replacement/);
    expect(told).toContain(`worker ${first} is drained: nothing runs there`);
    expect(await worker(platform, first)).toMatchObject({
      status: 'disabled',
      activeContainers: [],
      drain: { total: 2, remaining: 0 },
    });
    const after = (await worker(platform, id)).activeContainers.map((one) => one.containerId);
    expect(after).toHaveLength(2);
    const servedBy = new Set(clients.flatMap((client) => [...client.served.containers]));
    for (const container of [...before, ...after]) expect(servedBy).toContain(container);
    // The deployment keeps two containers wherever they may run, so the second machine could not be emptied.
    await platform.call(`/api/v1/gateway/deployments/${deployment.deploymentId}`, { method: 'DELETE' });
  });

  test('keeps its end over a restart of the scheduler, and an uncordon takes it back', async ({ platform }) => {
    second ??= await aMachine(platform, 'second');
    const { agent, id } = second;
    stopSecond = () => agent.stop({ kind: 'stop', containers: 'stop' });
    await platform.gateway(`/workers/${platform.machineId()}/cordon`, {});
    // Nothing can move: the other machine is drained. The serving
    // container drains without a replacement, and its task runs on.
    const deployment = await platform.deploy({
      app: 'counted.py',
      handler: 'handler',
      name: 'held',
      keepWarmSeconds: 60,
    });
    const call = platform.invoke(deployment, { key: 'held', seconds: 0, held: true });
    const isHeld = async (): Promise<string | undefined> =>
      (await platform.tasks(deployment)).find((task) => task.status === 'RUNNING')?.id;
    await waitFor(isHeld, 'a task runs', 60_000);
    await platform.gateway(`/workers/${id}/drain`, { deadlineSeconds: 3600 });
    const deadline = async (): Promise<unknown> =>
      ((await worker(platform, id)) as unknown as { drain: { deadline: string } | null }).drain?.deadline;
    const said = await deadline();
    expect(Date.parse(String(said)) - Date.now()).toBeGreaterThan(3_000_000);
    call.catch(() => undefined);
    await platform.scheduler.kill();
    await platform.startScheduler();
    await waitFor(async () => (await deadline()) === said, 'the same deadline', 30_000);
    await platform.gateway(`/workers/${id}/uncordon`, {});
    await waitFor(async () => (await worker(platform, id)).status === 'available', 'it is back', 30_000);
    expect((await worker(platform, id)).drain).toBeNull();
    // Deleting needs a drain, or force, which stops the machine's containers at once.
    const refused = await platform.call(`/api/v1/gateway/machines/${id}`, { method: 'DELETE' });
    expect(jsonOf(refused)).toMatchObject({
      ok: false,
      errMsg: 'machine must be drained before deletion: drain it first',
    });
    const forced = await platform.call(`/api/v1/gateway/machines/${id}?force=true`, { method: 'DELETE' });
    expect(jsonOf(forced)).toMatchObject({ ok: true });
    await waitFor(async () => !(await workers(platform)).some((one) => one.id === id), 'the machine is gone', 90_000);
  });
});
