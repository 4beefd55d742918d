// Guards that keep a task from running twice when Redis, or this process, comes back late. Jobs are handed out again,
// fetches were given back meanwhile, leases were not written.
import { afterEach, describe, expect, vi } from 'vitest';
import type { LockToken, QueueName } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import { finalOf } from '#scheduler/tasks/records/recording.ts';
import { DEFAULT_WORKSPACE_LIMITS } from '#scheduler/workspaces/identity/limits.ts';
import type { WorkspaceLimits } from '#scheduler/workspaces/identity/limits.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { LOCK_MS } from '#scheduler/stores/queues/task-queues.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { takesBackAnother } from '../helpers/lost-order.ts';
import { waitFor } from '../helpers/services.ts';
import { liveOf, reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import { test } from './tasks-started.ts';
import { aQueueTarget, put } from './tasks-world.ts';

/** The process stands still: the monotonic clock goes on without it. */
function standStill(ms: number): void {
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + ms);
}
afterEach(() => void vi.restoreAllMocks());

/** Queues whose next fetch stands still while `during` acts on the fetched job. */
function haltedAfterFetch(during: (queue: QueueName, lock: LockToken) => Promise<void> | void) {
  let halted = false;
  return (queues: TaskQueues): TaskQueues =>
    new Proxy(queues, {
      get: (whole, name) => {
        const value: unknown = Reflect.get(whole, name);
        if (typeof value !== 'function') return value;
        if (name !== 'fetch') return value.bind(whole);
        return async (queue: QueueName, lock: LockToken) => {
          const fetched = await whole.fetch(queue, lock);
          if (fetched.job !== undefined && !halted) {
            halted = true;
            await during(queue, lock);
          }
          return fetched;
        };
      },
    });
}

describe('a task does not run twice', () => {
  test('when a Redis that came back older hands its job out again, as if it were new', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const taskId = await put(one, target);
    const order = await sent(link);
    const job = await one.queues.read(target.queue, taskId);
    if (job === undefined) throw new Error('no job');
    await one.client.flushall();
    await one.queues.add(target.queue, job);
    one.dispatcher.wake(target.queue);
    await waitFor(async () => (await one.queues.read(target.queue, taskId)) === undefined, 'it is taken out');
    await waitFor(() => container.inFlight === 1, 'the slot it was fetched for is free');
    expect(link.orders).toHaveLength(1);
    await one.result(order, '{"first":1}');
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 1, result: '{"first":1}' });
    await waitFor(() => container.inFlight === 0, 'its slot is free');
  });

  test('when its replica stood still after the fetch, was taken for dead, and goes on', async ({ start }) => {
    const target = aQueueTarget();
    const other = await start();
    const elsewhere = new PlayedLink();
    const still = await start({
      graces: { freshMs: 50 },
      queues: haltedAfterFetch(async (queue, lock) => {
        const [taskId] = await other.queues.activeIds(queue);
        if (taskId === undefined) throw new Error('nothing is active');
        await other.queues.giveBack(queue, taskId, lock);
        other.container(queue, elsewhere);
        await sent(elsewhere);
        standStill(100);
      }),
    });
    const link = new PlayedLink();
    const container = still.container(target.queue, link);
    const taskId = await put(other, target);
    still.dispatcher.wake(target.queue, taskId);
    const order = await sent(elsewhere);
    await waitFor(() => container.inFlight === 0, 'the slot it was fetched for is free');
    expect(link.orders).toEqual([]);
    expect(await other.leases.read(taskId)).toMatchObject({ attempt: 2, containerId: order.containerId });
  });

  test('when it ended while the link was down, and its result takes longer to come than an agent has to name what it has', async ({
    start,
  }) => {
    const one = await start();
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    const { taskId, token, containerId } = order;
    for (const now of [undefined, link])
      for (const queue of one.slots.setLink(MACHINE, now)) one.dispatcher.wake(queue);
    await one.reports.machineReported(MACHINE, {
      agentInstance: 'agent-1',
      sessionEpoch: 2,
      running: [],
      finished: [{ taskId, token, containerId }],
    });
    // The time that an agent has to name its attempts is over.
    await takesBackAnother(start, one);
    expect(await one.lines.depth(target.queue)).toMatchObject({ active: 1, waiting: 0 });
    await one.result(order, '{"late":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"late":1}' });
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    expect(link.orders).toHaveLength(1);
  });

  test('one that was only slow, and still holds it, sends it', async ({ start }) => {
    const target = aQueueTarget();
    const one = await start({ graces: { freshMs: 50 }, queues: haltedAfterFetch(() => standStill(100)) });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await one.result(await sent(link), '{"slow":1}');
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 1, result: '{"slow":1}' });
  });
});

describe('a machine that dials another replica', () => {
  test('takes its calls along: who sent them keeps nothing of them once the other has judged them, and its callers hear how they end', async ({
    start,
  }) => {
    const alive: Process[] = [];
    const peers = {
      isPresent: () => true,
      present: () => alive.map(({ instance }) => instance),
      isSync: () => true,
      linkOf: () => ({ replica: after.instance, sessionEpoch: 2, isHere: true }),
    };
    const before = await start({ peers: { ...peers, linkOf: () => ({ ...peers.linkOf(), isHere: false }) } });
    const after = await start({ peers });
    alive.push(before, after);
    const target = aTarget();
    const link = new PlayedLink();
    const container = before.container(target.queue, link);
    after.container(target.queue, new PlayedLink(), 1, container.containerId);
    const task = await submitted(before, target);
    const order = await sent(link);
    before.slots.setLink(MACHINE, undefined);
    const live = liveOf(order);
    const report = { agentInstance: 'agent-1', sessionEpoch: 2, running: [live] };
    expect((await after.reports.machineReported(MACHINE, report)).adopted).toEqual([live]);
    before.reports.machineMoved(MACHINE);
    await waitFor(() => before.attempts.size === 0, 'the other has judged it');
    expect(container.inFlight).toBe(0);
    expect(await after.result(order, '{"moved":1}')).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"moved":1}' });
  });

  test.for([aTarget(), aQueueTarget()])(
    'and comes back: what it runs still takes its slot there, sync: $sync',
    async (target, { start }) => {
      const one = await start();
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      const { taskId } = await submitted(one, target);
      const order = await sent(link);
      if (!target.sync) await waitFor(() => one.leases.read(taskId), 'its lease is written');
      one.reports.machineMoved(MACHINE);
      const live = liveOf(order);
      const report = { agentInstance: 'agent-1', sessionEpoch: 2, running: [live] };
      expect((await one.reports.machineReported(MACHINE, report)).adopted).toEqual([live]);
      expect(container.inFlight).toBe(1);
      await one.result(order);
      await reaches(one, taskId, 'COMPLETE');
      await waitFor(() => container.inFlight === 0, 'its slot is free');
    },
  );
});

test('a lease that Redis did not take in the turn of the send is written as soon as it does', async ({
  start,
  redis,
}) => {
  const one = await start();
  const admin = redis.connect({});
  const target = aQueueTarget();
  const link = new PlayedLink();
  const taskId = await put(one, target);
  await admin.call('acl', 'setuser', 'default', 'resetkeys', `~${one.keys.prefix}:tq-*`);
  one.container(target.queue, link);
  const order = await sent(link);
  await waitFor(async () => ((await admin.acl('LOG')) as unknown[]).length > 0, 'Redis refused the lease');
  await admin.call('acl', 'setuser', 'default', '~*');
  const lease = await waitFor(() => one.leases.read(taskId), 'its lease is written');
  expect(lease).toMatchObject({ attempt: 1, containerId: order.containerId });
  await one.result(order);
  await reaches(one, taskId, 'COMPLETE');
  await waitFor(async () => (await one.leases.read(taskId)) === undefined, 'it goes with the end');
  admin.disconnect();
});

describe('a lease', () => {
  test('lives longer than the lock of its job, and anew when it is renewed', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await sent(link);
    await waitFor(() => one.leases.isHeld(taskId), 'its lease is written');
    for (const renewed of [false, true]) {
      if (renewed) await one.leases.renew([{ taskId }]);
      const left = await one.client.ttl(one.keys.lease(taskId));
      expect(left).toBeGreaterThan(LOCK_MS / 1000);
      expect(left).toBeLessThanOrEqual(180);
    }
  });

  test('of a newer attempt stays when an older one is given up', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const link = new PlayedLink();
    const { containerId } = one.container(target.queue, link);
    const { taskId } = await submitted(one, target);
    await sent(link);
    await waitFor(() => one.leases.isHeld(taskId), 'its lease is written');
    const older = await one.leases.read(taskId);
    if (older === undefined) throw new Error('no lease');
    const newer = { ...older, lock: lockTokenOf(newInstanceId(), newAttemptToken()), attempt: 2 };
    await one.leases.write(newer);
    one.slots.remove(containerId);
    await one.reports.containerGone(containerId);
    expect(one.attempts.size).toBe(0);
    expect(await one.leases.read(taskId)).toMatchObject({ lock: newer.lock, attempt: 2 });
  });
});

test('a caller whose task ended while it was back in the line gets how it ended', async ({ start }) => {
  const one = await start();
  const target = aTarget();
  const task = await submitted(one, target);
  const job = await one.lines.read(target.queue, task.taskId);
  if (job === undefined) throw new Error('no job');
  const ended = finalOf(job, target.queue, 1, 'COMPLETE', Date.now(), { result: '{"whole":1}' });
  await one.changes.applied('RUNNING', 'succeed', ended);
  const ending = { status: 'TIMEOUT', reason: 'wait_limit', detail: 'no container' } as const;
  expect(await one.completion.takeOut(target.queue, job, ending)).toBe(true);
  expect(seenByCaller(await task.finished)).toMatchObject({ status: 'COMPLETE', httpStatus: 200, body: '{"whole":1}' });
});

const LIMITED: WorkspaceLimits = {
  ...DEFAULT_WORKSPACE_LIMITS,
  rate: { ...DEFAULT_WORKSPACE_LIMITS.rate, rest_per_minute: null, invoke_per_minute: 1_000 },
};

test.for(['a rate limit', 'the limits of its workspace'])(
  'a call that awaits %s while its deployment stops is refused as a stopped one is, and nothing is queued',
  async (what, { start }) => {
    let isActive = true;
    const gate = Promise.withResolvers<undefined>();
    const one = await start({
      more: {
        isActive: () => isActive,
        limitsOf: () => (what === 'a rate limit' ? LIMITED : gate.promise.then(() => DEFAULT_WORKSPACE_LIMITS)),
        rates: { take: () => gate.promise },
      },
    });
    const target = aTarget();
    const call = one.submissions.submit(target, { input: '{}' });
    isActive = false;
    gate.resolve(undefined);
    expect(await call).toEqual({ kind: 'unavailable', reason: 'deployment_stopped' });
    expect(one.replies.size).toBe(0);
    expect((await one.lines.depth(target.queue)).waiting).toBe(0);
  },
);
