// The leader's sweep of tasks, on real Redis and a real database, and tasks of runners that are not ours.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { ContainerId, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import { resultJson } from '#scheduler/api/http/rest/records.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { acceptedJobOf, listOpenTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { TaskSweep } from '#scheduler/tasks/maintenance/sweep.ts';
import type { TaskSweepParts } from '#scheduler/tasks/maintenance/sweep.ts';
import { waitFor } from '../helpers/services.ts';
import { liveOf, reaches, sent, submitted } from '../helpers/submissions.ts';
import { aTarget, MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, age, anEnd, callerOf, drained, put, test } from './tasks-world.ts';
import type { Options, World } from './tasks-world.ts';

/** The sweep of a leader beside that of `one.sweep`. */
const aSweep = (one: World, over: Partial<TaskSweepParts>): TaskSweep =>
  new TaskSweep({
    ...one,
    clock: systemClock,
    log: quiet,
    jobOf: (id) => acceptedJobOf(one.db, id),
    isLeader: () => true,
    whoHas: () => Promise.resolve(new Set()),
    isReported: () => true,
    abandonedMs: 0,
    served: () => [],
    ...over,
  });

describe('the sweep', () => {
  test('what waited beyond its time is EXPIRED at the fetch, too, and does not run', async ({ one }) => {
    const target = aQueueTarget({ ttlSeconds: 0 });
    const taskId = await put(one, target);
    const link = new PlayedLink();
    one.container(target.queue, link);
    await reaches(one, taskId, 'EXPIRED');
    expect(link.orders).toEqual([]);
  });

  test('numbers the attempts of such a task on from those it had', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    await sent(link);
    await drained(one);
    await one.client.flushall();
    // The process that ran it is gone with its attempt.
    one.slots.remove(container.containerId);
    const attempt = one.attempts.current(taskId);
    if (attempt !== undefined) one.attempts.remove(attempt);
    await age(one, 70);
    await one.sweep.round();
    const other = new PlayedLink();
    one.container(target.queue, other);
    await one.result(await sent(other));
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 2 });
  });

  test('does not queue again what ended while it looked', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await drained(one);
    await age(one, 70);
    const { queues } = one;
    // The end comes between the look at the record and the look at the queue.
    const read: TaskQueues['read'] = async (queue, id) => {
      await one.result(order);
      return await queues.read(queue, id);
    };
    const sweep = aSweep(one, {
      queues: new Proxy(queues, {
        get: (whole, name) => {
          if (name === 'read') return read;
          const value: unknown = Reflect.get(whole, name);
          return typeof value === 'function' ? value.bind(whole) : value;
        },
      }),
    });
    await sweep.round();
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
  });

  test('leaves alone what runs and has no job any more, or may run at a silent replica', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await drained(one);
    await one.client.flushall();
    await age(one, 70);
    await one.sweep.round();
    await aSweep(one, { whoHas: () => Promise.resolve(undefined) }).round();
    expect(await one.queues.read(target.queue, taskId)).toBeUndefined();
    await one.result(order);
    await reaches(one, taskId, 'COMPLETE');
  });

  test('leaves alone what a runner that is not ours has', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    expect(await one.actions.startTask(callerOf(target), taskId, 'c-1')).toBe('started');
    await drained(one);
    await age(one, 70);
    await one.sweep.round();
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'RUNNING' });
  });

  test('comes to every task, however many are open', async ({ start }) => {
    const one = await start({ batch: 2 });
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 7);
    for (let index = 0; index < 7; index += 1) await put(one, target);
    await sent(link, 7);
    await drained(one);
    await one.client.flushall();
    for (const { taskId } of link.orders.slice(-2)) {
      const attempt = one.attempts.current(taskId);
      if (attempt !== undefined) one.attempts.remove(attempt);
    }
    await age(one, 70);
    for (let rounds = 0; rounds < 4; rounds += 1) await one.sweep.round();
    const lost = link.orders.slice(-2).map(({ taskId }) => taskId);
    expect((await one.queues.waitingIds(target.queue)).toSorted()).toEqual(lost.toSorted());
  });

  test('wakes the queues of tasks that only wait, and looks at none of them', async ({ one }) => {
    const [first, second] = [aQueueTarget(), aQueueTarget()];
    for (const target of [first, second, second]) await put(one, target);
    await age(one, 70);
    expect(await listOpenTasks(one.db, { unchangedSinceMs: Date.now(), limit: 10 })).toEqual([]);
    const woken: QueueName[] = [];
    one.sweep.onReturned((queue) => woken.push(queue));
    await one.sweep.round();
    expect(woken.toSorted()).toEqual([first.queue, second.queue].toSorted());
  });
});

describe('the sweep of calls', () => {
  /** A call whose row says that it waits, or runs, at a process that died. */
  async function abandoned(start: (options?: Options) => Promise<World>, what: 'waits' | 'runs') {
    const dead = await start();
    const target = aTarget();
    const link = new PlayedLink();
    if (what === 'runs') dead.container(target.queue, link);
    const { taskId } = await submitted(dead, target);
    if (what === 'runs') await sent(link);
    await dead.records.flush();
    await dead.stop();
    return { dead: dead.instance, target, taskId, order: link.orders[0] };
  }
  const swept = async (one: World, ...taskIds: readonly TaskId[]) => {
    await age(one, 20);
    await one.sweep.round();
    const records = await Promise.all(taskIds.map((taskId) => one.records.read(taskId)));
    return records.map((record) => record?.status);
  };

  test('ends as CANCELLED one that waits by its row, and that no replica has', async ({ start }) => {
    const { taskId } = await abandoned(start, 'waits');
    const one = await start();
    expect(await swept(one, taskId)).toEqual(['CANCELLED']);
    expect(await one.records.read(taskId)).toMatchObject({ attempt: 0, failureReason: 'caller_gone' });
  });

  test('ends as lost one that runs, and that no replica has, once the machine of its container has reported', async ({
    start,
  }) => {
    const { dead, taskId } = await abandoned(start, 'runs');
    let isReported = false;
    const asked: ContainerId[] = [];
    const one = await start({
      alive: (replica) => replica !== dead,
      isReported: (containerId) => {
        asked.push(containerId);
        return isReported;
      },
    });
    expect(await swept(one, taskId)).toEqual(['RUNNING']);
    isReported = true;
    expect(await swept(one, taskId)).toEqual(['ERROR']);
    const record = await one.records.read(taskId);
    expect(record).toMatchObject({ attempt: 1, failureReason: 'lost' });
    expect(new Set(asked)).toEqual(new Set([record?.containerId]));
  });

  test('leaves alone one that the report of its machine brought just now', async ({ start }) => {
    const { taskId, order } = await abandoned(start, 'runs');
    if (order === undefined) throw new Error('not sent');
    const one = await start({ alive: () => false });
    const report = { agentInstance: 'agent-1', sessionEpoch: 2, running: [liveOf(order)] };
    const sweep = aSweep(one, {
      whoHas: (taskIds) => one.peers.questions.whoHas(taskIds),
      isReported: async () => (await one.reports.machineReported(MACHINE, report)).adopted.length > 0,
    });
    await age(one, 20);
    await sweep.round();
    expect(await one.records.read(taskId)).toMatchObject({ status: 'RUNNING' });
    await one.result(order);
    await reaches(one, taskId, 'COMPLETE');
  });

  test('also one whose caller’s replica lives: its own clock gave it up, or no machine had it', async ({ start }) => {
    const { taskId } = await abandoned(start, 'runs');
    expect(await swept(await start({ alive: () => true }), taskId)).toEqual(['ERROR']);
  });

  test('leaves alone what this replica or another one has, waiting or running, wherever its caller was', async ({
    start,
  }) => {
    const present: World[] = [];
    const peers = (at: number) => ({
      present: () => present.filter((_one, of) => of !== at).map((one) => one.instance),
    });
    // The leader takes both for dead, which waits for its machines as little.
    for (const at of [0, 1]) present.push(await start({ peers: peers(at), alive: () => false }));
    const [one, other] = present as [World, World];
    const taskIds: TaskId[] = [];
    for (const world of present) {
      const target = aTarget();
      const link = new PlayedLink();
      world.container(target.queue, link);
      for (let count = 0; count < 2; count += 1) taskIds.push((await submitted(world, target)).taskId);
      await sent(link);
      await world.records.flush();
    }
    expect(await swept(one, ...taskIds)).toEqual(['RUNNING', 'PENDING', 'RUNNING', 'PENDING']);
    // Their replica is gone now.
    await other.stop();
    present.pop();
    expect(await swept(one, ...taskIds)).toEqual(['RUNNING', 'PENDING', 'ERROR', 'CANCELLED']);
  });

  test('judges nothing while a present replica is silent', async ({ start }) => {
    const [waits, runs] = [await abandoned(start, 'waits'), await abandoned(start, 'runs')];
    const silent = [newInstanceId()];
    const one = await start({ alive: () => false, peers: { present: () => silent, silentMs: 50 } });
    expect(await swept(one, waits.taskId, runs.taskId)).toEqual(['PENDING', 'RUNNING']);
    silent.pop();
    expect(await swept(one, waits.taskId, runs.taskId)).toEqual(['CANCELLED', 'ERROR']);
  });

  test('waits a while for agents that report late, anew after a replica had it', async ({ start }) => {
    const { taskId } = await abandoned(start, 'runs');
    const one = await start();
    await age(one, 20);
    let [had, nowMs] = [false, 0];
    const clock = { ...systemClock, monotonicMs: () => nowMs };
    const whoHas = () => Promise.resolve(new Set(had ? [taskId] : []));
    const sweep = aSweep(one, { clock, whoHas, abandonedMs: 30_000 });
    for (const [atMs, isThere, status] of [
      [0, false, 'RUNNING'],
      [29_000, false, 'RUNNING'],
      [29_500, true, 'RUNNING'],
      [40_000, false, 'RUNNING'],
      [69_000, false, 'RUNNING'],
      [70_000, false, 'ERROR'],
    ] as const) {
      [nowMs, had] = [atMs, isThere];
      await sweep.round();
      expect((await one.records.read(taskId))?.status, `${atMs}`).toBe(status);
    }
  });

  test('leaves alone one that ended, or began again, while the replicas answered', async ({ start }) => {
    const [ends, again] = [await abandoned(start, 'runs'), await abandoned(start, 'runs')];
    const one = await start();
    const changed = async (taskId: TaskId, changes: object): Promise<void> => {
      const record = await one.records.read(taskId);
      if (record !== undefined) await one.records.append({ ...record, ...changes });
    };
    await age(one, 20);
    const sweep = aSweep(one, {
      whoHas: async () => {
        await changed(ends.taskId, { status: 'COMPLETE', rank: 4, endedAtMs: Date.now() });
        await changed(again.taskId, { attempt: 2 });
        return new Set();
      },
    });
    await sweep.round();
    expect(await one.records.read(ends.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(await one.records.read(again.taskId)).toMatchObject({ status: 'RUNNING', attempt: 2 });
  });

  test('one that a runner that is not ours has is its own until its limit, and TIMEOUT then', async ({ start }) => {
    const { taskId } = await abandoned(start, 'runs');
    const one = await start({ alive: () => false });
    await one.leases.hold(taskId, Date.now() + 60_000);
    expect(await swept(one, taskId)).toEqual(['RUNNING']);
    await one.leases.hold(taskId, Date.now() - 1);
    expect(await swept(one, taskId)).toEqual(['TIMEOUT']);
  });
});

describe('StartTask and EndTask of runners that are not ours', () => {
  test.for([
    ['bytes that are no text', [0xff, 0xfe, 0, 1], { base64: '//4AAQ==' }],
    ['text with NUL, which Postgres does not store', [0x61, 0, 0x62], { base64: 'YQBi' }],
    ['text that is no JSON', [...Buffer.from('naïve')], { base64: 'bmHDr3Zl' }],
    ['JSON', [...Buffer.from('{"ä":1}')], { ä: 1 }],
  ] as const)('a result of %s is read as it was given', async ([, bytes, read], { one }) => {
    const target = aQueueTarget();
    const result = Uint8Array.from(bytes);
    // The two cases: a task of which only the record is known, and an attempt that this replica holds.
    const claimed = await put(one, target);
    await one.actions.startTask(callerOf(target), claimed, 'c-1');
    const link = new PlayedLink();
    one.container(target.queue, link);
    const attempted = await put(one, target);
    const { containerId } = await sent(link);
    for (const [taskId, at] of [
      [claimed, 'c-1'],
      [attempted, containerId],
    ] as const) {
      expect(await one.actions.endTask(callerOf(target), anEnd(taskId, { containerId: at, result }))).toBe('ended');
      expect(JSON.parse(stringifyExactly(resultJson((await one.records.read(taskId))?.result)))).toEqual(read);
    }
    await drained(one);
    for (const taskId of [claimed, attempted]) {
      expect(JSON.parse(stringifyExactly(resultJson((await taskById(one.db, taskId))?.result)))).toEqual(read);
    }
  });

  test('one of them gets a waiting task, ends it, and may say so again', async ({ one }) => {
    const target = aQueueTarget();
    const caller = callerOf(target);
    const taskId = await put(one, target);
    expect(await one.actions.startTask(caller, taskId, 'c-1')).toBe('started');
    expect(await one.actions.startTask(caller, taskId, 'c-1')).toBe('started');
    expect(await one.actions.startTask(caller, taskId, 'c-2')).toBe('refused');
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    const link = new PlayedLink();
    one.container(target.queue, link);
    expect(await one.actions.endTask(caller, anEnd(taskId, { containerId: 'c-2' }))).toBe('refused');
    expect(await one.actions.endTask(caller, anEnd(taskId, { containerId: 'c-1', containerHostname: 'far' }))).toBe(
      'ended',
    );
    expect(await one.actions.endTask(caller, anEnd(taskId, { containerId: 'c-1' }))).toBe('unchanged');
    expect(await one.records.read(taskId)).toMatchObject({
      status: 'COMPLETE',
      result: '{"by":"another"}',
      attempt: 1,
      containerId: 'c-1',
    });
    expect(link.orders).toEqual([]);
    await drained(one);
    expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE', containerHostname: 'far' });
  });

  test('what one of them asks to be retried comes back within the retries, and is ERROR after them', async ({
    one,
  }) => {
    const target = aQueueTarget({ retries: 1 });
    const caller = callerOf(target);
    const taskId = await put(one, target);
    await one.actions.startTask(caller, taskId, 'c-1');
    expect(await one.actions.endTask(caller, anEnd(taskId, { taskStatus: 'RETRY' }))).toBe('ended');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'RETRY', attempt: 1 });
    await waitFor(async () => (await one.queues.read(target.queue, taskId)) !== undefined, 'its back-off is over');
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({
      retriesUsed: 1,
      attempts: 1,
      input: '{"x":1}',
    });
    expect(await one.actions.startTask(caller, taskId, 'c-1')).toBe('started');
    expect(await one.actions.endTask(caller, anEnd(taskId, { taskStatus: 'RETRY' }))).toBe('ended');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'ERROR', attempt: 2 });
  });

  test('one whose container is gone has lost its task to the next who starts it, and can end it no more', async ({
    one,
  }) => {
    const target = aQueueTarget();
    const caller = callerOf(target);
    const taskId = await put(one, target);
    await one.actions.startTask(caller, taskId, 'c-gone');
    const starts = await Promise.all(['c-2', 'c-3'].map((id) => one.actions.startTask(caller, taskId, id)));
    expect(starts.toSorted()).toEqual(['refused', 'started']);
    const winner = starts[0] === 'started' ? 'c-2' : 'c-3';
    expect(await one.records.read(taskId)).toMatchObject({ status: 'RUNNING', attempt: 2, containerId: winner });
    expect(await one.actions.endTask(caller, anEnd(taskId, { containerId: 'c-gone' }))).toBe('refused');
    expect(await one.actions.endTask(caller, anEnd(taskId, { containerId: winner }))).toBe('ended');
  });

  test('one that never says how it ended is TIMEOUT beyond the limit, and not run again', async ({ one }) => {
    const target = aQueueTarget({ retries: 3 });
    const taskId = await put(one, target);
    await one.actions.startTask(callerOf(target), taskId, 'c-1');
    await drained(one);
    await age(one, 70);
    await one.sweep.round();
    expect((await one.records.read(taskId))?.status).toBe('RUNNING');
    await one.leases.hold(taskId, Date.now() - 1);
    await one.sweep.round();
    expect(await one.records.read(taskId)).toMatchObject({ status: 'TIMEOUT', failureReason: 'execution_timeout' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
  });

  test('a task that a container of ours runs is nobody else’s to start, and its own to end', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    await sent(link);
    expect(await one.actions.startTask(callerOf(target), taskId, 'c-9')).toBe('refused');
    const end = anEnd(taskId, { containerId: container.containerId, keepWarmSeconds: 90, containerHostname: 'near' });
    expect(await one.actions.endTask(callerOf(target), end)).toBe('ended');
    expect(await one.records.read(taskId)).toMatchObject({
      status: 'COMPLETE',
      result: '{"by":"another"}',
      containerHostname: 'near',
    });
    expect(container.keepWarmMs).toBe(90_000);
    expect((await one.queues.depth(target.queue)).active).toBe(0);
  });

  test('a container’s credential speaks for that container alone', async ({ one }) => {
    const target = aQueueTarget();
    const own = { containerId: 'c-1' as ContainerId, epoch: 1, stubId: target.stubId, deploymentId: null };
    const taskId = await put(one, target);
    expect(await one.actions.startTask(callerOf(target, own), taskId, 'c-2')).toBe('refused');
    expect(await one.actions.startTask(callerOf(target, { ...own, stubId: 's' as StubId }), taskId, 'c-1')).toBe(
      'refused',
    );
    expect(await one.actions.startTask(callerOf(target, own), taskId, '')).toBe('started');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'RUNNING', containerId: 'c-1' });
    const other = { ...own, containerId: 'c-2' as ContainerId };
    expect(await one.actions.endTask(callerOf(target, other), anEnd(taskId))).toBe('refused');
    expect(await one.actions.endTask(callerOf(target, own), anEnd(taskId))).toBe('ended');
  });

  test('a task that waits, or ended without ever running, is not theirs to end', async ({ one }) => {
    const target = aQueueTarget();
    const caller = callerOf(target);
    const taskId = await put(one, target);
    expect(await one.actions.endTask(caller, anEnd(taskId))).toBe('refused');
    expect(await one.actions.stopTasks(caller, [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.actions.endTask(caller, anEnd(taskId))).toBe('unchanged');
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    expect(await one.actions.startTask(caller, taskId, 'c-1')).toBe('refused');
    expect(await one.actions.startTask(callerOf(aQueueTarget()), taskId, 'c-1')).toBe('refused');
  });
});
