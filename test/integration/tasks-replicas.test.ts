// Tasks across the end of their scheduler process, and of Redis: nothing is run twice, each caller is answered.
import { describe, expect } from 'vitest';
import type { ContainerId, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import type { Submission } from '#scheduler/tasks/admission/calls.ts';
import { claimOf } from '#scheduler/tasks/dispatch/attempts.ts';
import { waitFor } from '../helpers/services.ts';
import { sent } from '../helpers/submissions.ts';
import type { aProcess, Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import { answered, idle, statusOf, submitted, test } from './tasks-started.ts';

describe('another scheduler process on the same Redis', () => {
  /** A task sent by a process that is gone, and the process that comes after it. */
  async function afterRestart(start: (options?: Parameters<typeof aProcess>[1]) => Promise<Process>) {
    const target = aTarget();
    const before = await start();
    const link = new PlayedLink();
    const { containerId } = before.container(target.queue, link);
    const task = await submitted(before, target);
    const order = await sent(link);
    await waitFor(() => before.leases.read(task.taskId), 'its lease is written');
    before.dispatcher.stop();
    before.tasks.stop();
    const after = await start();
    const report = { taskId: order.taskId, token: order.token, containerId };
    return { target, task, order, after, report, containerId };
  }

  test('adopts a running attempt by its token and completes it', async ({ start, redis }) => {
    const { target, task, order, after, report, containerId } = await afterRestart(start);
    // The previous version of the scheduler leaves its data so.
    const client = redis.connect();
    await client.del('ls:leased');
    client.disconnect();
    const container = after.container(target.queue, new PlayedLink(), 1, containerId);
    expect(
      (await after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] })).adopted,
    ).toEqual([report]);
    expect(container.inFlight).toBe(1);
    await waitFor(async () => (await after.leases.ofMachine(MACHINE)).length === 1, 'it is listed by its machine');
    expect(await after.result(order)).toBe(true);
    await idle(container);
    expect(await after.leases.ofMachine(MACHINE)).toEqual([]);
    expect(await after.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(await after.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
  });

  test('takes a result that nobody reported as running', async ({ start }) => {
    const { task, order, after } = await afterRestart(start);
    expect(await after.result(order)).toBe(true);
    expect(await statusOf(after, task.taskId)).toBe('COMPLETE');
  });

  test('adopts once, when the report and the result come side by side', async ({ start }) => {
    const { target, order, after, report, containerId } = await afterRestart(start);
    const container = after.container(target.queue, new PlayedLink(), 1, containerId);
    await Promise.all([
      after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] }),
      after.result(order),
      after.result(order),
    ]);
    await waitFor(() => after.attempts.size === 0, 'no attempt is left');
    await idle(container);
  });

  test('counts an adopted attempt against the slots of its container, also when that becomes ready later', async ({
    start,
  }) => {
    const { target, order, after, report, containerId } = await afterRestart(start);
    await after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] });
    const container = after.container(target.queue, undefined, 1, containerId);
    expect(container.inFlight).toBe(1);
    const link = new PlayedLink();
    for (const queue of after.slots.setLink(MACHINE, link)) after.dispatcher.wake(queue);
    const next = await submitted(after, target);
    expect(link.orders).toEqual([]);
    await after.result(order);
    expect((await sent(link)).taskId).toBe(next.taskId);
    await after.result(await sent(link));
    await idle(container);
  });

  test('does not believe another token, or another machine', async ({ start }) => {
    const { after, report, task } = await afterRestart(start);
    const forged = { ...report, token: newAttemptToken() };
    expect(
      (await after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [forged] })).refused,
    ).toEqual([forged]);
    expect(
      (await after.reports.machineReported('m-2' as typeof MACHINE, { agentInstance: 'agent-1', running: [report] }))
        .refused,
    ).toEqual([report]);
    // The agent named all of its attempts, and this one is not among
    // them. The order never arrived, so no report ended the attempt.
    await waitFor(async () => (await statusOf(after, task.taskId)) === 'PENDING', 'it is back in its queue');
    expect(await after.records.read(task.taskId)).toMatchObject({ failureReason: 'not_received' });
    expect(after.attempts.size).toBe(0);
  });

  test('never runs a synchronous task again that was sent: ERROR, 502', async ({ start }) => {
    const target = aTarget();
    const one = await start();
    const task = await submitted(one, target);
    const dead = lockTokenOf(newInstanceId(), newAttemptToken());
    const fetched = await one.queues.fetch(target.queue, dead);
    if (fetched.job === undefined) throw new Error('nothing fetched');
    await one.leases.write({
      lock: dead,
      attempt: 1,
      containerId: 'c' as ContainerId,
      machineId: MACHINE,
      queue: target.queue,
      job: fetched.job,
      startedAtMs: Date.now(),
    });
    await one.queues.giveBack(target.queue, task.taskId, dead);
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    expect(await answered(task)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect(link.orders).toEqual([]);
    await idle(container);
  });

  test('does not send a synchronous task whose lease another attempt took meanwhile, nor overwrites that', async ({
    start,
  }) => {
    const other = { lock: lockTokenOf(newInstanceId(), newAttemptToken()), of: 'another attempt' };
    const leaseKey = (taskId: TaskId) => `ls:lease:${taskId}`;
    const race: { taskId?: TaskId } = {};
    // Redis is asked this between the look for a lease and the send, and just then the other process comes first.
    const one = await start({
      alive: () => {
        if (race.taskId !== undefined) void one.client.set(leaseKey(race.taskId), JSON.stringify(other));
        return true;
      },
    });
    const caller = await start();
    const target = aTarget();
    const { taskId } = await submitted(caller, target);
    const lock = lockTokenOf(newInstanceId(), newAttemptToken());
    await one.queues.fetch(target.queue, lock);
    await one.queues.giveBack(target.queue, taskId, lock);
    race.taskId = taskId;
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    await waitFor(async () => (await statusOf(one, taskId)) === 'ERROR', 'it ended as lost');
    expect(link.orders).toEqual([]);
    await idle(container);
  });

  test('sends nothing by a fetch of before it stood still, when another process has the task by now', async ({
    one,
  }) => {
    for (const target of [aTarget(), aTarget({ stubType: 'taskqueue/deployment' })]) {
      const isSync = target.config.stubType.startsWith('endpoint');
      const { taskId } = await submitted(one, { ...target, sync: isSync, kind: isSync ? 'endpoint' : 'taskqueue' });
      await waitFor(() => one.queueing.size === 0, 'it is queued');
      const token = newAttemptToken();
      const lock = lockTokenOf(one.instance, token);
      const fetched = await one.queues.fetch(target.queue, lock);
      if (fetched.job === undefined) throw new Error('nothing fetched');
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      await waitFor(() => container.inFlight === 0, 'the queue is known to be empty');
      // The task's lock ran out, and another process fetched and sent the task.
      const theirs = JSON.stringify({ lock: lockTokenOf(newInstanceId(), newAttemptToken()) });
      await one.client.set(`ls:lease:${taskId}`, theirs);
      await one.client.set(`ls:${target.queue}:${taskId}:lock`, 'theirs');
      container.inFlight += 1;
      const askedAtMs = performance.now() - 120_000;
      one.sender.begin(claimOf(fetched, container, token, lock, askedAtMs));
      await idle(container);
      expect(link.runs).toBe(0);
      expect(await one.client.get(`ls:lease:${taskId}`)).toBe(theirs);
    }
  });

  test('a job that comes back although its task ended is not run, and its record stays', async ({ start }) => {
    const target = aTarget();
    const one = await start();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    const job = await one.queues.read(target.queue, task.taskId);
    if (job === undefined) throw new Error('no job');
    await one.result(order);
    expect((await answered(task)).status).toBe('COMPLETE');
    // A Redis that came back older leaves such a job: waiting, and fetched once before.
    const dead = lockTokenOf(newInstanceId(), newAttemptToken());
    await one.queues.add(target.queue, job);
    expect((await one.queues.fetch(target.queue, dead)).job?.taskId).toBe(task.taskId);
    await one.queues.giveBack(target.queue, task.taskId, dead);
    one.dispatcher.wake(target.queue);
    await waitFor(async () => (await one.queues.read(target.queue, task.taskId)) === undefined, 'the job is gone');
    expect(await one.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(link.orders).toHaveLength(1);
  });
});

describe('Redis', () => {
  /** A task that runs there, and is recorded so. */
  async function runningOn(one: Process) {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'RUNNING', 'it is recorded as running');
    return { one, target, container, task, order };
  }

  test('away at the completion of a job: the result is kept here and written after, and the caller gets it then', async ({
    start,
    redis,
  }) => {
    const { one, target, container, task, order } = await runningOn(await start({ localQueue: false }));
    redis.freeze();
    let first: Promise<boolean>;
    let repeated: Promise<boolean>;
    try {
      first = one.result(order, '{"kept":1}');
      repeated = one.result(order, '{"kept":1}');
      // Commands are given up in the order in which they were sent.
      await expect(one.client.ping()).rejects.toThrow();
      expect(task.answers).toEqual([]);
    } finally {
      redis.thaw();
    }
    expect(await first).toBe(true);
    expect(await repeated).toBe(true);
    expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"kept":1}' });
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'COMPLETE', 'its record is written');
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
    await idle(container);
    expect(task.answers).toHaveLength(1);
  });

  test('not answering at the end of a task of the local queue: its caller has the result, which is recorded as soon as Redis answers', async ({
    start,
    redis,
  }) => {
    const { one, target, container, task, order } = await runningOn(await start({ localQueue: true }));
    redis.freeze();
    try {
      expect(await one.result(order, '{"kept":1}')).toBe(true);
      expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"kept":1}' });
      // The pause is longer than a command may take.
      await expect(one.client.ping()).rejects.toThrow();
    } finally {
      redis.thaw();
    }
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'COMPLETE', 'its record is written');
    await waitFor(async () => (await one.queues.depth(target.queue)).active === 0, 'nothing of it is left');
    await idle(container);
    expect(task.answers).toHaveLength(1);
  });

  test('away when a task comes: it is refused, and leaves nothing behind', async ({ one, redis }) => {
    const target = aTarget();
    await one.queues.open(target.queue);
    redis.freeze();
    let submission: Submission;
    try {
      submission = await one.submissions.submit(target, { input: JSON.stringify('a'.repeat(100_000)) });
    } finally {
      redis.thaw();
    }
    expect(submission.kind).toBe('unavailable');
    expect(one.replies.size).toBe(0);
    await waitFor(async () => (await one.queues.depth(target.queue)).waiting === 0, 'the job was taken out', 10_000);
    await waitFor(() => one.bytes.objects.size === 0, 'its input is gone');
  });

  test('a lock that ran out before the end was written: the task ends once, and is not run again', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await one.client.del(`${one.keys.prefix}:${target.queue}:${task.taskId}:lock`);
    expect(await one.result(order)).toBe(true);
    expect((await answered(task)).status).toBe('COMPLETE');
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
    await idle(container);
  });
});
