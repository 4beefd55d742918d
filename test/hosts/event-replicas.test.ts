// Live streams with several schedulers: they tell the same at each, also while schedulers die, and who dials again
// with the number of the last frame misses nothing and gets nothing twice.
/* oxlint-disable no-empty-pattern */
import { expect, onTestFinished } from 'vitest';
import { openDb } from '#scheduler/stores/store/db.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Replica, SimulatedDeployment } from '../helpers/replicas.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { tempDirectory, test as base, waitFor } from '../helpers/services.ts';
import { SseClient } from '../helpers/sse.ts';
import { echo } from '../helpers/simulated-agent.ts';
import { silent } from '../integration/store-fixture.ts';

interface World {
  readonly set: ReplicaSet;
  readonly leader: () => Promise<Replica>;
  readonly queue: SimulatedDeployment;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const set = new ReplicaSet(postgres, redis);
  onCleanup(() => set.stop());
  for (let n = 0; n < 2; n += 1) await set.add();
  await set.agent({
    handle: async (task) => {
      if (task.input.includes('"raise"')) throw Object.assign(new Error('handler raised'), { name: 'Retry' });
      return await echo(task);
    },
  });
  const leader = () => waitFor(() => set.leader(), 'somebody leads');
  const queue = await set.deploy(await leader(), 'told', { stubType: 'taskqueue/deployment', maxPendingTasks: 5000 });
  return { set, leader, queue };
});

type Json = Readonly<Record<string, unknown>>;
const put = async ({ set, queue }: World, at: Replica, body: object = {}): Promise<string> =>
  jsonOf<{ task_id: string }>(await set.call(at, queue.path, { body })).task_id;
const stream = ({ set }: World, at: Replica, query = '', headers = {}): Promise<SseClient> =>
  SseClient.open(`${at.url}/api/v1/events/${set.workspaceId}/stream?event_types=task.*&${query}`, set.token, headers);
const follow = ({ set }: World, at: Replica, taskId: string): Promise<SseClient> =>
  SseClient.open(`${at.url}/api/v1/task/${set.workspaceId}/${taskId}/subscribe`, set.token);
const statusesOf = (client: SseClient, taskId?: string): readonly unknown[] =>
  client.frames
    .map(({ data }) => JSON.parse(data) as Json)
    .filter((record) => taskId === undefined || record['task_id'] === taskId)
    .map((record) => (record['data'] as Json)['status']);

test('a task is told alike at each scheduler, with every change of its status', async ({ world }) => {
  const streams = await Promise.all(world.set.replicas.map((at) => stream(world, at)));
  const [one, other] = world.set.replicas;
  if (one === undefined || other === undefined) throw new Error('there are two');
  const taskId = await put(world, one, { n: 1 });
  const followers = await Promise.all([one, other].map((at) => follow(world, at, taskId)));
  for (const client of streams) {
    await client.has(3);
    expect(statusesOf(client, taskId)).toEqual(['PENDING', 'RUNNING', 'COMPLETE']);
  }
  expect(streams[0]?.frames).toEqual(streams[1]?.frames);
  for (const client of followers) {
    await client.over();
    expect(client.json(-1)).toMatchObject({ id: taskId, status: 'COMPLETE', result: { n: 1 } });
    expect(client.ids).toEqual([...new Set(client.ids)].toSorted((a, b) => a - b));
  }
  for (const client of streams) client.close();
});

test('a synchronous task that ended in one record is told from its creation on', async ({ world }) => {
  const { set, leader } = world;
  const at = await leader();
  const app = await set.deploy(at, 'sync', { stubType: 'endpoint/deployment' });
  const client = await stream(world, at);
  const answer = await set.call(at, app.path, { body: { n: 'x' } });
  expect(answer.status, answer.text).toBe(200);
  await waitFor(() => statusesOf(client, answer.taskId).length === 3, 'its three events');
  expect(statusesOf(client, answer.taskId)).toEqual(['PENDING', 'RUNNING', 'COMPLETE']);
  const ended = await follow(world, at, answer.taskId);
  await ended.over();
  expect(ended.json(-1)).toMatchObject({ status: 'COMPLETE', result: { n: 'x' } });
  client.close();
});

test('no call waits for events: both kinds are answered while nobody can write them, and all is told later', async ({
  world,
  postgres,
}) => {
  const { set, leader } = world;
  const at = await leader();
  const app = await set.deploy(at, 'unheld', { stubType: 'endpoint/deployment' });
  expect((await set.call(at, app.path, { body: {} })).status).toBe(200);
  const directory = tempDirectory('lock');
  const db = await openDb({ databaseUrl: postgres.url, dataDir: directory.path, log: silent });
  onTestFinished(async () => {
    await db.close();
    directory.remove();
  });
  const client = await stream(world, at);
  const tasks: string[] = [];
  await db.transaction(async (tx) => {
    await tx.query('lock table events, event_counters in access exclusive mode');
    // The transaction has a deadline, and machines may be busy.
    for (let n = 0; n < 8; n += 1) {
      const answer = await set.call(at, app.path, { body: { n } });
      expect(answer.status, answer.text).toBe(200);
      tasks.push(answer.taskId, await put(world, at, { n }));
    }
    expect(client.frames).toEqual([]);
  });
  for (const taskId of tasks)
    await waitFor(() => statusesOf(client, taskId).length === 3, `the changes of ${taskId}`, 20_000);
  client.close();
});

test('samples, lines and calls of the gateway pass to who asks for them, at each scheduler', async ({ world }) => {
  const { set, leader } = world;
  const app = await set.deploy(await leader(), 'sampled', { stubType: 'endpoint/deployment' });
  expect((await set.call(await leader(), app.path, { body: {} })).status).toBe(200);
  const [agent] = set.agents;
  const containerId = agent?.running.at(-1);
  if (agent === undefined || containerId === undefined) throw new Error('a container runs');
  const kinds = 'container.metrics,container.log,gateway.endpoint.called';
  const asks = (at: Replica, query: string): Promise<SseClient> =>
    SseClient.open(`${at.url}/api/v1/events/${set.workspaceId}/stream?event_types=${query}`, set.token);
  const clients = await Promise.all(set.replicas.map((at) => asks(at, kinds)));
  const others = await Promise.all(set.replicas.map((at) => asks(at, '*')));
  const typesOf = (client: SseClient): readonly unknown[] => client.frames.map(({ event }) => event);
  const recordOf = (client: SseClient, type: string): Json =>
    JSON.parse(client.frames.find(({ event }) => event === type)?.data ?? '{}') as Json;
  await waitFor(
    async () => {
      agent.sample({ containerId, cpuMicroseconds: 500_000, intervalMs: 1_000, memoryRssBytes: 1_048_576 });
      for (const at of set.replicas) await set.call(at, '/api/v1/gateway/pools?x=secret');
      return clients.every((client) =>
        ['container.metrics', 'gateway.endpoint.called'].every((kind) => typesOf(client).includes(kind)),
      );
    },
    'both schedulers tell samples and calls',
    30_000,
  );
  await agent.log({ containerId, line: 'a line of it' });
  for (const client of clients) {
    await waitFor(() => typesOf(client).includes('container.log'), 'the line is told');
    expect(client.frames.every(({ id }) => id === undefined)).toBe(true);
    expect(recordOf(client, 'container.metrics')).toMatchObject({
      seq_num: 0,
      container_id: containerId,
      stub_type: 'endpoint/deployment',
      data: { metrics: { sample_interval_ms: 1_000, cpu_used: 500, memory_rss_bytes: 1_048_576 } },
    });
    expect(recordOf(client, 'container.metrics')['app_id']).toMatch(/^[0-9a-f-]{36}$/);
    expect(recordOf(client, 'container.log')).toMatchObject({
      container_id: containerId,
      stream: 'stdout',
      line: 'a line of it',
      data: { stream: 'stdout', line: 'a line of it' },
    });
    const called = recordOf(client, 'gateway.endpoint.called');
    expect(called['data']).toMatchObject({ method: 'GET', path: '/api/v1/gateway/pools', status_code: 200 });
    expect(JSON.stringify(called)).not.toContain('secret');
  }
  // The line is one event, with one id at both.
  const ids = clients.map((client) => (recordOf(client, 'container.log')['cloud_event'] as Json)['id']);
  expect(ids[0]).toBe(ids[1]);
  for (const client of others)
    expect(typesOf(client).filter((type) => kinds.split(',').includes(String(type)))).toEqual([]);
  for (const client of [...clients, ...others]) client.close();
});

test('the steps of a start on its machine are told, those that are known', async ({ world }) => {
  const { set, leader } = world;
  const at = await leader();
  const client = await SseClient.open(
    `${at.url}/api/v1/events/${set.workspaceId}/stream?event_types=container.lifecycle`,
    set.token,
  );
  const app = await set.deploy(at, 'phases', { stubType: 'endpoint/deployment' });
  expect((await set.call(at, app.path, { body: {} })).status).toBe(200);
  const { stubId } = app;
  const told = (): readonly Json[] =>
    client.frames.map(({ data }) => JSON.parse(data) as Json).filter((event) => event['stub_id'] === stubId);
  await waitFor(() => told().some((event) => event['event_id'] === 'container.startup'), 'its start is told');
  expect(told().map((event) => [event['event_id'], event['parent_id'] ?? '', event['source']])).toEqual([
    ['scheduler.backlog_wait', 'container.startup', 'scheduler'],
    ['image.load', 'worker.start', 'agent'],
    ['mount.setup', 'worker.start', 'agent'],
    ['serve.ready', 'worker.start', 'agent'],
    ['worker.start', 'container.startup', 'scheduler'],
    ['container.startup', '', 'scheduler'],
  ]);
  // An explanation of the container says the same.
  const containerId = String(told()[0]?.['container_id']);
  for (const replica of set.replicas) {
    const answer = await set.call(replica, `/api/v1/explain/${set.workspaceId}/${containerId}`);
    expect(jsonOf<Json>(answer)['details']).toContainEqual(expect.stringMatching(/^its start took .*image and code/));
  }
  const [, , , ready, start] = told();
  expect(ready?.['end_time']).toBe(start?.['end_time']);
  client.close();
});

test('a cancel of a running task, and a stop by an administrator, are facts of the container', async ({ world }) => {
  const { set, leader } = world;
  const at = await leader();
  const queue = await set.deploy(at, 'cancels', { stubType: 'taskqueue/deployment' });
  const client = await SseClient.open(
    `${at.url}/api/v1/events/${set.workspaceId}/stream?event_types=container.event`,
    set.token,
  );
  const tasks = await stream(world, at);
  const taskId = await put({ ...world, queue }, at, { sleepMs: 600_000 });
  await waitFor(() => statusesOf(tasks, taskId).includes('RUNNING'), 'the task runs', 20_000);
  const cancelled = await set.call(at, '/api/v1/gateway/tasks/stop', { body: { taskIds: [taskId] } });
  expect(cancelled.status, cancelled.text).toBe(200);
  const factsOf = (): readonly Json[] =>
    client.frames.map(({ data }) => JSON.parse(data) as Json).filter((event) => event['task_id'] === taskId);
  await waitFor(() => factsOf().length === 2, 'both facts are told');
  expect(factsOf().map((event) => event['event_id'])).toEqual(['task.cancel_requested', 'task.cancel_applied']);
  expect(factsOf()[0]).toMatchObject({ container_id: expect.stringMatching(/^taskqueue-/), data: { task_id: taskId } });
  for (const one of [client, tasks]) one.close();
});

test('retries are told, each of them', async ({ world }) => {
  const { set, leader } = world;
  const at = await leader();
  const fields = { stubType: 'taskqueue/deployment', taskPolicy: { maxRetries: 1, timeout: 60 } };
  const queue = await set.deploy(at, 'fails', fields);
  const client = await stream(world, at);
  const taskId = await put({ ...world, queue }, at, { n: 'raise' });
  const wanted = ['PENDING', 'RUNNING', 'RETRY', 'RUNNING', 'ERROR'];
  await waitFor(() => statusesOf(client, taskId).length >= wanted.length, 'all its changes', 20_000);
  expect(statusesOf(client, taskId)).toEqual(wanted);
  client.close();
});

test(
  'who dials again with the last number misses nothing and gets nothing twice, through kills of both schedulers',
  { timeout: 240_000 },
  async ({ world }) => {
    const { set, leader } = world;
    const from = await stream(world, await leader(), 'tail_offset=1&wait=0');
    await from.over();
    const first = (from.ids[0] ?? 0) + 1;
    const got: number[] = [];
    const changes: string[] = [];
    let isOver = false;
    /** Reads as a browser does: dials again wherever it can, with the number of the last frame. */
    const reader = (async () => {
      for (let turn = 0; !isOver; turn += 1) {
        const order = (a: Replica, b: Replica): number => (turn % 2 === 0 ? 1 : -1) * a.name.localeCompare(b.name);
        const at = await waitFor(() => set.running.toSorted(order)[0], 'a scheduler runs', 30_000);
        const last = got.at(-1);
        const client = await stream(
          world,
          at,
          last === undefined ? `seq_num=${first}` : '',
          last === undefined ? {} : { 'last-event-id': String(last) },
        ).catch(() => undefined);
        if (client === undefined) continue;
        await waitFor(() => client.isOver || isOver, 'the stream breaks, or everything is told', 120_000);
        got.push(...client.ids);
        changes.push(
          ...client.frames.map(({ data }) => {
            const record = JSON.parse(data) as Json;
            return `${String(record['task_id'])} ${String((record['data'] as Json)['status'])}`;
          }),
        );
        client.close();
      }
    })();
    const tasks: string[] = [];
    let isLoaded = true;
    const load = (async () => {
      while (isLoaded) {
        const at = await waitFor(() => set.running[0], 'a scheduler runs', 30_000);
        const taskId = await put(world, at, { sleepMs: 20 }).catch(() => undefined);
        if (taskId !== undefined) tasks.push(taskId);
      }
    })();
    for (const which of [await leader(), set.replicas[0], set.replicas[1]]) {
      if (which === undefined) throw new Error('there are two');
      const before = tasks.length;
      await waitFor(() => tasks.length >= before + 30, 'work is done', 60_000);
      await which.daemon.kill();
      await set.start(which);
    }
    const before = tasks.length;
    await waitFor(() => tasks.length >= before + 30, 'work is done', 60_000);
    isLoaded = false;
    await load;
    const [at] = set.running;
    if (at === undefined) throw new Error('there is one');
    const history = async (): Promise<readonly Json[]> => {
      const path = `/api/v1/events/${set.workspaceId}/history?event_types=task.*&limit=50000`;
      const all = jsonOf<{ readonly events: readonly Json[] }>(await set.call(at, path)).events;
      return all.filter((event) => Number(event['seq_num']) >= first);
    };
    await waitFor(
      async () => {
        const ended = new Set(
          (await history())
            .filter((event) => (event['data'] as Json)['status'] === 'COMPLETE')
            .map((event) => event['task_id']),
        );
        return tasks.every((taskId) => ended.has(taskId));
      },
      'every task that was accepted is told to its end',
      120_000,
    );
    const last = Math.max(...(await history()).map((event) => Number(event['seq_num'])));
    const tail = await stream(world, at, `seq_num=${last}&wait=0`);
    await tail.over();
    await waitFor(() => tail.ids.includes(last), 'the end is there');
    isOver = true;
    await reader;
    const rest = await stream(world, at, 'wait=0', { 'last-event-id': String(got.at(-1)) });
    await rest.over();
    got.push(...rest.ids);
    changes.push(
      ...rest.frames.map(({ data }) => {
        const record = JSON.parse(data) as Json;
        return `${String(record['task_id'])} ${String((record['data'] as Json)['status'])}`;
      }),
    );
    expect(got).toEqual((await history()).map((event) => Number(event['seq_num'])).toSorted((a, b) => a - b));
    for (const taskId of tasks) {
      const mine = changes.filter((change) => change.startsWith(taskId)).map((change) => change.split(' ')[1]);
      expect([mine[0], mine[1], mine.at(-1)], mine.join()).toEqual(['PENDING', 'RUNNING', 'COMPLETE']);
      expect(mine.filter((status) => status === 'PENDING' || status === 'COMPLETE').length).toBeGreaterThanOrEqual(2);
      expect(mine.filter((status) => status === 'COMPLETE')).toHaveLength(1);
    }
  },
);

test(
  'a scheduler that stops ends its streams, and does not wait for their callers',
  { timeout: 60_000 },
  async ({ world }) => {
    const { set } = world;
    const [at] = set.replicas;
    if (at === undefined) throw new Error('there is one');
    const client = await stream(world, at);
    const stopped = performance.now();
    await at.daemon.stop();
    await client.over();
    // The drain lasts up to 10 s for calls; a stream is none.
    expect(performance.now() - stopped).toBeLessThan(9_000);
    await set.start(at);
  },
);
