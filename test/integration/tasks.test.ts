// The life of a task on real Redis: accepted, sent, ended, answered once, or run by nobody. Faults of agents are in
// tasks-agents.test.ts, those of other replicas and of Redis in tasks-replicas.test.ts.
import { describe, expect } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { newAttemptToken } from '#shared/domain/ids.ts';
import { taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { waitFor } from '../helpers/services.ts';
import { sent } from '../helpers/submissions.ts';
import { aDb } from './store-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import { rowsOf } from './tasks-world.ts';
import { answered, idle, statusOf, submitted, test } from './tasks-started.ts';

describe('a task that goes well', () => {
  test('is sent, ends, is recorded, and answers its caller once', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target, '{"n": 1.0}');
    const order = await sent(link);
    expect(order).toMatchObject({
      taskId: task.taskId,
      input: '{"n": 1.0}',
      timeoutMs: 60_000,
      containerId: container.containerId,
    });
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'RUNNING', 'it is recorded as running');
    expect(await one.result(order, '{"y": 2.50}')).toBe(true);
    expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"y": 2.50}' });
    expect(await one.records.read(task.taskId)).toMatchObject({
      status: 'COMPLETE',
      attempt: 1,
      result: '{"y": 2.50}',
      containerId: container.containerId,
    });
    expect((await one.lines.depth(target.queue)).active).toBe(0);
    await idle(container);
    expect(await one.leases.read(task.taskId)).toBeUndefined();
    // The agent did not hear the acknowledgement, and repeats the result.
    expect(await one.result(order, '{"y": 3}')).toBe(true);
    expect(task.answers).toHaveLength(1);
    expect((await one.records.read(task.taskId))?.result).toBe('{"y": 2.50}');
  });

  test('reaches the database, in batches', async ({ start }) => {
    const opened = await aDb('pglite');
    try {
      const one = await start({ rows: rowsOf(opened.db) });
      const target = aTarget();
      const link = new PlayedLink();
      one.container(target.queue, link);
      const task = await submitted(one, target);
      const order = await sent(link);
      await one.records.flush();
      expect(await taskById(opened.db, task.taskId)).toMatchObject({ status: 'RUNNING', attempt: 1 });
      await one.result(order);
      expect(await one.reads.read(target.workspaceId, task.taskId)).toMatchObject({
        status: 'COMPLETE',
        result: '{"ok":true}',
      });
      expect(await one.reads.read(aTarget().workspaceId, task.taskId)).toBeUndefined();
    } finally {
      await opened.stop();
    }
  });

  test('a large input and a large result travel as objects, and the input goes with the task', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const input = JSON.stringify({ x: 'a'.repeat(100_000) });
    const task = await submitted(one, target, input);
    const order = await sent(link);
    expect(order.input).toBe(input);
    const body = JSON.stringify({ y: 'b'.repeat(300_000) });
    await one.result(order, body);
    expect((await answered(task)).body).toBe(body);
    const record = await one.records.read(task.taskId);
    expect(record?.result).toBeUndefined();
    expect(record && (await one.reads.resultText(record))).toBe(body);
    expect(one.bytes.objects.size).toBe(1);
  });
});

describe('how an attempt ends', () => {
  test.for([
    ['error', 'ERROR', 500, '{"error":"KeyError: 1"}'],
    ['exited', 'ERROR', 500, '{"error":"process exited (code 3)"}'],
    ['timeout', 'TIMEOUT', 504, '{"error":"task ran longer than its limit of 60 s"}'],
    ['lost', 'ERROR', 502, '{"error":"Backend route unavailable"}'],
  ] as const)('%s: the task is %s, HTTP %d', async ([outcome, status, httpStatus, body], { one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    await one.result(await sent(link), body, outcome);
    expect(await answered(task)).toEqual({ status, httpStatus, body });
    expect(await statusOf(one, task.taskId)).toBe(status);
  });

  test('a result with another token changes nothing', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect(await one.result({ ...order, token: newAttemptToken() })).toBe(true);
    expect(await statusOf(one, task.taskId)).toBe('RUNNING');
    expect(container.inFlight).toBe(1);
    expect(task.answers).toEqual([]);
    await one.result(order);
    expect((await answered(task)).status).toBe('COMPLETE');
  });

  test('a result larger than allowed is an error that says so', async ({ start }) => {
    const one = await start({ maxResultBytes: 1000 });
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await one.reports.result(MACHINE, { ...order, outcome: 'ok', durationMs: 1, body: undefined });
    expect(await answered(task)).toMatchObject({
      status: 'ERROR',
      httpStatus: 500,
      body: '{"error":"result is larger than 1000 bytes"}',
    });
  });

  test('a result that cannot be stored ends its task with an error, and frees its slot', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    one.bytes.failure = new Error('disk full');
    expect(await one.result(order, JSON.stringify('z'.repeat(300_000)))).toBe(true);
    expect(await answered(task)).toMatchObject({ status: 'ERROR', httpStatus: 500 });
    await idle(container);
  });

  test('an input that is gone ends its task with an error, not with an endless round', async ({ one }) => {
    const target = aTarget();
    const task = await submitted(one, target, JSON.stringify('a'.repeat(100_000)));
    one.bytes.objects.clear();
    one.container(target.queue, new PlayedLink());
    expect(await answered(task)).toMatchObject({ status: 'ERROR', httpStatus: 500 });
  });

  test('the container went: what the agent still says of its attempts counts, then they are lost', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const told = await submitted(one, target);
    const untold = await submitted(one, target);
    await sent(link, 2);
    one.slots.remove(container.containerId);
    const gone = one.reports.containerGone(container.containerId);
    const order = link.orders.find((each) => each.taskId === told.taskId);
    if (order === undefined) throw new Error('not sent');
    await one.result(order, '{"error":"process exited (code 3)"}', 'exited');
    await gone;
    expect(await answered(told)).toMatchObject({ httpStatus: 500 });
    expect(await answered(untold)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
  });

  test('a scheduler that stops leaves the attempts of such a container to the next one', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    await sent(link);
    const gone = one.reports.containerGone(container.containerId);
    one.tasks.stop();
    await gone;
    expect(await statusOf(one, task.taskId)).toBe('RUNNING');
  });
});

describe('a task that nobody runs', () => {
  test('a caller who leaves while it waits: CANCELLED, and out of the line', async ({ one }) => {
    const target = aTarget();
    const task = await submitted(one, target);
    task.callerLeft();
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'CANCELLED', 'it is cancelled');
    expect((await one.lines.depth(target.queue)).waiting).toBe(0);
    expect(one.replies.size).toBe(0);
  });

  test('a caller who leaves while it runs changes nothing', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    task.callerLeft();
    await one.result(order);
    expect(await statusOf(one, task.taskId)).toBe('COMPLETE');
  });

  test('a caller who leaves after its task came back from an agent: CANCELLED too', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    one.slots.remove(container.containerId);
    await one.reports.refused(MACHINE, order.taskId, order.token, 'stopping');
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'PENDING', 'it is recorded as waiting again');
    task.callerLeft();
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'CANCELLED', 'it is cancelled');
  });

  test('the wait limit: TIMEOUT, 504', async ({ one }) => {
    const target = aTarget({ ttlSeconds: 0.1 });
    const task = await submitted(one, target);
    expect(await answered(task)).toEqual({
      status: 'TIMEOUT',
      httpStatus: 504,
      body: '{"error":"Timed out waiting for a backend container"}',
    });
    expect(await statusOf(one, task.taskId)).toBe('TIMEOUT');
    expect((await one.lines.depth(target.queue)).waiting).toBe(0);
  });

  test('the wait limit does not end what a container has', async ({ one }) => {
    const target = aTarget({ ttlSeconds: 0.1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    // A later task with the same limit has no container.
    expect((await answered(await submitted(one, target))).status).toBe('TIMEOUT');
    await one.result(order);
    expect((await answered(task)).status).toBe('COMPLETE');
  });

  test('a call waits on while Redis loses its data, and is sent to the next container', async ({ one, redis }) => {
    const target = aTarget();
    const task = await submitted(one, target);
    await redis.connect().flushall();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await one.result(await sent(link));
    expect(await answered(task)).toMatchObject({ status: 'COMPLETE', httpStatus: 200 });
  });

  test('one that comes back from an agent after its wait limit, with no other container, is answered', async ({
    one,
  }) => {
    const target = aTarget({ ttlSeconds: 0.1 });
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect((await answered(await submitted(one, target))).status).toBe('TIMEOUT');
    one.slots.remove(container.containerId);
    await one.reports.refused(MACHINE, order.taskId, order.token, 'stopping');
    expect(await answered(task, 8000)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
  });

  test('a start that fails by the user’s cause answers the waiting callers with the lines, and nobody else', async ({
    one,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const running = await submitted(one, target);
    const order = await sent(link);
    const waiting = await submitted(one, target);
    const other = await submitted(one, aTarget());
    const failed = { containerId: 'endpoint-s-1' as ContainerId };
    expect(await one.callers.failWaiting(target.queue, 'ModuleNotFoundError: x', failed)).toBe(1);
    expect(await answered(waiting)).toEqual({
      status: 'ERROR',
      httpStatus: 500,
      body: '{"error":"ModuleNotFoundError: x"}',
    });
    expect(await one.records.read(waiting.taskId)).toMatchObject({
      status: 'ERROR',
      failureReason: 'start_failed',
      ...failed,
    });
    await one.result(order);
    expect((await answered(running)).status).toBe('COMPLETE');
    expect(other.answers).toEqual([]);
    await idle(container);
  });
});
