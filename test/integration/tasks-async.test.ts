// Asynchronous tasks on real Redis and a real database: promised, retried, lost and run again.
import { describe, expect } from 'vitest';
import { AppError } from '#shared/errors.ts';
import { taskRows } from '#scheduler/compose/records.ts';
import { databaseError, databaseNotReached } from '#scheduler/stores/store/limits.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { acceptedJobOf, insertAcceptedTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { MACHINE, PlayedLink } from './tasks-fixture.ts';
import { aQueueTarget, drained, put, test } from './tasks-world.ts';

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
    const refusal = databaseError({ message: 'bad text', code: '22021' });
    const one = await start({ commit: () => Promise.reject(refusal) });
    const target = aQueueTarget();
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ reason: 'not_recorded' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    expect(one.queueing.size).toBe(0);
  });

  test('whose commit is not answered is not told, and ends as CANCELLED if it was made', async ({ start, db }) => {
    let isAway = true;
    const away = new AppError('database_timeout', 'the database did not answer in time');
    const rows = taskRows(db);
    const one = await start({
      commit: async (batch) => {
        await insertAcceptedTasks(db, batch);
        if (isAway) throw away;
      },
      rowsOf: (taskIds) => (isAway ? Promise.reject(away) : rows.rowsOf(taskIds)),
    });
    const target = aQueueTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ reason: 'not_recorded' });
    isAway = false;
    const taskId = await put(one, target);
    expect((await sent(link)).taskId).toBe(taskId);
    const statuses = async () =>
      (
        await db.query<{ status: string }>('select status from tasks where stub_id = $1 order by status', [
          target.stubId,
        ])
      ).rows;
    await waitFor(async () => {
      await drained(one);
      return (await statuses())[0]?.status === 'CANCELLED';
    }, 'the row of the first is over');
    expect((await statuses()).map(({ status }) => status)).toEqual(['CANCELLED', 'RUNNING']);
    expect(link.orders).toHaveLength(1);
  });

  test('and a hundred others whose commits are not answered are read by one statement', async ({ start, db }) => {
    const away = new AppError('database_timeout', 'the database did not answer in time');
    const rows = taskRows(db);
    let isAway = true;
    const reads: number[] = [];
    const one = await start({
      commit: async (batch) => {
        await insertAcceptedTasks(db, batch);
        throw away;
      },
      rowsOf: (taskIds) => {
        if (isAway) return Promise.reject(away);
        reads.push(taskIds.length);
        return rows.rowsOf(taskIds);
      },
    });
    const target = aQueueTarget();
    const submissions = Array.from({ length: 101 }, () => one.submissions.submit(target, { input: '{}' }));
    expect(new Set((await Promise.all(submissions)).map(({ kind }) => kind))).toEqual(new Set(['unavailable']));
    isAway = false;
    await waitFor(async () => {
      const ended = await db.query(`select 1 from tasks where stub_id = $1 and status = 'CANCELLED'`, [target.stubId]);
      return ended.rowCount === 101;
    }, 'all rows are over');
    expect(reads).toEqual([101]);
  });

  test('whose commit is not answered leaves no row where it was not made', async ({ start, db }) => {
    const away = new AppError('database_unavailable', 'the database does not answer');
    const one = await start({ commit: () => Promise.reject(away), more: { latestMs: 50 } });
    const target = aQueueTarget();
    const large = JSON.stringify({ x: 'a'.repeat(100_000) });
    expect(await one.submissions.submit(target, { input: large })).toMatchObject({ reason: 'not_recorded' });
    await waitFor(() => one.bytes.objects.size === 0, 'its input is gone');
    await drained(one);
    expect((await db.query('select 1 from tasks where stub_id = $1', [target.stubId])).rowCount).toBe(0);
  });

  test('that a database without connections does not take is over at once, and others are refused for a second', async ({
    start,
  }) => {
    let commits = 0;
    const one = await start({
      commit: () => {
        commits += 1;
        return commits === 1 ? Promise.reject(databaseNotReached(new Error('ECONNREFUSED'))) : Promise.resolve();
      },
      rowsOf: () => Promise.reject(new Error('nobody asks for its row')),
    });
    const target = aQueueTarget();
    const large = JSON.stringify({ x: 'a'.repeat(100_000) });
    expect(await one.submissions.submit(target, { input: large })).toMatchObject({ reason: 'not_recorded' });
    await waitFor(() => one.bytes.objects.size === 0, 'its input is gone');
    const refused = { kind: 'unavailable', reason: 'commits_failing' };
    expect(await one.submissions.submit(target, { input: large })).toMatchObject(refused);
    expect([commits, one.bytes.objects.size]).toEqual([1, 0]);
    const accepted = await waitFor(async () => {
      const submission = await one.submissions.submit(target, { input: '{}' });
      return submission.kind === 'accepted' && submission;
    }, 'a call is taken again');
    expect(accepted.taskId).toBeDefined();
  });

  test('whose commit hangs has others refused at once after two seconds', async ({ start }) => {
    const hangs = Promise.withResolvers<void>();
    const one = await start({ commit: () => hangs.promise });
    const target = aQueueTarget();
    const first = one.submissions.submit(target, { input: '{}' });
    const refused = await waitFor(async () => {
      const answer = await Promise.race([one.submissions.submit(target, { input: '{}' }), one.client.ping()]);
      return typeof answer === 'object' && answer;
    }, 'another call is refused');
    expect(refused).toMatchObject({ kind: 'unavailable', reason: 'commits_failing' });
    hangs.resolve();
    expect(await first).toMatchObject({ kind: 'accepted' });
    expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ kind: 'accepted' });
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
      past: [
        {
          attempt: 1,
          containerId: again.containerId,
          machineId: link.machineId,
          outcome: 'handler_error',
          error: 'again',
        },
      ],
    });
    // Redis keeps it for an hour at most, the database with the task.
    await drained(one);
    expect((await taskById(one.db, taskId))?.past).toMatchObject([{ attempt: 1, error: 'again' }]);
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
    // Without a link: the retry must not begin before it was looked at.
    next.container(target.queue, undefined, 1, containerId);
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
    await one.reports.refused(MACHINE, taskId, order.token, 'no_free_slot');
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
      await one.reports.refused(MACHINE, order.taskId, order.token, 'no_free_slot');
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
