// Calls of models that are answered later, as rows of both kinds of databases: accepted once, carried out under a
// lease, and ended once, whichever replica dies or stops.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import type { ObjectId, TaskId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { CANCELLED } from '#scheduler/domain/endings.ts';
import { DEFERRED_CALLS_QUEUE } from '#scheduler/domain/inference.ts';
import { DeferredCalls } from '#scheduler/tasks/deferred-calls/deferred-calls.ts';
import type { DeferredCallsParts } from '#scheduler/tasks/deferred-calls/deferred-calls.ts';
import { DeferredExecutor } from '#scheduler/tasks/deferred-calls/executor.ts';
import type { DeferredTimes, RunDeferred, TryOutcome } from '#scheduler/tasks/deferred-calls/executor.ts';
import { DeferredCallMetrics } from '#scheduler/tasks/deferred-calls/metrics.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { databaseUnavailable } from '#scheduler/stores/store/limits.ts';
import { claimDeferredCalls } from '#scheduler/stores/store/queries/deferred-calls.ts';
import type { NewDeferredCall } from '#scheduler/stores/store/queries/deferred-calls.ts';
import {
  listOpenTasks,
  openQueues,
  queuesOfEnded,
  taskById,
  upsertTaskRecords,
  waitingDeadlines,
} from '#scheduler/stores/store/queries/tasks.ts';
import { waitFor } from '../helpers/services.ts';
import { unansweredCommit } from '../helpers/unanswered-commit.ts';
import { aDb, KINDS, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const WAIT_MS = 30_000;
const LONG_MS = 60_000;
const QUICK: Partial<DeferredTimes> = { lookMs: 20, renewMs: 20 };
const DONE: TryOutcome = { kind: 'done', text: '{"answer":42}' };

describe.each(KINDS)('calls that are answered later, on %s', (kind) => {
  let opened: OpenedDb;
  const executors: DeferredExecutor[] = [];
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());
  beforeEach(async () => {
    await opened.db.query('delete from deferred_calls');
    return async () => {
      for (const executor of executors.splice(0)) await executor.stop();
    };
  });

  /** Calls whose records reach the database at once, unless they are lost. */
  function aWorld(over: Partial<DeferredCallsParts> = {}) {
    const { db } = opened;
    const told: TaskRecord[] = [];
    const kept: string[] = [];
    const givenBack: string[] = [];
    const world = { isLosing: false };
    const write = async (record: TaskRecord): Promise<void> => {
      told.push(record);
      if (!world.isLosing) await upsertTaskRecords(db, [record]);
    };
    const changes = {
      accept: (record: TaskRecord) => void write(record),
      apply: (_from: unknown, _events: unknown, record: TaskRecord) => {
        void write(record);
        return true;
      },
      applied: async (_from: unknown, _event: unknown, record: TaskRecord) => {
        await write(record);
        return true;
      },
    };
    const metrics = new DeferredCallMetrics(new Registry());
    const calls = new DeferredCalls({
      db,
      records: { isOverloaded: () => false },
      changes,
      holds: {
        keep: (requests) => Promise.resolve(void kept.push(...requests.map(({ requestId }) => requestId))),
        giveBack: ({ requestId }) => Promise.resolve(void givenBack.push(requestId)),
      },
      metrics,
      log: silent,
      ...over,
    });
    const objects = new Map<string, string>();
    const dropped: string[] = [];
    const executor = (run: RunDeferred, times: Partial<DeferredTimes> = {}): DeferredExecutor => {
      const made = new DeferredExecutor({
        db,
        calls,
        changes,
        bodies: {
          maxResultBytes: 1_000,
          storeResult: (text) => {
            if (text.length < 100) return Promise.resolve({ result: text });
            const id = newId<ObjectId>();
            objects.set(id, text);
            return Promise.resolve({ resultObjectId: id });
          },
          dropInput: (id) => {
            if (id !== undefined && objects.delete(id)) dropped.push(id);
            return Promise.resolve();
          },
        },
        instance: newInstanceId(),
        metrics,
        log: silent,
        times: { ...QUICK, ...times },
      });
      calls.onWaiting(() => made.wake());
      calls.onEnded((taskId) => made.endedElsewhere(taskId));
      made.runsWith(run);
      made.start();
      executors.push(made);
      return made;
    };
    return { world, db, calls, told, kept, givenBack, objects, dropped, executor };
  }

  const aCall = (over: Partial<NewDeferredCall> = {}): NewDeferredCall => {
    const workspaceId = over.workspaceId ?? newId<WorkspaceId>();
    const tokenId = over.tokenId ?? newId<TokenId>();
    const requestId = `req_${newId()}`;
    const nowMs = Date.now();
    return {
      taskId: newId<TaskId>(),
      workspaceId,
      tokenId,
      requestId,
      keyHash: undefined,
      fingerprint: '',
      putBy: undefined,
      request: { route: 'invoke', model: 'm' },
      charge: {
        requestId,
        workspaceId,
        tokenId,
        model: 'm',
        type: 'custom',
        stream: false,
        prices: { promptMicrosPerMillion: 0, completionMicrosPerMillion: 0, requestMicros: 1 },
        isCharged: true,
        most: { promptTokens: 1, completionTokens: 1 },
      },
      isCharged: true,
      body: '{"prompt":"a"}',
      createdAtMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
      ...over,
    };
  };
  const accepted = async (calls: DeferredCalls, over: Partial<NewDeferredCall> = {}): Promise<NewDeferredCall> => {
    const call = aCall(over);
    expect(await calls.accept(call)).toEqual({ kind: 'accepted' });
    return call;
  };
  const rowOf = async (taskId: TaskId) =>
    (
      await opened.db.query<{ state: string; attempt: number; losses: number; body: string | null }>(
        'select state, attempt, losses, body from deferred_calls where task_id = $1',
        [taskId],
      )
    ).rows[0];
  const ended = (taskId: TaskId) =>
    waitFor(
      async () => {
        const task = await taskById(opened.db, taskId);
        return task !== undefined && task.rank >= 3 && task;
      },
      'the task has ended',
      WAIT_MS,
    );
  const never: RunDeferred = (_call, _body, signal) =>
    new Promise((resolve) => {
      const end = (): void => resolve({ kind: 'failed', status: 'ERROR', reason: 'internal_error', text: '' });
      signal.addEventListener('abort', end);
      if (signal.aborted) end();
    });

  test('a call is committed with its task, carried out once, and forgotten once it is told', async () => {
    const { calls, executor, told, db, kept } = aWorld();
    const call = await accepted(calls);
    expect(await taskById(db, call.taskId)).toMatchObject({
      status: 'PENDING',
      workspaceId: call.workspaceId,
      queue: DEFERRED_CALLS_QUEUE,
      kind: 'model',
    });
    await calls.upkeep();
    expect(kept).toEqual([call.requestId]);
    const bodies: string[] = [];
    executor((_call, body) => {
      bodies.push(body);
      return Promise.resolve(DONE);
    });
    const task = await ended(call.taskId);
    expect(task).toMatchObject({ status: 'COMPLETE', result: '{"answer":42}', attempt: 1, rank: 4, failureReason: '' });
    expect([bodies, told.map(({ status }) => status)]).toEqual([[call.body], ['PENDING', 'RUNNING', 'COMPLETE']]);
    expect(task.durationMs).toBeGreaterThanOrEqual(0);
    expect(await rowOf(call.taskId)).toMatchObject({ state: 'ended', body: null });
    await calls.upkeep();
    expect(await rowOf(call.taskId)).toBeUndefined();
  });

  test('a call whose commit is not answered is accepted once where the commit is made later', async () => {
    const made = Promise.withResolvers<boolean>();
    const db = unansweredCommit(opened.db, made.promise, () => setImmediate(() => made.resolve(true)));
    const { calls, told } = aWorld({ db });
    const call = await accepted(calls);
    expect(await taskById(opened.db, call.taskId)).toMatchObject({ status: 'PENDING' });
    expect(told.map(({ status }) => status)).toEqual(['PENDING']);
  });

  test('a call whose commit was lost is refused as one that can be sent again, and no row comes later', async () => {
    const made = Promise.withResolvers<boolean>();
    const db = unansweredCommit(opened.db, made.promise, () => setImmediate(() => made.resolve(false)));
    const { calls, told } = aWorld({ db });
    const call = aCall();
    await expect(calls.accept(call)).rejects.toMatchObject({ code: 'database_unavailable' });
    expect(await rowOf(call.taskId)).toBeUndefined();
    expect(told).toEqual([]);
  });

  test('a call that cannot be looked up is one of unknown outcome', async () => {
    const away = (): never => {
      throw databaseUnavailable();
    };
    const { calls } = aWorld({ db: unansweredCommit(opened.db, Promise.resolve(true), away) });
    const call = aCall();
    await expect(calls.accept(call)).rejects.toMatchObject({ code: 'database_outcome_unknown' });
    await waitFor(() => rowOf(call.taskId), 'the call is accepted all the same', WAIT_MS);
  });

  test('the upkeep of queues passes these tasks over', async () => {
    const { calls, db } = aWorld();
    const call = await accepted(calls, { expiresAtMs: Date.now() - 1 });
    await db.query(`update tasks set updated_at = now() - interval '1 hour' where id = $1`, [call.taskId]);
    const open = await listOpenTasks(db, { unchangedSinceMs: Date.now(), limit: 500 });
    expect(open.map(({ taskId }) => taskId)).not.toContain(call.taskId);
    expect(await openQueues(db)).not.toContain(DEFERRED_CALLS_QUEUE);
    expect((await waitingDeadlines(db, Date.now() + 1e6, 500, 500)).map(({ taskId }) => taskId)).not.toContain(
      call.taskId,
    );
    await calls.cancel(call, CANCELLED);
    expect((await queuesOfEnded(db, 500)).queues).not.toContain(DEFERRED_CALLS_QUEUE);
  });

  test('a replica that is lost leaves its call to another, and its late end changes nothing', async () => {
    const { calls, executor, dropped, db } = aWorld();
    const late = Promise.withResolvers<TryOutcome>();
    const begun = Promise.withResolvers<void>();
    const lost = executor(
      () => {
        begun.resolve();
        return late.promise;
      },
      // No lease is renewed: the database sees no difference to a replica that was killed.
      { renewMs: 600_000, lookMs: 600_000 },
    );
    const call = await accepted(calls);
    await begun.promise;
    lost.runsWith(never);
    await db.query('update deferred_calls set lease_until = now()');
    await calls.upkeep();
    expect(await rowOf(call.taskId)).toMatchObject({ losses: 1 });
    // The lost one may be the first to look for calls again.
    await claimDeferredCalls(db, newInstanceId(), 60_000, 1, 9);
    await waitFor(async () => (await rowOf(call.taskId))?.attempt === 2, 'the call runs again', WAIT_MS);
    late.resolve({ kind: 'done', text: JSON.stringify('x'.repeat(200)) });
    await waitFor(() => dropped.length === 1, 'the late result is dropped', WAIT_MS);
    expect(await rowOf(call.taskId)).toMatchObject({ state: 'running', attempt: 2 });
  });

  test('a call whose replicas die again and again ends', { timeout: LONG_MS }, async () => {
    const { calls, givenBack, db } = aWorld();
    const call = await accepted(calls);
    for (let losses = 1; losses <= 5; losses += 1) {
      expect(await claimDeferredCalls(db, newInstanceId(), 0, 1, 1)).toMatchObject([{ attempt: losses }]);
      await calls.upkeep();
    }
    expect(await ended(call.taskId)).toMatchObject({ status: 'ERROR', failureReason: 'infrastructure_limit' });
    expect(givenBack).toEqual([call.requestId]);
  });

  test('a replica that stops puts its calls back, which costs them nothing', async () => {
    const { calls, executor } = aWorld();
    const begun = Promise.withResolvers<void>();
    const stopping = executor((...run) => {
      begun.resolve();
      return never(...run);
    });
    const call = await accepted(calls);
    await begun.promise;
    await stopping.stop();
    expect(await rowOf(call.taskId)).toMatchObject({ state: 'waiting', losses: 0, attempt: 1 });
    expect(await taskById(opened.db, call.taskId)).toMatchObject({
      status: 'RETRY',
      failureReason: 'scheduler_stopping',
    });
    executor(() => Promise.resolve(DONE));
    expect(await ended(call.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 2 });
  });

  test('a call that waits, and one that runs, are cancelled once', async () => {
    const { calls, executor, givenBack, told } = aWorld();
    const waiting = await accepted(calls);
    expect(await calls.cancel(waiting, CANCELLED)).toBe(true);
    expect(await ended(waiting.taskId)).toMatchObject({ status: 'CANCELLED', failureReason: 'request_cancelled' });
    expect(givenBack).toEqual([waiting.requestId]);
    const reasons: unknown[] = [];
    const begun = Promise.withResolvers<void>();
    executor(async (call, body, signal) => {
      begun.resolve();
      await never(call, body, signal);
      reasons.push((signal.reason as { why: string }).why);
      // The answer was whole in the moment of the cancel.
      return DONE;
    });
    const running = await accepted(calls);
    await begun.promise;
    expect(await calls.cancel(running, CANCELLED)).toBe(true);
    await waitFor(() => reasons.length === 1, 'the try is given up', WAIT_MS);
    expect(reasons).toEqual(['gone']);
    expect(await calls.cancel(running, CANCELLED)).toBe(true);
    await executors[0]?.stop();
    expect(await taskById(opened.db, running.taskId)).toMatchObject({ status: 'CANCELLED' });
    expect(told.filter(({ taskId, rank }) => taskId === running.taskId && rank >= 3)).toHaveLength(1);
  });

  test('a cancel at another replica ends the try here', async () => {
    const { calls, executor } = aWorld();
    const elsewhere = aWorld();
    const [begun, over] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()];
    executor(async (call, body, signal) => {
      begun.resolve();
      const outcome = await never(call, body, signal);
      over.resolve((signal.reason as { why: string }).why);
      return outcome;
    });
    const call = await accepted(calls);
    await begun.promise;
    await elsewhere.calls.cancel(call, CANCELLED);
    expect(await over.promise).toBe('gone');
  });

  test('a model without room is asked again, until the call expires', { timeout: LONG_MS }, async () => {
    const { calls, executor, told, givenBack, db } = aWorld();
    let tries = 0;
    executor(() => Promise.resolve(++tries === 1 ? { kind: 'later', reason: 'model_overloaded' } : DONE));
    const call = await accepted(calls);
    expect(await ended(call.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 2 });
    expect(told.map(({ status }) => status)).toEqual(['PENDING', 'RUNNING', 'RETRY', 'RUNNING', 'COMPLETE']);
    expect(told[2]).toMatchObject({ failureReason: 'model_overloaded', attempt: 1 });
    await executors[0]?.stop();
    const old = await accepted(calls, { expiresAtMs: Date.now() - 1 });
    // A call past its time is not begun.
    expect(await claimDeferredCalls(db, newInstanceId(), 1_000, 9, 9)).toEqual([]);
    await calls.upkeep();
    expect(await ended(old.taskId)).toMatchObject({ status: 'EXPIRED', failureReason: 'expired' });
    expect(givenBack).toEqual([old.requestId]);
  });

  test('a failure is the result, a large answer an object, and one too large an error', async () => {
    const { calls, executor, objects } = aWorld();
    const outcomes = new Map<TaskId, TryOutcome>();
    const run = async (outcome: TryOutcome) => {
      const call = aCall();
      outcomes.set(call.taskId, outcome);
      await calls.accept(call);
      return await ended(call.taskId);
    };
    executor(({ taskId }) => Promise.resolve(outcomes.get(taskId) ?? DONE));
    expect(
      await run({ kind: 'failed', status: 'TIMEOUT', reason: 'timeout', text: '{"error":{"code":"timeout"}}' }),
    ).toMatchObject({ status: 'TIMEOUT', failureReason: 'timeout', result: '{"error":{"code":"timeout"}}' });
    const large = await run({ kind: 'done', text: JSON.stringify('x'.repeat(500)) });
    expect([large.status, large.result, objects.get(String(large.resultObjectId))?.length]).toEqual([
      'COMPLETE',
      undefined,
      502,
    ]);
    const tooLarge = await run({ kind: 'done', text: JSON.stringify('x'.repeat(2_000)) });
    expect(tooLarge).toMatchObject({ status: 'ERROR', failureReason: 'result_too_large' });
    expect(tooLarge.result).toContain('more than 1000 bytes');
  });

  test('a workspace has as many calls and bytes as it may have, also at the same moment', async () => {
    const { calls } = aWorld({ bounds: { calls: 5, bytes: 100 } });
    const workspaceId = newId<WorkspaceId>();
    const answers = await Promise.all(Array.from({ length: 12 }, () => calls.accept(aCall({ workspaceId }))));
    expect(answers.filter(({ kind: one }) => one === 'accepted')).toHaveLength(5);
    expect(answers.filter(({ kind: one }) => one === 'too_many_calls')).toHaveLength(7);
    // Others have bounds of their own.
    const other = newId<WorkspaceId>();
    expect(await calls.accept(aCall({ workspaceId: other, body: 'x'.repeat(99) }))).toEqual({ kind: 'accepted' });
    expect(await calls.accept(aCall({ workspaceId: other, body: 'xx' }))).toEqual({
      kind: 'too_many_bytes',
      most: 100,
    });
  });

  test('workspaces take turns, and none has more than its share', async () => {
    const { calls, db } = aWorld();
    const [busy, quiet] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
    for (let at = 0; at < 6; at += 1) await accepted(calls, { workspaceId: busy, createdAtMs: Date.now() - 1_000 });
    await accepted(calls, { workspaceId: quiet });
    const claim = async (limit: number): Promise<readonly WorkspaceId[]> =>
      (await claimDeferredCalls(db, newInstanceId(), 60_000, limit, 3))
        .map(({ workspaceId }) => workspaceId)
        .toSorted();
    expect(await claim(2)).toEqual([busy, quiet].toSorted());
    expect(await claim(9)).toEqual([busy, busy]);
    expect(await claim(9)).toEqual([]);
  });

  test('two replicas never claim the same call', async () => {
    const { calls, db } = aWorld();
    for (let at = 0; at < 20; at += 1) await accepted(calls);
    const claimed = await Promise.all(
      Array.from({ length: 4 }, () => claimDeferredCalls(db, newInstanceId(), 60_000, 10, 10)),
    );
    const ids = claimed.flat().map(({ taskId }) => taskId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('a key stands for one call of its token, for a day', async () => {
    const { calls, executor, db } = aWorld();
    executor(() => Promise.resolve(DONE));
    const tokenId = newId<TokenId>();
    const call = await accepted(calls, { tokenId, keyHash: 'k', fingerprint: 'f' });
    expect(await calls.accept(aCall({ tokenId, keyHash: 'k', fingerprint: 'g' }))).toEqual({ kind: 'known' });
    await accepted(calls, { keyHash: 'k' });
    await ended(call.taskId);
    await calls.upkeep();
    expect(await calls.ofKey(tokenId, 'k')).toMatchObject({ taskId: call.taskId, fingerprint: 'f' });
    await db.query(`update deferred_calls set created_at = now() - interval '25 hours' where task_id = $1`, [
      call.taskId,
    ]);
    await calls.upkeep();
    expect(await calls.ofKey(tokenId, 'k')).toBeUndefined();
  });

  test('an end whose record was lost is told again', async () => {
    const { calls, executor, world, told, db } = aWorld();
    const call = await accepted(calls);
    world.isLosing = true;
    executor(() => Promise.resolve(DONE));
    await waitFor(() => told.some(({ status }) => status === 'COMPLETE'), 'the end was told', WAIT_MS);
    expect((await taskById(db, call.taskId))?.status).toBe('PENDING');
    world.isLosing = false;
    await calls.upkeep();
    expect(await rowOf(call.taskId)).toMatchObject({ state: 'ended' });
    await db.query(`update deferred_calls set ended_at = now() - interval '1 minute' where task_id = $1`, [
      call.taskId,
    ]);
    await calls.upkeep();
    expect(await taskById(db, call.taskId)).toMatchObject({ status: 'COMPLETE', result: '{"answer":42}' });
    await calls.upkeep();
    expect(await rowOf(call.taskId)).toBeUndefined();
  });
});
