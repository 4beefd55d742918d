// Tasks across the end of their scheduler process, and of Redis: nothing is run twice, each caller is answered.
import { describe, expect } from 'vitest';
import type { MachineId, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { LiveReport } from '#scheduler/tasks/completion/reports.ts';
import { claimOf } from '#scheduler/tasks/dispatch/attempts.ts';
import { waitFor } from '../helpers/services.ts';
import { liveOf, reaches, sent } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import type { Options } from './tasks-started.ts';
import { answered, idle, statusOf, submitted, test } from './tasks-started.ts';
import { aQueueTarget, put } from './tasks-world.ts';

/** A task sent by a process that is gone, and the process that comes after it. */
async function afterRestart(start: (options?: Options) => Promise<Process>, target: Target) {
  const before = await start();
  const link = new PlayedLink();
  const { containerId } = before.container(target.queue, link);
  const { taskId } = await submitted(before, target);
  const order = await sent(link);
  if (!target.sync) await waitFor(() => before.leases.read(taskId), 'its lease is written');
  before.dispatcher.stop();
  before.tasks.stop();
  const after = await start();
  const live = liveOf(order);
  const reported = (running: readonly LiveReport[], finished: readonly LiveReport[] = [], machineId = MACHINE) =>
    after.reports.machineReported(machineId, { agentInstance: 'agent-1', sessionEpoch: 2, running, finished });
  return { target, taskId, order, after, live, reported, containerId };
}

describe.each([
  ['synchronous', aTarget],
  ['asynchronous', aQueueTarget],
] as const)('another scheduler process on the same Redis, with a task that is %s,', (_kind, made) => {
  test('adopts a running attempt and completes it', async ({ start }) => {
    const { target, taskId, order, after, live, reported, containerId } = await afterRestart(start, made());
    const container = after.container(target.queue, new PlayedLink(), 1, containerId);
    expect((await reported([live])).adopted).toEqual([live]);
    expect(container.inFlight).toBe(1);
    expect(await after.result(order)).toBe(true);
    await idle(container);
    expect(await after.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(await after.leases.ofMachine(MACHINE)).toEqual([]);
    expect(await after.lines.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
  });

  test('takes a result that its agent kept', async ({ start }) => {
    const { taskId, order, after, live, reported } = await afterRestart(start, made());
    await reported([], [live]);
    expect(await after.result(order)).toBe(true);
    expect(await statusOf(after, taskId)).toBe('COMPLETE');
  });

  test('adopts once, when the report and the result come side by side', async ({ start }) => {
    const { target, taskId, order, after, live, reported, containerId } = await afterRestart(start, made());
    const container = after.container(target.queue, new PlayedLink(), 1, containerId);
    await Promise.all([reported([live]), after.result(order), after.result(order)]);
    await reaches(after, taskId, 'COMPLETE');
    await waitFor(() => after.attempts.size === 0, 'no attempt is left');
    await idle(container);
  });

  test('counts an adopted attempt against the slots of its container, also when that becomes ready later', async ({
    start,
  }) => {
    const { target, order, after, live, reported, containerId } = await afterRestart(start, made());
    await reported([live]);
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
});

describe('another scheduler process on the same Redis', () => {
  test('takes a result that nobody reported as running', async ({ start }) => {
    const { taskId, order, after } = await afterRestart(start, aQueueTarget());
    expect(await after.result(order)).toBe(true);
    expect(await statusOf(after, taskId)).toBe('COMPLETE');
  });

  test('does not believe another token, or another machine', async ({ start }) => {
    const { after, live, reported, taskId } = await afterRestart(start, aQueueTarget());
    const forged = { ...live, token: newAttemptToken() };
    expect((await reported([forged])).refused).toEqual([forged]);
    expect((await reported([live], [], 'm-2' as MachineId)).refused).toEqual([live]);
    // The agent named all of its attempts, and this one is not among
    // them. The order never arrived, so no report ended the attempt.
    await waitFor(async () => (await statusOf(after, taskId)) === 'PENDING', 'it is back in its queue');
    expect(await after.records.read(taskId)).toMatchObject({ failureReason: 'not_received' });
    expect(after.attempts.size).toBe(0);
  });

  test('does not believe the facts of a call that its container, or its machine, cannot have', async ({ start }) => {
    const { after, live, reported, taskId } = await afterRestart(start, aTarget());
    const { containerId } = after.container(aTarget().queue, new PlayedLink());
    const { facts: _facts, ...without } = live;
    for (const forged of [{ ...live, taskId: newId<TaskId>() }, { ...live, containerId }, without])
      expect((await reported([forged])).refused).toEqual([forged]);
    expect((await reported([live], [], 'm-2' as MachineId)).refused).toEqual([live]);
    expect(after.attempts.size).toBe(0);
    expect(await statusOf(after, taskId)).toBe('RUNNING');
    expect((await reported([live])).adopted).toEqual([live]);
  });

  test('sends nothing by a fetch of before it stood still, when another process has the task by now', async ({
    one,
  }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
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
  });

  test('a job that comes back although its task ended is not run, and its record stays', async ({ start }) => {
    const target = aQueueTarget();
    const one = await start();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    const job = await one.queues.read(target.queue, taskId);
    if (job === undefined) throw new Error('no job');
    await one.result(order);
    await reaches(one, taskId, 'COMPLETE');
    // A Redis that came back older leaves such a job: waiting, and fetched once before.
    const dead = lockTokenOf(newInstanceId(), newAttemptToken());
    await one.queues.add(target.queue, job);
    expect((await one.queues.fetch(target.queue, dead)).job?.taskId).toBe(taskId);
    await one.queues.giveBack(target.queue, taskId, dead);
    one.dispatcher.wake(target.queue);
    await waitFor(async () => (await one.queues.read(target.queue, taskId)) === undefined, 'the job is gone');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(link.orders).toHaveLength(1);
  });
});

describe('Redis', () => {
  test('away at the completion of a job: the result is kept here and written after', async ({ one, redis }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    redis.freeze();
    let first: Promise<boolean>;
    let repeated: Promise<boolean>;
    try {
      first = one.result(order, '{"kept":1}');
      repeated = one.result(order, '{"kept":1}');
      // Commands are given up in the order in which they were sent.
      await expect(one.client.ping()).rejects.toThrow();
      expect(await statusOf(one, taskId)).toBe('RUNNING');
    } finally {
      redis.thaw();
    }
    expect(await first).toBe(true);
    expect(await repeated).toBe(true);
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 1, result: '{"kept":1}' });
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
    await idle(container);
  });

  test('away: a call that a container here can serve is accepted, sent, answered and recorded', async ({
    one,
    redis,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    redis.freeze();
    try {
      const task = await submitted(one, target);
      expect(await one.result(await sent(link), '{"kept":1}')).toBe(true);
      expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"kept":1}' });
      expect(await statusOf(one, task.taskId)).toBe('COMPLETE');
      await idle(container);
      // Redis was away all the time.
      await expect(one.client.ping()).rejects.toThrow();
      expect(task.answers).toHaveLength(1);
    } finally {
      redis.thaw();
    }
  });

  test('a lock that ran out before the end was written: the task ends once, and is not run again', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.client.del(`${one.keys.prefix}:${target.queue}:${taskId}:lock`);
    expect(await one.result(order)).toBe(true);
    await reaches(one, taskId, 'COMPLETE');
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
    await idle(container);
  });
});
