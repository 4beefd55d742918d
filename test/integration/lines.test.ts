// Synchronous tasks of one process, on real Redis, which they do not touch: their order and bound, and what comes back.
// Callers leave, links and inputs change under them, the process stands still or stops.
import { describe, expect } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { DEPLOYMENT_STOPPED } from '#scheduler/domain/endings.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { commandsOf } from '../helpers/sent-commands.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Process, TaskTable } from './tasks-fixture.ts';
import { aTable, aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import { idle, test } from './tasks-started.ts';

const LARGE = JSON.stringify('x'.repeat(100_000));
const whereIs = (one: Process, { taskId }: Accepted): string | undefined => one.lines.line.get(taskId)?.place.kind;

/** A task that runs, and one that waits behind it for the only slot. */
async function oneWaits(one: Process) {
  const target = aTarget();
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  const first = await submitted(one, target);
  const running = await sent(link);
  const waiting = await submitted(one, target);
  return { target, container, link, first, running, waiting };
}

describe('a synchronous task whose container is linked here', () => {
  test('goes through the line: Redis hears nothing of it, it counts in the depth, and nothing is left of it', async ({
    one,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    await idle(container);
    const commands = commandsOf(one);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect(one.lines.order(task.taskId)).toMatchObject({ attempt: 1 });
    await one.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    // The end of the task drops what an asynchronous one has in Redis; nothing else may go there.
    expect(commands.filter((name) => !['evalsha', 'eval'].includes(String(name)))).toEqual([]);
    await reaches(one, task.taskId, 'COMPLETE');
    expect(one.lines.order(task.taskId)).toBeUndefined();
    expect(one.lines.line.size).toBe(0);
    expect(await one.leases.isHeld(task.taskId)).toBe(false);
  });

  test('waits there in order, and says where', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const tasks: Accepted[] = [];
    for (let n = 0; n < 4; n += 1) tasks.push(await submitted(one, target, `{"n":${n}}`));
    await sent(link);
    expect(await one.lines.depth(target.queue)).toMatchObject({ waiting: 3, active: 1 });
    expect(await one.lines.placeOf(target.queue, tasks[0]?.taskId as TaskId)).toEqual({ kind: 'active' });
    expect(await one.lines.placeOf(target.queue, tasks[3]?.taskId as TaskId)).toEqual({
      kind: 'waiting',
      position: 3,
    });
    for (const [at, { taskId, finished }] of tasks.entries()) {
      const order = await sent(link, at + 1);
      expect(order.taskId).toBe(taskId);
      await one.result(order);
      expect(await finished).toMatchObject({ status: 'COMPLETE' });
    }
  });

  test('one that an agent gives back comes first again', async ({ one }) => {
    const { link, first, running, waiting } = await oneWaits(one);
    await one.reports.refused(MACHINE, running.taskId, running.token, 'busy');
    const again = await sent(link, 2);
    expect(again.taskId).toBe(first.taskId);
    await one.result(again);
    expect((await sent(link, 3)).taskId).toBe(waiting.taskId);
    expect(await first.finished).toMatchObject({ status: 'COMPLETE' });
    expect(await one.records.read(first.taskId)).toMatchObject({ attempt: 2 });
  });

  test('one whose agent gave it back is not sent before its row was read', async ({ start }) => {
    const rows = aTable();
    const gate = Promise.withResolvers<void>();
    let isAsked = false;
    const ended: TaskTable['ended'] = async (taskIds) => {
      isAsked = true;
      await gate.promise;
      return await rows.ended(taskIds);
    };
    const one = await start({ rows: { ...rows, ended } });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const task = await submitted(one, target);
    const order = await sent(link);
    await one.reports.refused(MACHINE, order.taskId, order.token, 'busy');
    await waitFor(() => isAsked && container.accepting, 'its row is being read, and the container takes tasks again');
    expect(link.runs).toBe(1);
    // A task that comes meanwhile does not wait for it.
    const next = await submitted(one, target);
    expect((await sent(link, 2)).taskId).toBe(next.taskId);
    gate.resolve();
    expect((await sent(link, 3)).taskId).toBe(task.taskId);
  });

  test('one whose agent gave it back is not sent while its record may be in a store that is not read', async ({
    one,
  }) => {
    const { link, first, running } = await oneWaits(one);
    const { records } = one;
    const read = records.readOver.bind(records);
    let [isComplete, reads] = [false, 0];
    records.readOver = async (taskIds) => {
      reads += 1;
      return { ...(await read(taskIds)), isComplete };
    };
    await one.reports.refused(MACHINE, running.taskId, running.token, 'busy');
    await waitFor(() => reads === 2, 'it was looked for twice');
    expect(link.orders.filter(({ taskId }) => taskId === first.taskId)).toHaveLength(1);
    isComplete = true;
    await waitFor(() => whereIs(one, first) === 'waiting' || whereIs(one, first) === 'here', 'it may be sent again');
  });

  test('one for which the link has no room keeps its place, and is sent a moment later', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    link.mode = 'full';
    const container = one.container(target.queue, link);
    const tasks = [await submitted(one, target), await submitted(one, target)];
    await waitFor(() => link.runs > 0, 'it was tried');
    expect([link.runs, container.inFlight]).toEqual([1, 0]);
    expect(await one.lines.placeOf(target.queue, tasks[0]?.taskId as TaskId)).toEqual({ kind: 'waiting', position: 1 });
    link.mode = 'take';
    const order = await sent(link);
    expect(order.taskId).toBe(tasks[0]?.taskId);
    await one.result(order);
    expect((await sent(link, 2)).taskId).toBe(tasks[1]?.taskId);
  });

  test('one whose container dies is not run twice', async ({ start }) => {
    const one = await start({ graces: { reportMs: 10 } });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const tasks = [await submitted(one, target), await submitted(one, target)];
    await sent(link);
    one.slots.leave(container.containerId);
    await one.reports.containerGone(container.containerId);
    expect(seenByCaller(await tasks[0]?.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    one.slots.remove(container.containerId);
    const next = new PlayedLink();
    one.container(target.queue, next);
    await one.result(await sent(next));
    expect(await tasks[1]?.finished).toMatchObject({ status: 'COMPLETE' });
    expect(next.orders).toHaveLength(1);
  });
});

test('of many that come at once exactly as many are let in as may be pending', async ({ one }) => {
  const target = aTarget({ maxPendingTasks: 100 });
  const link = new PlayedLink();
  one.container(target.queue, link, 8);
  const all = await Promise.all(Array.from({ length: 300 }, () => one.submissions.submit(target, { input: '{}' })));
  expect(all.filter(({ kind }) => kind === 'accepted')).toHaveLength(100);
  expect(all.filter(({ kind }) => kind === 'queue_full')).toHaveLength(200);
  expect(await one.lines.depth(target.queue)).toMatchObject({ waiting: 92, active: 8 });
  await one.result(await sent(link));
  await submitted(one, target);
  expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({
    kind: 'queue_full',
    maxPendingTasks: 100,
  });
});

describe('an input that is an object', () => {
  test('is loaded before its task is sent; meanwhile the task is nobody else’s', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const gate = Promise.withResolvers<void>();
    const load = one.bytes.getBytes.bind(one.bytes);
    one.bytes.getBytes = (id) => gate.promise.then(() => load(id));
    const container = one.container(target.queue, link, 2);
    await idle(container);
    const task = await submitted(one, target, LARGE);
    expect(container.inFlight).toBe(1);
    const next = await submitted(one, target);
    expect((await sent(link)).taskId).toBe(next.taskId);
    gate.resolve();
    const order = await sent(link, 2);
    expect(order).toMatchObject({ taskId: task.taskId, input: LARGE });
    await one.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('is loaded while the machine’s link changes: its task is sent over the new link, once', async ({ one }) => {
    const target = aTarget();
    const [before, after] = [new PlayedLink(), new PlayedLink()];
    const gate = Promise.withResolvers<void>();
    const load = one.bytes.getBytes.bind(one.bytes);
    let loads = 0;
    one.bytes.getBytes = (id) => ((loads += 1) === 1 ? gate.promise : Promise.resolve()).then(() => load(id));
    const container = one.container(target.queue, before);
    const task = await submitted(one, target, LARGE);
    await waitFor(() => loads === 1, 'it is being loaded');
    one.slots.setLink(MACHINE, undefined);
    one.slots.setLink(MACHINE, after);
    gate.resolve();
    const order = await sent(after);
    expect(order).toMatchObject({ taskId: task.taskId, input: LARGE });
    expect([before.runs, after.runs, container.inFlight]).toEqual([0, 1, 1]);
    await one.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await idle(container);
  });

  test('that cannot be read three times ends its task, and the slot is free', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    let loads = 0;
    one.bytes.getBytes = () => {
      loads += 1;
      return Promise.reject(new Error('the store is away'));
    };
    const container = one.container(target.queue, link);
    const task = await submitted(one, target, LARGE);
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'ERROR' });
    expect([loads, link.runs]).toEqual([3, 0]);
    await idle(container);
  });
});

describe('a task that waits ends', () => {
  test('when its caller leaves: it is CANCELLED, and it is not sent', async ({ one }) => {
    const { link, running, waiting } = await oneWaits(one);
    waiting.callerLeft();
    expect(seenByCaller(await waiting.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 499 });
    await one.result(running);
    await reaches(one, waiting.taskId, 'CANCELLED');
    expect(link.runs).toBe(1);
    expect(one.lines.line.size).toBe(0);
  });

  test('not when its caller leaves after it was sent: it runs on, and is recorded', async ({ one }) => {
    const { first, running } = await oneWaits(one);
    first.callerLeft();
    await one.result(running);
    await reaches(one, first.taskId, 'COMPLETE');
  });

  test('when its wait limit is over: 504, and it is not sent; one that runs is waited for', async ({ one }) => {
    const target = aTarget({ ttlSeconds: 0.2 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const first = await submitted(one, target);
    const running = await sent(link);
    const waiting = await submitted(one, target);
    expect(seenByCaller(await waiting.finished)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
    expect(await one.records.read(waiting.taskId)).toMatchObject({ status: 'TIMEOUT' });
    await one.result(running);
    expect(await first.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.runs).toBe(1);
  });

  test('when the scheduler stops: each caller is told, each task is CANCELLED', async ({ one }) => {
    const { waiting } = await oneWaits(one);
    await one.callers.stop();
    expect(seenByCaller(await waiting.finished)).toMatchObject({
      httpStatus: 503,
      body: '{"error":"scheduler is stopping"}',
    });
    expect(await one.records.read(waiting.taskId)).toMatchObject({ status: 'CANCELLED' });
  });

  test('once its end is written, and not before: its caller is told then', async ({ start }) => {
    const rows = aTable();
    const gate = Promise.withResolvers<void>();
    let isHeld = false;
    const write: TaskTable['write'] = async (records, changes) => {
      if (records.some(({ status }) => status === 'CANCELLED')) {
        isHeld = true;
        await gate.promise;
      }
      return await rows.write(records, changes);
    };
    const one = await start({ rows: { ...rows, write } });
    const { container, link, running, waiting } = await oneWaits(one);
    let isTold = false;
    void waiting.finished.then(() => (isTold = true));
    waiting.callerLeft();
    await waitFor(() => isHeld, 'its end is being written');
    void one.result(running);
    await waitFor(() => container.inFlight === 0, 'the slot is free');
    expect([isTold, link.runs, whereIs(one, waiting)]).toEqual([false, 1, 'ending']);
    gate.resolve();
    expect(await waiting.finished).toMatchObject({ status: 'CANCELLED' });
  });
});

describe('for a process that stood still', () => {
  /** A process with rows that somebody else may write, and a task that waits while it stands still. */
  async function standsStill(start: (options: object) => Promise<Process>) {
    const rows = aTable();
    let [stalledAtMs, reads]: [number | null, number] = [null, 0];
    const ended: TaskTable['ended'] = (taskIds) => {
      reads += 1;
      return rows.ended(taskIds);
    };
    const one = await start({ rows: { ...rows, ended }, stalledAtMs: () => stalledAtMs });
    const made = await oneWaits(one);
    return { one, rows, ...made, goOn: () => (stalledAtMs = performance.now()), reads: () => reads };
  }

  test('a task that the leader ended is not sent, and its caller hears how it ended', async ({ start }) => {
    const { one, rows, link, running, waiting, goOn } = await standsStill(start);
    const row = await one.records.read(waiting.taskId);
    if (row === undefined) throw new Error('no row');
    await rows.write(
      [{ ...row, status: 'CANCELLED', rank: 3, failureReason: 'caller_gone', endedAtMs: Date.now() }],
      [],
    );
    goOn();
    await one.result(running);
    expect(seenByCaller(await waiting.finished)).toMatchObject({ status: 'CANCELLED' });
    expect(link.runs).toBe(1);
    expect(one.lines.line.size).toBe(0);
  });

  test('a task whose row does not say that it is over is sent when the row was read, in its place', async ({
    start,
  }) => {
    const { one, target, link, running, waiting, goOn, reads } = await standsStill(start);
    const last = await submitted(one, target);
    goOn();
    await one.result(running);
    const order = await sent(link, 2);
    expect([order.taskId, reads()]).toEqual([waiting.taskId, 1]);
    await one.result(order);
    expect((await sent(link, 3)).taskId).toBe(last.taskId);
  });

  test('a task that comes afterwards is sent at once', async ({ start }) => {
    const { one, link, running, waiting, goOn, reads } = await standsStill(start);
    goOn();
    await one.result(running);
    await one.result(await sent(link, 2));
    await waiting.finished;
    const before = reads();
    const next = await submitted(one, aTarget());
    const there = new PlayedLink();
    one.container(one.lines.line.get(next.taskId)?.queue as never, there);
    await sent(there);
    expect(reads()).toBe(before);
  });
});

test('while its end is being written, a stopped task is not adopted by what its agent says of it', async ({
  start,
}) => {
  const rows = aTable();
  const gate = Promise.withResolvers<void>();
  const write: TaskTable['write'] = (...batch) => gate.promise.then(() => rows.write(...batch));
  const one = await start({ rows: { ...rows, write } });
  const target = aTarget();
  const link = new PlayedLink();
  one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  const attempt = one.attempts.current(task.taskId);
  if (attempt === undefined) throw new Error('no attempt');
  const stopping = one.completion.revoke(attempt, 'cancelled', DEPLOYMENT_STOPPED, 5);
  await waitFor(() => one.attempts.current(task.taskId) === undefined, 'its end is decided');
  const report = { agentInstance: 'agent-1', sessionEpoch: 2, running: [order] };
  const { adopted } = await one.reports.machineReported(MACHINE, report);
  const acknowledged = one.result(order, '', 'cancelled');
  gate.resolve();
  expect([await stopping, await acknowledged, adopted]).toEqual([true, true, []]);
  expect((await task.finished).body).toBe('{"error":"deployment stopped"}');
  expect(await one.records.read(task.taskId)).toMatchObject({ failureReason: 'deployment_stopped' });
});

describe('Redis', () => {
  test('silent: a task is sent, ended and answered all the same, and so is the one behind it', async ({
    one,
    redis,
  }) => {
    const { link, first, running, waiting } = await oneWaits(one);
    redis.freeze();
    try {
      void one.result(running);
      expect(await first.finished).toMatchObject({ status: 'COMPLETE' });
      void one.result(await sent(link, 2));
      expect(await waiting.finished).toMatchObject({ status: 'COMPLETE' });
      const next = await submitted(one, aTarget());
      next.callerLeft();
      expect(await next.finished).toMatchObject({ status: 'CANCELLED' });
    } finally {
      redis.thaw();
    }
  });

  test('emptied: what waits runs once, in its place', async ({ one }) => {
    const { link, first, running, waiting } = await oneWaits(one);
    await one.client.flushall();
    await one.queues.reopenAll();
    await one.redisLost();
    await one.result(running);
    await one.result(await sent(link, 2));
    for (const task of [first, waiting]) expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.runs).toBe(2);
  });
});
