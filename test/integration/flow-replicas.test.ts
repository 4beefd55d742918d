// Flow control with several schedulers, and with one that is killed: no more tasks of a key run than may, each task
// runs, and no slot is left.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import type { LockToken, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import type { TaskFlow } from '#scheduler/domain/flow.ts';
import { limitControl } from '#scheduler/domain/flow.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { totalOf } from '#scheduler/stores/queues/task-queues.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { FlowSweep } from '#scheduler/tasks/maintenance/flow-sweep.ts';
import type { PrivateRedis } from '../helpers/services.ts';
import { test, waitFor } from '../helpers/services.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const instance = newInstanceId();
const quiet = createLog({ name: 'test', level: 'silent' });
const aLock = (): LockToken => lockTokenOf(instance, newAttemptToken());
const aQueue = (): QueueName => `tq-${newId<StubId>()}` as QueueName;

const opened = async (redis: PrivateRedis): Promise<TaskQueues> =>
  openTaskQueues({
    client: redis.connect({ maxRetriesPerRequest: 1, enableOfflineQueue: false, commandTimeout: 5_000 }),
    log: quiet,
    lockMs: 400,
    stalledIntervalMs: 100,
  });
const sweepOf = (queues: TaskQueues, queue: QueueName): FlowSweep =>
  new FlowSweep({
    queues,
    leases: { heldAmong: () => Promise.resolve(new Set()) },
    controlled: () => Promise.resolve([{ queue, flow: { concurrency: 1 } }]),
    log: quiet,
  });

test('two schedulers that add, run and end tasks at once run no more of a key than may', async ({ redis }) => {
  const both = [await opened(redis), await opened(redis)];
  const queue = aQueue();
  const [most, keys, tasks] = [2, 3, 120];
  const running = new Map<string, number>();
  const done: TaskId[] = [];
  let largest = 0;
  let added = 0;
  const work = async (queues: TaskQueues): Promise<void> => {
    while (done.length < tasks) {
      if (added < tasks) {
        added += 1;
        await queues.add(queue, aTaskJob({ replica: instance, flow: { key: `k${added % keys}`, most } }));
      }
      const lock = aLock();
      const { job } = await queues.fetch(queue, lock);
      if (job === undefined) continue;
      const { key = '' } = job.flow ?? {};
      running.set(key, (running.get(key) ?? 0) + 1);
      largest = Math.max(largest, running.get(key) ?? 0);
      await new Promise((resolve) => setImmediate(resolve));
      running.set(key, (running.get(key) ?? 0) - 1);
      await queues.complete(queue, job.taskId, lock);
      done.push(job.taskId);
    }
  };
  await Promise.all(both.flatMap((queues) => Array.from({ length: 6 }, () => work(queues))));
  expect(largest).toBe(most);
  expect(new Set(done).size).toBe(tasks);
  for (const queues of both) await queues.close();
  const after = await opened(redis);
  await waitFor(async () => (await after.controls(`key:${queue}:`, 10)).length === 0, 'no slot is left');
  expect(totalOf(await after.depth(queue))).toBe(0);
  await after.close();
});

test('a mixed load of two schedulers keeps to all bounds: limits, keys, turns, retries, returns and cancels', async ({
  redis,
}) => {
  const both = [await opened(redis), await opened(redis)];
  const workspaceId = newId<WorkspaceId>();
  const [keyed, inTurns] = [aQueue(), aQueue()];
  const limits = { api: 4 };
  const flowOf = (n: number): readonly [QueueName, TaskFlow] => {
    const key = `k${n % 3}`;
    return n % 2 === 0
      ? [keyed, { key, most: 2, limits }]
      : [inTurns, { key: '', limits, fair: { key, weight: 1 }, headStart: 0 }];
  };
  const tasks = 160;
  const open = new Map<TaskId, number>();
  const over = new Set<TaskId>();
  const running = new Map<string, number>();
  const largest = new Map<string, number>();
  const count = (name: string, by: 1 | -1): void => {
    running.set(name, (running.get(name) ?? 0) + by);
    largest.set(name, Math.max(largest.get(name) ?? 0, running.get(name) ?? 0));
  };
  let added = 0;
  const end = async (queues: TaskQueues, queue: QueueName, job: TaskJob, lock: LockToken): Promise<void> => {
    const times = (open.get(job.taskId) ?? 0) + 1;
    open.set(job.taskId, times);
    // A first attempt is tried again, handed back, or ends well or badly.
    if (times === 1 && job.createdAtMs % 4 === 1) await queues.delay(queue, job.taskId, lock, Date.now() + 5);
    else if (times === 1 && job.createdAtMs % 4 === 2) await queues.giveBack(queue, job.taskId, lock);
    else {
      if (job.createdAtMs % 4 === 3) await queues.fail(queue, job.taskId, lock, 'as asked');
      else await queues.complete(queue, job.taskId, lock);
      over.add(job.taskId);
    }
  };
  const work = async (queues: TaskQueues): Promise<void> => {
    while (over.size < tasks) {
      const n = added;
      if (n < tasks) {
        added += 1;
        const [queue, flow] = flowOf(n);
        const job = aTaskJob({ replica: instance, workspaceId, flow, createdAtMs: Date.now() * 4 + (n % 4) });
        await queues.add(queue, job);
        if (n % 9 === 0 && (await queues.remove(queue, job.taskId))) over.add(job.taskId);
      }
      for (const queue of [keyed, inTurns]) {
        const lock = aLock();
        const { job } = await queues.fetch(queue, lock);
        if (job === undefined) continue;
        const names = ['api', ...(queue === keyed ? [`key ${job.flow?.key}`] : [])];
        names.forEach((name) => count(name, 1));
        for (let turns = 0; turns < 20; turns += 1) await new Promise((resolve) => setImmediate(resolve));
        names.forEach((name) => count(name, -1));
        await end(queues, queue, job, lock);
      }
    }
  };
  await Promise.all(both.flatMap((queues) => Array.from({ length: 8 }, () => work(queues))));
  for (const [name, most] of Object.entries({ api: 4, 'key k0': 2, 'key k1': 2, 'key k2': 2 }))
    expect(largest.get(name), name).toBeLessThanOrEqual(most);
  expect(over.size).toBe(tasks);
  for (const queues of both) await queues.close();
  const after = await opened(redis);
  await waitFor(
    async () => (await after.controlsNamed([limitControl(workspaceId, 'api')]))[0]?.running === 0,
    'no slot is left',
  );
  for (const queue of [keyed, inTurns]) expect(totalOf(await after.depth(queue))).toBe(0);
  await after.close();
});

test('a scheduler that is killed under load leaves no slot and no task behind', async ({ redis }) => {
  const queue = aQueue();
  const [most, keys] = [2, 5];
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL('flow-load.ts', import.meta.url)), redis.socketPath, queue, String(keys), String(most)],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = once(child, 'exit');
  await once(child.stdout, 'data');
  child.kill('SIGKILL');
  await ended;
  const queues = await opened(redis);
  const sweep = sweepOf(queues, queue);
  const left = totalOf(await queues.depth(queue));
  const done = new Set<TaskId>();
  await waitFor(
    async () => {
      await queues.scanStalled(queue);
      await sweep.round();
      const active = await queues.activeIds(queue);
      const jobs = await Promise.all(active.map((taskId) => queues.read(queue, taskId)));
      const running = jobs.filter((job) => job !== undefined);
      for (const some of Map.groupBy(running, (job) => job.flow?.key).values())
        expect(some.length).toBeLessThanOrEqual(most);
      const lock = aLock();
      for (let fetched = await queues.fetch(queue, lock); fetched.job !== undefined;) {
        await queues.complete(queue, fetched.job.taskId, lock);
        done.add(fetched.job.taskId);
        fetched = await queues.fetch(queue, lock);
      }
      return totalOf(await queues.depth(queue)) === 0 && (await queues.controls(`key:${queue}:`, 10)).length === 0;
    },
    'all that the process left has run, and no slot is taken',
    60_000,
  );
  expect(done.size).toBe(left);
  await queues.close();
});
