// Allowed and forbidden changes of a task, on real Redis and a real database:
// late results, poisoned tasks, budgets that outlive the queue, refused changes.
import { describe, expect } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { parseTaskJob } from '#scheduler/stores/queues/jobs.ts';
import { acceptedJobOf, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { Changes } from '#scheduler/tasks/records/changes.ts';
import { TaskMetrics } from '#scheduler/tasks/metrics.ts';
import { recordOf } from '#scheduler/tasks/records/recording.ts';
import { EXPIRED } from '#scheduler/domain/endings.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, age, callerOf, drained, put, test } from './tasks-world.ts';

/** Loses a container that nobody had told to stop. */
async function die(one: Process, containerId: ContainerId): Promise<void> {
  one.slots.remove(containerId);
  await one.reports.containerGone(containerId);
}

describe('a result that comes after the end', () => {
  test('of a cancelled attempt: COMPLETE counts, also in the database, and then nothing does any more', async ({
    one,
  }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.actions.stopTasks(callerOf(target), [taskId]);
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
    expect(await one.result(order, '{"late":1}')).toBe(true);
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1, result: '{"late":1}' });
    expect(await one.result(order, '{"late":2}')).toBe(true);
    await drained(one);
    expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE', result: '{"late":1}', rank: 4 });
  });

  test('is kept by its agent until the database or the spill has it', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.actions.stopTasks(callerOf(target), [taskId]);
    const safe = one.records.safe.bind(one.records);
    one.records.safe = () => Promise.resolve(false);
    expect(await one.result(order)).toBe(false);
    one.records.safe = safe;
    expect(await one.result(order)).toBe(true);
    expect((await one.records.read(taskId))?.status).toBe('COMPLETE');
  });

  test('of any other outcome changes nothing', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.actions.stopTasks(callerOf(target), [taskId]);
    await one.result(order, '{"error":"x"}', 'error');
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });

  test('of a machine that was lost and came back counts when its task had EXPIRED, not when another attempt runs', async ({
    one,
  }) => {
    const target = aQueueTarget({ ttlSeconds: 0.3 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    one.slots.remove(order.containerId);
    await one.reports.machineLost(MACHINE);
    await waitFor(async () => {
      await drained(one);
      await age(one, 20);
      await one.sweep.round();
      return (await one.records.read(taskId))?.status === 'EXPIRED';
    }, 'it expires');
    expect(await one.result(order, '{"back":1}')).toBe(true);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', result: '{"back":1}' });

    const second = aQueueTarget();
    const first = new PlayedLink();
    one.container(second.queue, first);
    const other = await put(one, second);
    const lost = await sent(first);
    one.slots.remove(lost.containerId);
    await one.reports.machineLost(MACHINE);
    const elsewhere = new PlayedLink();
    one.container(second.queue, elsewhere);
    const again = await sent(elsewhere);
    expect(await one.result(lost, '{"stale":1}')).toBe(true);
    expect((await one.records.read(other))?.status).toBe('RUNNING');
    await one.result(again, '{"fresh":1}');
    expect(await reaches(one, other, 'COMPLETE')).toMatchObject({ attempt: 2, result: '{"fresh":1}' });
  });
});

describe('a task on which containers die', () => {
  test('is ERROR poison_task after three different ones, whatever budgets are left', async ({ one }) => {
    const target = aQueueTarget({ retries: 5 });
    const taskId = await put(one, target);
    for (let deaths = 0; deaths < 3; deaths += 1) {
      const link = new PlayedLink();
      const { containerId } = one.container(target.queue, link);
      await sent(link);
      await die(one, containerId);
    }
    expect(await reaches(one, taskId, 'ERROR')).toMatchObject({ attempt: 3, failureReason: 'poison_task' });
  });

  test('one container is one, however often its process exits', async ({ one }) => {
    const target = aQueueTarget({ retries: 5 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await one.result(await sent(link), '{"error":"process exited (code 3)"}', 'exited');
    await one.result(await sent(link, 2), '{"error":"process exited (code 3)"}', 'exited');
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({
      retriesUsed: 2,
      diedOn: [link.orders[0]?.containerId],
    });
  });

  test.for(['endpoint', 'function', 'asgi', 'schedule', 'taskqueue', 'pod', 'sandbox'] as const)(
    'and that ends a process fails by itself, its container counts as started, and the next task runs there: %s',
    async (kind, { one }) => {
      const target = { ...aTarget(), kind, sync: ['endpoint', 'asgi', 'pod', 'sandbox'].includes(kind) };
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      expect(container.served).toBe(false);
      const poison = await put(one, target);
      const order = await sent(link);
      // The breaker counts no end of a container from here on.
      await waitFor(() => container.served, 'the container was handed a task');
      await one.result(order, '{"error":"process exited (code 9)"}', 'exited');
      expect(await reaches(one, poison, 'ERROR')).toMatchObject({ attempt: 1 });
      const next = await put(one, target);
      await one.result(await sent(link, 2), '{"ok":1}');
      await reaches(one, next, 'COMPLETE');
    },
  );
});

test('a result that is retried is kept by its agent until the database or the spill has the retry', async ({ one }) => {
  const target = aQueueTarget({ retries: 3 });
  const link = new PlayedLink();
  one.container(target.queue, link);
  await put(one, target);
  one.records.safe = () => Promise.resolve(false);
  expect(await one.result(await sent(link), '{}', 'retry')).toBe(false);
});

describe('budgets', () => {
  test('are the same after the job was rebuilt from its row', async ({ one }) => {
    const target = aQueueTarget({ retries: 3 });
    const first = new PlayedLink();
    const { containerId } = one.container(target.queue, first);
    const taskId = await put(one, target);
    await one.result(await sent(first), '{}', 'retry');
    await sent(first, 2);
    await die(one, containerId);
    const spent = { retriesUsed: 1, losses: 1, diedOn: [containerId] };
    await waitFor(async () => {
      const text = await acceptedJobOf(one.db, taskId);
      return text !== undefined && parseTaskJob(text).losses === 1;
    }, 'its row has them');
    await drained(one);
    await one.client.flushall();
    await age(one, 70);
    await one.sweep.round();
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({ ...spent, attempts: 2, input: '{"x":1}' });
  });
});

describe('a change that the table does not list', () => {
  test('is refused, counted and not written', async ({ one }) => {
    const registry = new Registry();
    const metrics = new TaskMetrics(registry);
    const changes = new Changes({ records: one.records, metrics, log: quiet });
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const job = await one.queues.read(target.queue, taskId);
    if (job === undefined) throw new Error('no job');
    const record = recordOf(job, target.queue, 'RUNNING', 1);
    expect(changes.apply('CANCELLED', 'start', record)).toBe(false);
    expect(await changes.applied('COMPLETE', 'fail', { ...record, status: 'ERROR' })).toBe(false);
    expect((await one.records.read(taskId))?.status).toBe('PENDING');
    const text = await registry.metrics();
    expect(text).toContain('longshore_task_transitions_refused_total{from="CANCELLED",event="start"} 1');
    expect(text).toContain('longshore_task_transitions_refused_total{from="COMPLETE",event="fail"} 1');
    expect(() => changes.apply('PENDING', 'start', { ...record, status: 'COMPLETE' })).toThrow(TypeError);
    await expect(changes.applied('PENDING', 'start', { ...record, status: 'COMPLETE' })).rejects.toThrow(TypeError);
  });

  test('a job whose task is over is taken out without a word in its record', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const job = await one.queues.read(target.queue, taskId);
    await one.result(await sent(link));
    await reaches(one, taskId, 'COMPLETE');
    if (job === undefined) throw new Error('no job');
    one.slots.remove(link.orders[0]?.containerId ?? ('' as ContainerId));
    await one.queues.add(target.queue, job);
    await one.completion.takeOut(target.queue, job, EXPIRED);
    expect((await one.records.read(taskId))?.status).toBe('COMPLETE');
    expect(await one.queues.read(target.queue, taskId)).toBeUndefined();
  });
});

describe('a task that an agent swallowed', () => {
  const graces = { claimMs: 100, claimAnswerMs: 150, silentMs: 0, reportMs: 100, restartedAgentMs: 200 };

  test('asynchronous: it goes back to its queue, no budget is touched, and the agent may not run it', async ({
    start,
  }) => {
    const one = await start({ graces });
    const target = aQueueTarget({ retries: 0 });
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await waitFor(() => link.cancelled.length > 0, 'its agent is told');
    expect(link.cancelled).toEqual([`${taskId} ${order.token}`]);
    expect(await reaches(one, taskId, 'PENDING')).toMatchObject({ attempt: 1, failureReason: 'not_claimed' });
    // The slot is not free before the agent says so.
    expect(container.inFlight).toBe(1);
    expect(await one.queues.read(target.queue, taskId)).not.toHaveProperty('losses');
    const other = new PlayedLink();
    other.onRun = (again) => one.reports.started(again.taskId, again.token);
    one.container(target.queue, other);
    await one.result(await sent(other));
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 2 });
    await one.reports.refused(MACHINE, taskId, order.token, 'no_such_attempt');
    await waitFor(() => container.inFlight === 0, 'its slot is free');
  });

  test('synchronous: queued again when the agent says that it never began', async ({ start }) => {
    const one = await start({ graces: { ...graces, claimAnswerMs: 60_000 } });
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const kept = await one.submissions.submit(target, { input: '{}' });
    if (kept.kind !== 'accepted') throw new Error('not accepted');
    const order = await sent(link);
    await waitFor(() => link.cancelled.length > 0, 'its agent is asked');
    expect((await one.records.read(kept.taskId))?.status).toBe('RUNNING');
    link.onRun = (again) => one.reports.started(again.taskId, again.token);
    await one.reports.refused(MACHINE, order.taskId, order.token, 'no_such_attempt');
    await one.result(await sent(link, 2));
    expect(await kept.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('synchronous: else ERROR, 502', async ({ start }) => {
    const one = await start({ graces });
    const target = aTarget();
    one.container(target.queue, new PlayedLink());
    const silent = await one.submissions.submit(target, { input: '{}' });
    if (silent.kind !== 'accepted') throw new Error('not accepted');
    expect(seenByCaller(await silent.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect((await one.lines.depth(target.queue)).waiting).toBe(0);
  });

  test('one whose machine does not talk is left alone', async ({ start }) => {
    const one = await start({ graces });
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    one.slots.setLink(MACHINE, undefined);
    await waitFor(() => Date.now() - (one.attempts.current(taskId)?.sentAtMs ?? 0) > 400, 'the time is over');
    expect((await one.records.read(taskId))?.status).toBe('RUNNING');
    one.slots.setLink(MACHINE, link);
    await one.reports.machineReported(MACHINE, { agentInstance: 'agent-1', sessionEpoch: 2, running: [order] });
    await one.result(order);
    await reaches(one, taskId, 'COMPLETE');
  });
});

describe('a task in a container that a drain ends at its deadline', () => {
  test('asynchronous: it is handed back at once, on the budget of the infrastructure, and its slot is the agent’s to give; synchronous: what the stop leaves it is its own', async ({
    start,
  }) => {
    const late = new Set<ContainerId>();
    const one = await start({ isCutOff: (containerId) => late.has(containerId) });
    const [queued, called] = [aQueueTarget({ retries: 0 }), aTarget()];
    const [queueLink, callLink] = [new PlayedLink(), new PlayedLink()];
    const container = one.container(queued.queue, queueLink);
    const other = one.container(called.queue, callLink);
    const taskId = await put(one, queued);
    const call = await one.submissions.submit(called, { input: '{}' });
    if (call.kind !== 'accepted') throw new Error('not accepted');
    const [order, callOrder] = [await sent(queueLink), await sent(callLink)];
    for (const { containerId } of [container, other]) {
      late.add(containerId);
      one.slots.leave(containerId);
      one.drainCutoff.lookAt(containerId);
    }
    expect(await reaches(one, taskId, 'PENDING')).toMatchObject({ failureReason: 'lost' });
    expect(queueLink.cancelled).toEqual([`${taskId} ${order.token}`]);
    expect(callLink.cancelled).toEqual([]);
    expect(container.inFlight).toBe(1);
    const lost = await waitFor(async () => {
      const job = await one.queues.read(queued.queue, taskId);
      return job?.losses !== undefined && job;
    }, 'its job says so');
    expect(lost).toMatchObject({ losses: 1, retriesUsed: 0 });
    // The attempt that was cut off reports success all the same, and is ignored.
    expect(await one.result(order, '{"by":"the first"}')).toBe(true);
    expect(container.inFlight).toBe(0);
    const next = new PlayedLink();
    one.container(queued.queue, next);
    await one.result(await sent(next), '{"by":"the second"}');
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 2, result: '{"by":"the second"}' });
    await one.result(callOrder);
    expect(await call.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('one that is taken over only then is found', async ({ start }) => {
    const late = new Set<ContainerId>();
    const one = await start({ isCutOff: (containerId) => late.has(containerId) });
    const target = aQueueTarget();
    const link = new PlayedLink();
    const { containerId } = one.container(target.queue, link);
    const taskId = await put(one, target);
    await sent(link);
    late.add(containerId);
    await reaches(one, taskId, 'PENDING');
    expect(await one.queues.read(target.queue, taskId)).toBeDefined();
  });
});

describe('a task in a container that leaves for another one', () => {
  test('asynchronous: after its notice it is handed back, at no cost; synchronous: it goes on', async ({ start }) => {
    const leaving = new Set<ContainerId>();
    let noticeMs = 3_600_000;
    const one = await start({ isPreempted: (containerId) => leaving.has(containerId), noticeMs: () => noticeMs });
    const [queued, called] = [aQueueTarget({ retries: 0 }), aTarget()];
    const [queueLink, callLink] = [new PlayedLink(), new PlayedLink()];
    const container = one.container(queued.queue, queueLink);
    const other = one.container(called.queue, callLink);
    const taskId = await put(one, queued);
    const call = await one.submissions.submit(called, { input: '{}' });
    if (call.kind !== 'accepted') throw new Error('not accepted');
    const [order, callOrder] = [await sent(queueLink), await sent(callLink)];
    for (const { containerId } of [container, other]) {
      leaving.add(containerId);
      one.slots.leave(containerId);
      one.drainCutoff.lookAt(containerId);
    }
    expect((await one.records.read(taskId))?.status).toBe('RUNNING');
    expect(queueLink.cancelled).toEqual([]);
    noticeMs = 0;
    expect(await reaches(one, taskId, 'PENDING')).toMatchObject({ failureReason: 'preempted' });
    expect(queueLink.cancelled).toEqual([`${taskId} ${order.token}`]);
    expect(callLink.cancelled).toEqual([]);
    const back = await waitFor(async () => {
      const job = await one.queues.read(queued.queue, taskId);
      return job?.preemptions !== undefined && job;
    }, 'its job says so');
    expect(back).toMatchObject({ preemptions: 1, retriesUsed: 0 });
    expect(back.losses).toBeUndefined();
    // The attempt that was ended reports success all the same, and is ignored.
    expect(await one.result(order, '{"by":"the first"}')).toBe(true);
    expect(container.inFlight).toBe(0);
    const next = new PlayedLink();
    one.container(queued.queue, next);
    await one.result(await sent(next), '{"by":"the second"}');
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 2, result: '{"by":"the second"}' });
    await one.result(callOrder);
    expect(await call.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('an operator has calls end, too: the container is stopped after the notice, and each task is handed back', async ({
    start,
  }) => {
    const leaving = new Set<ContainerId>();
    const stopped: ContainerId[] = [];
    let noticeMs = 3_600_000;
    const one = await start({
      isPreempted: (containerId) => leaving.has(containerId),
      endsCalls: (containerId) => leaving.has(containerId),
      stopContainer: async (containerId) => void stopped.push(containerId),
      noticeMs: () => noticeMs,
    });
    const [called, firm] = [aTarget(), aTarget()];
    const [link, firmLink] = [new PlayedLink(), new PlayedLink()];
    const container = one.container(called.queue, link);
    one.container(firm.queue, firmLink);
    const calls = [];
    for (const target of [called, firm]) calls.push(await one.submissions.submit(target, { input: '{}' }));
    await sent(link);
    await sent(firmLink);
    leaving.add(container.containerId);
    one.drainCutoff.lookAt(container.containerId);
    expect(stopped).toEqual([]);
    noticeMs = 0;
    one.drainCutoff.lookAt(container.containerId);
    await waitFor(() => stopped.length > 0, 'it is stopped');
    expect(new Set(stopped)).toEqual(new Set([container.containerId]));
    expect(calls.every(({ kind }) => kind === 'accepted')).toBe(true);
  });

  test('a task that was handed back three times runs to its end in the fourth', async ({ start }) => {
    const leaving = new Set<ContainerId>();
    const one = await start({ isPreempted: (containerId) => leaving.has(containerId) });
    const target = aQueueTarget({ retries: 0 });
    const taskId = await put(one, target);
    for (let times = 1; times <= 3; times += 1) {
      const link = new PlayedLink();
      const { containerId } = one.container(target.queue, link);
      const order = await sent(link);
      leaving.add(containerId);
      one.slots.leave(containerId);
      one.drainCutoff.lookAt(containerId);
      await waitFor(() => link.cancelled.length === 1, 'it is handed back');
      await one.result(order);
    }
    const last = new PlayedLink();
    const { containerId } = one.container(target.queue, last);
    const order = await sent(last);
    expect((await one.queues.read(target.queue, taskId))?.preemptions).toBe(3);
    leaving.add(containerId);
    one.slots.leave(containerId);
    one.drainCutoff.lookAt(containerId);
    // A further container that leaves shows that the check has been there.
    const [other, link] = [aQueueTarget(), new PlayedLink()];
    const second = one.container(other.queue, link);
    const another = await put(one, other);
    await sent(link);
    leaving.add(second.containerId);
    await reaches(one, another, 'PENDING');
    expect(last.cancelled).toEqual([]);
    await one.result(order, '{"by":"the fourth"}');
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({ attempt: 4, result: '{"by":"the fourth"}' });
  });
});

describe('an attempt that heartbeats do not name any more', () => {
  test('is lost: its task runs again elsewhere, and counts it', async ({ start }) => {
    const one = await start({ graces: { silentMs: 0, leaseMs: 300 } });
    const target = aQueueTarget();
    const link = new PlayedLink();
    link.onRun = (order) => one.reports.started(order.taskId, order.token);
    one.container(target.queue, link);
    const named = await put(one, target);
    const order = await sent(link);
    const second = new PlayedLink();
    second.onRun = link.onRun;
    one.container(target.queue, second);
    const unnamed = await put(one, target);
    await sent(second);
    await waitFor(() => {
      one.reports.heartbeat(MACHINE, [order]);
      return second.cancelled.length > 0;
    }, 'it is given up');
    expect(link.cancelled).toEqual([]);
    expect(await reaches(one, unnamed, 'PENDING')).toMatchObject({ failureReason: 'lost' });
    await waitFor(async () => (await one.queues.read(target.queue, unnamed))?.losses === 1, 'its job counts the loss');
    await one.result(order);
    await reaches(one, named, 'COMPLETE');
  });

  test('is waited for as long as the scheduler is young', async ({ start }) => {
    const one = await start({ graces: { silentMs: 60_000, leaseMs: 50 } });
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await waitFor(
      () => performance.now() - (one.attempts.current(taskId)?.seenAtMs ?? Infinity) > 300,
      'the time is over',
    );
    expect(link.cancelled).toEqual([]);
    await one.result(order);
  });
});
