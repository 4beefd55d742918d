// The effects of people on asynchronous tasks, on real Redis and a real database, and attempts that are adopted.
import { describe, expect } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import { MACHINE, PlayedLink } from './tasks-fixture.ts';
import { aQueueTarget, callerOf, put, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

/** A stop that meets an attempt whose end is on its way stops its task for good. @param goOn - lets that end go on */
async function stopsBeside(one: World, target: Target, taskId: TaskId, goOn: () => void): Promise<void> {
  const current = one.attempts.current.bind(one.attempts);
  await waitFor(() => current(taskId)?.ending !== undefined, 'its end is on its way');
  one.attempts.current = (asked) => {
    goOn();
    return current(asked);
  };
  expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
  expect(await one.records.read(taskId)).toMatchObject({ status: 'CANCELLED' });
  expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, delayed: 0, active: 0 });
}

describe('StopTasks', () => {
  test('takes a waiting task out of its queue', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.records.read(taskId)).toMatchObject({ status: 'CANCELLED', failureReason: 'request_cancelled' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(await one.actions.stopTasks(callerOf(aQueueTarget()), [taskId])).toEqual({
      kind: 'refused',
      reason: 'unknown',
    });
  });

  test('stops many side by side, and those before one that is unknown', async ({ one }) => {
    const target = aQueueTarget();
    const taskIds = [await put(one, target), await put(one, target), await put(one, target)];
    const after = await put(one, target);
    const append = one.records.append.bind(one.records);
    let stopped = 0;
    one.records.append = async (...given) => {
      if (given[0].status === 'CANCELLED') stopped += 1;
      await waitFor(() => stopped >= 3, 'all three are being stopped');
      return await append(...given);
    };
    const asked = [...taskIds, newId<TaskId>(), after];
    expect(await one.actions.stopTasks(callerOf(target), asked)).toEqual({ kind: 'refused', reason: 'unknown' });
    for (const taskId of taskIds) expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    expect((await one.records.read(after))?.status).toBe('PENDING');
  });

  test('a task that waits out a back-off is stopped, too, and does not come again', async ({ one }) => {
    const target = aQueueTarget({ retries: 3 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await one.result(await sent(link), '{}', 'retry');
    await one.actions.stopTasks(callerOf(target), [taskId]);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'CANCELLED' });
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, delayed: 0, active: 0 });
  });

  test('a running one is ended at once; its slot is free when its runner is, and only once', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const first = await put(one, target);
    const order = await sent(link);
    const second = await put(one, target);
    expect(await one.actions.stopTasks(callerOf(target), [first])).toEqual({ kind: 'stopped' });
    expect(link.cancelled).toEqual([`${first} ${order.token}`]);
    expect((await one.records.read(first))?.status).toBe('CANCELLED');
    // The handler ignores the cancel, so no other task goes to its container.
    expect(container.inFlight).toBe(1);
    expect(link.orders).toHaveLength(1);
    await one.result(order, '{"late":true}', 'cancelled');
    const next = await sent(link, 2);
    expect(next.taskId).toBe(second);
    await one.result(order, '{"late":true}', 'cancelled');
    expect(container.inFlight).toBe(1);
    await one.result(next);
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    expect((await one.records.read(first))?.status).toBe('CANCELLED');
  });

  test('an agent that is done before the end is written frees the slot, once', async ({ start }) => {
    let write = (): void => undefined;
    const written = new Promise<void>((resolve) => (write = resolve));
    const one = await start({
      queues: (queues) => {
        const fail: TaskQueues['fail'] = async (...given) => {
          await written;
          return await queues.fail(...given);
        };
        return new Proxy(queues, {
          get: (whole, name) => {
            if (name === 'fail') return fail;
            const value: unknown = Reflect.get(whole, name);
            return typeof value === 'function' ? value.bind(whole) : value;
          },
        });
      },
    });
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const taskId = await put(one, target);
    const order = await sent(link);
    const other = await put(one, target);
    await sent(link, 2);
    await waitFor(() => container.inFlight === 2, 'both run');
    const attempt = one.attempts.current(taskId);
    const stopping = one.actions.stopTasks(callerOf(target), [taskId]);
    await waitFor(() => attempt?.ending !== undefined, 'its end is on its way');
    const taken = one.result(order, '{}', 'cancelled');
    await waitFor(() => container.inFlight === 1, 'its slot is free');
    write();
    expect([await stopping, await taken]).toEqual([{ kind: 'stopped' }, true]);
    expect(container.inFlight).toBe(1);
    expect(one.attempts.current(other)).toBeDefined();
  });

  test('one whose attempt returns to its queue in that moment does not run again', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await sent(link);
    const write = Promise.withResolvers<void>();
    const append = one.records.append.bind(one.records);
    one.records.append = async (...given) => {
      await write.promise;
      return await append(...given);
    };
    const attempt = one.attempts.current(taskId);
    if (attempt === undefined) throw new Error('it has no attempt');
    const returned = one.completion.backToQueue(attempt, 'refused');
    await stopsBeside(one, target, taskId, write.resolve);
    expect(await returned).toBe(true);
  });

  test('one whose attempt is about to be retried is not', async ({ start }) => {
    const write = Promise.withResolvers<void>();
    const one = await start({
      queues: (queues) => {
        const delay: TaskQueues['delay'] = async (...given) => {
          await write.promise;
          return await queues.delay(...given);
        };
        return new Proxy(queues, {
          get: (whole, name) => {
            if (name === 'delay') return delay;
            const value: unknown = Reflect.get(whole, name);
            return typeof value === 'function' ? value.bind(whole) : value;
          },
        });
      },
    });
    const target = aQueueTarget({ retries: 3 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const returned = one.result(await sent(link), '{}', 'retry');
    await stopsBeside(one, target, taskId, write.resolve);
    expect(await returned).toBe(true);
  });

  test('a task that is being fetched, its input still on the way, never reaches its handler', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const taskId = await put(one, target, JSON.stringify({ x: 'a'.repeat(100_000) }));
    let read = (): void => undefined;
    const blocked = new Promise<void>((resolve) => (read = resolve));
    const load = one.bytes.getBytes.bind(one.bytes);
    let asked = false;
    one.bytes.getBytes = async (id) => {
      asked = true;
      const bytes = await load(id);
      await blocked;
      return bytes;
    };
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    await waitFor(() => asked, 'its input is asked for');
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    read();
    await waitFor(() => container.inFlight === 0, 'the slot is free again');
    expect(link.orders).toEqual([]);
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });

  test('one that another replica has just fetched is ended with the token that holds it, for good', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const lock = lockTokenOf(newInstanceId(), newAttemptToken());
    const { job } = await one.queues.fetch(target.queue, lock);
    if (job === undefined) throw new Error('nothing was fetched');
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.queues.complete(target.queue, taskId, lock)).toEqual({ kind: 'gone' });
    // The other writer's RUNNING comes after the end, and changes nothing.
    const record = await one.records.read(taskId);
    if (record === undefined) throw new Error('it has no record');
    await one.records.append({ ...record, status: 'RUNNING', attempt: 1, rank: 1 });
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });
});

describe('a deployment that is deleted', () => {
  test('all its tasks are CANCELLED, also beyond the first page and with rows that lag', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const running = await put(one, target);
    await sent(link);
    const ids: TaskId[] = [running];
    for (let index = 1; index < 7; index += 1) ids.push(await put(one, target));
    expect(await one.deploymentStops.deleted(target.queue)).toBe(7);
    for (const taskId of ids)
      expect(await one.records.read(taskId)).toMatchObject({
        status: 'CANCELLED',
        failureReason: 'deployment_deleted',
      });
    expect((await one.records.read(running))?.result).toBe('{"error":"deployment deleted"}');
    expect(await one.deploymentStops.deleted(target.queue)).toBe(0);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 0, delayed: 0 });
  });
});

describe('an attempt of a scheduler that stopped', () => {
  test('is adopted, and held to its execution limit', async ({ start }) => {
    const graces = { limitMs: 50, reportMs: 100, restartedAgentMs: 200 };
    const before = await start();
    const target = aQueueTarget({ timeoutSeconds: 0.2 });
    const link = new PlayedLink();
    const { containerId } = before.container(target.queue, link);
    const taskId = await put(before, target);
    const order = await sent(link);
    before.tasks.stop();
    const after = await start({ graces });
    const { adopted } = await after.reports.machineReported(MACHINE, {
      agentInstance: 'agent-1',
      sessionEpoch: 2,
      running: [{ taskId, token: order.token, containerId }],
    });
    expect(adopted).toHaveLength(1);
    await reaches(after, taskId, 'TIMEOUT');
  });
});
