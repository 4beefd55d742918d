// Rows of the failure table that concern tasks alone, on real Redis and a real database. The rows: Redis goes away
// under running work; an end and a cancel meet.
import { describe, expect } from 'vitest';
import { taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { PlayedLink } from './tasks-fixture.ts';
import { anEnd, aQueueTarget, callerOf, drained, put, test } from './tasks-world.ts';

describe('Redis down', () => {
  test('new tasks are accepted and queued later, what runs ends and is told, what waited is served: all once', async ({
    redis,
    one,
  }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const running = await put(one, target, '{"n":1}');
    const order = await sent(link);
    const waiting = await put(one, target, '{"n":2}');
    await drained(one);
    await redis.crash();
    await waitFor(() => one.client.status !== 'ready', 'its end is noticed');
    const { taskId: accepted } = await submitted(one, target, '{"n":3}');
    // The task ends while Redis cannot record the end; the handler does not notice.
    const ended = one.result(order, '{"n":1}');
    expect(link.orders).toHaveLength(1);
    await redis.restart();
    expect(await ended).toBe(true);
    await reaches(one, running, 'COMPLETE');
    // A sweep, the next slot or, as here, the wake-up of the reconnected process finds the waiting task.
    one.dispatcher.wake(target.queue);
    const next = await sent(link, 2);
    expect(next.taskId).toBe(waiting);
    expect(await one.result(next, '{"n":2}')).toBe(true);
    await reaches(one, waiting, 'COMPLETE');
    const last = await sent(link, 3);
    expect(last.taskId).toBe(accepted);
    expect(await one.result(last, '{"n":3}')).toBe(true);
    await reaches(one, accepted, 'COMPLETE');
    await drained(one);
    for (const taskId of [running, waiting, accepted])
      expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(container.inFlight).toBe(0);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 0 });
  });
});

describe('Late EndTask / cancel race', () => {
  test('the cancel first: a later EndTask changes nothing, but a COMPLETE of the last attempt', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await sent(link);
    await reaches(one, taskId, 'RUNNING');
    const caller = callerOf(target);
    expect(await one.actions.stopTasks(caller, [taskId])).toEqual({ kind: 'stopped' });
    for (const taskStatus of ['ERROR', 'TIMEOUT'])
      expect(await one.actions.endTask(caller, anEnd(taskId, { taskStatus }))).toBe('unchanged');
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    expect(await one.actions.endTask(caller, anEnd(taskId))).toBe('ended');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(await one.actions.endTask(caller, anEnd(taskId, { taskStatus: 'ERROR' }))).toBe('unchanged');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', result: '{"by":"another"}' });
  });

  test('the end first: a later cancel changes nothing', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    expect(await one.result(await sent(link), '{"y":1}')).toBe(true);
    await reaches(one, taskId, 'COMPLETE');
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', result: '{"y":1}' });
  });

  test('both at once: one of them wins, in the queue, in the record and in the database alike', async ({ one }) => {
    for (let round = 0; round < 20; round += 1) {
      const target = aQueueTarget();
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      const taskId = await put(one, target);
      const order = await sent(link);
      const cancel = () => one.actions.stopTasks(callerOf(target), [taskId]);
      const end = () => one.result(order, '{"error":"x"}', 'error');
      await Promise.all(round % 2 === 0 ? [cancel(), end()] : [end(), cancel()]);
      const record = await one.records.read(taskId);
      expect(['CANCELLED', 'ERROR']).toContain(record?.status);
      await waitFor(() => container.inFlight === 0, 'its slot is free');
      expect((await one.queues.depth(target.queue)).active).toBe(0);
      await drained(one);
      expect((await taskById(one.db, taskId))?.status).toBe(record?.status);
    }
  });
});
