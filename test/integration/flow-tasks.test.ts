// Tasks with flow control on a real Redis and a real database, from the call to the end.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { taskById, waitingDeadlines } from '#scheduler/stores/store/queries/tasks.ts';
import { Deadlines } from '#scheduler/tasks/maintenance/deadlines.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, anEnd, callerOf, drained, put, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

const aKeyedTarget = (concurrency = 1, changes: Partial<Target['config']> = {}): Target =>
  aQueueTarget({ flow: { concurrency, key: 'customer' }, ...changes });
const OF_A = '{"customer":"a"}';

async function putAll(one: World, target: Target, inputs: readonly string[]): Promise<readonly TaskId[]> {
  const ids: TaskId[] = [];
  for (const input of inputs) ids.push(await put(one, target, input));
  return ids;
}

const ids = (link: PlayedLink): readonly TaskId[] => link.orders.map(({ taskId }) => taskId);

describe('tasks of a key', () => {
  test('run no more at a time than they may, in their order, while other keys go on', async ({ one }) => {
    const target = aKeyedTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [first, second, other] = await putAll(one, target, [OF_A, OF_A, '{"customer":"b"}']);
    await sent(link, 2);
    expect(ids(link)).toEqual([first, other]);
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 2, waiting: 0, held: 1 });
    await one.result(link.orders[0]!);
    expect((await sent(link, 3)).taskId).toBe(second);
    await one.result(link.orders[2]!);
    await one.result(link.orders[1]!);
    for (const taskId of [first, second, other]) await reaches(one, taskId as TaskId, 'COMPLETE');
    await waitFor(async () => (await one.queues.controls(`key:${target.queue}:`, 10)).length === 0, 'no slot is taken');
  });

  test('are refused without a key, by the name of the field', async ({ one }) => {
    const { submissions } = one;
    expect(await submissions.submit(aKeyedTarget(), { input: '{"x":1}' })).toEqual({
      kind: 'bad_flow',
      code: 'invalid_flow_key',
      why: expect.stringContaining('"customer"') as string,
    });
    expect(await submissions.submit(aQueueTarget(), { input: '{}', key: 'a' })).toMatchObject({ kind: 'bad_flow' });
    expect(one.queueing.size).toBe(0);
  });

  test('that are stopped while they are held never run, and hold up nobody', async ({ one }) => {
    const target = aKeyedTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [, held, last] = await putAll(one, target, [OF_A, OF_A, OF_A]);
    const order = await sent(link);
    expect(await one.actions.stopTasks(callerOf(target), [held as TaskId])).toEqual({ kind: 'stopped' });
    await reaches(one, held as TaskId, 'CANCELLED');
    await one.result(order);
    expect((await sent(link, 2)).taskId).toBe(last);
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 1, held: 0 });
  });

  test('that are stopped while they run hand their slots on', async ({ one }) => {
    const target = aKeyedTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [first, next] = await putAll(one, target, [OF_A, OF_A]);
    await sent(link);
    expect(await one.actions.stopTasks(callerOf(target), [first as TaskId])).toEqual({ kind: 'stopped' });
    expect((await sent(link, 2)).taskId).toBe(next);
  });

  test('expire at their deadlines while they are held', async ({ one }) => {
    const target = aKeyedTarget(1, { ttlSeconds: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [, held] = await putAll(one, target, [OF_A, OF_A]);
    await sent(link);
    const deadlines = new Deadlines({
      ...one,
      due: (...page) => waitingDeadlines(one.db, ...page),
      clock: systemClock,
      log: quiet,
      leader: { isLeader: () => true, onChange: () => () => undefined },
    });
    await deadlines.reload();
    await reaches(one, held as TaskId, 'EXPIRED');
    deadlines.stop();
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 1, held: 0 });
    expect(link.orders.length).toBe(1);
  });

  test('let others go on while they wait for a retry, and then wait for their turn', async ({ one }) => {
    const target = aKeyedTarget(1, { retries: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [first, next] = await putAll(one, target, [OF_A, OF_A]);
    await one.result(await sent(link), '{"error":"KeyError: 1"}', 'retry');
    expect((await sent(link, 2)).taskId).toBe(next);
    // The retry is due, is fetched and waits for its slot.
    await waitFor(async () => (await one.queues.depth(target.queue)).held === 1, 'the retry is held', 15_000);
    expect(link.orders.length).toBe(2);
    await one.result(link.orders[1]!);
    expect((await sent(link, 3)).taskId).toBe(first);
    await one.result(link.orders[2]!);
    await reaches(one, first as TaskId, 'COMPLETE');
  });

  test('keep their slot when their container is lost', async ({ one }) => {
    const target = aKeyedTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 10);
    const [first] = await putAll(one, target, [OF_A, OF_A]);
    await sent(link);
    await one.completion.lost(one.attempts.current(first as TaskId)!, false);
    expect((await sent(link, 2)).taskId).toBe(first);
    expect(container.inFlight).toBe(1);
  });

  test('of another version count anew, with its own limit', async ({ one }) => {
    const [before, after] = [aKeyedTarget(1), aKeyedTarget(2)];
    await putAll(one, before, [OF_A, OF_A]);
    await putAll(one, after, [OF_A, OF_A, OF_A]);
    expect(await one.queues.depth(before.queue)).toMatchObject({ waiting: 1, held: 1 });
    expect(await one.queues.depth(after.queue)).toMatchObject({ waiting: 2, held: 1 });
  });

  test('are not begun by an external runner while they are held, and its end hands the slot on', async ({ one }) => {
    const target = aKeyedTarget();
    const [first, held] = await putAll(one, target, [OF_A, OF_A]);
    await drained(one);
    const caller = callerOf(target);
    expect(await one.actions.startTask(caller, held as TaskId, 'c-1')).toBe('refused');
    expect(await one.actions.startTask(caller, first as TaskId, 'c-1')).toBe('started');
    expect(await one.actions.startTask(caller, held as TaskId, 'c-2')).toBe('refused');
    expect(await one.actions.endTask(caller, anEnd(first as TaskId, { containerId: 'c-1' }))).toBe('ended');
    await waitFor(async () => (await one.queues.depth(target.queue)).waiting === 1, 'the held task is ready');
    expect(await one.actions.startTask(caller, held as TaskId, 'c-2')).toBe('started');
  });

  test('are queued again after Redis lost its data, and wait for the one that runs on', async ({ start, redis }) => {
    const one = await start({ looksAtData: true });
    const target = aKeyedTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [first, second] = await putAll(one, target, [OF_A, OF_A]);
    const order = await sent(link);
    await drained(one);
    await redis.connect().flushall();
    await waitFor(
      async () => (await one.queues.controls(`key:${target.queue}:`, 10)).length === 1,
      'it is counted again',
    );
    await one.missing.round();
    await waitFor(async () => (await one.queues.depth(target.queue)).held === 1, 'the other one is held again');
    expect(ids(link)).toEqual([first]);
    await one.result(order);
    expect((await sent(link, 2)).taskId).toBe(second);
    await one.result(link.orders[1]!);
    await reaches(one, second as TaskId, 'COMPLETE');
    expect((await taskById(one.db, first as TaskId))?.status).toBe('COMPLETE');
  });

  test('start at their turns, the first at once', async ({ one }) => {
    const target = aQueueTarget({ flow: { key: 'customer', throttle: { count: 1, perMs: 200 } } });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const tasks = await putAll(one, target, [OF_A, OF_A, OF_A]);
    await sent(link, 3);
    // A process that stands still for a second gives later ones new turns, behind those that have theirs.
    expect(ids(link)[0]).toBe(tasks[0]);
    expect(ids(link).toSorted()).toEqual(tasks.toSorted());
  });

  test('that are refused after all leave their turns to others', async ({ one }) => {
    const target = aQueueTarget({ flow: { key: 'customer', throttle: { count: 1, perMs: 3_600_000 } } });
    await submitted(one, target, OF_A);
    const full: Target = { ...target, config: { ...target.config, maxPendingTasks: 1 } };
    for (let times = 0; times < 3; times += 1)
      expect(await one.submissions.submit(full, { input: OF_A })).toMatchObject({ kind: 'queue_full' });
    const { taskId } = await submitted(one, target, OF_A);
    const job = await waitFor(() => one.queues.read(target.queue, taskId), 'it is queued');
    const turnMs = job.flow?.atMs ?? 0;
    expect([turnMs > Date.now(), turnMs < Date.now() + 2 * 3_600_000]).toEqual([true, true]);
  });

  test('that wait for their turns hold up no other key, and can be stopped', async ({ one }) => {
    const target = aQueueTarget({ flow: { key: 'customer', throttle: { count: 1, perMs: 3_600_000 } } });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [first, second, , other] = await putAll(one, target, [OF_A, OF_A, OF_A, '{"customer":"b"}']);
    await sent(link, 2);
    expect(ids(link)).toEqual([first, other]);
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 2, delayed: 2, soon: 0 });
    expect(await one.actions.stopTasks(callerOf(target), [second as TaskId])).toEqual({ kind: 'stopped' });
    await reaches(one, second as TaskId, 'CANCELLED');
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 2, delayed: 1 });
  });

  test('that come too often are refused or dropped, and leave nothing', async ({ one }) => {
    const rate = { count: 1, perMs: 3_600_000 };
    const target = aQueueTarget({ flow: { key: 'customer', rate } });
    await submitted(one, target, OF_A);
    expect(await one.submissions.submit(target, { input: OF_A })).toEqual({
      kind: 'flow_rate_exceeded',
      key: 'a',
      retryAfterSeconds: 3_600,
    });
    await submitted(one, target, '{"customer":"b"}');
    const skipping = aQueueTarget({ flow: { rate, skipsExcess: true } });
    await submitted(one, skipping, '{}');
    expect(await one.submissions.submit(skipping, { input: '{}' })).toEqual({
      kind: 'skipped',
      by: 'rate',
      taskId: null,
    });
    await waitFor(async () => (await one.queues.depth(skipping.queue)).waiting === 1, 'one task is queued');
  });

  test('with a head start begin first, whatever their order', async ({ one }) => {
    const target = aQueueTarget({ flow: { priority: 0 } });
    const [first, second] = await putAll(one, target, ['{}', '{}']);
    const { taskId } = await submitted(one, target, { input: '{}', priority: 60 });
    await waitFor(async () => (await one.queues.depth(target.queue)).prioritized === 3, 'all are queued');
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    await sent(link, 3);
    expect(ids(link)).toEqual([taskId, first, second]);
    expect(await one.submissions.submit(target, { input: '{}', priority: 3_601 })).toMatchObject({
      kind: 'bad_flow',
      code: 'invalid_flow_priority',
    });
  });

  test('count in the bound of the queue while they are held', async ({ one }) => {
    const target = aKeyedTarget(1, { maxPendingTasks: 2 });
    await putAll(one, target, [OF_A, OF_A]);
    expect(await one.submissions.submit(target, { input: OF_A })).toMatchObject({ kind: 'queue_full' });
    await submitted(one, aKeyedTarget(), OF_A);
  });
});
