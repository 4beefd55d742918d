// Redis away under calls. A call that a container linked here can serve goes on as before, because it knows nothing of
// Redis. A call that needs another replica waits until messages between replicas arrive again.
import { expect } from 'vitest';
import type { InstanceId } from '#shared/domain/ids.ts';
import { jsonOf } from '../helpers/platform.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { MACHINE, aTarget, PlayedLink } from './tasks-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { test } from './tasks-started.ts';
import type { Options } from './tasks-started.ts';

const isAway = (one: Process) => waitFor(() => one.client.status !== 'ready', 'it is away');

test('warm calls over HTTP are answered while Redis is away, and asynchronous tasks are accepted', async ({
  postgres,
  redis,
}) => {
  const set = new ReplicaSet(postgres, redis, postgres.url);
  try {
    const replica = await set.add();
    await set.agent();
    const app = await set.deploy(replica, 'warm');
    const puts = await set.deploy(replica, 'puts', { stubType: 'taskqueue/deployment' });
    for (const path of [app.path, puts.path]) expect((await set.call(replica, path, { body: {} })).status).toBe(200);
    await redis.crash();
    await waitFor(async () => (await set.call(replica, '/readyz')).status !== 200, 'its absence is noticed');
    for (let n = 0; n < 20; n += 1) {
      const answer = await set.call(replica, app.path, { body: { n } });
      expect([answer.status, jsonOf(answer)], answer.text).toMatchObject([200, { n }]);
    }
    const accepted = await set.call(replica, puts.path, { body: {} });
    expect(accepted.status, accepted.text).toBe(200);
    await redis.restart();
    await waitFor(async () => {
      const task = await set.call(replica, `/api/v1/task/${set.workspaceId}/${accepted.taskId}`);
      return task.status === 200 && jsonOf(task)['status'] === 'COMPLETE';
    }, 'it runs when Redis is back');
  } finally {
    await set.stop();
  }
}, 60_000);

test('a synchronous task comes, waits for its turn and ends while Redis is away, and its agent may forget it', async ({
  one,
  redis,
}) => {
  const target = aTarget();
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  await redis.crash();
  await isAway(one);
  const first = await submitted(one, target);
  const waits = await submitted(one, target);
  const order = await sent(link);
  expect(order.taskId).toBe(first.taskId);
  expect(await one.lines.placeOf(target.queue, waits.taskId)).toEqual({ kind: 'waiting', position: 1 });
  expect(await one.result(order, '{"y":1}')).toBe(true);
  expect(await first.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
  const next = await sent(link, 2);
  expect(next.taskId).toBe(waits.taskId);
  expect(await one.result(next)).toBe(true);
  expect(await waits.finished).toMatchObject({ status: 'COMPLETE' });
  expect([container.inFlight, one.lines.line.size]).toEqual([0, 0]);
  await redis.restart();
  for (const { taskId } of [first, waits]) await reaches(one, taskId, 'COMPLETE');
  expect(link.orders).toHaveLength(2);
});

test('a task that goes back while Redis is away runs when Redis is there again, once', async ({ one, redis }) => {
  const target = aTarget();
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  await redis.crash();
  await isAway(one);
  await one.reports.refused(MACHINE, order.taskId, order.token, 'busy');
  expect(container.inFlight).toBe(0);
  // An end of the task may be among the records that Redis has for the database.
  await one.peers.crossing.tick();
  expect(await one.lines.placeOf(target.queue, task.taskId)).toEqual({ kind: 'waiting', position: undefined });
  await redis.restart();
  const again = await sent(link, 2);
  expect(again.taskId).toBe(task.taskId);
  expect(await one.result(again)).toBe(true);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  expect(link.orders).toHaveLength(2);
});

test('a task that goes back while Redis is away, or gets no slot: its caller is answered at its wait limit', async ({
  one,
  redis,
}) => {
  const target = aTarget({ ttlSeconds: 1 });
  const link = new PlayedLink();
  const { containerId } = one.container(target.queue, link);
  const back = await submitted(one, target);
  const order = await sent(link);
  await redis.crash();
  await isAway(one);
  one.slots.leave(containerId);
  const waits = await submitted(one, target);
  await one.reports.refused(MACHINE, order.taskId, order.token, 'busy');
  for (const task of [back, waits])
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
  expect([one.lines.line.size, link.orders.length]).toEqual([0, 1]);
  await redis.restart();
  for (const { taskId } of [back, waits]) await reaches(one, taskId, 'TIMEOUT');
});

test('a task for whose slot another replica is needed waits until messages arrive again, and runs once', async ({
  start,
  redis,
}) => {
  const all: Process[] = [];
  const alive = (replica: InstanceId): boolean => all.some(({ instance }) => instance === replica);
  const near = await start({ alive, peers: {} });
  const capacity = () => new Map([[near.instance, { free: 1, slots: 1 }]]);
  const options: Options = { alive, peers: { capacity, present: () => [near.instance] } };
  const far = await start(options);
  all.push(near, far);
  const target = aTarget();
  const link = new PlayedLink();
  near.container(target.queue, link);
  await redis.crash();
  await isAway(far);
  const task = await submitted(far, target);
  expect(await far.lines.placeOf(target.queue, task.taskId)).toEqual({ kind: 'waiting', position: 1 });
  await redis.restart();
  await waitFor(() => near.client.status === 'ready' && far.client.status === 'ready', 'both are connected again');
  const order = await waitFor(() => {
    // The loads of the other replica, which come a few times a second, have it offered again.
    far.peers.crossing.loadsTold(near.instance);
    far.peers.crossing.offerWaiting(target.queue);
    return link.orders[0];
  }, 'it reaches the agent');
  await near.result(order, '{"y":1}');
  expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
  expect(link.orders).toHaveLength(1);
});
