// The life of a task on real Redis: accepted, sent, ended, answered once,
// despite failures of agents, callers, other replicas and Redis itself.
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import type { ContainerId, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { taskRows } from '#scheduler/compose/records.ts';
import type { ReadyContainer } from '#scheduler/tasks/dispatch/slots.ts';
import { taskById, upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { Drainer } from '#scheduler/tasks/records/drainer.ts';
import type { Submission } from '#scheduler/tasks/admission/calls.ts';
import { claimOf } from '#scheduler/tasks/dispatch/attempts.ts';
import type { Finished } from '#scheduler/tasks/dispatch/replies.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { sent, submitted as accepted } from '../helpers/submissions.ts';
import { aDb } from './store-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aProcess, aTarget, MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';

const test = base
  .extend('start', async ({ redis }, { onCleanup }) => {
    const processes: Process[] = [];
    onCleanup(async () => {
      for (const one of processes) await one.stop();
    });
    return async (options: Parameters<typeof aProcess>[1] = {}): Promise<Process> => {
      const made = await aProcess(redis, options);
      processes.push(made);
      return made;
    };
  })
  .extend('one', async ({ start }) => start());

/** An accepted task whose answers are counted. */
async function submitted(
  one: Process,
  target?: Target,
  input?: string,
): Promise<Accepted & { readonly answers: Finished[] }> {
  const submission = await accepted(one, target, input);
  const answers: Finished[] = [];
  void submission.finished.then((finished) => answers.push(finished));
  return { ...submission, answers };
}
const statusOf = async (one: Process, taskId: TaskId) => (await one.records.read(taskId))?.status;
/** A fetch that comes back empty holds a slot for its round trip. */
const idle = (container: ReadyContainer) => waitFor(() => container.inFlight === 0, 'the slots are free');
const answered = async (task: { readonly answers: Finished[] }, timeoutMs = 5000) =>
  seenByCaller(await waitFor(() => task.answers[0], 'the caller is answered', timeoutMs));

describe('a task that goes well', () => {
  test('is sent, ends, is recorded, and answers its caller once', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target, '{"n": 1.0}');
    const order = await sent(link);
    expect(order).toMatchObject({
      taskId: task.taskId,
      input: '{"n": 1.0}',
      timeoutMs: 60_000,
      containerId: container.containerId,
    });
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'RUNNING', 'it is recorded as running');
    expect(await one.result(order, '{"y": 2.50}')).toBe(true);
    expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"y": 2.50}' });
    expect(await one.records.read(task.taskId)).toMatchObject({
      status: 'COMPLETE',
      attempt: 1,
      result: '{"y": 2.50}',
      containerId: container.containerId,
    });
    expect((await one.queues.depth(target.queue)).active).toBe(0);
    await idle(container);
    expect(await one.leases.read(task.taskId)).toBeUndefined();
    // The agent did not hear the acknowledgement, and repeats the result.
    expect(await one.result(order, '{"y": 3}')).toBe(true);
    expect(task.answers).toHaveLength(1);
    expect((await one.records.read(task.taskId))?.result).toBe('{"y": 2.50}');
  });

  test('reaches the database through the stream', async ({ start }) => {
    const opened = await aDb('pglite');
    try {
      const one = await start({ rowOf: taskRows(opened.db).rowOf });
      const drainer = new Drainer({
        client: one.client,
        keys: one.keys,
        log: quiet,
        write: (batch) => upsertTaskRecords(opened.db, batch),
      });
      const target = aTarget();
      const link = new PlayedLink();
      one.container(target.queue, link);
      const task = await submitted(one, target);
      const order = await sent(link);
      await one.records.flush();
      await drainer.flush();
      expect(await taskById(opened.db, task.taskId)).toMatchObject({ status: 'RUNNING', attempt: 1 });
      await one.result(order);
      await drainer.flush();
      await one.client.del(one.keys.task(task.taskId));
      expect(await one.reads.read(target.workspaceId, task.taskId)).toMatchObject({
        status: 'COMPLETE',
        result: '{"ok":true}',
      });
      expect(await one.reads.read(aTarget().workspaceId, task.taskId)).toBeUndefined();
    } finally {
      await opened.stop();
    }
  });

  test('a large input and a large result travel as objects, and the input goes with the task', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const input = JSON.stringify({ x: 'a'.repeat(100_000) });
    const task = await submitted(one, target, input);
    const order = await sent(link);
    expect(order.input).toBe(input);
    const body = JSON.stringify({ y: 'b'.repeat(300_000) });
    await one.result(order, body);
    expect((await answered(task)).body).toBe(body);
    const record = await one.records.read(task.taskId);
    expect(record?.result).toBeUndefined();
    expect(record && (await one.reads.resultText(record))).toBe(body);
    expect(one.bytes.objects.size).toBe(1);
  });
});

describe('how an attempt ends', () => {
  test.for([
    ['error', 'ERROR', 500, '{"error":"KeyError: 1"}'],
    ['exited', 'ERROR', 500, '{"error":"process exited (code 3)"}'],
    ['timeout', 'TIMEOUT', 504, '{"error":"task ran longer than its limit of 60 s"}'],
    ['lost', 'ERROR', 502, '{"error":"Backend route unavailable"}'],
  ] as const)('%s: the task is %s, HTTP %d', async ([outcome, status, httpStatus, body], { one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    await one.result(await sent(link), body, outcome);
    expect(await answered(task)).toEqual({ status, httpStatus, body });
    expect(await statusOf(one, task.taskId)).toBe(status);
  });

  test('a result with another token changes nothing', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect(await one.result({ ...order, token: newAttemptToken() })).toBe(true);
    expect(await statusOf(one, task.taskId)).toBe('RUNNING');
    expect(container.inFlight).toBe(1);
    expect(task.answers).toEqual([]);
    await one.result(order);
    expect((await answered(task)).status).toBe('COMPLETE');
  });

  test('a result larger than allowed is an error that says so', async ({ start }) => {
    const one = await start({ maxResultBytes: 1000 });
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await one.reports.result(MACHINE, { ...order, outcome: 'ok', durationMs: 1, body: undefined });
    expect(await answered(task)).toMatchObject({
      status: 'ERROR',
      httpStatus: 500,
      body: '{"error":"result is larger than 1000 bytes"}',
    });
  });

  test('a result that cannot be stored ends its task with an error, and frees its slot', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    one.bytes.failure = new Error('disk full');
    expect(await one.result(order, JSON.stringify('z'.repeat(300_000)))).toBe(true);
    expect(await answered(task)).toMatchObject({ status: 'ERROR', httpStatus: 500 });
    await idle(container);
  });

  test('an input that is gone ends its task with an error, not with an endless round', async ({ one }) => {
    const target = aTarget();
    const task = await submitted(one, target, JSON.stringify('a'.repeat(100_000)));
    one.bytes.objects.clear();
    one.container(target.queue, new PlayedLink());
    expect(await answered(task)).toMatchObject({ status: 'ERROR', httpStatus: 500 });
  });

  test('the container went: what the agent still says of its attempts counts, then they are lost', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const told = await submitted(one, target);
    const untold = await submitted(one, target);
    await sent(link, 2);
    one.slots.remove(container.containerId);
    const gone = one.reports.containerGone(container.containerId);
    const order = link.orders.find((each) => each.taskId === told.taskId);
    if (order === undefined) throw new Error('not sent');
    await one.result(order, '{"error":"process exited (code 3)"}', 'exited');
    await gone;
    expect(await answered(told)).toMatchObject({ httpStatus: 500 });
    expect(await answered(untold)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
  });

  test('a scheduler that stops leaves the attempts of such a container to the next one', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    await sent(link);
    const gone = one.reports.containerGone(container.containerId);
    one.tasks.stop();
    await gone;
    expect(await statusOf(one, task.taskId)).toBe('RUNNING');
  });
});

describe('a task that nobody runs', () => {
  test('a caller who leaves while it waits: CANCELLED, and out of the queue', async ({ one }) => {
    const target = aTarget();
    const task = await submitted(one, target);
    task.callerLeft();
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'CANCELLED', 'it is cancelled');
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(one.replies.size).toBe(0);
  });

  test('a caller who leaves while it runs changes nothing', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    task.callerLeft();
    await one.result(order);
    expect(await statusOf(one, task.taskId)).toBe('COMPLETE');
  });

  test('a caller who leaves after its task came back from an agent: CANCELLED too', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    one.slots.remove(container.containerId);
    await one.reports.refused(order.taskId, order.token, 'stopping');
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'PENDING', 'it is recorded as waiting again');
    task.callerLeft();
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'CANCELLED', 'it is cancelled');
  });

  test('the wait limit: TIMEOUT, 504', async ({ one }) => {
    const target = aTarget({ ttlSeconds: 0.1 });
    const task = await submitted(one, target);
    expect(await answered(task)).toEqual({
      status: 'TIMEOUT',
      httpStatus: 504,
      body: '{"error":"Timed out waiting for a backend container"}',
    });
    expect(await statusOf(one, task.taskId)).toBe('TIMEOUT');
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
  });

  test('the wait limit does not end what a container has', async ({ one }) => {
    const target = aTarget({ ttlSeconds: 0.1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    // A later task with the same limit has no container.
    expect((await answered(await submitted(one, target))).status).toBe('TIMEOUT');
    await one.result(order);
    expect((await answered(task)).status).toBe('COMPLETE');
  });

  test('a caller whose task was lost with the data of Redis is answered at the wait limit', async ({ one, redis }) => {
    const target = aTarget({ ttlSeconds: 0.5 });
    const task = await submitted(one, target);
    await redis.connect().flushall();
    expect(await answered(task)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
  });

  test('one that comes back from an agent after its wait limit, with no other container, is answered', async ({
    one,
  }) => {
    const target = aTarget({ ttlSeconds: 0.1 });
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect((await answered(await submitted(one, target))).status).toBe('TIMEOUT');
    one.slots.remove(container.containerId);
    await one.reports.refused(order.taskId, order.token, 'stopping');
    expect(await answered(task, 8000)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
  });

  test('a start that fails by the user’s cause answers the waiting callers with the lines, and nobody else', async ({
    one,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const running = await submitted(one, target);
    const order = await sent(link);
    const waiting = await submitted(one, target);
    const other = await submitted(one, aTarget());
    const failed = { containerId: 'endpoint-s-1' as ContainerId };
    expect(await one.callers.failWaiting(target.queue, 'ModuleNotFoundError: x', failed)).toBe(1);
    expect(await answered(waiting)).toEqual({
      status: 'ERROR',
      httpStatus: 500,
      body: '{"error":"ModuleNotFoundError: x"}',
    });
    expect(await one.records.read(waiting.taskId)).toMatchObject({
      status: 'ERROR',
      failureReason: 'start_failed',
      ...failed,
    });
    await one.result(order);
    expect((await answered(running)).status).toBe('COMPLETE');
    expect(other.answers).toEqual([]);
    await idle(container);
  });

  test('one whose caller waited on a replica that is gone is CANCELLED at the fetch', async ({ start }) => {
    const target = aTarget();
    const dead = await start();
    const task = await submitted(dead, target);
    const alive = await start({ alive: () => false });
    const link = new PlayedLink();
    alive.container(target.queue, link);
    await waitFor(async () => (await statusOf(alive, task.taskId)) === 'CANCELLED', 'it is cancelled');
    expect(link.orders).toEqual([]);
  });
});

describe('the bound on pending tasks', () => {
  test('300 submits at once with a bound of 100: 100 are accepted, 200 are told, and nothing else is left', async ({
    one,
  }) => {
    const target = aTarget({ maxPendingTasks: 100 });
    const submissions = await Promise.all(
      Array.from({ length: 300 }, () => one.submissions.submit(target, { input: '{}' })),
    );
    const accepted = submissions.filter((each) => each.kind === 'accepted');
    const full = submissions.filter((each) => each.kind === 'queue_full');
    expect([accepted.length, full.length]).toEqual([100, 200]);
    expect((await one.queues.depth(target.queue)).waiting).toBe(100);
    expect(one.replies.size).toBe(100);
    expect(await one.submissions.submit(target, { input: '{}' })).toEqual({ kind: 'queue_full', maxPendingTasks: 100 });
    expect(await one.registry.metrics()).toContain('quota_throttles_total{resource="pending_tasks"} 201');
    const link = new PlayedLink();
    link.onRun = (order) => void one.result(order);
    one.container(target.queue, link, 4);
    const answers = await Promise.all(accepted.map((each) => each.finished));
    expect(answers.every((each) => each.status === 'COMPLETE')).toBe(true);
    expect((await one.submissions.submit(target, { input: '{}' })).kind).toBe('accepted');
  });

  test('while containers work, never more than the bound are waiting and running', async ({ one }) => {
    const target = aTarget({ maxPendingTasks: 20 });
    const link = new PlayedLink();
    one.container(target.queue, link, 5);
    // A task counts as over once its end is on its way to the queue. So
    // the next caller gets the place before this caller hears of the end.
    let open = 0;
    let most = 0;
    link.onRun = (order) =>
      void setImmediate(() => {
        open -= 1;
        void one.result(order);
      });
    const kinds = await Promise.all(
      Array.from({ length: 400 }, async (_none, at) => {
        for (let turns = at % 40; turns > 0; turns -= 1) await turn();
        const submission = await one.submissions.submit(target, { input: '{}' });
        if (submission.kind !== 'accepted') return submission.kind;
        open += 1;
        most = Math.max(most, open);
        await submission.finished;
        return submission.kind;
      }),
    );
    expect(new Set(kinds).has('unavailable')).toBe(false);
    expect(most).toBeLessThanOrEqual(20);
    expect(one.replies.size).toBe(0);
  });
});

describe('agents', () => {
  test('a task that an agent refuses is queued again first, then run', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const later = await submitted(one, target);
    const order = await sent(link);
    await one.reports.refused(order.taskId, order.token, 'no_free_slot');
    const again = await sent(link, 2);
    expect(again.taskId).toBe(task.taskId);
    expect(again.token).not.toBe(order.token);
    // The first attempt's result belongs to a superseded attempt now.
    expect(await one.result(order, '{"old":true}')).toBe(true);
    expect(task.answers).toEqual([]);
    await one.result(again);
    expect((await answered(task)).body).toBe('{"ok":true}');
    await one.result(await sent(link, 3));
    await answered(later);
    await idle(container);
  });

  test('an agent that refuses everything is asked again at its pace, not at ours', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    link.onRun = (order) => void one.reports.refused(order.taskId, order.token, 'no_free_slot');
    one.container(target.queue, link);
    await submitted(one, target);
    const startMs = performance.now();
    await waitFor(() => link.runs >= 4, 'it was asked four times');
    expect(performance.now() - startMs).toBeGreaterThan(250);
    link.onRun = undefined;
  });

  test('a stream without room takes no tasks, and those wait for it', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    link.mode = 'full';
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    await waitFor(() => link.runs >= 2, 'it was tried again');
    const startMs = performance.now();
    const before = link.runs;
    await waitFor(() => link.runs >= before + 3, 'it was tried three times more');
    expect(performance.now() - startMs).toBeGreaterThan(180);
    link.mode = 'take';
    await one.result(await sent(link));
    expect((await answered(task)).status).toBe('COMPLETE');
    await idle(container);
    expect(one.attempts.size).toBe(0);
  });

  test('a stream lost and back: what still runs goes on, what never arrived is queued again', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const runs = await submitted(one, target);
    const first = await sent(link);
    link.mode = 'lose';
    const lost = await submitted(one, target);
    await waitFor(() => one.attempts.size === 2, 'both are sent as far as we know');
    one.slots.setLink(MACHINE, undefined);
    const back = new PlayedLink();
    const report = { taskId: first.taskId, token: first.token, containerId: first.containerId };
    expect(await one.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] })).toEqual({
      adopted: [report],
      refused: [],
    });
    for (const queue of one.slots.setLink(MACHINE, back)) one.dispatcher.wake(queue);
    const again = await sent(back);
    expect(again.taskId).toBe(lost.taskId);
    await one.result(first);
    await one.result(again);
    expect((await answered(runs)).status).toBe('COMPLETE');
    expect((await answered(lost)).status).toBe('COMPLETE');
    await idle(container);
  });

  test('an agent that was restarted and does not know an attempt any more has lost it: 502, never run twice', async ({
    one,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    await sent(link);
    await one.reports.machineReported(MACHINE, { agentInstance: 'agent-2', running: [] });
    expect(await answered(task, 15_000)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
  });

  test('past the execution limit the caller is answered, and the slot waits for the agent', async ({ start }) => {
    const one = await start({ graces: { limitMs: 50, reportMs: 100, restartedAgentMs: 200 } });
    const target = aTarget({ timeoutSeconds: 0.05 });
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect(await answered(task)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
    expect(link.cancelled).toEqual([`${order.taskId} ${order.token}`]);
    expect(container.inFlight).toBe(1);
    for (let times = 0; times < 2; times += 1) {
      expect(await one.result(order, '', 'timeout')).toBe(true);
      await idle(container);
    }
    const next = await submitted(one, target);
    expect((await sent(link, 2)).taskId).toBe(next.taskId);
  });
});

describe('another scheduler process on the same Redis', () => {
  /** A task sent by a process that is gone, and the process that comes after it. */
  async function afterRestart(start: (options?: Parameters<typeof aProcess>[1]) => Promise<Process>) {
    const target = aTarget();
    const before = await start();
    const link = new PlayedLink();
    const { containerId } = before.container(target.queue, link);
    const task = await submitted(before, target);
    const order = await sent(link);
    await waitFor(() => before.leases.read(task.taskId), 'its lease is written');
    before.dispatcher.stop();
    before.tasks.stop();
    const after = await start();
    const report = { taskId: order.taskId, token: order.token, containerId };
    return { target, task, order, after, report, containerId };
  }

  test('adopts a running attempt by its token and completes it', async ({ start, redis }) => {
    const { target, task, order, after, report, containerId } = await afterRestart(start);
    // The previous version of the scheduler leaves its data so.
    const client = redis.connect();
    await client.del('ls:leased');
    client.disconnect();
    const container = after.container(target.queue, new PlayedLink(), 1, containerId);
    expect(
      (await after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] })).adopted,
    ).toEqual([report]);
    expect(container.inFlight).toBe(1);
    await waitFor(async () => (await after.leases.ofMachine(MACHINE)).length === 1, 'it is listed by its machine');
    expect(await after.result(order)).toBe(true);
    await idle(container);
    expect(await after.leases.ofMachine(MACHINE)).toEqual([]);
    expect(await after.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(await after.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
  });

  test('takes a result that nobody reported as running', async ({ start }) => {
    const { task, order, after } = await afterRestart(start);
    expect(await after.result(order)).toBe(true);
    expect(await statusOf(after, task.taskId)).toBe('COMPLETE');
  });

  test('adopts once, when the report and the result come side by side', async ({ start }) => {
    const { target, order, after, report, containerId } = await afterRestart(start);
    const container = after.container(target.queue, new PlayedLink(), 1, containerId);
    await Promise.all([
      after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] }),
      after.result(order),
      after.result(order),
    ]);
    await waitFor(() => after.attempts.size === 0, 'no attempt is left');
    await idle(container);
  });

  test('counts an adopted attempt against the slots of its container, also when that becomes ready later', async ({
    start,
  }) => {
    const { target, order, after, report, containerId } = await afterRestart(start);
    await after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [report] });
    const container = after.container(target.queue, undefined, 1, containerId);
    expect(container.inFlight).toBe(1);
    const link = new PlayedLink();
    for (const queue of after.slots.setLink(MACHINE, link)) after.dispatcher.wake(queue);
    const next = await submitted(after, target);
    expect(link.orders).toEqual([]);
    await after.result(order);
    expect((await sent(link)).taskId).toBe(next.taskId);
    await after.result(await sent(link));
    await idle(container);
  });

  test('does not believe another token, or another machine', async ({ start }) => {
    const { after, report, task } = await afterRestart(start);
    const forged = { ...report, token: newAttemptToken() };
    expect(
      (await after.reports.machineReported(MACHINE, { agentInstance: 'agent-1', running: [forged] })).refused,
    ).toEqual([forged]);
    expect(
      (await after.reports.machineReported('m-2' as typeof MACHINE, { agentInstance: 'agent-1', running: [report] }))
        .refused,
    ).toEqual([report]);
    // The agent named all of its attempts, and this one is not among
    // them. The order never arrived, so no report ended the attempt.
    await waitFor(async () => (await statusOf(after, task.taskId)) === 'PENDING', 'it is back in its queue');
    expect(await after.records.read(task.taskId)).toMatchObject({ failureReason: 'not_received' });
    expect(after.attempts.size).toBe(0);
  });

  test('never runs a synchronous task again that was sent: ERROR, 502', async ({ start }) => {
    const target = aTarget();
    const one = await start();
    const task = await submitted(one, target);
    const dead = lockTokenOf(newInstanceId(), newAttemptToken());
    const fetched = await one.queues.fetch(target.queue, dead);
    if (fetched.job === undefined) throw new Error('nothing fetched');
    await one.leases.write({
      lock: dead,
      attempt: 1,
      containerId: 'c' as ContainerId,
      machineId: MACHINE,
      queue: target.queue,
      job: fetched.job,
      startedAtMs: Date.now(),
    });
    await one.queues.giveBack(target.queue, task.taskId, dead);
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    expect(await answered(task)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect(link.orders).toEqual([]);
    await idle(container);
  });

  test('does not send a synchronous task whose lease another attempt took meanwhile, nor overwrites that', async ({
    start,
  }) => {
    const other = { lock: lockTokenOf(newInstanceId(), newAttemptToken()), of: 'another attempt' };
    const leaseKey = (taskId: TaskId) => `ls:lease:${taskId}`;
    const race: { taskId?: TaskId } = {};
    // Redis is asked this between the look for a lease and the send, and just then the other process comes first.
    const one = await start({
      alive: () => {
        if (race.taskId !== undefined) void one.client.set(leaseKey(race.taskId), JSON.stringify(other));
        return true;
      },
    });
    const caller = await start();
    const target = aTarget();
    const { taskId } = await submitted(caller, target);
    const lock = lockTokenOf(newInstanceId(), newAttemptToken());
    await one.queues.fetch(target.queue, lock);
    await one.queues.giveBack(target.queue, taskId, lock);
    race.taskId = taskId;
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    await waitFor(async () => (await statusOf(one, taskId)) === 'ERROR', 'it ended as lost');
    expect(link.orders).toEqual([]);
    await idle(container);
  });

  test('sends nothing by a fetch of before it stood still, when another process has the task by now', async ({
    one,
  }) => {
    for (const target of [aTarget(), aTarget({ stubType: 'taskqueue/deployment' })]) {
      const isSync = target.config.stubType.startsWith('endpoint');
      const { taskId } = await submitted(one, { ...target, sync: isSync, kind: isSync ? 'endpoint' : 'taskqueue' });
      const token = newAttemptToken();
      const lock = lockTokenOf(one.instance, token);
      const fetched = await one.queues.fetch(target.queue, lock);
      if (fetched.job === undefined) throw new Error('nothing fetched');
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      await waitFor(() => container.inFlight === 0, 'the queue is known to be empty');
      // The task's lock ran out, and another process fetched and sent the task.
      const theirs = JSON.stringify({ lock: lockTokenOf(newInstanceId(), newAttemptToken()) });
      await one.client.set(`ls:lease:${taskId}`, theirs);
      await one.client.set(`ls:${target.queue}:${taskId}:lock`, 'theirs');
      container.inFlight += 1;
      const askedAtMs = performance.now() - 120_000;
      one.sender.begin(claimOf(fetched, container, token, lock, askedAtMs));
      await idle(container);
      expect(link.runs).toBe(0);
      expect(await one.client.get(`ls:lease:${taskId}`)).toBe(theirs);
    }
  });

  test('a job that comes back although its task ended is not run, and its record stays', async ({ start }) => {
    const target = aTarget();
    const one = await start();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    const job = await one.queues.read(target.queue, task.taskId);
    if (job === undefined) throw new Error('no job');
    await one.result(order);
    expect((await answered(task)).status).toBe('COMPLETE');
    // A Redis that came back older leaves such a job: waiting, and fetched once before.
    const dead = lockTokenOf(newInstanceId(), newAttemptToken());
    await one.queues.add(target.queue, job);
    expect((await one.queues.fetch(target.queue, dead)).job?.taskId).toBe(task.taskId);
    await one.queues.giveBack(target.queue, task.taskId, dead);
    one.dispatcher.wake(target.queue);
    await waitFor(async () => (await one.queues.read(target.queue, task.taskId)) === undefined, 'the job is gone');
    expect(await one.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    expect(link.orders).toHaveLength(1);
  });
});

describe('Redis', () => {
  test('away at the completion of a job: the result is kept here and written after, and the caller gets it then', async ({
    start,
    redis,
  }) => {
    const one = await start({ localQueue: false });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'RUNNING', 'it is recorded as running');
    redis.freeze();
    let first: Promise<boolean>;
    let repeated: Promise<boolean>;
    try {
      first = one.result(order, '{"kept":1}');
      repeated = one.result(order, '{"kept":1}');
      // Commands are given up in the order in which they were sent.
      await expect(one.client.ping()).rejects.toThrow();
      expect(task.answers).toEqual([]);
    } finally {
      redis.thaw();
    }
    expect(await first).toBe(true);
    expect(await repeated).toBe(true);
    expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"kept":1}' });
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'COMPLETE', 'its record is written');
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
    await idle(container);
    expect(task.answers).toHaveLength(1);
  });

  test('not answering at the end of a task of the local queue: its caller has the result, which is recorded as soon as Redis answers', async ({
    start,
    redis,
  }) => {
    const one = await start({ localQueue: true });
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'RUNNING', 'it is recorded as running');
    redis.freeze();
    try {
      expect(await one.result(order, '{"kept":1}')).toBe(true);
      expect(await answered(task)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '{"kept":1}' });
      // The pause is longer than a command may take.
      await expect(one.client.ping()).rejects.toThrow();
    } finally {
      redis.thaw();
    }
    await waitFor(async () => (await statusOf(one, task.taskId)) === 'COMPLETE', 'its record is written');
    await waitFor(async () => (await one.queues.depth(target.queue)).active === 0, 'nothing of it is left');
    await idle(container);
    expect(task.answers).toHaveLength(1);
  });

  test('away when a task comes: it is refused, and leaves nothing behind', async ({ one, redis }) => {
    const target = aTarget();
    await one.queues.open(target.queue);
    redis.freeze();
    let submission: Submission;
    try {
      submission = await one.submissions.submit(target, { input: JSON.stringify('a'.repeat(100_000)) });
    } finally {
      redis.thaw();
    }
    expect(submission.kind).toBe('unavailable');
    expect(one.replies.size).toBe(0);
    await waitFor(async () => (await one.queues.depth(target.queue)).waiting === 0, 'the job was taken out', 10_000);
    await waitFor(() => one.bytes.objects.size === 0, 'its input is gone');
  });

  test('a lock that ran out before the end was written: the task ends once, and is not run again', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    await one.client.del(`${one.keys.prefix}:${target.queue}:${task.taskId}:lock`);
    expect(await one.result(order)).toBe(true);
    expect((await answered(task)).status).toBe('COMPLETE');
    expect(await one.queues.depth(target.queue)).toMatchObject({ active: 0, waiting: 0 });
    await idle(container);
  });
});
