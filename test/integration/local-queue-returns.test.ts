// Forwarded tasks on their way back, while several parties act on them. The parties: a replica that took their machine
// over, the sweep of their origin, a receiver that stood still, a Redis that lost its data. No task runs twice.
import { expect } from 'vitest';
import type { ContainerId, InstanceId } from '#shared/domain/ids.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import { systemClock } from '#shared/clock.ts';
import { inputKeyOf } from '#scheduler/tasks/dispatch/bodies.ts';
import { Rebuild } from '#scheduler/tasks/maintenance/rebuild.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { sent, submitted } from '../helpers/submissions.ts';
import type { Options } from './tasks-started.ts';
import { inLocalQueue, jobs, kill, sweepOf, swept, test as base } from './local-queue-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';

const nobody = (): undefined => undefined;

const test = base.extend(
  'replica',
  async ({ start }) =>
    (options: Options = {}) =>
      start({ forwardTo: nobody, ...options }),
);

/** Options of a replica that accepts, and forwards to the given one. */
const forwardingTo = ({ instance }: Process): Options => ({
  isOursAlone: () => false,
  forwardTo: (_queue: unknown, forwardedTo: (one: InstanceId) => number) =>
    forwardedTo(instance) < 100 ? instance : undefined,
});
const isIdle = (container: { inFlight: number }) => waitFor(() => container.inFlight === 0, 'its slot is free');
const isForgotten = (one: Process, { taskId }: Accepted) =>
  waitFor(() => !one.queues.has(taskId), 'the forwarding is forgotten');

/** Makes the task's entry as old as those that the sweep looks at. */
async function age(one: Process, { queue }: Target, { taskId }: Accepted): Promise<void> {
  const entry = JSON.parse((await one.client.hget(one.keys.localQueue(queue), taskId)) ?? '{}') as object;
  const older = JSON.stringify({ ...entry, createdAtMs: Date.now() - 60_000 });
  await one.client.hset(one.keys.localQueue(queue), taskId, older);
}

test('one that its origin has taken back is not given back once more by a replica that stood still over it', async ({
  replica,
}) => {
  const near = await replica();
  const far = await replica({ ...forwardingTo(near), silentMs: 50 });
  const target = aTarget();
  const link = new PlayedLink();
  await isIdle(near.container(target.queue, link));
  link.mode = 'lose';
  const task = await submitted(far, target);
  await waitFor(() => link.runs === 1, 'it is sent');
  kill(near);
  await isForgotten(far, task);
  // The machine's new replica has dropped the lease of the task that never reached it, and stands still.
  const still = Promise.withResolvers<void>();
  let isStill = false;
  let isBack = false;
  const other = await replica({
    queues: (queues) =>
      new Proxy(queues, {
        get: (whole, name) => {
          const value: unknown = Reflect.get(whole, name);
          if (typeof value !== 'function') return value;
          if (name !== 'giveBack') return value.bind(whole);
          return async (...given: Parameters<TaskQueues['giveBack']>) => {
            isStill = true;
            await still.promise;
            const fence = await whole.giveBack(...given);
            isBack = true;
            return fence;
          };
        },
      }),
  });
  other.slots.ready(
    { containerId: 'c-o' as ContainerId, queue: target.queue, machineId: MACHINE, slots: 1 },
    undefined,
    0,
  );
  await other.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [] });
  await waitFor(() => isStill, 'it is being given back');
  const here = new PlayedLink();
  far.container(target.queue, here);
  await age(far, target, task);
  expect(await swept(far)).toBe(1);
  const order = await sent(here);
  still.resolve();
  await waitFor(() => isBack, 'it goes on');
  expect(await jobs(far, target.queue)).toBe(0);
  expect(await inLocalQueue(far, target.queue)).toEqual([task.taskId]);
  await far.result(order);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
});

test('what is left in the local queue of one that went on as a job is taken out, and not taken for a forwarded one', async ({
  replica,
}) => {
  let isAlone = false;
  const far = await replica({ isOursAlone: () => isAlone });
  const near = await replica();
  const target = aTarget();
  const task = await submitted(far, target);
  expect(await far.queues.waitingIds(target.queue)).toEqual([task.taskId]);
  const job = await far.queues.read(target.queue, task.taskId);
  if (job === undefined) throw new Error('no job');
  // The entry is restored as if Redis had not answered when the task left the local queue.
  await far.localQueueStore.restore(target.queue, [job]);
  await age(far, target, task);
  isAlone = true;
  expect(await swept(far)).toBe(1);
  expect(far.queues.has(task.taskId)).toBe(false);
  expect(await inLocalQueue(far, target.queue)).toEqual([]);
  const link = new PlayedLink();
  near.container(target.queue, link);
  await near.result(await sent(link));
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
});

test('one that comes back while the sweep looks at it stays in its local queue', async ({ replica }) => {
  const target = aTarget();
  let isAlone = false;
  const origin = await replica({ forwardTo: () => newInstanceId(), isOursAlone: () => isAlone, silentMs: 60_000 });
  const task = await submitted(origin, target);
  origin.queues.disown(target.queue, task.taskId);
  await age(origin, target, task);
  isAlone = true;
  const sweep = sweepOf(origin, {
    records: {
      readSurely: async (taskId) => {
        await origin.queues.recover(target.queue, taskId);
        return await origin.records.read(taskId);
      },
    },
  });
  await sweep.round();
  await sweep.round();
  expect(origin.queues.has(task.taskId)).toBe(true);
  expect(await inLocalQueue(origin, target.queue)).toEqual([task.taskId]);
});

test('a receiver that stood still gets it as a job while it still has it as a forwarded one: it runs, once', async ({
  replica,
}) => {
  let gate: PromiseWithResolvers<void> | undefined;
  const near = await replica({ beforeFetch: () => gate?.promise });
  const far = await replica({ ...forwardingTo(near), silentMs: 50 });
  const target = aTarget();
  const link = new PlayedLink();
  const container = near.container(target.queue, link, 2);
  await isIdle(container);
  gate = Promise.withResolvers();
  const input = JSON.stringify('x'.repeat(100_000));
  const task = await submitted(far, target, input);
  await waitFor(() => near.queues.has(task.taskId), 'it is received');
  await waitFor(async () => (await jobs(far, target.queue)) === 1, 'it is a job');
  // The input is read twice; the first read is for the forwarded task, and is the slow one.
  const slow = Promise.withResolvers<void>();
  let reads = 0;
  near.bytes.getBytes = async (id) => {
    if ((reads += 1) === 1) await slow.promise;
    return far.bytes.objects.get(id);
  };
  expect(far.bytes.objects.has(inputKeyOf(task.taskId))).toBe(true);
  gate.resolve();
  gate = undefined;
  near.dispatcher.wake(target.queue);
  const order = await sent(link);
  slow.resolve();
  await waitFor(() => container.inFlight === 1, 'the forwarding is given up');
  expect(await near.result(order)).toBe(true);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  await isIdle(container);
  expect(link.runs).toBe(1);
  expect(await jobs(far, target.queue)).toBe(0);
});

test('Redis emptied while it runs: its receiver says that before its origin can take it back', async ({ replica }) => {
  const near = await replica();
  const far = await replica({ ...forwardingTo(near), silentMs: 60_000 });
  const target = aTarget();
  const link = new PlayedLink();
  await isIdle(near.container(target.queue, link));
  const task = await submitted(far, target);
  const order = await sent(link);
  const job = await near.queues.read(target.queue, task.taskId);
  if (job === undefined) throw new Error('no job');
  await near.client.flushall();
  let lost = (): void => undefined;
  const steps: boolean[] = [];
  const isTakenBack = async (): Promise<void> => void steps.push(await far.localQueueStore.takeBack(target.queue, job));
  const rebuild = new Rebuild({
    data: {
      onLost: (listener) => ((lost = listener), () => undefined),
      generation: 1,
      lostAtMs: 0,
      sure: () => Promise.resolve(),
    },
    rollCall: { call: () => Promise.resolve(false) },
    queues: { reopenAll: () => near.queues.reopenAll().then(isTakenBack) },
    renewal: { restoreAll: () => near.redisLost().then(isTakenBack) },
    records: { redisLost: () => Promise.resolve() },
    lostJobs: { check: () => Promise.resolve() },
    marks: { rowsDoubtful: () => Promise.resolve() },
    presence: { redisLost: () => Promise.resolve() },
    olderJobs: { sweep: () => Promise.resolve(0) },
    endedQueues: () => Promise.resolve({ queues: [] }),
    clock: systemClock,
    log: quiet,
    isLeader: () => false,
  });
  rebuild.start();
  lost();
  await waitFor(() => steps.length === 2, 'it is rebuilt');
  rebuild.stop();
  expect(steps).toEqual([false, false]);
  expect(await inLocalQueue(far, target.queue)).toEqual([task.taskId]);
  await near.result(order);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
});
