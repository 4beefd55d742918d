// Synchronous calls with the local queue off. Every call is a job of its BullMQ queue: in order, within its bound, run
// once, answered. The same holds beside a replica that has the local queue on.
import { expect } from 'vitest';
import type { InstanceId } from '#shared/domain/ids.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Options } from './tasks-started.ts';
import { inLocalQueue, jobs, test } from './local-queue-fixture.ts';
import { aTarget, PlayedLink } from './tasks-fixture.ts';

const OFF: Options = { localQueue: false };

test('a warm call is a job, its caller is answered, and nothing is left of it', async ({ start }) => {
  const one = await start({ ...OFF, isAlone: true });
  const target = aTarget();
  const link = new PlayedLink();
  one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  expect(await inLocalQueue(one, target.queue)).toEqual([]);
  expect(await jobs(one, target.queue)).toBe(1);
  expect(await one.queues.placeOf(target.queue, task.taskId)).toEqual({ kind: 'active' });
  expect(await one.leases.isHeld(task.taskId)).toBe(true);
  await one.result(order, '{"y":1}');
  expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
  await reaches(one, task.taskId, 'COMPLETE');
  expect(await jobs(one, target.queue)).toBe(0);
  expect(await one.leases.isHeld(task.taskId)).toBe(false);
});

test('a call whose add timed out is refused, and its job leaves the queue again', async ({ start, redis }) => {
  const one = await start(OFF);
  const target = aTarget();
  await one.queues.open(target.queue);
  redis.freeze();
  try {
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ reason: 'queue_silent' });
  } finally {
    redis.thaw();
  }
  // The add that timed out did run: BullMQ counted it.
  await waitFor(async () => (await one.client.get(`ls:${target.queue}:id`)) === '1', 'the add ran');
  await waitFor(async () => (await jobs(one, target.queue)) === 0, 'the job is gone');
});

test('calls run in the order in which they came, up to their bound', async ({ start }) => {
  const one = await start(OFF);
  const target = aTarget({ maxPendingTasks: 3 });
  const link = new PlayedLink();
  one.container(target.queue, link);
  const tasks = [await submitted(one, target), await submitted(one, target), await submitted(one, target)];
  expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ kind: 'queue_full' });
  for (const [at, task] of tasks.entries()) {
    const order = await sent(link, at + 1);
    expect(order.taskId).toBe(task.taskId);
    await one.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  }
});

test('one that its agent gives back comes first again; one whose container dies is not run twice', async ({
  start,
}) => {
  const one = await start({ ...OFF, graces: { reportMs: 10 } });
  const target = aTarget();
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  const tasks = [await submitted(one, target), await submitted(one, target)];
  const first = await sent(link);
  await one.reports.refused(first.taskId, first.token, 'busy');
  const again = await sent(link, 2);
  expect(again.taskId).toBe(tasks[0]?.taskId);
  one.slots.leave(container.containerId);
  await one.reports.containerGone(container.containerId);
  expect(seenByCaller(await tasks[0]?.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
  one.slots.remove(container.containerId);
  const next = new PlayedLink();
  one.container(target.queue, next);
  const other = await sent(next);
  expect(other.taskId).toBe(tasks[1]?.taskId);
  await one.result(other);
  expect(next.orders).toHaveLength(1);
});

test('a replica that has it off receives no task from one that has it on: the task comes as a job, and runs once', async ({
  start,
}) => {
  const off = await start({ ...OFF, forwardTo: () => undefined });
  const on = await start({
    isOursAlone: () => false,
    forwardTo: (_queue, forwardedTo: (one: InstanceId) => number) =>
      forwardedTo(off.instance) < 5 ? off.instance : undefined,
    silentMs: 60_000,
  });
  const target = aTarget();
  const link = new PlayedLink();
  off.container(target.queue, link);
  const task = await submitted(on, target);
  await waitFor(async () => (await jobs(on, target.queue)) === 1, 'it moved to the queue');
  off.dispatcher.wake(target.queue);
  const order = await sent(link);
  expect(order.taskId).toBe(task.taskId);
  await off.result(order);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  await waitFor(async () => (await inLocalQueue(on, target.queue)).length === 0, 'nothing is left');
  expect(link.orders).toHaveLength(1);
});
