// The local queue on real Redis: the tasks that go through it and those that do not, its order and its bound. Callers,
// replicas, containers or Redis itself go at each step of the way.
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import type { ContainerId, TaskId } from '#shared/domain/ids.ts';
import { DEPLOYMENT_STOPPED } from '#scheduler/domain/endings.ts';
import type { Submission } from '#scheduler/tasks/admission/calls.ts';
import { totalOf } from '#scheduler/stores/queues/task-queues.ts';
import type { Finished } from '#scheduler/tasks/dispatch/replies.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Process, TaskTable } from './tasks-fixture.ts';
import { answersOf, dead, inLocalQueue, jobs, kill, sweepOf, swept, test } from './local-queue-fixture.ts';
import { aTable, aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';

describe('a synchronous task whose container is linked here', () => {
  test('goes through the local queue: no job is made, it counts in the depth, and nothing is left of it', async ({
    one,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect(await inLocalQueue(one, target.queue)).toEqual([task.taskId]);
    expect(await jobs(one, target.queue)).toBe(0);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
    expect(await one.queues.placeOf(target.queue, task.taskId)).toEqual({ kind: 'active' });
    await one.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    await reaches(one, task.taskId, 'COMPLETE');
    expect(await inLocalQueue(one, target.queue)).toEqual([]);
    expect(await one.leases.isHeld(task.taskId)).toBe(false);
  });

  test('waits there in order, and says where', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const tasks: Accepted[] = [];
    for (let n = 0; n < 4; n += 1) tasks.push(await submitted(one, target, `{"n":${n}}`));
    await sent(link);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 3, active: 1 });
    expect(await one.queues.placeOf(target.queue, tasks[3]?.taskId as TaskId)).toEqual({
      kind: 'waiting',
      position: 3,
    });
    for (let n = 0; n < 4; n += 1) {
      const order = await sent(link, n + 1);
      expect(order.taskId).toBe(tasks[n]?.taskId);
      await one.result(order);
    }
    expect(await jobs(one, target.queue)).toBe(0);
  });

  test('goes to the queue while older jobs wait there, and no task overtakes another', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const before = [await submitted(one, target), await submitted(one, target)];
    expect(await jobs(one, target.queue)).toBe(2);
    one.container(target.queue, link);
    const after = await submitted(one, target);
    const all = [...before, after];
    for (let n = 0; n < 3; n += 1) {
      const order = await sent(link, n + 1);
      expect(order.taskId).toBe(all[n]?.taskId);
      await one.result(order);
    }
    await waitFor(async () => (await jobs(one, target.queue)) === 0, 'the queue is empty');
    const last = await submitted(one, target);
    await sent(link, 4);
    expect(await inLocalQueue(one, target.queue)).toEqual([last.taskId]);
  });

  test('one that an agent gives back comes first again', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const tasks = [await submitted(one, target), await submitted(one, target)];
    const first = await sent(link);
    await one.reports.refused(first.taskId, first.token, 'busy');
    const again = await sent(link, 2);
    expect(again.taskId).toBe(tasks[0]?.taskId);
    await one.result(again);
    expect((await sent(link, 3)).taskId).toBe(tasks[1]?.taskId);
    expect(await tasks[0]?.finished).toMatchObject({ status: 'COMPLETE' });
  });
});

test('of many that come at once to two replicas exactly as many are let in as may be pending', async ({ start }) => {
  const local = await start();
  const queue = await start({ localQueue: false });
  const target = aTarget({ maxPendingTasks: 100 });
  local.container(target.queue, new PlayedLink(), 8);
  const calls = Array.from({ length: 300 }, (_, n) =>
    (n % 3 === 0 ? queue : local).submissions.submit(target, { input: '{}' }),
  );
  const answers = await Promise.all(calls);
  const accepted = answers.filter(({ kind }) => kind === 'accepted').length;
  expect(answers.filter(({ kind }) => kind !== 'accepted' && kind !== 'queue_full')).toEqual([]);
  // Under a burst the queue may refuse a few tasks that would have fitted, but never accepts one too many.
  expect(accepted).toBeLessThanOrEqual(100);
  expect(accepted).toBeGreaterThan(60);
  const { waiting, active } = await local.queues.depth(target.queue);
  expect(waiting + active).toBe(accepted);
  const alone = aTarget({ maxPendingTasks: 100 });
  local.container(alone.queue, new PlayedLink(), 8);
  const all = await Promise.all(Array.from({ length: 300 }, () => local.submissions.submit(alone, { input: '{}' })));
  expect(all.filter(({ kind }) => kind === 'accepted')).toHaveLength(100);
  expect(all.filter(({ kind }) => kind === 'queue_full')).toHaveLength(200);
});

describe('of a process that is alone with its Redis', () => {
  test('a task is sent without waiting for Redis, once its queue is known to be empty', async ({ start, redis }) => {
    const one = await start({ isAlone: true });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    await submitted(one, target);
    await one.result(await sent(link));
    await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'it is over');
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    redis.freeze();
    let task: Accepted;
    try {
      task = await submitted(one, target);
      await sent(link, 2);
    } finally {
      redis.thaw();
    }
    await waitFor(async () => (await inLocalQueue(one, target.queue)).includes(task.taskId), 'it stands in Redis');
    await waitFor(() => one.leases.isHeld(task.taskId), 'and its lease');
    await one.result(link.orders[1] as never);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('a task enters, and the queue is not asked for a job that cannot be there', async ({ start }) => {
    const one = await start({ isAlone: true });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    await submitted(one, target);
    await one.result(await sent(link));
    await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'it is over');
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    const keys: unknown[] = [];
    const { client } = one;
    const send = client.sendCommand.bind(client);
    client.sendCommand = (command, ...more) => {
      keys.push(command.args[2]);
      return send(command, ...more);
    };
    const task = await submitted(one, target);
    const order = await sent(link, 2);
    await waitFor(() => one.leases.isHeld(task.taskId), 'its lease is written');
    client.sendCommand = send;
    const ofQueue = keys.filter((key) => String(key).includes(target.queue));
    expect(ofQueue, 'it enters once, and nothing is fetched').toHaveLength(1);
    await one.result(order);
  });

  test('the bound is exact all the same, with what a process before it left there', async ({ start }) => {
    const before = await start();
    const target = aTarget({ maxPendingTasks: 100 });
    const link = new PlayedLink();
    before.container(target.queue, link, 8);
    for (let n = 0; n < 8; n += 1) {
      const { taskId } = await submitted(before, target);
      await waitFor(() => before.leases.isHeld(taskId), 'its lease is written');
    }
    kill(before);
    const one = await start({ isAlone: true });
    one.container(target.queue, new PlayedLink(), 4);
    await submitted(one, target);
    const answers = await Promise.all(
      Array.from({ length: 300 }, () => one.submissions.submit(target, { input: '{}' })),
    );
    expect(answers.filter(({ kind }) => kind === 'accepted')).toHaveLength(91);
    expect(await one.client.hlen(one.keys.localQueue(target.queue))).toBe(100);
  });

  test('a job that comes is served before what comes after it', async ({ start }) => {
    const one = await start({ isAlone: true });
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const running = await submitted(one, target);
    await sent(link);
    const job = await one.queues.read(target.queue, running.taskId);
    const older = { ...job, taskId: crypto.randomUUID() } as never;
    await one.queues.addAgain(target.queue, older);
    const after = await submitted(one, target);
    expect(await one.queues.waitingIds(target.queue)).toContain(after.taskId);
  });
});

describe('where other replicas serve the queue, too', () => {
  test('a task takes a free slot here, and waits in the queue when there is none', async ({ start }) => {
    const one = await start({ isOursAlone: () => false });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    await waitFor(() => container.inFlight === 0, 'its first look at the queue is over');
    const running = await submitted(one, target);
    await sent(link);
    const waiting = await submitted(one, target);
    expect(await inLocalQueue(one, target.queue)).toEqual([running.taskId]);
    expect(await one.queues.waitingIds(target.queue)).toEqual([waiting.taskId]);
  });

  test('what waits in the local queue when they come moves to the queue, in order, and runs there', async ({
    start,
  }) => {
    let isAlone = true;
    const one = await start({ isOursAlone: () => isAlone });
    const other = await start({ isOursAlone: () => false });
    const target = aTarget();
    const [here, there] = [new PlayedLink(), new PlayedLink('m-2' as typeof MACHINE)];
    one.container(target.queue, here);
    const tasks: Accepted[] = [];
    for (let n = 0; n < 3; n += 1) tasks.push(await submitted(one, target));
    await sent(here);
    isAlone = false;
    one.queues.check(target.queue);
    await waitFor(async () => (await jobs(one, target.queue)) === 2, 'they are jobs');
    await waitFor(
      async () => (await inLocalQueue(one, target.queue)).length === 1,
      'only what runs is in the local queue',
    );
    other.container(target.queue, there, 2);
    other.dispatcher.wake(target.queue);
    await sent(there, 2);
    expect(there.orders.map(({ taskId }) => taskId)).toEqual([tasks[1]?.taskId, tasks[2]?.taskId]);
  });
});

test('a task that waited long is looked up once before it is sent: its first attempt, and no row is read', async ({
  start,
}) => {
  let rowsRead = 0;
  const rows = aTable();
  const counting = { ...rows, load: (taskId: TaskId) => ((rowsRead += 1), rows.load(taskId)) };
  const one = await start({ knownForMs: 0, rows: counting });
  const target = aTarget();
  const link = new PlayedLink();
  one.container(target.queue, link);
  const tasks = [await submitted(one, target), await submitted(one, target)];
  await one.result(await sent(link));
  await one.result(await sent(link, 2));
  for (const { finished } of tasks) expect(await finished).toMatchObject({ status: 'COMPLETE' });
  expect(rowsRead).toBe(0);
  for (const { taskId } of tasks) {
    await reaches(one, taskId, 'COMPLETE');
    expect(await one.records.read(taskId)).toMatchObject({ attempt: 1 });
  }
});

test('one that was given back and then moves to the queue goes on under the next attempt’s number', async ({
  start,
}) => {
  let isAlone = true;
  const one = await start({ isOursAlone: () => isAlone });
  const target = aTarget();
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  isAlone = false;
  one.slots.leave(container.containerId);
  await one.reports.refused(order.taskId, order.token, 'busy');
  await waitFor(async () => (await one.queues.waitingIds(target.queue)).includes(task.taskId), 'it is a job');
  expect(await one.queues.read(target.queue, task.taskId)).toMatchObject({ attempts: 1 });
});

test('jobs that waited a moment ago do not keep a lone caller’s tasks in the queue', async ({ start }) => {
  const gate = Promise.withResolvers<void>();
  let isGated = true;
  const one = await start({ beforeFetch: () => (isGated ? gate.promise : undefined) });
  const target = aTarget();
  const link = new PlayedLink();
  one.slots.ready({ containerId: 'c-g' as ContainerId, queue: target.queue, machineId: MACHINE, slots: 4 }, link, 0);
  const older = await start({ localQueue: false });
  const first = await submitted(older, target);
  one.dispatcher.wake(target.queue, first.taskId);
  await submitted(one, target);
  expect(await one.queues.waitingIds(target.queue)).toHaveLength(2);
  isGated = false;
  gate.resolve();
  // Each fetch brings a job that is expected: none ever finds the queue empty.
  await sent(link, 2);
  for (const order of [...link.orders]) await one.result(order);
  await waitFor(async () => {
    const count = link.orders.length + 1;
    const { taskId } = await submitted(one, target);
    const order = await sent(link, count);
    const wasInLocalQueue = (await inLocalQueue(one, target.queue)).includes(taskId);
    await one.result(order);
    return wasInLocalQueue;
  }, 'a task goes through the local queue again');
});

test('a move to the queue whose answer is lost does not run a task twice', async ({ start, redis }) => {
  let isAlone = true;
  const one = await start({ isOursAlone: () => isAlone, knownForMs: 60_000 });
  const other = await start({ isOursAlone: () => false, alive: () => true });
  answersOf(other, one);
  const target = aTarget();
  const [here, there] = [new PlayedLink(), new PlayedLink('m-2' as typeof MACHINE)];
  one.container(target.queue, here);
  const tasks: Accepted[] = [];
  for (let n = 0; n < 3; n += 1) tasks.push(await submitted(one, target));
  const running = await sent(here);
  redis.freeze();
  try {
    isAlone = false;
    one.queues.check(target.queue);
    await waitFor(() => one.queues.waiting().length === 2, 'they are back in the local queue');
  } finally {
    redis.thaw();
  }
  const second = tasks[1]?.taskId as TaskId;
  await waitFor(async () => (await other.queues.waitingIds(target.queue)).includes(second), 'it is a job all the same');
  other.container(target.queue, there, 1);
  expect((await sent(there)).taskId).toBe(tasks[1]?.taskId);
  await one.result(running);
  expect((await sent(here, 2)).taskId).toBe(tasks[2]?.taskId);
  expect(one.queues.has(tasks[1]?.taskId as TaskId)).toBe(false);
});

describe('ended before it was sent', () => {
  test('when its caller leaves, and when its wait limit is over', async ({ one }) => {
    const target = aTarget({ ttlSeconds: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    await sent(link);
    const [left, late] = [await submitted(one, target), await submitted(one, target)];
    left.callerLeft();
    expect(seenByCaller(await left.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 499 });
    expect(seenByCaller(await late.finished)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
    await waitFor(
      async () => (await inLocalQueue(one, target.queue)).length === 1,
      'only the running one is in the local queue',
    );
    expect(link.orders).toHaveLength(1);
  });

  test('while Redis does not answer: its caller is told, and nothing of it is left there afterwards', async ({
    one,
    redis,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    const running = await sent(link);
    const waiting = await submitted(one, target);
    redis.freeze();
    try {
      waiting.callerLeft();
      expect(seenByCaller(await waiting.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 499 });
    } finally {
      redis.thaw();
    }
    await reaches(one, waiting.taskId, 'CANCELLED');
    await waitFor(
      async () => (await inLocalQueue(one, target.queue)).length === 1,
      'only the running one is in the local queue',
    );
    await one.result(running);
    expect(link.orders).toHaveLength(1);
  });

  test('while the local queue moves to the queue: its caller leaves, and it is CANCELLED', async ({ start }) => {
    let isAlone = true;
    const one = await start({ isOursAlone: () => isAlone });
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    await sent(link);
    const waiting = await submitted(one, target);
    isAlone = false;
    one.queues.check(target.queue);
    waiting.callerLeft();
    expect(seenByCaller(await waiting.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 499 });
    expect(await one.queues.waitingIds(target.queue)).toEqual([]);
  });

  test('a runner that is not ours, at another replica, cannot take what waits here: this replica would not hear of it', async ({
    start,
  }) => {
    const [one, other] = [await start(), await start()];
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    const running = await sent(link);
    const waiting = await submitted(one, target);
    await other.leases.announce(waiting.taskId);
    expect(await other.queues.remove(target.queue, waiting.taskId)).toBe(false);
    await one.result(running);
    expect((await sent(link, 2)).taskId).toBe(waiting.taskId);
    await one.result(link.orders[1] as never);
    expect(await waiting.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('when the scheduler stops: each caller is told, each task is CANCELLED', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    await sent(link);
    const waiting = await submitted(one, target);
    await sweepOf(one).stop();
    expect(seenByCaller(await waiting.finished)).toMatchObject({
      httpStatus: 503,
      body: '{"error":"scheduler is stopping"}',
    });
    await reaches(one, waiting.taskId, 'CANCELLED');
  });

  test('by another replica: it is CANCELLED, its caller is answered, and it is not sent', async ({ start }) => {
    const [one, other] = [await start(), await start()];
    answersOf(other, one);
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    const running = await sent(link);
    const waiting = await submitted(one, target);
    const job = await other.queues.read(target.queue, waiting.taskId);
    if (job === undefined) throw new Error('no job');
    const ending = { status: 'CANCELLED', reason: 'request_cancelled', detail: 'x' } as const;
    expect(await other.completion.takeOut(target.queue, job, ending)).toBe(true);
    expect(await waiting.finished).toMatchObject({ status: 'CANCELLED' });
    await one.result(running);
    await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'the local queue is empty');
    await reaches(one, waiting.taskId, 'CANCELLED');
    expect(link.orders).toHaveLength(1);
  });

  test('for a process that stood still: it does not send it, and its caller hears how it ended', async ({ start }) => {
    const one = await start({ knownForMs: 0 });
    const other = await start();
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    const running = await sent(link);
    const waiting = await submitted(one, target);
    dead.add(one.instance);
    expect(await swept(other)).toBe(1);
    dead.delete(one.instance);
    await reaches(other, waiting.taskId, 'CANCELLED');
    await one.result(running);
    expect(seenByCaller(await waiting.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 503 });
    expect(link.orders).toHaveLength(1);
  });
});

describe('kill -9 of its replica', () => {
  /** A task that the first of two replicas has sent. */
  async function sentByOne(start: () => Promise<Process>) {
    const [one, other] = [await start(), await start()];
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    return { one, other, target, task, order: await sent(link) };
  }

  /** Waits for the lease itself: a task that is only announced has none yet. */
  const leaseWritten = (one: Process, taskId: TaskId) =>
    waitFor(async () => (await one.leases.locksOf([taskId]))[0] !== undefined, 'its lease is written');

  const report = (order: { taskId: TaskId; token: string; containerId: ContainerId }) => ({
    agentInstance: 'agent-1',
    running: [{ taskId: order.taskId, token: order.token as never, containerId: order.containerId }],
  });

  test('while it waits: CANCELLED by the leader, and it does not count any more', async ({ start }) => {
    const [one, other] = [await start(), await start()];
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await submitted(one, target);
    await sent(link);
    const waiting = await submitted(one, target);
    kill(one);
    expect(await swept(other)).toBe(1);
    await reaches(other, waiting.taskId, 'CANCELLED');
    expect(await inLocalQueue(other, target.queue)).toHaveLength(1);
    expect(await swept(other)).toBe(0);
  });

  test('after it was let in and before its lease is written: CANCELLED', async ({ start }) => {
    const [one, other] = [await start(), await start()];
    const target = aTarget();
    // The container has no link, so no dispatcher of this process serves it.
    one.slots.ready(
      { containerId: 'c-x' as ContainerId, queue: target.queue, machineId: MACHINE, slots: 1 },
      undefined,
      0,
    );
    const task = await submitted(one, target);
    kill(one);
    expect(await swept(other)).toBe(1);
    await reaches(other, task.taskId, 'CANCELLED');
  });

  test('after its lease was written and before its order reached the agent: it did not run, CANCELLED', async ({
    start,
  }) => {
    const [one, other] = [await start(), await start()];
    const target = aTarget();
    const link = new PlayedLink();
    link.mode = 'lose';
    one.container(target.queue, link);
    const task = await submitted(one, target);
    await leaseWritten(one, task.taskId);
    kill(one);
    expect(await swept(other)).toBe(0);
    const after = new PlayedLink();
    other.container(target.queue, after);
    await other.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [] });
    await reaches(other, task.taskId, 'CANCELLED');
    await waitFor(async () => (await inLocalQueue(other, target.queue)).length === 0, 'it is in no local queue');
    expect(after.orders).toEqual([]);
  });

  test('while it runs: adopted under its token, one run, COMPLETE', async ({ start }) => {
    const { one, other, target, task, order } = await sentByOne(start);
    await leaseWritten(one, task.taskId);
    kill(one);
    expect(await swept(other)).toBe(0);
    other.container(target.queue, new PlayedLink(), 1, order.containerId);
    expect((await other.reports.machineReported(MACHINE, report(order))).adopted).toHaveLength(1);
    expect(await other.result(order, '{"late":1}')).toBe(true);
    await reaches(other, task.taskId, 'COMPLETE');
    expect(await inLocalQueue(other, target.queue)).toEqual([]);
    expect(await other.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 0 });
  });

  test('while it runs on a machine that is given up: ERROR, and it does not run again', async ({ start }) => {
    const { one, other, target, task } = await sentByOne(start);
    await leaseWritten(one, task.taskId);
    kill(one);
    const after = new PlayedLink('m-2' as typeof MACHINE);
    other.container(target.queue, after);
    await other.reports.machineLost(MACHINE, () => true);
    await reaches(other, task.taskId, 'ERROR');
    expect(await inLocalQueue(other, target.queue)).toEqual([]);
    expect(after.orders).toEqual([]);
  });

  test('while it runs, and nobody reports it until its lease runs out: ERROR, lost', async ({ start }) => {
    const { one, other, target, task } = await sentByOne(start);
    // The record must be in Redis before the kill: the process keeps it for a moment, and would lose it.
    await reaches(other, task.taskId, 'RUNNING');
    kill(one);
    expect(await swept(other)).toBe(0);
    await other.client.del(other.keys.lease(task.taskId));
    expect(await swept(other)).toBe(1);
    await reaches(other, task.taskId, 'ERROR');
    expect(await other.records.read(task.taskId)).toMatchObject({ failureReason: 'lost' });
    expect(await inLocalQueue(other, target.queue)).toEqual([]);
  });

  test('what others have in their local queues is read once, however often local queues are looked through', async ({
    start,
  }) => {
    const [one, other] = [await start(), await start()];
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    for (let n = 0; n < 3; n += 1) await submitted(one, target);
    await sent(link);
    const sweep = sweepOf(other);
    for (let n = 0; n < 2; n += 1) await sweep.round();
    await one.client.config('RESETSTAT');
    for (let n = 0; n < 3; n += 1) await sweep.round();
    const stats = await one.client.info('commandstats');
    expect(stats).toMatch(/cmdstat_hkeys:/);
    expect(stats).not.toMatch(/cmdstat_(hget|hmget|hvals|hgetall):/);
  });

  test('after its result was taken: whoever was answered finds it COMPLETE', async ({ start }) => {
    const { one, other, target, task, order } = await sentByOne(start);
    let told: Finished | undefined;
    void task.finished.then((finished) => {
      told = finished;
      // The kill comes at the first moment in which the caller can hear of the end.
      kill(one);
    });
    void one.result(order, '{"y":1}').catch(() => undefined);
    await waitFor(() => told, 'the caller is answered');
    await reaches(other, task.taskId, 'COMPLETE');
    expect(await inLocalQueue(other, target.queue)).toEqual([]);
  });

  test.for([true, false])(
    'between the answer and the commit: the agent repeats the result, and it is recorded (sync: %s)',
    async (sync, { start }) => {
      const rows = aTable();
      let isDead = false;
      const write: TaskTable['write'] = (...batch) => (isDead ? new Promise(() => undefined) : rows.write(...batch));
      const one = await start({ rows: { ...rows, write }, collectMs: 60_000, patienceMs: 100 });
      const target = sync ? aTarget() : { ...aTarget(), kind: 'taskqueue', sync };
      const link = new PlayedLink();
      one.container(target.queue, link);
      const task = await submitted(one, target);
      const order = await sent(link);
      const acknowledged = one.result(order, '{"y":1}');
      if (sync) await task.finished;
      else await waitFor(async () => totalOf(await one.queues.depth(target.queue)) === 0, 'its end is decided');
      isDead = true;
      kill(one);
      expect(await rows.load(task.taskId)).toBeUndefined();
      const next = await start({ rows });
      expect(await next.result(order, '{"y":1}')).toBe(true);
      expect(await rows.load(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1, result: '{"y":1}' });
      await one.stop();
      expect(await acknowledged).toBe(false);
    },
  );
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
  const { adopted } = await one.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [order] });
  const acknowledged = one.result(order, '', 'cancelled');
  gate.resolve();
  expect([await stopping, await acknowledged, adopted]).toEqual([true, true, []]);
  expect((await task.finished).body).toBe('{"error":"deployment stopped"}');
  expect(await one.records.read(task.taskId)).toMatchObject({ failureReason: 'deployment_stopped' });
});

describe('Redis', () => {
  test('emptied: what is in the local queue counts again, and runs once', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const tasks = [await submitted(one, target), await submitted(one, target)];
    const running = await sent(link);
    await one.client.flushall();
    await one.queues.reopenAll();
    await one.redisLost();
    expect((await inLocalQueue(one, target.queue)).toSorted()).toEqual(tasks.map(({ taskId }) => taskId).toSorted());
    expect(await one.localQueueStore.queues()).toEqual([target.queue]);
    await one.result(running);
    await one.result(await sent(link, 2));
    for (const task of tasks) expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'nothing is left');
    expect(link.orders).toHaveLength(2);
  });

  test('back older: what stands there under our name and is over leaves the local queue', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const entry = await one.client.hget(one.keys.localQueue(target.queue), task.taskId);
    await one.result(await sent(link));
    await reaches(one, task.taskId, 'COMPLETE');
    const older = JSON.stringify({ ...JSON.parse(entry ?? '{}'), createdAtMs: Date.now() - 60_000 });
    await one.client.hset(one.keys.localQueue(target.queue), task.taskId, older);
    expect(await swept(one)).toBe(1);
    expect(await inLocalQueue(one, target.queue)).toEqual([]);
  });

  test('silent when a task comes: it is refused, and stands in no local queue afterwards', async ({ one, redis }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    await one.result((await submitted(one, target), await sent(link)));
    redis.freeze();
    let submission: Submission;
    try {
      submission = await one.submissions.submit(target, { input: '{}' });
    } finally {
      redis.thaw();
    }
    expect(submission.kind).toBe('unavailable');
    await turn();
    await waitFor(async () => (await inLocalQueue(one, target.queue)).length === 0, 'it is in no local queue');
    expect(link.orders).toHaveLength(1);
    await one.result((await submitted(one, target), await sent(link, 2)));
  });
});
