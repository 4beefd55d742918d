// Redis away for longer than the retries of an end. Callers are answered. When Redis is back, nothing of ended tasks
// stays in a local queue, waiting tasks run once, and the depth is exact.
import { expect } from 'vitest';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Options } from './tasks-started.ts';
import { inLocalQueue, test } from './local-queue-fixture.ts';
import { aTarget, PlayedLink } from './tasks-fixture.ts';

/** Shorter graces, in place of half a minute. */
const SHORT: Options = { graces: { againMs: 10, endMs: 60, reportMs: 100, restartedAgentMs: 200 } };
const connected = (one: { client: { status: string } }) =>
  waitFor(() => one.client.status === 'ready', 'it is connected again');

test('a synchronous task that ends while Redis is away leaves no entry behind', async ({ start, redis }) => {
  const one = await start(SHORT);
  const target = aTarget();
  const link = new PlayedLink();
  one.container(target.queue, link);
  const ended = await submitted(one, target);
  const order = await sent(link);
  const waits = await submitted(one, target);
  await redis.crash();
  await waitFor(() => one.client.status !== 'ready', 'it is away');
  // The end was not written: the caller has the result, and the agent keeps it.
  expect(await one.result(order, '{"y":1}')).toBe(false);
  expect(await ended.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
  await redis.restart();
  await connected(one);
  await one.redisLost();
  await one.queues.reopenAll();
  await reaches(one, ended.taskId, 'COMPLETE');
  const next = await sent(link, 2);
  expect(next.taskId).toBe(waits.taskId);
  expect(await inLocalQueue(one, target.queue)).toEqual([waits.taskId]);
  expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
  // The agent repeats the result.
  expect(await one.result(order, '{"y":1}')).toBe(true);
  await one.result(next);
  expect(await waits.finished).toMatchObject({ status: 'COMPLETE' });
  await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'nothing is left');
  expect(one.queues.has(ended.taskId)).toBe(false);
  expect(link.orders).toHaveLength(2);
});

test('a task that goes back while Redis is away: its caller is answered at its wait limit', async ({
  start,
  redis,
}) => {
  const one = await start(SHORT);
  const target = aTarget({ ttlSeconds: 1 });
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  await redis.crash();
  await waitFor(() => one.client.status !== 'ready', 'it is away');
  await one.reports.refused(order.taskId, order.token, 'busy');
  await waitFor(() => container.inFlight === 0, 'its slot is free');
  expect(seenByCaller(await task.finished)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
  await redis.restart();
  await connected(one);
  await one.redisLost();
  await one.queues.reopenAll();
  await reaches(one, task.taskId, 'TIMEOUT');
  await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'nothing is left');
  expect(link.orders).toHaveLength(1);
});

test('a task that goes back while Redis is away runs when Redis is there again, once', async ({ start, redis }) => {
  const one = await start(SHORT);
  const target = aTarget();
  const link = new PlayedLink();
  one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  await redis.crash();
  await waitFor(() => one.client.status !== 'ready', 'it is away');
  await one.reports.refused(order.taskId, order.token, 'busy');
  await redis.restart();
  const again = await sent(link, 2);
  expect(again.taskId).toBe(task.taskId);
  // Tries that found Redis away have numbers, too, and left no order.
  expect((await one.leases.read(task.taskId))?.attempt).toBeGreaterThanOrEqual(2);
  await one.result(again);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'nothing is left');
  expect(link.orders).toHaveLength(2);
});
