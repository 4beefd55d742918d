// Asynchronous tasks on real Redis and a real database: promised, retried, lost and run again, expired. Also the
// effects of people, and of runners that are not ours, on tasks.
/* oxlint-disable no-empty-pattern */
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import type { ContainerId, StubId, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import { parsedResult } from '#scheduler/api/http/rest/records.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { probeCommit } from '#scheduler/stores/store/queries/idempotency.ts';
import { acceptedJobOf, insertAcceptedTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { TaskSweep } from '#scheduler/tasks/maintenance/sweep.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { MACHINE, PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, age, anEnd, callerOf, drained, put, test } from './tasks-world.ts';

/** The queues with another `delay`. */
const withDelay =
  (delay: (queues: TaskQueues, ...given: Parameters<TaskQueues['delay']>) => ReturnType<TaskQueues['delay']>) =>
  (queues: TaskQueues): TaskQueues =>
    new Proxy(queues, {
      get: (whole, name) => {
        if (name === 'delay') return (...given: Parameters<TaskQueues['delay']>) => delay(whole, ...given);
        const value: unknown = Reflect.get(whole, name);
        return typeof value === 'function' ? value.bind(whole) : value;
      },
    });

describe('an asynchronous task', () => {
  test('is in the database before its id is returned, runs, and ends there too', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    expect(await taskById(one.db, taskId)).toMatchObject({ status: 'PENDING', attempt: 0, sync: false });
    expect(await acceptedJobOf(one.db, taskId)).toContain('{\\"x\\":1}');
    const link = new PlayedLink();
    one.container(target.queue, link);
    expect(await one.result(await sent(link), '{"y":2}')).toBe(true);
    await drained(one);
    expect(await taskById(one.db, taskId)).toMatchObject({ status: 'COMPLETE', result: '{"y":2}', attempt: 1 });
    expect(await acceptedJobOf(one.db, taskId)).toBeUndefined();
    expect((await one.queues.depth(target.queue)).active).toBe(0);
  });

  test('that the database does not take is refused, and leaves nothing in its queue', async ({ start }) => {
    const one = await start({ commit: () => Promise.reject(new Error('the database is away')) });
    const target = aQueueTarget();
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ kind: 'unavailable' });
    await waitFor(async () => (await one.queues.depth(target.queue)).waiting === 0, 'it is taken out');
  });

  test('is refused before anything is queued while commits fail, and taken again when a probe commits', async ({
    start,
    db,
  }) => {
    let isAway = true;
    let commits = 0;
    const away = new AppError('database_timeout', 'the database did not answer in time');
    const one = await start({
      commit: (batch) => {
        commits += 1;
        return isAway ? Promise.reject(away) : insertAcceptedTasks(db, batch);
      },
      more: { probeCommit: () => (isAway ? Promise.reject(away) : probeCommit(db)) },
    });
    const target = aQueueTarget();
    const link = new PlayedLink();
    const outcomes = new Set<string>();
    for (let calls = 0; calls < 20; calls += 1)
      outcomes.add((await one.submissions.submit(target, { input: '{}' })).kind);
    expect([...outcomes]).toEqual(['unavailable']);
    // Only the first task was queued, and it is out again before its caller is told.
    expect(commits).toBe(1);
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    one.container(target.queue, link);
    isAway = false;
    const taskId = await waitFor(async () => {
      const submission = await one.submissions.submit(target, { input: '{}' });
      return submission.kind === 'accepted' && submission.taskId;
    }, 'admission is open again');
    expect((await sent(link)).taskId).toBe(taskId);
    expect(link.orders).toHaveLength(1);
    await drained(one);
    const { rows } = await db.query<{ status: string }>('select status from tasks where stub_id = $1 order by status', [
      target.stubId,
    ]);
    expect(rows.map(({ status }) => status)).toEqual(['CANCELLED', 'RUNNING']);
  });

  test('that a container took before its commit failed is recorded: nothing runs unseen', async ({ start, db }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    let commits = 0;
    const one = await start({
      commit: async (batch) => {
        commits += 1;
        if (commits > 1) return await insertAcceptedTasks(db, batch);
        one.container(target.queue, link);
        await sent(link);
        throw new Error('the database is away');
      },
    });
    expect(await one.submissions.submit(target, { input: '{"x":1}' })).toMatchObject({ kind: 'unavailable' });
    const order = await sent(link);
    await one.result(order);
    await waitFor(() => commits > 1, 'its row is written');
    await drained(one);
    expect(await taskById(db, order.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
  });

  test('whose execution limit is longer than a timer can be does not run into it at once', async ({ one }) => {
    const target = aQueueTarget({ timeoutSeconds: 60 * 24 * 3600 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    const order = await sent(link);
    await one.client.ping();
    await new Promise((resolve) => setImmediate(resolve));
    expect(link.cancelled).toEqual([]);
    await one.result(order);
    await reaches(one, taskId, 'COMPLETE');
  });
});

describe('retries of a handler that asks for them', () => {
  test('wait out a back-off in the queue, carry the same input, and may succeed', async ({ one }) => {
    const target = aQueueTarget({ retries: 2 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target, '{"n": 1.0}');
    await one.result(await sent(link), '{"error":"again"}', 'retry');
    expect(await one.records.read(taskId)).toMatchObject({
      status: 'RETRY',
      attempt: 1,
      failureReason: 'handler_error',
    });
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({ retriesUsed: 1, input: '{"n": 1.0}' });
    const again = await sent(link, 2);
    expect(again).toMatchObject({ taskId, input: '{"n": 1.0}' });
    await one.result(again, '{"done":true}');
    expect(await reaches(one, taskId, 'COMPLETE')).toMatchObject({
      attempt: 2,
      result: '{"done":true}',
      // The outcome of the earlier attempt stays known, to explain why the task took so long.
      past: [{ attempt: 1, containerId: again.containerId, machineId: link.machineId, outcome: 'handler_error' }],
    });
  });

  test('count, when the process dies before the queue knows: the agent says it again to the next one', async ({
    start,
  }) => {
    const dying = await start({ queues: withDelay(() => new Promise(() => undefined)) });
    const target = aQueueTarget({ retries: 1 });
    const link = new PlayedLink();
    const { containerId } = dying.container(target.queue, link);
    const taskId = await put(dying, target);
    const order = await sent(link);
    void dying.result(order, '{}', 'retry');
    await reaches(dying, taskId, 'RETRY');
    const next = await start();
    next.container(target.queue, new PlayedLink(), 1, containerId);
    expect(await next.result(order, '{}', 'retry')).toBe(true);
    expect(await next.queues.read(target.queue, taskId)).toMatchObject({ retriesUsed: 1 });
    expect(await next.queues.lockOf(target.queue, taskId)).toBeUndefined();
  });

  test('count, when Redis is away for a moment', async ({ start }) => {
    let failures = 2;
    const one = await start({
      queues: withDelay((queues, ...given) => {
        failures -= 1;
        return failures < 0 ? queues.delay(...given) : Promise.reject(new Error('Redis is away'));
      }),
    });
    const target = aQueueTarget({ retries: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    expect(await one.result(await sent(link), '{}', 'retry')).toBe(true);
    expect(await one.queues.read(target.queue, taskId)).toMatchObject({ retriesUsed: 1 });
  });

  test('leave the slot to others meanwhile', async ({ one }) => {
    const target = aQueueTarget({ retries: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const first = await put(one, target);
    const order = await sent(link);
    const second = await put(one, target);
    await one.result(order, '{}', 'retry');
    const next = await sent(link, 2);
    expect(next.taskId).toBe(second);
    await one.result(next);
    const again = await sent(link, 3);
    expect(again.taskId).toBe(first);
    await one.result(again);
    await reaches(one, first, 'COMPLETE');
  });

  test('used up: ERROR, with what the last attempt said', async ({ one }) => {
    const target = aQueueTarget({ retries: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await one.result(await sent(link), '{"error":"first"}', 'retry');
    await one.result(await sent(link, 2), '{"error":"second"}', 'exited');
    expect(await reaches(one, taskId, 'ERROR')).toMatchObject({
      attempt: 2,
      failureReason: 'process_exited',
      result: '{"error":"second"}',
    });
    expect(link.orders).toHaveLength(2);
    expect((await one.queues.depth(target.queue)).delayed).toBe(0);
  });
});

describe('a container that is lost', () => {
  /** Loses a container that was told to stop and cut its attempt off. */
  async function lose(one: Process, containerId: ContainerId): Promise<void> {
    one.slots.leave(containerId);
    one.slots.remove(containerId);
    await one.reports.containerGone(containerId);
  }

  test('its task comes first in the queue, five times, and is then ERROR; the user’s retries are untouched', async ({
    one,
  }) => {
    const target = aQueueTarget({ retries: 0 });
    const taskId = await put(one, target);
    const later = await put(one, target);
    for (let losses = 0; losses <= 5; losses += 1) {
      const link = new PlayedLink();
      const container = one.container(target.queue, link);
      expect((await sent(link)).taskId).toBe(taskId);
      await lose(one, container.containerId);
    }
    const ended = await reaches(one, taskId, 'ERROR');
    expect(ended).toMatchObject({ attempt: 6, failureReason: 'infrastructure_limit' });
    expect(ended.past?.map((attempt) => attempt.attempt)).toEqual([1, 2, 3, 4, 5]);
    const page = await one.registry.metrics();
    expect(page).toMatch(/longshore_task_retries_total\{stub_type="taskqueue",cause="\w+"\} 5/);
    expect(page).toContain('longshore_task_attempts_lost_total{reason="container_gone"} 6');
    const link = new PlayedLink();
    one.container(target.queue, link);
    await one.result(await sent(link));
    await reaches(one, later, 'COMPLETE');
  });

  test('goes back also when Redis is away for a moment, whether or not it was sent', async ({ start }) => {
    let failures = 0;
    const one = await start({
      queues: (queues) =>
        new Proxy(queues, {
          get: (whole, name) => {
            const value: unknown = Reflect.get(whole, name);
            if (typeof value !== 'function') return value;
            if (name !== 'giveBack') return value.bind(whole);
            return (...given: Parameters<TaskQueues['giveBack']>) =>
              (failures -= 1) < 0 ? whole.giveBack(...given) : Promise.reject(new Error('Redis is away'));
          },
        }),
    });
    const target = aQueueTarget();
    const link = new PlayedLink();
    link.mode = 'full';
    one.container(target.queue, link);
    failures = 2;
    const taskId = await put(one, target);
    await waitFor(() => link.runs > 0 && failures <= 0, 'it could not be sent, nor given back');
    link.mode = 'take';
    const order = await sent(link);
    failures = 2;
    await one.reports.refused(taskId, order.token, 'no_free_slot');
    await one.result(await sent(link, 2));
    await reaches(one, taskId, 'COMPLETE');
  });

  test('what its agent gave back unstarted counts as no loss', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    for (let refusals = 1; refusals <= 6; refusals += 1) {
      const order = await sent(link, refusals);
      await one.reports.refused(order.taskId, order.token, 'no_free_slot');
    }
    await sent(link, 7);
    await lose(one, container.containerId);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'PENDING', attempt: 7 });
    expect((await one.queues.read(target.queue, taskId))?.losses).toBe(1);
    const other = new PlayedLink();
    one.container(target.queue, other);
    await one.result(await sent(other));
    await reaches(one, taskId, 'COMPLETE');
  });
});

describe('the sweep', () => {
  test('ends what waited beyond its time: EXPIRED, and out of the queue', async ({ one }) => {
    const target = aQueueTarget({ ttlSeconds: 0 });
    const taskId = await put(one, target);
    await age(one, 20);
    await one.sweep.round();
    expect(await one.records.read(taskId)).toMatchObject({ status: 'EXPIRED', failureReason: 'expired' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
  });

  test('what waited beyond its time is EXPIRED at the fetch, too, and does not run', async ({ one }) => {
    const target = aQueueTarget({ ttlSeconds: 0 });
    const taskId = await put(one, target);
    const link = new PlayedLink();
    one.container(target.queue, link);
    await reaches(one, taskId, 'EXPIRED');
    expect(link.orders).toEqual([]);
  });

  test('queues a task again whose job was lost with the data of Redis, under its id', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    await drained(one);
    await one.client.flushall();
    await age(one, 20);
    await one.sweep.round();
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    await age(one, 70);
    await one.sweep.round();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const order = await sent(link);
    expect(order).toMatchObject({ taskId, input: '{"x":1}' });
    await one.result(order);
    await reaches(one, taskId, 'COMPLETE');
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
    const sweep = new TaskSweep({
      db: one.db,
      queues: new Proxy(queues, {
        get: (whole, name) => {
          if (name === 'read') return read;
          const value: unknown = Reflect.get(whole, name);
          return typeof value === 'function' ? value.bind(whole) : value;
        },
      }),
      records: one.records,
      leases: one.leases,
      clock: systemClock,
      log: quiet,
      completion: one.completion,
      changes: one.changes,
      attempts: { current: () => undefined },
      jobOf: (id) => acceptedJobOf(one.db, id),
      isLeader: () => true,
      isAlive: () => true,
      served: () => [],
    });
    await sweep.round();
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
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

  test('comes to every task, however many wait at the front', async ({ start }) => {
    const one = await start({ batch: 2 });
    const waiting = aQueueTarget();
    for (let index = 0; index < 5; index += 1) await put(one, waiting);
    const target = aQueueTarget({ ttlSeconds: 0 });
    const expired = [await put(one, target), await put(one, target)];
    await age(one, 20);
    for (let rounds = 0; rounds < 4; rounds += 1) await one.sweep.round();
    for (const taskId of expired) expect((await one.records.read(taskId))?.status).toBe('EXPIRED');
  });

  test('goes on at once while whole pages of lost jobs are queued again', async ({ start }) => {
    const one = await start({ batch: 2 });
    const target = aQueueTarget();
    for (let index = 0; index < 5; index += 1) await put(one, target);
    await age(one, 70);
    await one.client.flushall();
    const mores = [await one.sweep.round(), await one.sweep.round(), await one.sweep.round()];
    expect(mores).toEqual([true, true, false]);
    expect((await one.queues.depth(target.queue)).waiting).toBe(5);
    expect(await one.sweep.round()).toBe(false);
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
      expect(parsedResult((await one.records.read(taskId))?.result)).toEqual(read);
    }
    await drained(one);
    for (const taskId of [claimed, attempted]) {
      expect(parsedResult((await taskById(one.db, taskId))?.result)).toEqual(read);
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

describe('StopTasks', () => {
  test('takes a waiting task out of its queue', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.records.read(taskId)).toMatchObject({ status: 'CANCELLED', failureReason: 'request_cancelled' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(await one.actions.stopTasks(callerOf(aQueueTarget()), [taskId])).toEqual({
      kind: 'refused',
      reason: 'unknown',
    });
  });

  test('a task that waits out a back-off is stopped, too, and does not come again', async ({ one }) => {
    const target = aQueueTarget({ retries: 3 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const taskId = await put(one, target);
    await one.result(await sent(link), '{}', 'retry');
    await one.actions.stopTasks(callerOf(target), [taskId]);
    expect(await one.records.read(taskId)).toMatchObject({ status: 'CANCELLED' });
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, delayed: 0, active: 0 });
  });

  test('a running one is ended at once; its slot is free when its runner is, and only once', async ({ one }) => {
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const first = await put(one, target);
    const order = await sent(link);
    const second = await put(one, target);
    expect(await one.actions.stopTasks(callerOf(target), [first])).toEqual({ kind: 'stopped' });
    expect(link.cancelled).toEqual([`${first} ${order.token}`]);
    expect((await one.records.read(first))?.status).toBe('CANCELLED');
    // The handler ignores the cancel, so no other task goes to its container.
    expect(container.inFlight).toBe(1);
    expect(link.orders).toHaveLength(1);
    await one.result(order, '{"late":true}', 'cancelled');
    const next = await sent(link, 2);
    expect(next.taskId).toBe(second);
    await one.result(order, '{"late":true}', 'cancelled');
    expect(container.inFlight).toBe(1);
    await one.result(next);
    await waitFor(() => container.inFlight === 0, 'its slot is free');
    expect((await one.records.read(first))?.status).toBe('CANCELLED');
  });

  test('an agent that is done before the end is written frees the slot, once', async ({ start }) => {
    let write = (): void => undefined;
    const written = new Promise<void>((resolve) => (write = resolve));
    const one = await start({
      queues: (queues) => {
        const fail: TaskQueues['fail'] = async (...given) => {
          await written;
          return await queues.fail(...given);
        };
        return new Proxy(queues, {
          get: (whole, name) => {
            if (name === 'fail') return fail;
            const value: unknown = Reflect.get(whole, name);
            return typeof value === 'function' ? value.bind(whole) : value;
          },
        });
      },
    });
    const target = aQueueTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const taskId = await put(one, target);
    const order = await sent(link);
    const other = await put(one, target);
    await sent(link, 2);
    await waitFor(() => container.inFlight === 2, 'both run');
    const attempt = one.attempts.current(taskId);
    const stopping = one.actions.stopTasks(callerOf(target), [taskId]);
    await waitFor(() => attempt?.ending !== undefined, 'its end is on its way');
    const taken = one.result(order, '{}', 'cancelled');
    await waitFor(() => container.inFlight === 1, 'its slot is free');
    write();
    expect([await stopping, await taken]).toEqual([{ kind: 'stopped' }, true]);
    expect(container.inFlight).toBe(1);
    expect(one.attempts.current(other)).toBeDefined();
  });

  test('a task that is being fetched, its input still on the way, never reaches its handler', async ({ start }) => {
    const one = await start();
    const target = aQueueTarget();
    const taskId = await put(one, target, JSON.stringify({ x: 'a'.repeat(100_000) }));
    let read = (): void => undefined;
    const blocked = new Promise<void>((resolve) => (read = resolve));
    const load = one.bytes.getBytes.bind(one.bytes);
    let asked = false;
    one.bytes.getBytes = async (id) => {
      asked = true;
      const bytes = await load(id);
      await blocked;
      return bytes;
    };
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    await waitFor(() => asked, 'its input is asked for');
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    read();
    await waitFor(() => container.inFlight === 0, 'the slot is free again');
    expect(link.orders).toEqual([]);
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });

  test('one that another replica has just fetched is ended with the token that holds it, for good', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target);
    const lock = lockTokenOf(newInstanceId(), newAttemptToken());
    const { job } = await one.queues.fetch(target.queue, lock);
    if (job === undefined) throw new Error('nothing was fetched');
    expect(await one.actions.stopTasks(callerOf(target), [taskId])).toEqual({ kind: 'stopped' });
    expect(await one.queues.complete(target.queue, taskId, lock)).toEqual({ kind: 'gone' });
    // The other writer's RUNNING comes after the end, and changes nothing.
    const record = await one.records.read(taskId);
    if (record === undefined) throw new Error('it has no record');
    await one.records.append({ ...record, status: 'RUNNING', attempt: 1, rank: 1 });
    expect((await one.records.read(taskId))?.status).toBe('CANCELLED');
  });
});

describe('a deployment that is deleted', () => {
  test('all its tasks are CANCELLED, also beyond the first page and with rows that lag', async ({ one }) => {
    const target = aQueueTarget();
    const ids: TaskId[] = [];
    for (let index = 0; index < 7; index += 1) ids.push(await put(one, target));
    await one.deploymentStops.deleted(target.queue);
    for (const taskId of ids)
      expect(await one.records.read(taskId)).toMatchObject({
        status: 'CANCELLED',
        failureReason: 'deployment_deleted',
      });
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 0, delayed: 0 });
  });
});

describe('an attempt of a scheduler that stopped', () => {
  test('is adopted, and held to its execution limit', async ({ start }) => {
    const graces = { limitMs: 50, reportMs: 100, restartedAgentMs: 200 };
    const before = await start();
    const target = aQueueTarget({ timeoutSeconds: 0.2 });
    const link = new PlayedLink();
    const { containerId } = before.container(target.queue, link);
    const taskId = await put(before, target);
    const order = await sent(link);
    before.tasks.stop();
    const after = await start({ graces });
    const { adopted } = await after.reports.machineReported(MACHINE, {
      agentInstance: 'agent-1',
      running: [{ taskId, token: order.token, containerId }],
    });
    expect(adopted).toHaveLength(1);
    await reaches(after, taskId, 'TIMEOUT');
  });
});
