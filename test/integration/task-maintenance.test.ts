// The duties that BullMQ leaves to us. Each owner runs on real Redis and a
// real database, without the wake-up, timer or data that it stands in for.
import { describe, expect, vi } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { InstanceId, MachineId, QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import { WakeSweep } from '#scheduler/tasks/dispatch/wake-sweep.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import { Presence } from '#scheduler/cluster/presence.ts';
import { RedisData } from '#scheduler/stores/queues/redis-data.ts';
import { DeadReplicas } from '#scheduler/replicas/dead-replicas.ts';
import {
  endedTaskIds,
  insertAcceptedTasks,
  queuesOfEnded,
  taskById,
  waitingDeadlines,
} from '#scheduler/stores/store/queries/tasks.ts';
import { inputKeyOf, taskOfInputKey } from '#scheduler/tasks/dispatch/bodies.ts';
import { Deadlines } from '#scheduler/tasks/maintenance/deadlines.ts';
import type { Deadline, DeadlinesParts } from '#scheduler/tasks/maintenance/deadlines.ts';
import { InputSweep } from '#scheduler/tasks/maintenance/input-sweep.ts';
import { Rebuild } from '#scheduler/tasks/maintenance/rebuild.ts';
import { finalOf } from '#scheduler/tasks/records/recording.ts';
import { SuspectLeaseRenewal } from '#scheduler/tasks/maintenance/suspect-lease-renewal.ts';
import { TaskSweep } from '#scheduler/tasks/maintenance/sweep.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import { passTime } from './lines-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';
import type { World } from './tasks-world.ts';
import { aQueueTarget, age, drained, put, test } from './tasks-world.ts';

const lockKey = (one: Process, queue: QueueName, taskId: TaskId) => `${one.keys.prefix}:${queue}:${taskId}:lock`;

describe('deadlines', () => {
  const partsOf = (one: World, isLeader = true): DeadlinesParts => ({
    due: (...page) => waitingDeadlines(one.db, ...page),
    queues: one.queues,
    records: one.records,
    leases: one.leases,
    completion: one.completion,
    changes: one.changes,
    clock: systemClock,
    log: quiet,
    leader: { isLeader: () => isLeader, onChange: () => () => undefined },
  });
  const deadlinesOf = (one: World, isLeader = true) => new Deadlines(partsOf(one, isLeader));

  test('a task that nobody ever fetches is EXPIRED at its deadline, as the rows tell a new leader', async ({ one }) => {
    const target = aQueueTarget({ ttlSeconds: 0.5 });
    const taskId = await put(one, target);
    const lasting = await put(one, aQueueTarget({ ttlSeconds: 3600 }));
    const deadlines = deadlinesOf(one);
    try {
      await deadlines.reload();
      expect((await one.records.read(taskId))?.status).toBe('PENDING');
      const { endedAtMs, deadlineMs } = await reaches(one, taskId, 'EXPIRED');
      expect(endedAtMs).toBeGreaterThanOrEqual(deadlineMs);
      expect((await one.queues.depth(target.queue)).waiting).toBe(0);
      expect((await one.records.read(lasting))?.status).toBe('PENDING');
    } finally {
      deadlines.stop();
    }
  });

  test('one accepted at the leader with a short time to live waits for no look at the rows', async ({ start }) => {
    const accepted: Deadline[] = [];
    const one = await start({
      onAccepted: ({ taskId, deadlineMs }, queue) => accepted.push({ taskId, queue, deadlineMs }),
    });
    const deadlines = deadlinesOf(one);
    try {
      const taskId = await put(one, aQueueTarget({ ttlSeconds: 0.2 }));
      for (const deadline of accepted) deadlines.accepted(deadline);
      await reaches(one, taskId, 'EXPIRED');
    } finally {
      deadlines.stop();
    }
  });

  test('more tasks than are held end one page after another, and no workspace waits behind another', async ({
    one,
  }) => {
    const backlog = aQueueTarget({ ttlSeconds: 0.2 });
    const many = await Promise.all(Array.from({ length: 24 }, () => put(one, backlog)));
    const last = await put(one, { ...aQueueTarget({ ttlSeconds: 0.2 }), workspaceId: newId<WorkspaceId>() });
    const pages: (readonly Deadline[])[] = [];
    const deadlines = new Deadlines({
      ...partsOf(one),
      due: async (...page) => {
        const rows = await waitingDeadlines(one.db, ...page);
        pages.push(rows);
        return rows;
      },
      mostHeld: 20,
      reloadMs: 3_600_000,
    });
    try {
      await deadlines.reload();
      await waitFor(async () => {
        await drained(one);
        return (await endedTaskIds(one.db, [...many, last])).length === 25;
      }, 'all have ended');
      expect(pages[0]?.map(({ taskId }) => taskId)).toContain(last);
    } finally {
      deadlines.stop();
    }
  });

  test('what runs is left alone, and a replica that does not lead ends nothing', async ({ one }) => {
    const target = aQueueTarget({ ttlSeconds: 0.5 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const running = await put(one, target);
    const order = await sent(link);
    const waiting = await put(one, target);
    const following = deadlinesOf(one, false);
    const leading = deadlinesOf(one);
    const until = Date.now() + 700;
    try {
      await following.reload();
      await waitFor(() => Date.now() > until, 'its time is over');
      expect((await one.records.read(waiting))?.status).toBe('PENDING');
      await leading.reload();
      await reaches(one, waiting, 'EXPIRED');
      expect((await one.records.read(running))?.status).toBe('RUNNING');
      await one.result(order);
      await reaches(one, running, 'COMPLETE');
    } finally {
      following.stop();
      leading.stop();
    }
  });
});

describe('lost wake-ups', () => {
  test('a job that nobody here was told of is found, and one whose due time was forgotten', async ({ start }) => {
    const one = await start();
    const elsewhere = await start();
    const target = aQueueTarget({ retries: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    await waitFor(() => one.dispatcher.size === 0, 'the queue is known to be empty');
    const taskId = await put(elsewhere, target);
    const sweep = new WakeSweep({
      queues: one.queues,
      consumed: () => one.slots.queues(),
      wake: (queue) => one.dispatcher.wake(queue),
      prune: () => one.dispatcher.prune(),
      log: quiet,
    });
    expect(link.orders).toEqual([]);
    await sweep.round();
    const order = await sent(link);
    expect(order.taskId).toBe(taskId);
    await one.result(order, '{}', 'retry');
    await one.stop();
    // Another process has the container now, without knowledge of the back-off.
    const again = new PlayedLink();
    elsewhere.container(target.queue, again);
    const later = new WakeSweep({
      queues: elsewhere.queues,
      consumed: () => elsewhere.slots.queues(),
      wake: (queue) => elsewhere.dispatcher.wake(queue),
      prune: () => elsewhere.dispatcher.prune(),
      log: quiet,
    });
    await later.round();
    expect((await sent(again)).taskId).toBe(taskId);
  });
});

describe('a dispatcher', () => {
  test('keeps nothing of queues that nobody here serves', async ({ one }) => {
    for (let queues = 0; queues < 50; queues += 1) one.dispatcher.wake(aTarget().queue, newId<TaskId>());
    expect(one.dispatcher.size).toBe(0);
    const target = aQueueTarget();
    const link = new PlayedLink();
    link.mode = 'full';
    const { containerId } = one.container(target.queue, link);
    await put(one, target);
    await waitFor(() => link.runs > 0, 'it is tried');
    one.slots.remove(containerId);
    await waitFor(() => {
      one.dispatcher.prune();
      return one.dispatcher.size === 0;
    }, 'nothing is left');
  });
});

describe('Redis data lost', () => {
  const dataOf = ({ client, keys }: Process) =>
    new RedisData({ client, keys, instance: newInstanceId(), clock: systemClock, log: quiet, everyMs: 60_000 });

  test('is noticed once by everybody who knew it, and not by who comes new', async ({ one }) => {
    const [first, second] = [dataOf(one), dataOf(one)];
    for (const data of [first, second]) await data.check();
    for (const data of [first, second]) await data.check();
    expect([first.generation, second.generation]).toEqual([0, 0]);
    await one.client.flushall();
    const newcomer = dataOf(one);
    for (const data of [newcomer, first, second]) await data.check();
    for (const data of [newcomer, first, second]) await data.check();
    expect([newcomer.generation, first.generation, second.generation]).toEqual([0, 1, 1]);
  });

  test('under running work: what runs ends under its token, what waited comes back, and nothing runs twice', async ({
    start,
  }) => {
    const one = await start();
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const running = await put(one, target);
    const order = await sent(link);
    const waiting = [await put(one, target), await put(one, target)];
    await drained(one);
    const data = dataOf(one);
    await data.check();
    let wakes = 0;
    const presence = new Presence({ redis: one.client, keys: one.keys, instance: newInstanceId(), log: quiet });
    await presence.start();
    const rebuild = new Rebuild({
      data,
      queues: one.queues,
      renewal: one.renewal,
      records: one.records,
      marks: one.marks,
      presence,
      endedQueues: () => Promise.resolve({ queues: [] }),
      log: quiet,
      isLeader: () => true,
    });
    rebuild.onRebuilt(() => (wakes += 1));
    rebuild.start();
    await one.client.flushall();
    await data.check();
    await waitFor(() => wakes === 1, 'it is rebuilt');
    rebuild.stop();
    expect(await one.client.scard(one.keys.instances)).toBe(1);
    await presence.stop();
    // The queue's settings stand before the next add, and the running attempt's lease and record are known again.
    expect(await one.client.hget(`${one.keys.prefix}:${target.queue}:meta`, 'opts.maxLenEvents')).toBe('0');
    expect(await one.leases.read(running)).toMatchObject({ attempt: 1, containerId: order.containerId });
    expect((await one.records.read(running))?.status).toBe('RUNNING');
    expect(await one.missing.round()).toBe(2);
    expect((await one.queues.depth(target.queue)).waiting).toBe(2);
    expect(await one.result(order, '{"whole":1}')).toBe(true);
    expect(await reaches(one, running, 'COMPLETE')).toMatchObject({ attempt: 1, result: '{"whole":1}' });
    for (const count of [2, 3]) await one.result(await sent(link, count));
    for (const taskId of waiting) await reaches(one, taskId, 'COMPLETE');
    await age(one, 70);
    await drained(one);
    await one.sweep.round();
    expect(link.orders.map(({ taskId }) => taskId).toSorted()).toEqual([running, ...waiting].toSorted());
    for (const taskId of [running, ...waiting])
      expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE' });
  });

  /** Redis has the job of a task again that has ended, as it was a second ago. */
  async function aJobOfBefore(one: World) {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const { containerId } = one.container(target.queue, link);
    const over = await put(one, target);
    const order = await sent(link);
    const job = await one.queues.read(target.queue, over);
    if (job === undefined) throw new Error('no job');
    await one.result(order);
    await reaches(one, over, 'COMPLETE');
    await drained(one);
    one.slots.remove(containerId);
    await one.client.flushall();
    await one.queues.add(target.queue, job);
    return { target, over };
  }

  test('a job whose task is over leaves its queue after a loss, waiting or locked, although nobody fetches', async ({
    one,
  }) => {
    const locked = await aJobOfBefore(one);
    await one.queues.fetch(locked.target.queue, lockTokenOf(one.instance, newAttemptToken()));
    const lockedJob = await one.queues.read(locked.target.queue, locked.over);
    const waiting = await aJobOfBefore(one);
    if (lockedJob === undefined) throw new Error('no job');
    await one.queues.add(locked.target.queue, lockedJob);
    await one.queues.fetch(locked.target.queue, lockTokenOf(one.instance, newAttemptToken()));
    let lost = (): void => undefined;
    const rebuild = new Rebuild({
      data: { generation: 1, onLost: (listener) => ((lost = listener), () => undefined) },
      queues: one.queues,
      renewal: one.renewal,
      records: one.records,
      marks: one.marks,
      presence: { redisLost: () => Promise.resolve() },
      endedQueues: (after) => queuesOfEnded(one.db, 1, after),
      log: quiet,
      isLeader: () => true,
    });
    rebuild.start();
    lost();
    for (const { target, over } of [locked, waiting])
      await waitFor(async () => (await one.queues.read(target.queue, over)) === undefined, 'it has left');
    rebuild.stop();
    expect(await one.queues.activeIds(locked.target.queue)).toEqual([]);
  });

  test('a job from before this process whose task is over is not run, and what waits is', async ({ start }) => {
    const one: World = await start({
      more: { redisData: { isSure: true, sure: () => Promise.resolve(), brokenAtMs: -1, knownSinceMs: Infinity } },
    });
    const { target, over } = await aJobOfBefore(one);
    const next = await put(one, target);
    const again = new PlayedLink();
    one.container(target.queue, again);
    const first = await sent(again);
    expect(first.taskId).toBe(next);
    await one.result(first);
    await reaches(one, next, 'COMPLETE');
    expect(again.orders).toHaveLength(1);
    expect(await one.queues.read(target.queue, over)).toBeUndefined();
  });
});

describe('presence', () => {
  const presenceOf = ({ client, keys }: Process) =>
    new Presence({ redis: client, keys, instance: newInstanceId(), log: quiet });
  const renewed = (one: Presence) => one.announce('127.0.0.1:1');

  test.for([
    ['all keys, and the next renewal shows it', async (one: Process) => void (await one.client.flushall())],
    [
      'the key of another replica alone, and the process hears of the loss',
      async (one: Process, others: readonly InstanceId[], first: Presence) => {
        await one.client.del(...others.map((other) => one.keys.presence(other)));
        await first.redisLost();
      },
    ],
  ] as const)('outlasts for ten seconds a Redis that lost %s', async ([, lose], { one }) => {
    const [first, second] = [presenceOf(one), presenceOf(one)];
    try {
      for (const presence of [second, first]) await presence.start();
      const others = [...first.others()];
      expect(others).toHaveLength(1);
      await lose(one, others, first);
      await renewed(first);
      expect([...first.others()]).toEqual(others);
      expect(await first.present()).toEqual(expect.arrayContaining(others));
      expect(first.dead).toEqual([]);
      passTime(10_000);
      await renewed(first);
      expect([[...first.others()], await first.present()]).toEqual([[], [expect.any(String)]]);
    } finally {
      vi.restoreAllMocks();
      for (const presence of [first, second]) await presence.stop();
    }
  });

  test('of a replica that died ends with its key', async ({ one }) => {
    const [first, second] = [presenceOf(one), presenceOf(one)];
    try {
      for (const presence of [second, first]) await presence.start();
      const others = [...first.others()];
      await one.client.del(...others.map((other) => one.keys.presence(other)));
      await renewed(first);
      expect([[...first.others()], first.dead]).toEqual([[], others]);
    } finally {
      for (const presence of [first, second]) await presence.stop();
    }
  });
});

describe('locks of attempts on machines that do not talk', () => {
  test('are renewed by the leader while nobody has them in hand', async ({ start }) => {
    const dead = await start();
    const target = aQueueTarget();
    const link = new PlayedLink();
    dead.container(target.queue, link);
    const taskId = await put(dead, target);
    await sent(link);
    await waitFor(() => dead.leases.read(taskId), 'its lease is written');
    dead.tasks.stop();
    const leader = await start();
    const suspects = new SuspectLeaseRenewal({
      suspects: () => [MACHINE],
      queues: leader.queues,
      leases: leader.leases,
      attempts: leader.attempts,
    });
    const key = lockKey(leader, target.queue, taskId);
    await leader.client.pexpire(key, 5_000);
    await leader.client.pexpire(leader.keys.lease(taskId), 5_000);
    expect(await suspects.round()).toBe(1);
    expect(await leader.client.pttl(key)).toBeGreaterThan(60_000);
    expect(await leader.client.pttl(leader.keys.lease(taskId))).toBeGreaterThan(60_000);
    const others = new SuspectLeaseRenewal({
      suspects: () => ['m-other' as MachineId],
      queues: leader.queues,
      leases: leader.leases,
      attempts: leader.attempts,
    });
    expect(await others.round()).toBe(0);
  });
});

describe('a task that was not accepted because its row did not come in time', () => {
  test('never runs, and its row says CANCELLED when it comes after all', async ({ start }) => {
    let write = (): void => undefined;
    const late = new Promise<void>((resolve) => (write = resolve));
    const world: { db?: World['db'] } = {};
    const one: World = await start({
      commit: (batch) => {
        // The statement goes on by itself, beyond the deadline of its caller.
        void late.then(async () => {
          if (world.db !== undefined) await insertAcceptedTasks(world.db, batch);
        });
        return Promise.reject(new Error('the statement took too long'));
      },
    });
    world.db = one.db;
    const target = aQueueTarget();
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ kind: 'unavailable' });
    const rows = async () =>
      (await one.db.query<{ status: string }>('select status from tasks where queue = $1', [target.queue])).rows;
    expect(await rows()).toEqual([]);
    write();
    await waitFor(async () => {
      await drained(one);
      return (await rows())[0]?.status === 'CANCELLED';
    }, 'its row says what became of it');
    expect(await one.missing.round()).toBe(0);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 0 });
  });
});

describe('inputs above 64 KiB', () => {
  test('go when their task is over or was never known, and stay while it waits or they are kept', async ({ one }) => {
    const target = aQueueTarget();
    const large = JSON.stringify({ x: 'a'.repeat(100_000) });
    const waiting = await put(one, target, large);
    const ended = await put(one, aQueueTarget(), large);
    const record = await one.records.read(ended);
    if (record === undefined) throw new Error('no record');
    // The end comes from a writer that does not know of the task's input.
    await one.records.append({ ...record, status: 'COMPLETE', attempt: 1, rank: 4 });
    const [unknown, kept] = [newId<TaskId>(), newId<TaskId>()];
    for (const taskId of [unknown, kept]) await one.bytes.putBytes(Buffer.from('{}'), inputKeyOf(taskId));
    const sweepWith = (graceMs: number) =>
      new InputSweep({
        inputs: async function* () {
          for (const key of [...one.bytes.objects.keys()]) {
            const taskId = taskOfInputKey(key);
            if (taskId !== undefined) yield { taskId, writtenAtMs: Date.now() };
          }
        },
        remove: (taskId) => one.bytes.removeBytes(inputKeyOf(taskId)),
        isKept: async (taskId) => taskId === kept,
        records: one.records,
        clock: systemClock,
        log: quiet,
        graceMs,
      });
    expect(await sweepWith(60_000).round()).toBe(0);
    expect(await sweepWith(-60_000).round()).toBe(2);
    expect([...one.bytes.objects.keys()]).toEqual([inputKeyOf(waiting), inputKeyOf(kept)]);
  });
});

describe('a job whose end was recorded and never reached its queue', () => {
  test('leaves it once its lock has run out, although no row is open', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const { job } = await one.queues.fetch(target.queue, lockTokenOf(newInstanceId(), newAttemptToken()));
    if (job === undefined) throw new Error('nothing fetched');
    const ended = finalOf(job, target.queue, 1, 'COMPLETE', Date.now(), { result: '1' });
    await one.changes.applied('RUNNING', 'succeed', ended);
    await drained(one);
    await one.client.del(lockKey(one, target.queue, taskId));
    const link = new PlayedLink();
    one.container(target.queue, link);
    const queues = await openTaskQueues({ client: one.client, log: quiet, stalledIntervalMs: 1 });
    const sweep = new TaskSweep({
      db: one.db,
      queues,
      records: one.records,
      leases: one.leases,
      clock: { ...systemClock, monotonicMs: () => 1e9 },
      log: quiet,
      completion: one.completion,
      changes: one.changes,
      jobOf: () => Promise.resolve(undefined),
      isLeader: () => true,
      whoHas: () => Promise.resolve(new Set()),
      isReported: () => true,
      served: () => one.slots.queues(),
    });
    sweep.onReturned((queue) => one.dispatcher.wake(queue));
    const left = async (): Promise<number> => {
      await sweep.round();
      const { waiting, active } = await one.queues.depth(target.queue);
      return waiting + active;
    };
    expect(await left()).toBe(1);
    await waitFor(async () => (await left()) === 0, 'it has left the queue');
    expect(link.orders).toEqual([]);
    expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE', result: '1' });
    await queues.close();
  });
});

test('what a predecessor on embedded stores fetched and never sent goes back at once', async ({ one }) => {
  const target = aQueueTarget();
  const { client: redis, keys, queues, leases } = one;
  await put(one, target);
  const died = newInstanceId();
  const lock = lockTokenOf(died, newAttemptToken());
  expect((await queues.fetch(target.queue, lock)).job).toBeDefined();
  await redis.sadd(keys.instances, died);
  await redis.set(keys.presence(died), '1', 'PX', 60_000);
  const presence = new Presence({ redis, keys, instance: newInstanceId(), log: quiet });
  await presence.othersDied();
  await presence.start();
  let unannounced = 0;
  try {
    const deadReplicas = new DeadReplicas({
      presence,
      machines: { all: () => [], orphaned: () => Promise.resolve() },
      containers: { queues: () => [] },
      queues,
      leases,
      openQueues: () => Promise.resolve([target.queue]),
      fence: () => 1,
      unannounced: () => (unannounced += 1),
      log: quiet,
    });
    deadReplicas.onReturned((queue) => one.dispatcher.wake(queue));
    await deadReplicas.round();
    expect(await queues.depth(target.queue)).toMatchObject({ waiting: 1, active: 0 });
    expect(await redis.sismember(keys.instances, died)).toBe(0);
    // The dead one may have stopped between a commit and its announcement.
    await deadReplicas.round();
    expect(unannounced).toBe(1);
  } finally {
    await presence.stop();
  }
});
