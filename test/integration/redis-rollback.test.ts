// Redis that comes back a moment older, under two replicas: a server that crashed, or a failover to a replica that
// lagged. Runs begun since then are unknown to Redis, ended tasks are there again, and new ones are gone. No
// synchronous task runs twice, every caller is answered, and nothing stays in a local queue or a queue.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import { RedisData } from '#scheduler/stores/queues/redis-data.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Options } from './tasks-started.ts';
import { aQueueTarget, put } from './tasks-world.ts';
import { inLocalQueue, jobs, test } from './local-queue-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, PlayedLink, quiet } from './tasks-fixture.ts';

const LOOKS: Options = { looksAtData: true, forwardTo: () => undefined };
/** Options under which every call is a job of its queue. */
const BY_QUEUE: Options = { ...LOOKS, localQueue: false };
const isRebuilt = (...all: readonly Process[]) =>
  waitFor(() => all.every(({ rollCall }) => rollCall?.isOver() === true), 'everybody has said what it runs');
const isEmpty = (one: Process, queue: Parameters<typeof jobs>[1]) =>
  waitFor(async () => (await jobs(one, queue)) + (await inLocalQueue(one, queue)).length === 0, 'nothing is left');

describe('a synchronous job', () => {
  test('that runs at one replica is not sent by another to which Redis gives it out as if it were new', async ({
    start,
    redis,
  }) => {
    const [one, other] = [await start(BY_QUEUE), await start(BY_QUEUE)];
    const target = aTarget();
    const task = await submitted(one, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    const order = await sent(link);
    await rollBack();
    other.container(target.queue, another);
    await isRebuilt(one, other);
    await isEmpty(one, target.queue);
    await one.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    await reaches(other, task.taskId, 'COMPLETE');
    expect(another.orders).toEqual([]);
    const next = await submitted(other, target);
    await other.result(await sent(another));
    expect(await next.finished).toMatchObject({ status: 'COMPLETE' });
    await isEmpty(one, target.queue);
  });

  test('that has ended since does not run again, and its end stays as it was', async ({ start, redis }) => {
    const [one, other] = [await start(BY_QUEUE), await start(BY_QUEUE)];
    const target = aTarget();
    const task = await submitted(other, target);
    const rollBack = redis.keep();
    const [link, another] = [new PlayedLink(), new PlayedLink()];
    one.container(target.queue, link);
    await one.result(await sent(link), '{"y":1}');
    await reaches(one, task.taskId, 'COMPLETE');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await rollBack();
    other.container(target.queue, another);
    await isRebuilt(one, other);
    await isEmpty(one, target.queue);
    await reaches(other, task.taskId, 'COMPLETE');
    expect(another.orders).toEqual([]);
    expect(await one.leases.isHeld(task.taskId)).toBe(false);
  });

  test('that was fetched before, and is not sent yet, runs once', async ({ start, redis }) => {
    const [one, other] = [await start(BY_QUEUE), await start(BY_QUEUE)];
    const target = aTarget();
    const read = Promise.withResolvers<Uint8Array>();
    one.bytes.getBytes = () => read.promise;
    other.bytes.getBytes = () => Promise.resolve(Buffer.from('{}'));
    const task = await submitted(one, target, JSON.stringify({ x: 'a'.repeat(70_000) }));
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
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await isEmpty(one, target.queue);
    expect(link.orders).toEqual([]);
    expect(another.orders).toHaveLength(1);
  });

  test('that came since, and is gone, is queued again at once by the replica its caller waits on', async ({
    start,
    redis,
  }) => {
    const [one, other] = [await start(BY_QUEUE), await start(BY_QUEUE)];
    const target = aTarget();
    const rollBack = redis.keep();
    const task = await submitted(one, target);
    await rollBack();
    await isRebuilt(one, other);
    await waitFor(async () => (await one.queues.read(target.queue, task.taskId)) !== undefined, 'it is queued again');
    const link = new PlayedLink();
    other.container(target.queue, link);
    await other.result(await sent(link));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.orders).toHaveLength(1);
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

  test('does not have what runs at one replica run again at another', async ({ start }) => {
    const [one, other] = [await start(BY_QUEUE), await start(BY_QUEUE)];
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

describe('a task of the local queue', () => {
  test('whose lease was written, and that could not be sent then, is sent at the next try', async ({
    start,
    redis,
  }) => {
    let failures = 0;
    const one = await start({
      ...LOOKS,
      queues: (queues) =>
        new Proxy(queues, {
          get: (whole, name) => {
            const value: unknown = Reflect.get(whole, name);
            if (typeof value !== 'function') return value;
            if (name !== 'lockOf' || failures > 0) return value.bind(whole);
            return () => {
              failures += 1;
              return Promise.reject(new Error('the connection is gone'));
            };
          },
        }),
    });
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const first = await submitted(one, target);
    const order = await sent(link);
    const waiting = await submitted(one, target);
    await redis.keep()();
    await isRebuilt(one);
    await one.result(order);
    expect(await first.finished).toMatchObject({ status: 'COMPLETE' });
    await one.result(await sent(link, 2));
    expect(await waiting.finished).toMatchObject({ status: 'COMPLETE' });
    expect(failures).toBe(1);
  });

  test('that has ended leaves no entry, and one that came since counts again', async ({ start, redis }) => {
    const [one, other] = [await start(LOOKS), await start(LOOKS)];
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 2);
    const ended = await submitted(one, target);
    const order = await sent(link);
    await waitFor(() => one.leases.isHeld(ended.taskId), 'its lease is written');
    const rollBack = redis.keep();
    await one.result(order);
    expect(await ended.finished).toMatchObject({ status: 'COMPLETE' });
    const came = await submitted(one, target);
    const running = await sent(link, 2);
    await rollBack();
    await isRebuilt(one, other);
    expect(await inLocalQueue(one, target.queue)).toEqual([came.taskId]);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
    expect(await one.leases.isHeld(ended.taskId)).toBe(false);
    expect(await one.leases.isHeld(came.taskId)).toBe(true);
    await one.result(running);
    expect(await came.finished).toMatchObject({ status: 'COMPLETE' });
    await isEmpty(one, target.queue);
    expect(link.orders).toHaveLength(2);
  });

  test('that is forwarded and runs is not taken back although its lease is gone', async ({ start, redis }) => {
    const gate: { closed: PromiseWithResolvers<void> | undefined } = { closed: Promise.withResolvers() };
    const still = Promise.withResolvers<void>();
    const near = await start({
      ...LOOKS,
      beforeFetch: () => gate.closed?.promise,
      beforeRebuild: () => still.promise,
    });
    const far = await start({
      looksAtData: true,
      isOursAlone: () => false,
      forwardTo: (_queue, forwardedTo: (one: InstanceId) => number) =>
        forwardedTo(near.instance) < 5 ? near.instance : undefined,
      // The time keeps a forwarded task from being taken back before its receiver has sent it.
      silentMs: 400,
    });
    const target = aTarget();
    const [link, own] = [new PlayedLink(), new PlayedLink()];
    near.container(target.queue, link);
    const task = await submitted(far, target);
    await waitFor(() => near.queues.has(task.taskId), 'it is forwarded');
    const rollBack = redis.keep();
    gate.closed?.resolve();
    gate.closed = undefined;
    const order = await sent(link);
    await rollBack();
    far.container(target.queue, own);
    await waitFor(() => far.rollCall?.isSure === true, 'its origin is connected again');
    const until = performance.now() + 1_000;
    await waitFor(() => performance.now() > until, 'nothing was heard of the forwarding for long');
    expect(await far.client.hget(far.keys.localQueue(target.queue), task.taskId)).toMatch(/^{"lentTo":/);
    still.resolve();
    await isRebuilt(near, far);
    await waitFor(() => !far.queues.has(task.taskId), 'its origin knows that it was sent');
    await near.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    await isEmpty(far, target.queue);
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
    expect([data.generation, data.isSameServer]).toEqual([1, true]);
    await data.check();
    expect(data.generation).toBe(1);
  });

  test('are not supposed where a connection was lost and the server goes on', async ({ start }) => {
    const one = await start(LOOKS);
    const brokenAtMs = performance.now();
    one.client.disconnect(true);
    await waitFor(() => (one.rollCall?.brokenAtMs ?? 0) > brokenAtMs, 'the connection is lost');
    await waitFor(() => one.rollCall?.isSure === true, 'the next one was looked at');
    expect(one.rollCall?.isOver()).toBe(true);
  });
});
