// Tasks that one replica forwards to another, on real Redis: accepted where no container is linked, served where one
// is, without a job. Either replica has no room, is slow, stands still or dies at each step of the way. No task runs
// twice.
import { describe, expect } from 'vitest';
import type { ContainerId, InstanceId, TaskId } from '#shared/domain/ids.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Options } from './tasks-started.ts';
import { dead, inLocalQueue, jobs, kill, sweepOf, swept, test as base } from './local-queue-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';

const CANCELLED = { status: 'CANCELLED', reason: 'request_cancelled', detail: 'x' } as const;
/** Settings under which no forwarded task is taken back for being slow. */
const PATIENT = { silentMs: 60_000 };
const nobody = (): undefined => undefined;

interface Two {
  /** The replica that accepts; no container is linked to it. */
  readonly far: Process;
  /** The replica that serves. */
  readonly near: Process;
  readonly target: Target;
  readonly link: PlayedLink;
}

const test = base
  .extend(
    'replica',
    async ({ start }) =>
      (options: Options = {}) =>
        start({ forwardTo: nobody, ...options }),
  )
  .extend('two', async ({ replica }) => {
    return async (far: Options = {}, near: Options = {}): Promise<Two> => {
      const serving = await replica(near);
      const forwardTo = (_queue: unknown, forwardedTo: (one: InstanceId) => number): InstanceId | undefined =>
        forwardedTo(serving.instance) < 100 ? serving.instance : undefined;
      const accepting = await replica({ isOursAlone: () => false, forwardTo, ...PATIENT, ...far });
      return { far: accepting, near: serving, target: aTarget(), link: new PlayedLink() };
    };
  });

/** The agent's report when it dials another replica. */
const reportOf = (...orders: readonly { taskId: TaskId; token: string; containerId: ContainerId }[]) => ({
  agentInstance: 'agent-1',
  running: orders.map(({ taskId, token, containerId }) => ({ taskId, token: token as never, containerId })),
});
/** A gate that holds a process's fetches until it is opened. */
function aGate(): { readonly beforeFetch: () => Promise<void> | undefined; close: () => void; open: () => void } {
  let gate: PromiseWithResolvers<void> | undefined;
  return {
    beforeFetch: () => gate?.promise,
    close: () => (gate = Promise.withResolvers()),
    open: () => {
      gate?.resolve();
      gate = undefined;
    },
  };
}
const received = (one: Process, { taskId }: Accepted) =>
  waitFor(() => one.queues.has(taskId), 'the other replica has it');
const leased = (one: Process, { taskId }: Accepted) => waitFor(() => one.leases.isHeld(taskId), 'its lease is written');
const entryOf = async (one: Process, target: Target, { taskId }: Accepted): Promise<string> =>
  (await one.client.hget(one.keys.localQueue(target.queue), taskId)) ?? '';
const isIdle = (container: { inFlight: number }) => waitFor(() => container.inFlight === 0, 'its slot is free');

describe('a task for which another replica has room', () => {
  test('is forwarded to it: no job is made, it counts in the depth, its caller is answered, and nothing is left of it', async ({
    two,
  }) => {
    const { far, near, target, link } = await two();
    const container = near.container(target.queue, link);
    await isIdle(container);
    const task = await submitted(far, target);
    const order = await sent(link);
    expect(await inLocalQueue(far, target.queue)).toEqual([task.taskId]);
    expect(await jobs(far, target.queue)).toBe(0);
    expect(await far.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
    expect(await far.queues.placeOf(target.queue, task.taskId)).toEqual({ kind: 'active' });
    expect(await near.leases.read(task.taskId)).toMatchObject({ attempt: 1, job: { replica: far.instance } });
    await near.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    await reaches(far, task.taskId, 'COMPLETE');
    expect(await inLocalQueue(far, target.queue)).toEqual([]);
    expect(far.queues.has(task.taskId)).toBe(false);
    expect(await far.leases.isHeld(task.taskId)).toBe(false);
  });

  test('runs there on and on: the origin forgets the forwarding, and its caller is answered all the same', async ({
    two,
  }) => {
    const { far, near, target, link } = await two({ silentMs: 50 });
    await isIdle(near.container(target.queue, link));
    const task = await submitted(far, target);
    const order = await sent(link);
    await waitFor(() => !far.queues.has(task.taskId), 'the forwarding is forgotten');
    expect(await jobs(far, target.queue)).toBe(0);
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.orders).toHaveLength(1);
  });

  test('and whose input is large goes through the queue', async ({ two }) => {
    const { far, near, target, link } = await two();
    await isIdle(near.container(target.queue, link));
    const task = await submitted(far, target, JSON.stringify('x'.repeat(20_000)));
    expect(await far.queues.waitingIds(target.queue)).toEqual([task.taskId]);
  });
});

describe('a receiver without room', () => {
  test('gives it back: it is a job, the next ones are too, and they run in the order they came', async ({ two }) => {
    const { far, near, target, link } = await two();
    near.container(target.queue, link);
    const running = await submitted(near, target);
    await sent(link);
    const tasks = [await submitted(far, target)];
    await waitFor(async () => (await jobs(far, target.queue)) === 1, 'it is a job');
    tasks.push(await submitted(far, target), await submitted(near, target));
    expect(await jobs(far, target.queue)).toBe(3);
    expect(await inLocalQueue(far, target.queue)).toEqual([running.taskId]);
    await near.result(link.orders[0] as never);
    for (const [index, { taskId, finished }] of tasks.entries()) {
      near.dispatcher.wake(target.queue);
      const order = await sent(link, index + 2);
      expect(order.taskId).toBe(taskId);
      await near.result(order);
      expect(await finished).toMatchObject({ status: 'COMPLETE' });
    }
  });

  test('does not make the bound any less exact', async ({ two }) => {
    const { far, near, link } = await two();
    const target = aTarget({ maxPendingTasks: 100 });
    await isIdle(near.container(target.queue, link, 4));
    const answers = await Promise.all(
      Array.from({ length: 300 }, () => far.submissions.submit(target, { input: '{}' })),
    );
    const accepted = answers.filter(({ kind }) => kind === 'accepted').length;
    expect(answers.filter(({ kind }) => kind !== 'accepted' && kind !== 'queue_full')).toEqual([]);
    expect(accepted).toBeLessThanOrEqual(100);
    expect(accepted).toBeGreaterThan(60);
    await waitFor(async () => {
      const { waiting, active } = await far.queues.depth(target.queue);
      return waiting + active === accepted;
    }, 'what was accepted is there, once');
  });

  test('whose agent gives it back, long after the origin has forgotten it: it runs again, once', async ({ two }) => {
    const { far, near, target, link } = await two({ silentMs: 50 });
    await isIdle(near.container(target.queue, link));
    const task = await submitted(far, target);
    const first = await sent(link);
    await waitFor(() => !far.queues.has(task.taskId), 'the forwarding is forgotten');
    await near.reports.refused(first.taskId, first.token, 'busy');
    await waitFor(async () => (await jobs(far, target.queue)) === 1, 'it is a job');
    near.dispatcher.wake(target.queue);
    const again = await sent(link, 2);
    expect(again.taskId).toBe(task.taskId);
    await near.result(again);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(await inLocalQueue(far, target.queue)).toEqual([]);
  });
});

test('one that nobody hears of is taken back: where a container is here by now, it runs here', async ({ replica }) => {
  const far = await replica({ isOursAlone: () => false, forwardTo: () => newInstanceId(), silentMs: 50 });
  const target = aTarget();
  const link = new PlayedLink();
  const task = await submitted(far, target);
  far.slots.ready({ containerId: 'c-h' as ContainerId, queue: target.queue, machineId: MACHINE, slots: 1 }, link, 0);
  const order = await sent(link);
  await far.result(order);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  await reaches(far, task.taskId, 'COMPLETE');
  expect(await jobs(far, target.queue)).toBe(0);
  expect(await inLocalQueue(far, target.queue)).toEqual([]);
});

test('one that was given back unheard, and whose origin has forgotten it, is found by its sweep', async ({
  replica,
}) => {
  const far = await replica({ isOursAlone: () => false, forwardTo: () => newInstanceId(), ...PATIENT });
  const target = aTarget();
  const task = await submitted(far, target);
  far.queues.disown(target.queue, task.taskId);
  const entry = JSON.parse((await far.client.hget(far.keys.localQueue(target.queue), task.taskId)) ?? '{}') as object;
  const older = JSON.stringify({ ...entry, createdAtMs: Date.now() - 60_000 });
  await far.client.hset(far.keys.localQueue(target.queue), task.taskId, older);
  expect(await swept(far)).toBe(1);
  await waitFor(async () => (await far.queues.waitingIds(target.queue)).includes(task.taskId), 'it is a job');
  expect(await inLocalQueue(far, target.queue)).toEqual([]);
});

describe('the receiver stands still, or dies', () => {
  test('before its lease is written: taken back, served by another, and never sent when it comes back', async ({
    two,
    replica,
  }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({ silentMs: 50 }, gate);
    const container = near.container(target.queue, link);
    await isIdle(container);
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    await waitFor(async () => (await jobs(far, target.queue)) === 1, 'it is a job');
    const other = await replica();
    const there = new PlayedLink();
    other.container(target.queue, there);
    const order = await sent(there);
    gate.open();
    await waitFor(() => !near.queues.has(task.taskId), 'the receiver has looked');
    await isIdle(container);
    await other.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.runs).toBe(0);
    expect(await other.records.read(task.taskId)).toMatchObject({ attempt: 2 });
    expect(await inLocalQueue(far, target.queue)).toEqual([]);
    expect(await jobs(far, target.queue)).toBe(0);
  });

  test('before its lease is written: taken back, it waits at its origin for a slot there, and runs there alone', async ({
    two,
  }) => {
    const gate = aGate();
    let isAlone = false;
    const { far, near, target, link } = await two({ silentMs: 50, isOursAlone: () => isAlone }, gate);
    const container = near.container(target.queue, link);
    await isIdle(container);
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    isAlone = true;
    await waitFor(async () => !(await entryOf(far, target, task)).startsWith('{"lentTo"'), 'it is taken back');
    gate.open();
    await waitFor(() => !near.queues.has(task.taskId), 'the receiver has looked');
    await isIdle(container);
    const here = new PlayedLink();
    far.container(target.queue, here);
    const order = await sent(here);
    await far.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.runs).toBe(0);
  });

  test('after its lease was written and before its order reached the agent: another replica serves it', async ({
    two,
    replica,
  }) => {
    const { far, near, target, link } = await two({ silentMs: 50 });
    await isIdle(near.container(target.queue, link));
    link.mode = 'lose';
    const task = await submitted(far, target);
    await leased(near, task);
    kill(near);
    await waitFor(() => !far.queues.has(task.taskId), 'the forwarding is forgotten');
    expect(await swept(far)).toBe(0);
    const other = await replica();
    const there = new PlayedLink();
    other.container(target.queue, there);
    await other.reports.machineReported(MACHINE, reportOf());
    const order = await sent(there);
    expect(order.taskId).toBe(task.taskId);
    await other.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(await inLocalQueue(far, target.queue)).toEqual([]);
  });

  test('while it runs: adopted under its token, one run, its caller has the result', async ({ two, replica }) => {
    const { far, near, target, link } = await two();
    await isIdle(near.container(target.queue, link));
    const task = await submitted(far, target);
    const order = await sent(link);
    kill(near);
    const other = await replica();
    other.container(target.queue, new PlayedLink(), 1, order.containerId);
    expect((await other.reports.machineReported(MACHINE, reportOf(order))).adopted).toHaveLength(1);
    expect(await other.result(order, '{"late":1}')).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"late":1}' });
    expect(await inLocalQueue(other, target.queue)).toEqual([]);
    expect(await jobs(other, target.queue)).toBe(0);
  });

  test('while it runs, and its machine dials the origin: it goes on there', async ({ two }) => {
    const { far, near, target, link } = await two();
    await isIdle(near.container(target.queue, link));
    const task = await submitted(far, target);
    const order = await sent(link);
    kill(near);
    far.container(target.queue, new PlayedLink(), 1, order.containerId);
    expect((await far.reports.machineReported(MACHINE, reportOf(order))).adopted).toHaveLength(1);
    expect(await far.result(order)).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await reaches(far, task.taskId, 'COMPLETE');
    expect(await inLocalQueue(far, target.queue)).toEqual([]);
  });
});

describe('the origin', () => {
  test('dies before the task is sent: CANCELLED by the leader, and not sent afterwards', async ({ two }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({}, gate);
    const container = near.container(target.queue, link);
    await isIdle(container);
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    kill(far);
    expect(await swept(near)).toBe(1);
    await reaches(near, task.taskId, 'CANCELLED');
    gate.open();
    await waitFor(() => !near.queues.has(task.taskId), 'the receiver has looked');
    await isIdle(container);
    expect(link.runs).toBe(0);
    expect(await inLocalQueue(near, target.queue)).toEqual([]);
  });

  test('dies while it runs: it goes on, and is recorded', async ({ two }) => {
    const { far, near, target, link } = await two();
    await isIdle(near.container(target.queue, link));
    const task = await submitted(far, target);
    const order = await sent(link);
    kill(far);
    expect(await swept(near)).toBe(0);
    await near.result(order);
    await reaches(near, task.taskId, 'COMPLETE');
    expect(await inLocalQueue(near, target.queue)).toEqual([]);
  });

  test('stood still while it was taken for dead: its caller hears how it ended, and nothing runs', async ({ two }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({ silentMs: 1000 }, gate);
    await isIdle(near.container(target.queue, link));
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    dead.add(far.instance);
    expect(await swept(near)).toBe(1);
    dead.delete(far.instance);
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 503 });
    gate.open();
    await waitFor(() => !near.queues.has(task.taskId), 'the receiver has looked');
    expect(await jobs(far, target.queue)).toBe(0);
    expect(link.runs).toBe(0);
  });

  test('stops: callers of what was not sent are told, and it is not sent', async ({ two }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({}, gate);
    await isIdle(near.container(target.queue, link));
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    await sweepOf(near).stop();
    expect(near.queues.has(task.taskId)).toBe(true);
    await sweepOf(far).stop();
    expect(seenByCaller(await task.finished)).toMatchObject({
      httpStatus: 503,
      body: '{"error":"scheduler is stopping"}',
    });
    gate.open();
    await waitFor(() => !near.queues.has(task.taskId), 'the receiver has looked');
    expect(link.runs).toBe(0);
  });
});

describe('cancelled before it is sent', () => {
  test('by its caller, at its origin: it is not sent', async ({ two }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({}, gate);
    const container = near.container(target.queue, link);
    await isIdle(container);
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    task.callerLeft();
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED', httpStatus: 499 });
    gate.open();
    await waitFor(() => !near.queues.has(task.taskId), 'the receiver has looked');
    await isIdle(container);
    expect(link.runs).toBe(0);
    expect(far.queues.has(task.taskId)).toBe(false);
  });

  test('by somebody at any other replica, its receiver among them: it is not sent, and its caller is answered', async ({
    two,
    replica,
  }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({}, gate);
    const container = near.container(target.queue, link, 2);
    await isIdle(container);
    gate.close();
    const looked: TaskId[] = [];
    for (const by of [near, await replica()]) {
      const task = await submitted(far, target);
      looked.push(task.taskId);
      await received(near, task);
      const job = await by.queues.read(target.queue, task.taskId);
      expect(job).not.toHaveProperty('lentTo');
      if (job === undefined) throw new Error('no job');
      expect(await by.completion.takeOut(target.queue, job, CANCELLED)).toBe(true);
      expect(await task.finished).toMatchObject({ status: 'CANCELLED' });
    }
    gate.open();
    await waitFor(() => looked.every((taskId) => !near.queues.has(taskId)), 'the receiver has looked');
    await isIdle(container);
    expect(await inLocalQueue(far, target.queue)).toEqual([]);
    const next = await submitted(far, target);
    expect((await sent(link)).taskId).toBe(next.taskId);
    expect(link.runs).toBe(1);
  });

  test('a runner that is not ours cannot take it', async ({ two }) => {
    const gate = aGate();
    const { far, near, target, link } = await two({}, gate);
    await isIdle(near.container(target.queue, link));
    gate.close();
    const task = await submitted(far, target);
    await received(near, task);
    await near.leases.announce(task.taskId);
    expect(await far.queues.remove(target.queue, task.taskId)).toBe(false);
    gate.open();
    expect((await sent(link)).taskId).toBe(task.taskId);
  });
});

test('cancelled at another replica in the very moment in which it is sent: its handler is told to stop', async ({
  replica,
}) => {
  const [one, other] = [await replica(), await replica()];
  const target = aTarget();
  const link = new PlayedLink();
  const container = one.container(target.queue, link);
  const task = await submitted(one, target);
  const order = await sent(link);
  const job = await other.queues.read(target.queue, task.taskId);
  if (job === undefined) throw new Error('no job');
  // The cancel comes as if between this replica's look and its lease.
  expect(await other.localQueueStore.remove(target.queue, task.taskId)).toBe(true);
  await other.completion.endTakenOut(target.queue, job, CANCELLED);
  expect(await task.finished).toMatchObject({ status: 'CANCELLED' });
  await waitFor(() => link.cancelled.includes(`${task.taskId} ${order.token}`), 'its handler is told');
  await one.result(order, '', 'cancelled');
  await isIdle(container);
});

test('Redis emptied while it runs: it counts again, runs once, and its caller is answered', async ({ two }) => {
  const { far, near, target, link } = await two();
  await isIdle(near.container(target.queue, link));
  const task = await submitted(far, target);
  const order = await sent(link);
  await near.client.flushall();
  for (const one of [near, far]) {
    await one.queues.reopenAll();
    await one.redisLost();
  }
  expect(await inLocalQueue(far, target.queue)).toEqual([task.taskId]);
  expect(await far.leases.isHeld(task.taskId)).toBe(true);
  await near.result(order);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  await waitFor(async () => (await inLocalQueue(far, target.queue)).length === 0, 'nothing is left');
  expect(link.runs).toBe(1);
});
