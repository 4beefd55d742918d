// Redis that comes back a moment older, under two replicas: a server that crashed, or a failover to a replica that
// lagged. Runs begun since then are unknown to Redis, ended tasks are there again, and new ones are gone. No task runs
// beside its own attempt or after its end, and nothing stays in a queue. Synchronous tasks know nothing of it.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import { RedisData } from '#scheduler/stores/queues/redis-data.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Options } from './tasks-started.ts';
import { idle, test as base } from './tasks-started.ts';
import { aQueueTarget, put } from './tasks-world.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, PlayedLink, quiet } from './tasks-fixture.ts';
import { eavesdrop } from './lines-fixture.ts';
import { withCall } from './queueing-faults.ts';

const LOOKS: Options = { looksAtData: true, alive: () => true };

/** Starts replicas that look at the data of Redis and know of each other. */
const test = base.extend('replica', async ({ start }) => {
  const all: InstanceId[] = [];
  return async (options: Options = {}): Promise<Process> => {
    const own: { instance?: InstanceId } = {};
    const present = (): InstanceId[] => all.filter((instance) => instance !== own.instance);
    const made = await start({ ...LOOKS, ...options, peers: { silentMs: 200, present, ...options.peers } });
    own.instance = made.instance;
    all.push(made.instance);
    return made;
  };
});

/** Holds every question of the process who has a task. @returns how often it asked, and the end of that */
function holdQuestions({ peers: { questions } }: Process) {
  const gate = Promise.withResolvers<void>();
  const whoHas = questions.whoHas.bind(questions);
  let asked = 0;
  questions.whoHas = async (taskIds) => {
    asked += 1;
    await gate.promise;
    return await whoHas(taskIds);
  };
  return { asked: () => asked, release: gate.resolve };
}
const isRebuilt = (...all: readonly Process[]) =>
  waitFor(() => all.every(({ redisData }) => (redisData?.generation ?? 0) > 0), 'everybody has noticed the loss');
const isEmpty = (one: Process, queue: Parameters<Process['queues']['depth']>[0]) =>
  waitFor(async () => {
    const { waiting, active } = await one.queues.depth(queue);
    return waiting + active === 0;
  }, 'nothing is left');

describe('a job', () => {
  test('that runs at one replica is not sent by another to which Redis gives it out as if it were new', async ({
    replica,
    redis,
  }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    const order = await sent(link);
    await rollBack();
    other.container(target.queue, another);
    await isRebuilt(one, other);
    await isEmpty(one, target.queue);
    await one.result(order, '{"y":1}');
    await reaches(other, taskId, 'COMPLETE');
    expect(another.orders).toEqual([]);
    const next = await put(other, target);
    await other.result(await sent(another));
    await reaches(other, next, 'COMPLETE');
    await isEmpty(one, target.queue);
  });

  test('that runs is not sent by a replica that starts when Redis is back, and has noticed no loss', async ({
    replica,
    redis,
  }) => {
    const one = await replica();
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    const order = await sent(link);
    await rollBack();
    await isRebuilt(one);
    const other = await replica();
    other.container(target.queue, another);
    await isEmpty(one, target.queue);
    await one.result(order, '{"y":1}');
    await reaches(other, taskId, 'COMPLETE');
    expect([another.orders, other.redisData?.generation]).toEqual([[], 0]);
  });

  test('whose attempt ends while another replica looks at it has that end, and does not run again', async ({
    replica,
    redis,
  }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    const order = await sent(link);
    const questions = holdQuestions(other);
    await rollBack();
    other.container(target.queue, another);
    await waitFor(() => questions.asked() > 0, 'the other one holds its lock');
    expect(await one.result(order, '{"y":1}')).toBe(true);
    questions.release();
    await isEmpty(other, target.queue);
    expect(await reaches(other, taskId, 'COMPLETE')).toMatchObject({ attempt: 1, result: '{"y":1}' });
    expect(another.orders).toEqual([]);
  });

  test('whose attempt ends between the answer about it and its leave has that end', async ({ replica }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    const order = await sent(link);
    // The lock runs out under a living replica, and nobody notices a loss.
    await one.client.del(`${one.keys.prefix}:${target.queue}:${taskId}:lock`);
    const isBack = async (): Promise<boolean> => {
      await other.client.del(`${other.keys.prefix}:${target.queue}:stalled-check`);
      return (await other.queues.scanStalled(target.queue)).includes(taskId);
    };
    await waitFor(isBack, 'its job waits again');
    const { questions } = other.peers;
    const whoHas = questions.whoHas.bind(questions);
    let ended: boolean | undefined;
    questions.whoHas = async (taskIds) => {
      const had = await whoHas(taskIds);
      ended ??= await one.result(order, '{"y":1}');
      return had;
    };
    other.container(target.queue, another);
    await isEmpty(other, target.queue);
    expect(await reaches(other, taskId, 'COMPLETE')).toMatchObject({ attempt: 1, result: '{"y":1}' });
    expect([ended, another.orders]).toEqual([true, []]);
  });

  test('whose attempt asks for a retry while another replica looks at it runs again there', async ({
    replica,
    redis,
  }) => {
    const isDelayed = Promise.withResolvers<void>();
    let delays = 0;
    const queues = withCall('delay', async (all, ...given) => {
      delays += 1;
      await isDelayed.promise;
      return await all.delay(...given);
    });
    const [one, other] = [await replica({ queues }), await replica()];
    const target = aQueueTarget({ retries: 1 });
    const taskId = await put(one, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    const container = one.container(target.queue, link);
    const order = await sent(link);
    one.slots.leave(container.containerId);
    const questions = holdQuestions(other);
    await rollBack();
    other.container(target.queue, another);
    await waitFor(() => questions.asked() > 0, 'the other one holds its lock');
    const retry = one.result(order, '{}', 'retry');
    await waitFor(() => delays > 0, 'it goes back');
    questions.release();
    await other.result(await sent(another), '{"y":2}');
    isDelayed.resolve();
    await retry;
    expect(await reaches(other, taskId, 'COMPLETE')).toMatchObject({ result: '{"y":2}' });
  });

  test('is not sent while a replica that is present does not say whether it runs there', async ({ replica, redis }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const waiting = await put(one, target);
    const rollBack = redis.keep();
    await rollBack();
    await isRebuilt(one, other);
    let isCut = true;
    eavesdrop(one, ([kind]) => isCut && kind === 'answer');
    const heard = eavesdrop(other);
    const another = new PlayedLink();
    other.container(target.queue, another);
    const asked = (): number => heard.filter(([kind]) => kind === 'has').length;
    await waitFor(() => asked() >= 3, 'it has asked three times');
    expect(another.orders).toEqual([]);
    isCut = false;
    expect((await sent(another)).taskId).toBe(waiting);
  });

  test('that has ended since does not run again, and its end stays as it was', async ({ replica, redis }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const taskId = await put(other, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    await one.result(await sent(link), '{"y":1}');
    await reaches(one, taskId, 'COMPLETE');
    await rollBack();
    other.container(target.queue, another);
    await isRebuilt(one, other);
    await isEmpty(one, target.queue);
    await reaches(other, taskId, 'COMPLETE');
    expect(another.orders).toEqual([]);
    await waitFor(async () => !(await one.leases.isHeld(taskId)), 'nothing is left of its lease');
  });

  test('that was fetched before, and is not sent yet, runs once', async ({ replica, redis }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const read = Promise.withResolvers<Uint8Array>();
    one.bytes.getBytes = () => read.promise;
    other.bytes.getBytes = () => Promise.resolve(Buffer.from('{}'));
    const taskId = await put(one, target, JSON.stringify({ x: 'a'.repeat(70_000) }));
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    await waitFor(async () => (await one.queues.depth(target.queue)).active === 1, 'it is fetched');
    await rollBack();
    other.container(target.queue, another);
    const order = await sent(another);
    read.resolve(Buffer.from('{}'));
    await isRebuilt(one, other);
    await other.result(order);
    await reaches(other, taskId, 'COMPLETE');
    await isEmpty(one, target.queue);
    expect(link.orders).toEqual([]);
    expect(another.orders).toHaveLength(1);
  });
});

describe('a clock of Redis that is set ten minutes forward', () => {
  /** Imitates the effect of such a clock on Redis: keys that would live for less are gone. */
  async function setForward(...all: readonly Process[]): Promise<void> {
    const AHEAD_S = 600;
    const [first] = all;
    if (first === undefined) return;
    const { client, keys } = first;
    for (const key of await client.keys(`${keys.prefix}:*`)) {
      const leftMs = await client.pttl(key);
      if (leftMs >= 0 && leftMs < AHEAD_S * 1000) await client.del(key);
    }
    for (const { client } of all) {
      const time = client.time.bind(client);
      client.time = async () => {
        const [seconds, microseconds] = await time();
        return [Number(seconds) + AHEAD_S, Number(microseconds)];
      };
    }
  }

  test('does not have what runs at one replica run again at another', async ({ replica }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    const order = await sent(link);
    await waitFor(() => one.leases.isHeld(taskId), 'its lease is written');
    await setForward(one, other);
    await waitFor(() => one.leases.isHeld(taskId), 'its lease is written again');
    await isRebuilt(one, other);
    other.container(target.queue, another);
    // A job without a lock counts as stalled, and is queued again.
    await waitFor(async () => {
      await other.client.del(`${other.keys.prefix}:${target.queue}:stalled-check`);
      return (await other.queues.scanStalled(target.queue)).includes(taskId);
    }, 'its job waits again');
    other.dispatcher.wake(target.queue);
    await isEmpty(other, target.queue);
    await one.result(order, '{"y":1}');
    await reaches(other, taskId, 'COMPLETE');
    expect(another.orders).toEqual([]);
  });
});

describe('synchronous tasks', () => {
  test('that run, wait, come and end meanwhile go on as if nothing had happened', async ({ replica, redis }) => {
    const [one, other] = [await replica(), await replica()];
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const ended = await submitted(one, target);
    const runs = await submitted(one, target);
    const [first, second] = [await sent(link), await sent(link, 2)];
    const waits = await submitted(one, target);
    const rollBack = redis.keep();
    await one.result(first);
    expect(await ended.finished).toMatchObject({ status: 'COMPLETE' });
    expect((await sent(link, 3)).taskId).toBe(waits.taskId);
    const came = await submitted(one, target);
    await rollBack();
    await isRebuilt(one, other);
    expect(await one.lines.depth(target.queue)).toMatchObject({ waiting: 1, active: 2 });
    await one.result(second);
    expect((await sent(link, 4)).taskId).toBe(came.taskId);
    for (const order of link.orders.slice(2)) await one.result(order);
    for (const { taskId, finished } of [runs, waits, came]) {
      expect(await finished).toMatchObject({ status: 'COMPLETE' });
      expect(await reaches(other, taskId, 'COMPLETE')).toMatchObject({ attempt: 1 });
    }
    expect([link.orders.length, container.inFlight, one.lines.line.size]).toEqual([4, 0, 0]);
  });

  test('that one replica has for the caller of another end there, and are not sent again', async ({ start, redis }) => {
    const near = await start({ ...LOOKS, peers: {} });
    const capacity = () => new Map([[near.instance, { free: 1, slots: 1 }]]);
    const far = await start({ ...LOOKS, peers: { capacity, present: (): InstanceId[] => [near.instance] } });
    const target = aTarget();
    const [link, own] = [new PlayedLink(), new PlayedLink()];
    await idle(near.container(target.queue, link));
    const rollBack = redis.keep();
    const task = await submitted(far, target);
    const order = await sent(link);
    await rollBack();
    await isRebuilt(near, far);
    far.container(target.queue, own);
    await far.peers.crossing.tick();
    await near.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    expect([link.orders.length, own.orders.length]).toEqual([1, 0]);
  });
});

describe('data that are older', () => {
  test('are noticed also where the same server answers on the same connection', async ({ one }) => {
    const instance = newInstanceId();
    const data = new RedisData({ client: one.client, keys: one.keys, instance, clock: systemClock, log: quiet });
    await data.check();
    const before = (await one.client.get(one.keys.data(instance))) ?? '';
    await data.check();
    await data.check();
    expect(data.generation).toBe(0);
    await one.client.set(one.keys.data(instance), before);
    await data.check();
    expect(data.generation).toBe(1);
    await data.check();
    expect(data.generation).toBe(1);
  });

  test('are not supposed where a connection was lost and the server goes on', async ({ start }) => {
    const one = await start(LOOKS);
    const brokenAtMs = performance.now();
    one.client.disconnect(true);
    await waitFor(() => (one.redisData?.brokenAtMs ?? 0) > brokenAtMs, 'the connection is lost');
    await waitFor(() => one.redisData?.isSure === true, 'the next one was looked at');
    expect(one.redisData?.generation).toBe(0);
  });
});
