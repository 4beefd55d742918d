// The behaviour of BullMQ that we rely on, through our own interface: an upgrade that changes any of it fails here.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';
import { describe, expect } from 'vitest';
import type { InstanceId, LockToken, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import { attemptHashOf, lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { BullmqQueuesOptions } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { type PrivateRedis, test as base, waitFor } from '../helpers/services.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const instance: InstanceId = newInstanceId();
const quiet = createLog({ name: 'test', level: 'silent' });
const aLock = (of: InstanceId = instance): LockToken => lockTokenOf(of, newAttemptToken());
const aQueue = (): QueueName => `tq-${newId<StubId>()}` as QueueName;

const aJob = (changes: Partial<TaskJob> = {}): TaskJob => aTaskJob({ replica: instance, input: '{"x":1}', ...changes });

interface World {
  readonly queues: TaskQueues;
  readonly client: Redis;
  /** Looks at Redis from outside. */
  readonly eye: Redis;
}

async function aWorld(redis: PrivateRedis, options: Partial<BullmqQueuesOptions> = {}): Promise<World> {
  const client = redis.connect({ maxRetriesPerRequest: 1, enableOfflineQueue: false, commandTimeout: 2000 });
  const queues = await openTaskQueues({ client, log: quiet, ...options });
  return { queues, client, eye: redis.connect() };
}

const test = base
  .extend('world', { scope: 'file' }, async ({ redis }, { onCleanup }): Promise<World> => {
    const world = await aWorld(redis);
    onCleanup(() => world.queues.close());
    return world;
  })
  .extend('queues', { scope: 'file' }, ({ world }) => world.queues);

/** A queue with one job fetched under `lock`. */
async function fetched(queues: TaskQueues, lock: LockToken): Promise<{ queue: QueueName; taskId: TaskId }> {
  const queue = aQueue();
  const job = aJob();
  await queues.add(queue, job);
  expect((await queues.fetch(queue, lock)).job).toEqual(job);
  return { queue, taskId: job.taskId };
}

type Finish = 'complete' | 'fail' | 'delay' | 'giveBack';
const FINISHES: readonly Finish[] = ['complete', 'fail', 'delay', 'giveBack'];
const finish = (queues: TaskQueues, how: Finish, queue: QueueName, taskId: TaskId, lock: LockToken) => {
  switch (how) {
    case 'complete':
      return queues.complete(queue, taskId, lock);
    case 'fail':
      return queues.fail(queue, taskId, lock, 'cancelled');
    case 'delay':
      return queues.delay(queue, taskId, lock, Date.now() + 60_000);
    case 'giveBack':
      return queues.giveBack(queue, taskId, lock);
  }
};

test('a job that is added while the connection ends is refused, and nothing else fails', async ({ redis }) => {
  const world = await aWorld(redis, { prefix: 'ends' });
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', note);
  try {
    const queue = aQueue();
    await world.queues.open(queue);
    // No write works from now on, and the client learns of it in its next turn.
    world.client.stream.destroy();
    await expect(world.queues.add(queue, aJob())).rejects.toMatchObject({ code: 'queues_unavailable' });
    expect(unhandled).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
    await world.queues.close();
  }
});

describe('adding and fetching', () => {
  test('a job comes out as it went in, first in first out', async ({ queues }) => {
    const queue = aQueue();
    const jobs = [aJob({ input: '{"ü":"\\u0000 \\"', query: { a: ['1', '2'] } }), aJob()];
    for (const job of jobs) await queues.add(queue, job);
    for (const job of jobs) {
      expect(await queues.fetch(queue, aLock())).toEqual({ job, starts: 1, nextDueMs: undefined });
    }
  });

  test('where a job lies: its place among those that wait, held, put off until, gone', async ({ queues }) => {
    const queue = aQueue();
    const jobs = [aJob(), aJob(), aJob()];
    for (const job of jobs) await queues.add(queue, job);
    const places = () => Promise.all(jobs.map((job) => queues.placeOf(queue, job.taskId)));
    const waiting = (position: number) => ({ kind: 'waiting', position });
    expect(await places()).toEqual([waiting(1), waiting(2), waiting(3)]);
    const [first, second] = [aLock(), aLock()];
    const [a, b] = jobs.map((job) => job.taskId);
    if (a === undefined || b === undefined) throw new Error('no jobs');
    await queues.fetch(queue, first);
    await queues.fetch(queue, second);
    expect(await places()).toEqual([{ kind: 'active' }, { kind: 'active' }, waiting(1)]);
    const dueMs = Date.now() + 60_000;
    await queues.delay(queue, a, first, dueMs);
    await queues.giveBack(queue, b, second);
    expect(await places()).toEqual([{ kind: 'delayed', dueMs }, waiting(1), waiting(2)]);
    await queues.remove(queue, b);
    expect((await places())[1]).toEqual({ kind: 'gone' });
  });

  test('the job is in Redis under the task id in a queue of its name', async ({ queues, world }) => {
    const queue = aQueue();
    const waiting = aJob();
    await queues.add(queue, waiting);
    expect(await world.eye.lrange(`ls:${queue}:wait`, 0, -1)).toEqual([waiting.taskId]);
    await queues.fetch(queue, aLock());
    expect(await world.eye.lrange(`ls:${queue}:active`, 0, -1)).toEqual([waiting.taskId]);
  });

  test('the depth counts jobs that wait, are active, and are delayed', async ({ queues }) => {
    const lock = aLock();
    const { queue, taskId } = await fetched(queues, lock);
    await queues.add(queue, aJob());
    expect(await queues.depth(queue)).toEqual({ waiting: 1, active: 1, delayed: 0, prioritized: 0, held: 0, soon: 0 });
    await queues.delay(queue, taskId, lock, Date.now() + 60_000);
    await queues.add(queue, aJob());
    expect(await queues.depth(queue)).toEqual({ waiting: 2, active: 0, delayed: 1, prioritized: 0, held: 0, soon: 0 });
    expect(await queues.depths([aQueue(), queue])).toEqual([
      { waiting: 0, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 },
      { waiting: 2, active: 0, delayed: 1, prioritized: 0, held: 0, soon: 0 },
    ]);
  });

  test('delayed jobs count as due soon when they are due within 10 s', async ({ queues }) => {
    const queue = aQueue();
    for (const dueMs of [1_000, 9_000, 20_000, 3_600_000]) {
      const [job, lock] = [aJob(), aLock()];
      await queues.add(queue, job);
      await queues.fetch(queue, lock);
      await queues.delay(queue, job.taskId, lock, Date.now() + dueMs + 500);
    }
    // On a slow machine the first may be due, which counts as soon, too.
    expect(await queues.depth(queue)).toMatchObject({ delayed: 4, soon: 2 });
  });

  test('adding an id that is still there keeps the first data', async ({ queues }) => {
    const queue = aQueue();
    const job = aJob();
    await queues.add(queue, job);
    await queues.add(queue, { ...job, input: '{"x":2}' });
    expect(await queues.depth(queue)).toMatchObject({ waiting: 1 });
    expect((await queues.fetch(queue, aLock())).job).toEqual(job);
  });

  test('an empty fetch says when the next delayed job is due, and a fetch after that gets it', async ({ queues }) => {
    const lock = aLock();
    const { queue, taskId } = await fetched(queues, lock);
    const dueMs = Date.now() + 150;
    expect(await queues.delay(queue, taskId, lock, dueMs)).toEqual({ kind: 'done' });
    const empty = await queues.fetch(queue, aLock());
    expect(empty.job).toBeUndefined();
    expect(Math.abs((empty.nextDueMs ?? 0) - dueMs)).toBeLessThanOrEqual(2);
    await waitFor(async () => Date.now() > dueMs, 'the job is due');
    expect(await queues.fetch(queue, aLock())).toMatchObject({ job: { taskId }, starts: 2 });
    expect((await queues.fetch(queue, aLock())).nextDueMs).toBeUndefined();
  });

  test('a delay can change what the job carries', async ({ queues }) => {
    const lock = aLock();
    const queue = aQueue();
    const job = aJob({ retries: 3 });
    await queues.add(queue, job);
    await queues.fetch(queue, lock);
    await queues.delay(queue, job.taskId, lock, Date.now(), { ...job, retriesUsed: 1 });
    expect((await queues.fetch(queue, aLock())).job).toEqual({ ...job, retriesUsed: 1 });
  });

  test('what is given back comes out first, as the same job started once more', async ({ queues }) => {
    const queue = aQueue();
    const [first, second] = [aJob(), aJob()];
    await queues.add(queue, first);
    await queues.add(queue, second);
    const lock = aLock();
    await queues.fetch(queue, lock);
    expect(await queues.giveBack(queue, first.taskId, lock)).toEqual({ kind: 'done' });
    expect(await queues.fetch(queue, aLock())).toMatchObject({ job: first, starts: 2 });
    expect(await queues.fetch(queue, aLock())).toMatchObject({ job: second, starts: 1 });
  });

  test('a malformed job leaves its queue instead of blocking it', async ({ queues, world }) => {
    const queue = aQueue();
    const [bad, good] = [aJob(), aJob()];
    await queues.add(queue, bad);
    await queues.add(queue, good);
    await world.eye.hset(`ls:${queue}:${bad.taskId}`, 'data', '{"v":2}');
    expect((await queues.fetch(queue, aLock())).job).toEqual(good);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 0, active: 1 });
  });
});

describe('fences', () => {
  test('only the token that fetched a job moves it', async ({ queues }) => {
    for (const how of FINISHES) {
      const lock = aLock();
      const { queue, taskId } = await fetched(queues, lock);
      expect(await finish(queues, how, queue, taskId, aLock()), how).toEqual({ kind: 'superseded' });
      expect(await finish(queues, how, queue, taskId, lock), how).toEqual({ kind: 'done' });
    }
  });

  test('a finished job is gone for every late call', async ({ queues }) => {
    for (const how of FINISHES) {
      const lock = aLock();
      const { queue, taskId } = await fetched(queues, lock);
      await queues.complete(queue, taskId, lock);
      expect(await finish(queues, how, queue, taskId, lock), how).toEqual({ kind: 'gone' });
    }
  });

  test('a lock that ran out is told apart from one that another holds', async ({ queues, world }) => {
    for (const how of FINISHES) {
      const lock = aLock();
      const { queue, taskId } = await fetched(queues, lock);
      await world.eye.del(`ls:${queue}:${taskId}:lock`);
      expect(await finish(queues, how, queue, taskId, lock), how).toEqual({ kind: 'expired' });
    }
  });

  test('renewing says which locks are lost', async ({ queues, world }) => {
    const [mine, others, ended] = [aLock(), aLock(), aLock()];
    const held = { ...(await fetched(queues, mine)), lock: mine };
    const stolen = { ...(await fetched(queues, others)), lock: aLock() };
    const over = { ...(await fetched(queues, ended)), lock: ended };
    await queues.complete(over.queue, over.taskId, ended);
    expect(await queues.renew([held, stolen, over], 5000)).toEqual([stolen, over]);
    const leftMs = await world.eye.pttl(`ls:${held.queue}:${held.taskId}:lock`);
    expect(leftMs).toBeGreaterThan(4000);
    expect(leftMs).toBeLessThanOrEqual(5000);
  });

  test('a fetched job is locked for 120 s under the very token', async ({ queues, world }) => {
    const lock = aLock();
    const { queue, taskId } = await fetched(queues, lock);
    expect(await queues.lockOf(queue, taskId)).toBe(lock);
    expect(await world.eye.pttl(`ls:${queue}:${taskId}:lock`)).toBeGreaterThan(115_000);
    expect(await queues.lockOf(queue, newId<TaskId>())).toBeUndefined();
    const other = await fetched(queues, aLock());
    const asked = [{ queue, taskId: newId<TaskId>() }, other, { queue, taskId }];
    expect(await queues.locksOf(asked)).toEqual([undefined, await queues.lockOf(other.queue, other.taskId), lock]);
    expect(await queues.locksOf([])).toEqual([]);
  });

  test("the token '0', and any other short one, is refused before it reaches Redis", async ({ queues }) => {
    const { queue, taskId } = await fetched(queues, aLock());
    for (const short of ['0', '', 'x'.repeat(31), undefined as unknown as string]) {
      const lock = short as LockToken;
      await expect(queues.fetch(queue, lock)).rejects.toThrow(TypeError);
      await expect(queues.renew([{ queue, taskId, lock }], 1000)).rejects.toThrow(TypeError);
      for (const how of FINISHES) await expect(finish(queues, how, queue, taskId, lock)).rejects.toThrow(TypeError);
    }
    expect(await queues.depth(queue)).toMatchObject({ active: 1 });
  });

  test('cancelling a fetched job with its token refuses the holder afterwards', async ({ queues }) => {
    const lock = aLock();
    const { queue, taskId } = await fetched(queues, lock);
    expect(await queues.remove(queue, taskId)).toBe(false);
    const found = await queues.lockOf(queue, taskId);
    expect(await queues.fail(queue, taskId, found ?? aLock(), 'cancelled')).toEqual({ kind: 'done' });
    expect(await queues.complete(queue, taskId, lock)).toEqual({ kind: 'gone' });
    expect(await queues.renew([{ queue, taskId, lock }], 1000)).toHaveLength(1);
  });

  test('removing takes waiting and delayed jobs, and says no for a job that is not there', async ({ queues }) => {
    const lock = aLock();
    const { queue, taskId } = await fetched(queues, lock);
    await queues.delay(queue, taskId, lock, Date.now() + 60_000);
    const waiting = aJob();
    await queues.add(queue, waiting);
    expect(await queues.remove(queue, taskId)).toBe(true);
    expect(await queues.remove(queue, waiting.taskId)).toBe(true);
    expect(await queues.remove(queue, waiting.taskId)).toBe(false);
    expect(await queues.depth(queue)).toEqual({ waiting: 0, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 });
  });

  test('after kill -9 of the holder another process adopts and finishes the job by the token it reads', async ({
    redis,
    queues,
  }) => {
    const queue = aQueue();
    const job = aJob();
    await queues.add(queue, job);
    const lock = aLock(newInstanceId());
    const holder = fileURLToPath(new URL('queues-holder.ts', import.meta.url));
    const child = spawn(process.execPath, [holder, redis.socketPath, queue, lock], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(child, 'exit');
    const [said] = (await once(child.stdout, 'data')) as [Buffer];
    expect(said.toString().trim()).toBe(job.taskId);
    child.kill('SIGKILL');
    await ended;
    expect(await queues.activeIds(queue)).toEqual([job.taskId]);
    const found = (await queues.lockOf(queue, job.taskId)) ?? aLock();
    expect(attemptHashOf(found)).toBe(attemptHashOf(lock));
    expect(await queues.renew([{ queue, taskId: job.taskId, lock: found }], 5000)).toEqual([]);
    expect(await queues.complete(queue, job.taskId, found)).toEqual({ kind: 'done' });
  });
});

describe('stalled jobs', () => {
  test('a job comes back after its lock ran out and two passes; one whose lock lives never does', async ({ redis }) => {
    const world = await aWorld(redis, { prefix: 'stall', stalledIntervalMs: 1, lockMs: 60_000 });
    const { queues } = world;
    const lock = aLock();
    const { queue, taskId } = await fetched(queues, lock);
    const scan = async (): Promise<readonly TaskId[]> => {
      await waitFor(
        async () => (await world.eye.exists(`stall:${queue}:stalled-check`)) === 0,
        'the scan may run again',
      );
      return queues.scanStalled(queue);
    };
    expect([await scan(), await scan(), await scan()]).toEqual([[], [], []]);
    await world.eye.del(`stall:${queue}:${taskId}:lock`);
    expect(await scan()).toEqual([taskId]);
    expect(await queues.fetch(queue, aLock())).toMatchObject({ job: { taskId }, starts: 2 });
    expect(await queues.giveBack(queue, taskId, lock)).toEqual({ kind: 'superseded' });
    await queues.close();
    world.client.disconnect();
  });
});

describe('a queue that an operator controls', () => {
  const free = { paused: false, limit: null };

  test('hands out nothing while it is paused, also after Redis lost its data', async ({ redis }) => {
    const { queues, eye } = await aWorld(redis);
    const queue = aQueue();
    await queues.add(queue, aJob());
    await queues.control(queue, { paused: true, limit: null });
    await queues.add(queue, aJob());
    expect(await queues.fetch(queue, aLock())).toMatchObject({ job: undefined });
    expect(await queues.depth(queue)).toMatchObject({ waiting: 2, active: 0 });
    await eye.del(`ls:${queue}:meta`);
    await queues.reopenAll();
    expect(await queues.fetch(queue, aLock())).toMatchObject({ job: undefined });
    await queues.control(queue, free);
    expect((await queues.fetch(queue, aLock())).job).toBeDefined();
    await queues.close();
  });

  test('has no more active jobs than its limit, and goes on when one ends, or the limit is gone', async ({
    queues,
  }) => {
    const queue = aQueue();
    await queues.control(queue, { paused: false, limit: 1 });
    for (let at = 0; at < 3; at += 1) await queues.add(queue, aJob());
    const lock = aLock();
    const { job } = await queues.fetch(queue, lock);
    expect(job).toBeDefined();
    expect((await queues.fetch(queue, aLock())).job).toBeUndefined();
    await queues.complete(queue, (job as TaskJob).taskId, lock);
    expect((await queues.fetch(queue, aLock())).job).toBeDefined();
    expect((await queues.fetch(queue, aLock())).job).toBeUndefined();
    await queues.control(queue, { paused: true, limit: 2 });
    expect((await queues.fetch(queue, aLock())).job).toBeUndefined();
    await queues.control(queue, free);
    expect((await queues.fetch(queue, aLock())).job).toBeDefined();
  });
});

describe('priorities', () => {
  const ranked = (headStart: number, createdAtMs: number): TaskJob =>
    aJob({ flow: { key: '', headStart }, createdAtMs, deadlineMs: createdAtMs + 86_400_000 * 3_650 });
  const order = async (queues: TaskQueues, queue: QueueName): Promise<TaskId[]> => {
    const found: TaskId[] = [];
    for (let job = (await queues.fetch(queue, aLock())).job; job !== undefined;) {
      found.push(job.taskId);
      ({ job } = await queues.fetch(queue, aLock()));
    }
    return found;
  };
  const ids = (jobs: readonly TaskJob[]): TaskId[] => jobs.map(({ taskId }) => taskId);

  test.for([
    ['now', Date.now()],
    ['in the last year whose scores are exact', Date.UTC(2033, 11, 1)],
  ] as const)('jobs of one millisecond come out in the order of their adds, %s', async ([, atMs], { queues }) => {
    const queue = aQueue();
    const jobs = Array.from({ length: 300 }, (_none, at) => ranked(0, atMs + Math.floor(at / 100)));
    for (const job of jobs) await queues.add(queue, job);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 0, prioritized: 300 });
    expect(await order(queues, queue)).toEqual(ids(jobs));
  });

  test('a head start overtakes what came within that time, and nothing older', async ({ queues }) => {
    const queue = aQueue();
    const atMs = Date.now();
    const [older, old, late, first, last] = [
      ranked(0, atMs - 601_000),
      ranked(0, atMs - 599_000),
      ranked(-3_600, atMs - 1_000),
      ranked(600, atMs),
      ranked(0, atMs + 1),
    ];
    for (const job of [older, old, late, first, last]) await queues.add(queue, job);
    expect(await queues.placeOf(queue, first.taskId)).toEqual({ kind: 'waiting', position: 2 });
    expect(await order(queues, queue)).toEqual(ids([older, first, old, last, late]));
  });

  test('a job that is given back, or delayed, comes out at its place again', async ({ queues }) => {
    const queue = aQueue();
    const atMs = Date.now();
    const jobs = [ranked(0, atMs), ranked(0, atMs + 5), ranked(0, atMs + 10)];
    const [first, second] = jobs as [TaskJob, TaskJob, TaskJob];
    for (const job of jobs) await queues.add(queue, job);
    const [one, two] = [aLock(), aLock()];
    await queues.fetch(queue, one);
    await queues.fetch(queue, two);
    await queues.delay(queue, second.taskId, two, Date.now() - 1);
    await queues.giveBack(queue, first.taskId, one);
    expect(await order(queues, queue)).toEqual(ids(jobs));
  });

  test('jobs without priority, which were there before, go first', async ({ queues }) => {
    const queue = aQueue();
    const [plain, prioritised] = [aJob(), ranked(3_600, Date.now())];
    await queues.add(queue, prioritised);
    await queues.add(queue, plain);
    expect(await order(queues, queue)).toEqual(ids([plain, prioritised]));
  });
});

describe('what it costs', () => {
  test('a thousand queues share one connection', async ({ queues, world }) => {
    const before = Number(/connected_clients:(\d+)/.exec(await world.eye.info('clients'))?.[1]);
    const names = Array.from({ length: 1000 }, aQueue);
    await Promise.all(names.map((name) => queues.open(name)));
    await Promise.all(names.map((name) => queues.fetch(name, aLock())));
    // Connections that other tests closed may go away meanwhile; any additional one would be ours.
    const after = Number(/connected_clients:(\d+)/.exec(await world.eye.info('clients'))?.[1]);
    expect(after).toBeLessThanOrEqual(before);
  });

  test('a queue keeps no events, and after a thousand jobs of 16 KiB less than 1 MiB', async ({ queues, world }) => {
    const queue = aQueue();
    const input = JSON.stringify({ text: 'x'.repeat(16_384) });
    for (let count = 0; count < 1000; count += 1) {
      const job = aJob({ input });
      await queues.add(queue, job);
      const lock = aLock();
      await queues.fetch(queue, lock);
      await queues.complete(queue, job.taskId, lock);
    }
    expect(await world.eye.xlen(`ls:${queue}:events`)).toBeLessThanOrEqual(100);
    const sizes = await Promise.all(
      (await keysOfQueue(world.eye, queue)).map((name) => world.eye.memory('USAGE', name)),
    );
    expect(sizes.reduce<number>((sum, size) => sum + Number(size ?? 0), 0)).toBeLessThan(1024 * 1024);
  });

  test('deleting a queue leaves no key behind', async ({ queues, world }) => {
    const lock = aLock();
    const { queue } = await fetched(queues, lock);
    for (let count = 0; count < 50; count += 1) await queues.add(queue, aJob());
    await queues.obliterate(queue);
    expect(await keysOfQueue(world.eye, queue)).toEqual([]);
    await queues.add(queue, aJob());
    expect((await queues.fetch(queue, aLock())).job).toBeDefined();
  });
});

async function keysOfQueue(eye: Redis, queue: QueueName): Promise<string[]> {
  return eye.keys(`ls:${queue}:*`);
}
