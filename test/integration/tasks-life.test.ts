// What may become of a task and what may not, on real Redis and a real database: late results, poisoned tasks, budgets that outlive the queue, refused changes.
import { describe, expect } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { parseTaskJob } from '#scheduler/queues/jobs.ts';
import { acceptedJobOf, taskById } from '#scheduler/store/queries/tasks.ts';
import { Changes } from '#scheduler/tasks/changes.ts';
import { TaskMetrics } from '#scheduler/tasks/metrics.ts';
import { recordOf } from '#scheduler/tasks/recording.ts';
import { waitFor } from '../helpers/services.ts';
import type { Process } from './tasks-fixture.ts';
import { MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, age, callerOf, drained, put, reaches, sent, test } from './tasks-world.ts';

/** It is gone, and nobody had told it to stop. */
async function die(one: Process, containerId: ContainerId): Promise<void> {
  one.slots.remove(containerId);
  await one.tasks.containerGone(containerId);
}

describe('a result that comes after the end', () => {
  test('of a cancelled attempt: COMPLETE counts, also in the database, and then nothing does any more', async ({
    one,
  }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.actions.stopTasks(callerOf(target), [taskId]);
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    expect(await one.result(order, '{"late":1}')).toBe(true);
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1, result: '{"late":1}' });
    expect(await one.result(order, '{"late":2}')).toBe(true);
    await drained(one);
    expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE', result: '{"late":1}', rank: 4 });
  });

  test('of any other outcome changes nothing', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.actions.stopTasks(callerOf(target), [taskId]);
    await one.result(order, '{"error":"x"}', 'error');
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });

  test('of a machine that was lost and came back counts when its task had EXPIRED, not when another attempt runs', async ({
    one,
  }) => {
    const target = aQueueTarget({ ttlSeconds: 0.3 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    one.slots.remove(order.containerId);
    await one.tasks.machineLost(MACHINE);
    await waitFor(async () => {
      await age(one, 20);
      await one.sweep.round();
      return (await one.records.read(taskId))?.status === 'EXPIRED';
    }, 'it expires');
    expect(await one.result(order, '{"back":1}')).toBe(true);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', result: '{"back":1}' });

    const second = aQueueTarget();
    const first = new PlayedLink();
    one.container(second.queue, first);
    const other = await put(one, second);
    const lost = await sent(first);
    one.slots.remove(lost.containerId);
    await one.tasks.machineLost(MACHINE);
    const elsewhere = new PlayedLink();
    one.container(second.queue, elsewhere);
    const again = await sent(elsewhere);
    expect(await one.result(lost, '{"stale":1}')).toBe(true);
    expect((await one.records.read(other))?.status).toBe('RUNNING');
    await one.result(again, '{"fresh":1}');
    expect(await reaches(one, other, 'COMPLETE')).toMatchObject({ attempt: 2, result: '{"fresh":1}' });
  });
});

describe('a task on which containers die', () => {
  test('is ERROR poison_task after three different ones, whatever budgets are left', async ({ one }) => {
    const target = aQueueTarget({ retries: 5 });
    const taskId = await put(one, target);
    for (let deaths = 0; deaths < 3; deaths += 1) {
      const link = new PlayedLink();
      const { containerId } = one.container(target.queue, link);
      await sent(link);
      await die(one, containerId);
    }
    expect(await reaches(one, taskId, 'ERROR')).toMatchObject({ attempt: 3, failureReason: 'poison_task' });
  });

  test('one container is one, however often its process exits', async ({ one }) => {
    const target = aQueueTarget({ retries: 5 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await one.result(await sent(link), '{"error":"process exited (code 3)"}', 'exited');
    await one.result(await sent(link, 2), '{"error":"process exited (code 3)"}', 'exited');
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({
      retriesUsed: 2,
      diedOn: [link.orders[0]?.containerId],
    });
  });
});

describe('budgets', () => {
  test('are the same after the job was rebuilt from its row', async ({ one }) => {
    const target = aQueueTarget({ retries: 3 });
    const first = new PlayedLink();
    const { containerId } = one.container(target.queue, first);
    const taskId = await put(one, target);
    await one.result(await sent(first), '{}', 'retry');
    await sent(first, 2);
    await die(one, containerId);
    const spent = { retriesUsed: 1, losses: 1, diedOn: [containerId] };
    await waitFor(async () => {
      const text = await acceptedJobOf(one.db, taskId);
      return text !== undefined && parseTaskJob(text).losses === 1;
    }, 'its row has them');
    await drained(one);
    await one.client.flushall();
    await age(one, 70);
    await one.sweep.round();
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({ ...spent, attempts: 2, input: '{"x":1}' });
  });
});

describe('a change that the table does not list', () => {
  test('is refused, counted and not written', async ({ one }) => {
    const registry = new Registry();
    const metrics = new TaskMetrics(registry);
    const changes = new Changes({ records: one.records, metrics, log: quiet });
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const job = await one.queues.read(target.queue, taskId);
    if (job === undefined) throw new Error('no job');
    const record = recordOf(job, target.queue, 'RUNNING', 1);
    expect(changes.apply('CANCELLED', 'start', record)).toBe(false);
    expect(await changes.applied('COMPLETE', 'fail', { ...record, status: 'ERROR' })).toBe(false);
    expect((await one.records.read(taskId))?.status).toBe('PENDING');
    const text = await registry.metrics();
    expect(text).toContain('longshore_task_transitions_refused_total{from="CANCELLED",event="start"} 1');
    expect(text).toContain('longshore_task_transitions_refused_total{from="COMPLETE",event="fail"} 1');
    expect(() => changes.apply('PENDING', 'start', { ...record, status: 'COMPLETE' })).toThrow(TypeError);
  });

  test('a job whose task is over is taken out without a word in its record', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const job = await one.queues.read(target.queue, taskId);
    await one.result(await sent(link));
    await reaches(one, taskId, 'COMPLETE');
    if (job === undefined) throw new Error('no job');
    one.slots.remove(link.orders[0]?.containerId ?? ('' as ContainerId));
    await one.queues.add(target.queue, job);
    await one.tasks.ender.takeOut(target.queue, job, {
      status: 'EXPIRED',
      httpStatus: 504,
      text: 'expired',
      failureReason: 'expired',
    });
    expect((await one.records.read(taskId))?.status).toBe('COMPLETE');
    expect(await one.queues.read(target.queue, taskId)).toBeUndefined();
  });
});
