// Asynchronous tasks are committed first and queued behind that. Redis is away meanwhile, a process dies between the
// two, its replica lives, adds come twice, and tasks end before they are queued: each runs once, or not at all.
import { describe, expect, vi } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { totalOf } from '#scheduler/stores/queues/task-queues.ts';
import { taskById, waitingDeadlines } from '#scheduler/stores/store/queries/tasks.ts';
import { PendingBound } from '#scheduler/tasks/admission/pending-bound.ts';
import { Deadlines } from '#scheduler/tasks/maintenance/deadlines.ts';
import { MissingJobs } from '#scheduler/tasks/maintenance/missing-jobs.ts';
import type { MissingJobsParts } from '#scheduler/tasks/maintenance/missing-jobs.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { withAdd, withoutAdds } from './queueing-faults.ts';
import { PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, callerOf, drained, put, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

const isAway = (one: World) => waitFor(() => one.client.status !== 'ready', 'Redis is away');
const isEmpty = (one: World, queue: Parameters<World['queues']['depth']>[0]) =>
  waitFor(async () => totalOf(await one.queues.depth(queue)) === 0, 'nothing is left in the queue');
/** Runs every order at once. */
function aRunner(one: World): PlayedLink {
  const link = new PlayedLink();
  link.onRun = (order) => void one.result(order, '"done"').catch(() => undefined);
  return link;
}
const missingOf = (one: World, over: Partial<MissingJobsParts> = {}): MissingJobs =>
  new MissingJobs({
    ...one,
    isAlive: () => false,
    whoHas: (taskIds) => one.peers.questions.whoHas(taskIds),
    clock: systemClock,
    log: quiet,
    ...over,
  });

/** The walk over all tasks leaves out those that are younger than a minute by this clock. */
const allAreYoung = { ...systemClock, nowMs: () => 0 };

/** The queues of a leader, and how many tasks it has asked them for. */
function counted(one: World) {
  let count = 0;
  const queues: MissingJobsParts['queues'] = {
    open: (queue) => one.queues.open(queue),
    add: (...given) => one.queues.add(...given),
    missing: (tasks) => {
      count += tasks.length;
      return one.queues.missing(tasks);
    },
  };
  return { asked: () => count, queues };
}
/** Calls `during` before a record with that status is written, or after it and before anybody is told so. */
function atRecord(one: World, status: TaskStatus, isWritten: boolean, during: () => Promise<void>): void {
  const append = one.records.append.bind(one.records);
  one.records.append = async (...given) => {
    const isIt = given[0].status === status;
    if (isIt && !isWritten) await during();
    const appended = await append(...given);
    if (isIt && isWritten) await during();
    return appended;
  };
}
const deadlinesOf = (one: World): Deadlines =>
  new Deadlines({
    ...one,
    due: (...page) => waitingDeadlines(one.db, ...page),
    clock: systemClock,
    log: quiet,
    leader: { isLeader: () => true, onChange: () => () => undefined },
  });

describe('while Redis is away', () => {
  test('a hundred tasks are accepted, in order, and each runs once when it is back', async ({ redis, one }) => {
    const target = aQueueTarget();
    const link = aRunner(one);
    one.container(target.queue, link);
    await put(one, target);
    await redis.crash();
    await isAway(one);
    const accepted: TaskId[] = [];
    for (let count = 0; count < 100; count += 1) accepted.push((await submitted(one, target)).taskId);
    expect(one.queueing.size).toBe(100);
    expect(await one.registry.metrics()).toContain('longshore_task_waiting_adds 100');
    for (const taskId of accepted) expect((await taskById(one.db, taskId))?.status).toBe('PENDING');
    await redis.restart();
    await sent(link, 101);
    for (const taskId of accepted) await reaches(one, taskId, 'COMPLETE');
    await isEmpty(one, target.queue);
    expect(link.orders.slice(1).map(({ taskId }) => taskId)).toEqual(accepted);
  });

  test('tasks beyond the bound of waiting ones are refused, and taken again when it is back', async ({
    redis,
    start,
  }) => {
    const one = await start({ more: { mostWaiting: 3 } });
    const target = aQueueTarget();
    await redis.crash();
    await isAway(one);
    for (let count = 0; count < 3; count += 1) await submitted(one, target);
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({
      kind: 'unavailable',
      reason: 'adds_waiting',
    });
    await redis.restart();
    await waitFor(() => one.queueing.size === 0, 'they are queued');
    await put(one, target);
    expect((await one.queues.depth(target.queue)).waiting).toBe(4);
  });

  test('the bound of a queue holds for what is accepted here', async ({ redis, one }) => {
    const target = aQueueTarget({ maxPendingTasks: 3 });
    await put(one, target);
    await redis.crash();
    await isAway(one);
    const kinds: string[] = [];
    for (let count = 0; count < 4; count += 1) kinds.push((await one.submissions.submit(target, { input: '{}' })).kind);
    expect(kinds).toEqual(['accepted', 'accepted', 'queue_full', 'queue_full']);
    await redis.restart();
  });

  test('a stop tries the adds until its deadline, and the leader adds the rest', async ({ redis, start }) => {
    const one = await start();
    const target = aQueueTarget();
    await redis.crash();
    await isAway(one);
    const { taskId } = await submitted(one, target);
    await one.queueing.stop();
    expect(one.queueing.size).toBe(1);
    await redis.restart();
    const next = await start({ alive: (replica) => replica !== one.instance });
    expect(await next.missing.round()).toBe(1);
    const link = aRunner(next);
    next.container(target.queue, link);
    await reaches(next, taskId, 'COMPLETE');
    expect(link.orders).toHaveLength(1);
  });
});

describe('an add that meets a fault', () => {
  test('is repeated until Redis takes it; the same id twice is one run', async ({ start }) => {
    let failures = 3;
    const one = await start({
      queues: withAdd(async (queues, ...given) => {
        await queues.add(...given);
        failures -= 1;
        if (failures >= 0) throw new Error('the answer is lost');
      }),
    });
    const target = aQueueTarget();
    const link = aRunner(one);
    one.container(target.queue, link);
    one.dispatcher.wake(target.queue);
    const taskId = await put(one, target);
    expect(failures).toBeLessThan(0);
    await reaches(one, taskId, 'COMPLETE');
    await isEmpty(one, target.queue);
    expect(link.orders).toHaveLength(1);
  });

  test('and whose task has run meanwhile is repeated without a second run', async ({ start }) => {
    const hasRun = Promise.withResolvers<void>();
    let tries = 0;
    const one = await start({
      queues: withAdd(async (queues, ...given) => {
        tries += 1;
        await queues.add(...given);
        if (tries > 1) return;
        one.dispatcher.wake(given[0]);
        await hasRun.promise;
        throw new Error('the answer is lost');
      }),
    });
    const target = aQueueTarget();
    const link = aRunner(one);
    one.container(target.queue, link);
    const { taskId } = await submitted(one, target);
    await reaches(one, taskId, 'COMPLETE');
    await isEmpty(one, target.queue);
    hasRun.resolve();
    await waitFor(() => one.queueing.size === 0 && tries === 2, 'it is added again');
    await isEmpty(one, target.queue);
    expect(link.orders).toHaveLength(1);
  });

  test('does not hold up the others', async ({ start }) => {
    const target = aQueueTarget();
    const refused = aQueueTarget();
    const one = await start({
      queues: withAdd((queues, queue, job) =>
        queue === refused.queue ? Promise.reject(new Error('no')) : queues.add(queue, job),
      ),
    });
    await submitted(one, refused);
    const link = aRunner(one);
    one.container(target.queue, link);
    const { taskId } = await submitted(one, target);
    await reaches(one, taskId, 'COMPLETE');
    expect(one.queueing.size).toBe(1);
  });
});

describe('a process that is killed between commit and add', () => {
  test('has its tasks queued by the leader, which asks for those alone that may be missing', async ({ start }) => {
    const dead = [await start({ queues: withoutAdds }), await start({ queues: withoutAdds })] as const;
    const isAlive = (replica: InstanceId) => dead.every(({ instance }) => replica !== instance);
    const one = await start({ alive: isAlive });
    const target = aQueueTarget();
    const taskIds: TaskId[] = [];
    for (const at of [0, 0, 0, 1, 1] as const) taskIds.push((await submitted(dead[at], target)).taskId);
    const small = missingOf(one, { isAlive, batch: 2 });
    expect(await small.round()).toBe(5);
    expect(await one.missing.round()).toBe(0);
    const link = aRunner(one);
    one.container(target.queue, link);
    for (const taskId of taskIds) await reaches(one, taskId, 'COMPLETE');
    expect(link.orders.map(({ taskId }) => taskId).toSorted()).toEqual(taskIds.toSorted());
  });

  test('whose owner lives keeps its tasks', async ({ start }) => {
    const owner = await start({ queues: withoutAdds });
    const one = await start();
    await one.missing.round();
    const target = aQueueTarget();
    await submitted(owner, target);
    expect(await one.missing.round()).toBe(0);
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
  });

  test('that only seemed dead adds its tasks once more, and none runs twice', async ({ start }) => {
    let isFrozen = true;
    const owner = await start({
      queues: withAdd((queues, ...given) => (isFrozen ? Promise.reject(new Error('not now')) : queues.add(...given))),
    });
    const one = await start({ alive: (replica) => replica !== owner.instance });
    const target = aQueueTarget();
    const { taskId } = await submitted(owner, target);
    expect(await one.missing.round()).toBe(1);
    const link = aRunner(one);
    one.container(target.queue, link);
    await reaches(one, taskId, 'COMPLETE');
    isFrozen = false;
    await waitFor(() => owner.queueing.size === 0, 'it is added again');
    one.dispatcher.wake(target.queue);
    await isEmpty(one, target.queue);
    expect(link.orders).toHaveLength(1);
  });

  test('that goes on accepting has later tasks queued, too, at one probe for each round without any', async ({
    start,
  }) => {
    const dead = await start({ queues: withoutAdds });
    const one = await start();
    await one.marks.rowsChecked();
    const target = aQueueTarget();
    let nowMs = 0;
    const clock = { ...systemClock, monotonicMs: () => nowMs };
    const { asked, queues } = counted(one);
    const missing = missingOf(one, { queues, clock });
    await submitted(dead, target);
    expect(await missing.round()).toBe(1);
    nowMs += 60_000;
    await submitted(dead, target);
    expect(await missing.round()).toBe(1);
    nowMs += 600_000;
    const before = asked();
    expect(await missing.round()).toBe(0);
    expect(asked()).toBe(before);
    await submitted(dead, target);
    expect(await missing.round()).toBe(1);
    expect((await one.queues.depth(target.queue)).waiting).toBe(3);
  });

  test('is not looked at from the beginning by the next leader', async ({ start }) => {
    const dead = await start({ queues: withoutAdds });
    const one = await start();
    const target = aQueueTarget();
    for (let count = 0; count < 3; count += 1) await submitted(dead, target);
    await one.db.query(`update tasks set created_at = created_at - interval '10 minutes'`);
    const { createdAtMs } = (await taskOf(one, (await submitted(dead, target)).taskId)) ?? {};
    expect(await missingOf(one).round()).toBe(4);
    expect((await one.marks.read()).addedTo.get(dead.instance)).toBe(createdAtMs);
    const { asked, queues } = counted(one);
    expect(await missingOf(one, { queues, clock: allAreYoung }).round()).toBe(0);
    expect(asked()).toBe(1);
  });

  test('costs no look at the tasks that it had added before', async ({ start }) => {
    const dead = await start();
    const one = await start();
    const target = aQueueTarget();
    for (let count = 0; count < 3; count += 1) await put(dead, target);
    await dead.queueing.mark();
    // They were accepted three minutes ago, by the clock of their process.
    await one.db.query(`update tasks set created_at = created_at - interval '3 minutes'`);
    await one.marks.rowsChecked();
    const { asked, queues } = counted(one);
    expect(await missingOf(one, { queues, clock: allAreYoung }).round()).toBe(0);
    expect(asked()).toBe(0);
    // Redis may have lost some: then every row counts.
    await one.marks.rowsDoubtful();
    expect(await missingOf(one, { queues, clock: allAreYoung }).round()).toBe(0);
    expect(asked()).toBe(3);
  });

  test('marks no task as added that waits for Redis', async ({ start }) => {
    const one = await start({ queues: withoutAdds });
    const target = aQueueTarget();
    const { taskId } = await submitted(one, target);
    await one.queueing.mark();
    const { createdAtMs } = (await taskOf(one, taskId)) ?? {};
    expect((await one.marks.read()).addedTo.get(one.instance)).toBe(createdAtMs);
  });
});

const taskOf = (one: World, taskId: TaskId) => taskById(one.db, taskId);

describe('a job that is gone while its task waits and its owner lives', () => {
  test('is added again by a walk over all tasks, a page in each round', async ({ one }) => {
    const target = aQueueTarget();
    const taskIds: TaskId[] = [];
    for (let count = 0; count < 5; count += 1) taskIds.push(await put(one, target));
    for (const taskId of taskIds.slice(1)) await one.queues.remove(target.queue, taskId);
    await one.marks.rowsChecked();
    const missing = missingOf(one, { isAlive: () => true, batch: 2 });
    const walk = async () => [await missing.round(), await missing.round(), await missing.round()];
    expect(await walk()).toEqual([0, 0, 0]);
    await one.db.query(`update tasks set created_at = created_at - interval '61 seconds'`);
    expect(await walk()).toEqual([1, 2, 1]);
    expect(await walk()).toEqual([0, 0, 0]);
    const link = aRunner(one);
    one.container(target.queue, link);
    for (const taskId of taskIds) await reaches(one, taskId, 'COMPLETE');
    expect(link.orders.map(({ taskId }) => taskId).toSorted()).toEqual(taskIds.toSorted());
  });

  test('is not added while another runner has announced itself, nor when its task is over', async ({ one }) => {
    const target = aQueueTarget();
    const [held, over] = [await put(one, target), await put(one, target)];
    for (const taskId of [held, over]) await one.queues.remove(target.queue, taskId);
    await one.leases.announce(held);
    await one.db.query(`update tasks set created_at = created_at - interval '61 seconds'`);
    await one.db.query(`update tasks set rank = 3, status = 'CANCELLED' where id = $1`, [over]);
    await one.marks.rowsChecked();
    expect(await missingOf(one, { isAlive: () => true }).round()).toBe(0);
    await one.leases.drop(held);
    expect(await missingOf(one, { isAlive: () => true }).round()).toBe(1);
  });
});

describe('a StartTask of another runner that fails', () => {
  test('because the answer of Redis is lost leaves the task in its queue', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const { queues } = one;
    const remove = queues.remove.bind(queues);
    vi.spyOn(queues, 'remove').mockImplementationOnce(async (...given) => {
      await remove(...given);
      throw new Error('the answer is lost');
    });
    await expect(one.actions.startTask(callerOf(target), taskId, 'c-1')).rejects.toThrow('the answer is lost');
    const link = aRunner(one);
    one.container(target.queue, link);
    await reaches(one, taskId, 'COMPLETE');
    expect(link.orders).toHaveLength(1);
  });

  test('behind that leaves it there, too, and nobody holds it', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const applied = vi.spyOn(one.changes, 'applied').mockRejectedValueOnce(new Error('not written'));
    await expect(one.actions.startTask(callerOf(target), taskId, 'c-1')).rejects.toThrow('not written');
    applied.mockRestore();
    expect(await one.leases.isHeld(taskId)).toBe(false);
    const link = aRunner(one);
    one.container(target.queue, link);
    await reaches(one, taskId, 'COMPLETE');
    expect(link.orders).toHaveLength(1);
  });
});

describe('after Redis lost its data', () => {
  test('waiting tasks come back from their rows, a page after the other, under their ids', async ({ one }) => {
    const target = aQueueTarget();
    const taskIds: TaskId[] = [];
    for (let count = 0; count < 5; count += 1) taskIds.push(await put(one, target));
    await one.client.flushall();
    expect(await missingOf(one, { isAlive: () => true, batch: 2 }).round()).toBe(5);
    expect(await one.missing.round()).toBe(0);
    const link = new PlayedLink();
    one.container(target.queue, link);
    const order = await sent(link);
    expect(order).toMatchObject({ taskId: taskIds[0], input: '{"x":1}' });
  });

  test('a leader that stood still adds again what its successor has run: it does not run twice', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    await one.client.flushall();
    const link = aRunner(one);
    const former = missingOf(one, {
      queues: {
        open: (queue) => one.queues.open(queue),
        missing: (tasks) => one.queues.missing(tasks),
        add: async (queue, job) => {
          await one.missing.round();
          one.container(target.queue, link);
          await reaches(one, taskId, 'COMPLETE');
          await one.queues.add(queue, job);
        },
      },
    });
    expect(await former.round()).toBe(1);
    one.dispatcher.wake(target.queue);
    await isEmpty(one, target.queue);
    expect(link.orders).toHaveLength(1);
  });

  test('nothing is added before every replica has said whether it has the task, and none that one has', async ({
    one,
  }) => {
    const target = aQueueTarget();
    const [running, waiting] = [await put(one, target), await put(one, target)];
    await one.client.flushall();
    const said: { had?: ReadonlySet<TaskId> } = {};
    const missing = missingOf(one, { whoHas: () => Promise.resolve(said.had) });
    await expect(missing.round()).rejects.toThrow('does not answer');
    said.had = new Set([running]);
    expect(await missing.round()).toBe(1);
    expect(await one.queues.waitingIds(target.queue)).toEqual([waiting]);
  });
});

describe('a task that is committed and not queued yet', () => {
  test('is listed, cancelled, and never runs', async ({ start }) => {
    let isHeld = true;
    const one = await start({
      queues: withAdd((queues, ...given) =>
        isHeld ? Promise.reject(new Error('Redis is away')) : queues.add(...given),
      ),
    });
    const target = aQueueTarget();
    const { taskId } = await submitted(one, target);
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    isHeld = false;
    await waitFor(() => one.queueing.size === 0, 'it is added');
    const link = new PlayedLink();
    one.container(target.queue, link);
    const next = await put(one, target);
    expect((await sent(link)).taskId).toBe(next);
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });

  test.for([false, true])(
    'and is cancelled in that very moment leaves its queue again, in a lone process: %s',
    async (isAlone, { start }) => {
      const commits = Promise.withResolvers<void>();
      const one = await start({
        isAlone,
        queues: withAdd(async (queues, ...given) => {
          await one.actions.stopTasks(callerOf(target), [given[1].taskId]);
          await queues.add(...given);
          commits.resolve();
        }),
      });
      const target = aQueueTarget();
      const { taskId } = await submitted(one, target);
      await commits.promise;
      await isEmpty(one, target.queue);
      expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    },
  );

  test('and is added by a lone process costs no look at its row', async ({ start }) => {
    const one = await start({ isAlone: true });
    let looks = 0;
    one.records.ended = (taskIds) => {
      looks += 1;
      return Promise.resolve(taskIds);
    };
    const target = aQueueTarget();
    const link = aRunner(one);
    one.container(target.queue, link);
    await Promise.all(Array.from({ length: 20 }, () => put(one, target)));
    await sent(link, 20);
    expect(looks).toBe(0);
  });

  test.for([false, true])(
    'and begins beside its cancel, written: %s, is ended with its attempt',
    async (isWritten, { start }) => {
      const add = Promise.withResolvers<void>();
      const one = await start({
        queues: withAdd(async (queues, ...given) => {
          await add.promise;
          await queues.add(...given);
        }),
      });
      const target = aQueueTarget();
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      const { taskId } = await submitted(one, target);
      atRecord(one, 'CANCELLED', isWritten, async () => {
        add.resolve();
        await sent(link);
      });
      expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
      const [order] = link.orders;
      expect(link.cancelled).toEqual([`${taskId} ${order!.token}`]);
      await isEmpty(one, target.queue);
      await one.result(order!, '{}', 'cancelled');
      expect(container.inFlight).toBe(0);
      expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    },
  );

  test('and is fetched elsewhere while its cancel is written is ended with the token that holds it', async ({
    start,
  }) => {
    const add = Promise.withResolvers<void>();
    const one = await start({
      queues: withAdd(async (queues, ...given) => {
        await add.promise;
        await queues.add(...given);
      }),
    });
    const target = aQueueTarget();
    const { taskId } = await submitted(one, target);
    const lock = lockTokenOf(newInstanceId(), newAttemptToken());
    atRecord(one, 'CANCELLED', false, async () => {
      add.resolve();
      await waitFor(async () => (await one.queues.fetch(target.queue, lock)).job !== undefined, 'it is fetched');
    });
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.queues.complete(target.queue, taskId, lock)).toEqual({ kind: 'gone' });
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });

  test('goes with its deployment', async ({ start }) => {
    let isHeld = true;
    const one = await start({
      queues: withAdd((queues, ...given) =>
        isHeld ? Promise.reject(new Error('Redis is away')) : queues.add(...given),
      ),
    });
    const target = aQueueTarget();
    const taskIds = [(await submitted(one, target)).taskId, (await submitted(one, target)).taskId];
    expect(await one.deploymentStops.deleted(target.queue)).toBe(2);
    isHeld = false;
    await waitFor(() => one.queueing.size === 0, 'they are added');
    for (const taskId of taskIds) expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    const link = new PlayedLink();
    one.container(target.queue, link);
    await isEmpty(one, target.queue);
    expect(link.orders).toEqual([]);
  });

  test('and is added while its expiry is written reaches no agent', async ({ start }) => {
    const add = Promise.withResolvers<void>();
    const one = await start({
      queues: withAdd(async (queues, ...given) => {
        await add.promise;
        await queues.add(...given);
      }),
    });
    const target = aQueueTarget({ ttlSeconds: 0.2 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const { taskId } = await submitted(one, target);
    atRecord(one, 'EXPIRED', false, async () => {
      add.resolve();
      await waitFor(() => one.queueing.size === 0, 'it is added');
    });
    const deadlines = deadlinesOf(one);
    try {
      await deadlines.reload();
      await reaches(one, taskId, 'EXPIRED');
      await isEmpty(one, target.queue);
      expect(link.orders).toEqual([]);
    } finally {
      deadlines.stop();
    }
  });

  test('is EXPIRED at its deadline', async ({ start }) => {
    const one = await start({ queues: withoutAdds });
    const target = aQueueTarget({ ttlSeconds: 0.2 });
    const { taskId } = await submitted(one, target);
    const deadlines = deadlinesOf(one);
    try {
      await deadlines.reload();
      await reaches(one, taskId, 'EXPIRED');
      await drained(one);
      expect((await taskOf(one, taskId))?.status).toBe('EXPIRED');
    } finally {
      deadlines.stop();
    }
  });
});

describe('the bound on pending tasks', () => {
  test('asks Redis for nothing far below it where nobody else adds, and for each decision near it', async ({ one }) => {
    const target = aQueueTarget();
    let reads = 0;
    const depth = (queue: typeof target.queue) => {
      reads += 1;
      return one.queues.depth(queue);
    };
    const bound = new PendingBound({ depth }, true);
    const places = [];
    for (let count = 0; count < 8; count += 1) places.push(await bound.take(target.queue, 10));
    expect(reads).toBe(1);
    for (let count = 0; count < 3; count += 1) places.push(await bound.take(target.queue, 10));
    expect(reads).toBe(4);
    expect(places.filter((place) => place === undefined)).toHaveLength(1);
    places[0]?.free();
    expect(await bound.take(target.queue, 10)).toBeDefined();
  });

  test('holds what two replicas have accepted', async ({ start }) => {
    const [one, two] = [await start(), await start()];
    const target = aQueueTarget({ maxPendingTasks: 20 });
    for (let count = 0; count < 10; count += 1) {
      await put(one, target);
      await put(two, target);
    }
    const untilMs = performance.now() + 260;
    await waitFor(() => performance.now() > untilMs, 'what each knows of the queue is old');
    for (const at of [one, two])
      expect(await at.submissions.submit(target, { input: '{}' })).toEqual({ kind: 'queue_full', maxPendingTasks: 20 });
    expect((await one.queues.depth(target.queue)).waiting).toBe(20);
  });
});
