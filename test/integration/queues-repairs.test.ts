// Commands whose answer is lost, on a real Redis that stops answering, drops connections or comes back empty.
import { once } from 'node:events';
import { expect } from 'vitest';
import type { LockToken, QueueName, StubId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import type { Redis } from 'ioredis';
import { test as base, waitFor } from '../helpers/services.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const instance = newInstanceId();
const aLock = (): LockToken => lockTokenOf(instance, newAttemptToken());
const aQueue = (): QueueName => `tq-${newId<StubId>()}` as QueueName;
const aJob = (): TaskJob =>
  aTaskJob({ kind: 'endpoint', sync: true, replica: instance, deadlineMs: 0, createdAtMs: 0 });

const LOOKS_MS = [20, 50, 100, 200, 400];
/** Longer than every look for a lost command takes. */
async function allLooksDone(): Promise<void> {
  const untilMs = performance.now() + LOOKS_MS.reduce((sum, ms) => sum + ms, 0) + 200;
  await waitFor(async () => performance.now() > untilMs, 'all looks are done');
}

interface World {
  readonly queues: TaskQueues;
  readonly client: Redis;
  readonly eye: Redis;
}

const test = base.extend('world', async ({ redis }, { onCleanup }): Promise<World> => {
  const client = redis.connect({
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    commandTimeout: 200,
    retryStrategy: () => 20,
  });
  const queues = await openTaskQueues({
    client,
    log: createLog({ name: 'test', level: 'silent' }),
    lookAfterMs: LOOKS_MS,
  });
  onCleanup(async () => {
    await queues.close();
    client.disconnect();
  });
  return { queues, client, eye: redis.connect() };
});

test('a job that a timed-out fetch took is given back, first in line', async ({ redis, world: { queues, eye } }) => {
  const queue = aQueue();
  const [first, second] = [aJob(), aJob()];
  await queues.add(queue, first);
  await queues.add(queue, second);
  redis.freeze();
  try {
    await expect(queues.fetch(queue, aLock())).rejects.toMatchObject({ code: 'queues_unavailable' });
  } finally {
    redis.thaw();
  }
  await waitFor(
    async () =>
      (await eye.hget(`ls:${queue}:${first.taskId}`, 'ats')) === '1' && (await queues.depth(queue)).active === 0,
    'the job was fetched and is back',
  );
  expect(await queues.fetch(queue, aLock())).toMatchObject({ job: first, starts: 2 });
});

test('a fetch over a connection that broke keeps the job that its caller got', async ({ world: { queues, eye } }) => {
  const queue = aQueue();
  const jobs = [aJob(), aJob()];
  for (const job of jobs) await queues.add(queue, job);
  // Scripts wait while the pause lasts, so the fetch is under way when its connection goes.
  await eye.call('CLIENT', 'PAUSE', '60000', 'WRITE');
  const lock = aLock();
  const fetching = queues.fetch(queue, lock).catch(() => undefined);
  await eye.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await eye.call('CLIENT', 'UNPAUSE');
  const got = await fetching;
  await allLooksDone();
  const held = await queues.activeIds(queue);
  expect(held).toEqual(got?.job === undefined ? [] : [got.job.taskId]);
  for (const taskId of held) expect(await queues.lockOf(queue, taskId)).toBe(lock);
});

test('an add repeated under its id after a time-out stays', async ({ redis, world: { queues } }) => {
  const queue = aQueue();
  await queues.open(queue);
  const job = aJob();
  redis.freeze();
  const first = queues.add(queue, job).catch(() => undefined);
  await first;
  redis.thaw();
  await waitFor(async () => {
    try {
      await queues.add(queue, job);
      return true;
    } catch {
      return false;
    }
  }, 'the second add is answered');
  await allLooksDone();
  expect(await queues.depth(queue)).toMatchObject({ waiting: 1 });
  expect((await queues.fetch(queue, aLock())).job).toEqual(job);
});

test('a queue whose settings went with the data of Redis gets them before its next add', async ({
  world: { queues, client, eye },
}) => {
  const queue = aQueue();
  await queues.add(queue, aJob());
  await eye.flushall();
  const back = once(client, 'ready');
  await eye.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await back;
  await queues.add(queue, aJob());
  expect(await eye.hget(`ls:${queue}:meta`, 'opts.maxLenEvents')).toBe('0');
  await eye.flushall();
  await queues.reopenAll();
  expect(await eye.hget(`ls:${queue}:meta`, 'opts.maxLenEvents')).toBe('0');
});

test('while Redis is down every call fails at once and says what could not be done', async ({ redis, world }) => {
  const { queues, client } = world;
  const queue = aQueue();
  await queues.add(queue, aJob());
  await redis.crash();
  await waitFor(async () => client.status !== 'ready', 'the client noticed');
  await expect(queues.fetch(queue, aLock())).rejects.toMatchObject({
    code: 'queues_unavailable',
    message: `cannot fetch from ${queue}`,
  });
  await expect(queues.complete(queue, newId(), aLock())).rejects.toMatchObject({ code: 'queues_unavailable' });
  await redis.restart();
  await waitFor(async () => client.status === 'ready', 'the client is back');
  await waitFor(async () => (await queues.depth(queue)).waiting === 1, 'the job outlived the crash');
});
