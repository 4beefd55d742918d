// Dead tasks on a real database and Redis: which there are, and that each is redriven once.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { countDead, insertRedriven } from '#scheduler/stores/store/queries/dead-letters.ts';
import { hasKeptInput, keptJobOf, openJobOf } from '#scheduler/stores/store/queries/task-inputs.ts';
import { listTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { DeadLetters } from '#scheduler/tasks/inputs/dead-letters.ts';
import { TaskInputs } from '#scheduler/tasks/inputs/inputs.ts';
import { Reruns } from '#scheduler/tasks/inputs/reruns.ts';
import type { RerunOutcome } from '#scheduler/tasks/inputs/reruns.ts';
import { InputUpkeep } from '#scheduler/tasks/inputs/upkeep.ts';
import { redriveCommits } from '#scheduler/tasks/admission/accepting.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { aDeployment, aStub, aWorkspace } from './store-fixture.ts';
import { PlayedLink, aTarget, quiet } from './tasks-fixture.ts';
import { aQueueTarget, drained, put, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

/** Ids of a workspace's dead tasks, in the order of the list. */
async function dead(one: World, { workspaceId }: Target, more = {}): Promise<readonly TaskId[]> {
  await drained(one);
  return (await listTasks(one.db, { workspaceId, limit: 100, dead: true, ...more })).map(({ taskId }) => taskId);
}

/** A task of the target's workspace that failed, in a queue of its own. */
async function failed(one: World, target: Target, input = '{"x":1}'): Promise<TaskId> {
  const link = new PlayedLink();
  const { queue } = aTarget();
  one.container(queue, link);
  const { taskId } = await submitted(one, { ...target, queue }, input);
  await one.result(await sent(link), '{"error":"KeyError: 1"}', 'error');
  await reaches(one, taskId, 'ERROR');
  await drained(one);
  return taskId;
}

const lettersOf = (one: World): DeadLetters => new DeadLetters({ db: one.db, caughtUp: () => drained(one) });

async function redrive(one: World, target: Target, taskId: TaskId): Promise<RerunOutcome> {
  const inputs = new TaskInputs({
    bodies: one.bodies,
    jobOf: (id) => openJobOf(one.db, id),
    keptJobOf: (id) => keptJobOf(one.db, id),
    caughtUp: () => drained(one),
    bounds: { days: 7, bytes: 1024 ** 2, workspaceBytes: 1024 ** 2 },
  });
  const targets = { byDeployment: () => undefined as never, byName: () => undefined as never, byStub: () => target };
  const record = await one.records.read(taskId);
  if (record === undefined) throw new Error('no record');
  const reruns = new Reruns({ inputs, targets, submissions: one.submissions });
  return await reruns.run({ ...record, deploymentId: null }, { isRedrive: true, mayCall: () => true });
}

const acceptedOf = (outcome: RerunOutcome): TaskId | undefined =>
  outcome.kind === 'rerun' && outcome.submission.kind === 'accepted' ? outcome.submission.taskId : undefined;

describe('a task is dead', () => {
  test('once it failed for good: not while it is tried again, and not when it completes', async ({ one }) => {
    const target = aQueueTarget({ retries: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const { taskId } = await submitted(one, target);
    await one.result(await sent(link), '{"error":"KeyError: 1"}', 'retry');
    const second = await sent(link, 2);
    expect(await dead(one, target)).toEqual([]);
    await one.result(second, '{"error":"KeyError: 1"}', 'retry');
    await reaches(one, taskId, 'ERROR');
    expect(await dead(one, target)).toEqual([taskId]);
    const { taskId: good } = await submitted(one, target);
    await one.result(await sent(link, 3));
    await reaches(one, good, 'COMPLETE');
    expect(await dead(one, target)).toEqual([taskId]);
    expect(await countDead(one.db)).toEqual([{ kind: 'taskqueue', count: 1 }]);
  });

  test('when its time to live ends, and not when somebody cancels it', async ({ one }) => {
    const target = aQueueTarget({ ttlSeconds: 1 });
    const taskId = await put(one, target);
    const job = await one.queues.read(target.queue, taskId);
    if (job === undefined) throw new Error('no job');
    await one.completion.takeOut(target.queue, job, { status: 'EXPIRED', reason: 'expired' });
    await reaches(one, taskId, 'EXPIRED');
    expect(await dead(one, target)).toEqual([taskId]);
    const cancelled = await put(one, target);
    const record = await one.records.read(cancelled);
    const waiting = await one.queues.read(target.queue, cancelled);
    if (record === undefined || waiting === undefined) throw new Error('no record');
    await one.completion.takeOut(target.queue, waiting, { status: 'CANCELLED', reason: 'deployment_stopped' });
    await reaches(one, cancelled, 'CANCELLED');
    expect(await dead(one, target)).toEqual([taskId]);
  });

  test('not where a caller was told of the failure, and not where its input is not kept', async ({ one }) => {
    const call = aTarget();
    await failed(one, call);
    expect(await dead(one, call)).toEqual([]);
    const forgetful = aQueueTarget({ keepInputs: false });
    await failed(one, forgetful);
    expect(await dead(one, forgetful)).toEqual([]);
  });

  test('for as many days as its stub says, and never with 0', async ({ one }) => {
    const workspace = await aWorkspace(one.db);
    const stub = await aStub(one.db, workspace.id, 'days');
    const target = { ...aQueueTarget(), workspaceId: workspace.id, stubId: stub.id };
    await one.db.query(`update stubs set config = config || '{"deadLetterDays": 0}' where id = $1`, [stub.id]);
    const never = await failed(one, target);
    expect(await dead(one, target)).toEqual([]);
    expect(await hasKeptInput(one.db, never)).toBe(true);
    await one.db.query(`update stubs set config = config || '{"deadLetterDays": 2}' where id = $1`, [stub.id]);
    const taskId = await failed(one, target);
    expect(await dead(one, target)).toEqual([taskId]);
    const { rows } = await one.db.query<{ days: number }>(
      'select round(extract(epoch from dead_until - kept_at) / 86400)::int as days from task_inputs where task_id = $1',
      [taskId],
    );
    expect(rows[0]?.days).toBe(2);
    await one.db.query(`update task_inputs set dead_until = now() - interval '1 second' where task_id = $1`, [taskId]);
    expect(await dead(one, target)).toEqual([]);
  });

  test('until it completes late', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await failed(one, target);
    const record = await one.records.read(taskId);
    if (record === undefined) throw new Error('no record');
    await one.records.append({ ...record, status: 'COMPLETE', rank: 4 });
    await reaches(one, taskId, 'COMPLETE');
    expect(await dead(one, target)).toEqual([]);
    expect(acceptedOf(await redrive(one, target, taskId))).toBeUndefined();
    expect(await countDead(one.db)).toEqual([]);
  });
});

test('the list has those that ended last first, in pages, and only those of its workspace', async ({ one }) => {
  const target = aQueueTarget();
  const ids = [await failed(one, target), await failed(one, target), await failed(one, target)];
  await failed(one, { ...aQueueTarget(), workspaceId: (await aWorkspace(one.db)).id });
  expect(await dead(one, target)).toEqual(ids.toReversed());
  const last = await one.records.read(ids[2] as TaskId);
  const before = { createdAtMs: last?.endedAtMs ?? 0, taskId: ids[2] as TaskId };
  expect(await dead(one, target, { before, limit: 1 })).toEqual([ids[1]]);
  expect(await dead(one, target, { stubIds: ['another'] })).toEqual([]);
  expect(await dead(one, target, { ids: [ids[0] as TaskId] })).toEqual([ids[0]]);
});

describe('a dead task is redriven', () => {
  test('by one task that names it and has its input, and is dead no more', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await failed(one, target, '{ "n":12345678901234567890123 }');
    expect(await lettersOf(one).standings(target.workspaceId, [taskId])).toEqual(new Map([[taskId, { kind: 'dead' }]]));
    const again = acceptedOf(await redrive(one, target, taskId));
    if (again === undefined) throw new Error('not accepted');
    expect(await dead(one, target)).toEqual([]);
    expect(await taskById(one.db, again)).toMatchObject({ redrivenFrom: taskId, rerunOf: taskId });
    const standings = await lettersOf(one).standings(target.workspaceId, [taskId, again]);
    expect([...standings.values()]).toEqual([{ kind: 'redriven', as: again }, { kind: 'not_dead' }]);
    const link = new PlayedLink();
    one.container(target.queue, link);
    const order = await sent(link);
    expect(order.input).toBe('{ "n":12345678901234567890123 }');
    // The new one may die itself, and is redriven in its turn.
    await one.result(order, '{"error":"KeyError: 1"}', 'error');
    await reaches(one, again, 'ERROR');
    expect(await dead(one, target)).toEqual([again]);
    expect(acceptedOf(await redrive(one, target, again))).toBeDefined();
  });

  test('once, however many try at the same time, at several replicas', async ({ start, one }) => {
    const other = await start();
    const target = aQueueTarget({ maxPendingTasks: 1000 });
    const ids = [await failed(one, target), await failed(one, target)];
    const tries = await Promise.all(
      Array.from({ length: 40 }, (_, n) =>
        redrive(n % 2 === 0 ? one : other, target, ids[n % 3 === 0 ? 0 : 1] as TaskId),
      ),
    );
    expect(tries.filter((outcome) => acceptedOf(outcome) !== undefined)).toHaveLength(2);
    const { rows } = await one.db.query<{ redriven_from: string }>(
      'select redriven_from from tasks where redriven_from = any ($1::text[])',
      [ids],
    );
    expect(rows.map((row) => row.redriven_from).toSorted()).toEqual(ids.toSorted());
  });

  test('not at all where its new task is refused: it stays dead', async ({ one }) => {
    const full = aQueueTarget({ maxPendingTasks: 1 });
    await put(one, full);
    const taskId = await failed(one, full);
    expect(await redrive(one, full, taskId)).toMatchObject({ submission: { kind: 'queue_full' } });
    expect(await dead(one, full)).toContain(taskId);
  });

  test('by a task that runs, where its commit was made and not answered', async ({ start, db }) => {
    let isInDoubt = false;
    const real = redriveCommits(db);
    const one = await start({
      more: {
        redrives: {
          write: async (task) => {
            if (!isInDoubt) return await real.write(task);
            await insertRedriven(db, [task]);
            throw new Error('no answer');
          },
        },
      },
    });
    const target = aQueueTarget();
    const taskId = await failed(one, target);
    isInDoubt = true;
    expect(await redrive(one, target, taskId)).toMatchObject({ submission: { kind: 'unavailable' } });
    const link = new PlayedLink();
    one.container(target.queue, link);
    const order = await sent(link);
    await one.result(order);
    expect(await reaches(one, order.taskId, 'COMPLETE')).toMatchObject({ redrivenFrom: taskId });
  });
});

test('a dropped task is listed no more, cannot be redriven, and stays a task with its input', async ({ one }) => {
  const target = aQueueTarget();
  const [taskId, other] = [await failed(one, target), await failed(one, target)];
  const stranger = (await aWorkspace(one.db)).id;
  expect(await lettersOf(one).drop(stranger, [taskId])).toEqual([]);
  expect(await lettersOf(one).drop(target.workspaceId, [taskId])).toEqual([taskId]);
  expect(await lettersOf(one).drop(target.workspaceId, [taskId])).toEqual([]);
  expect(await dead(one, target)).toEqual([other]);
  expect(acceptedOf(await redrive(one, target, taskId))).toBeUndefined();
  expect(await hasKeptInput(one.db, taskId)).toBe(true);
  expect(await one.records.read(taskId)).toMatchObject({ status: 'ERROR' });
});

test('inputs of dead tasks go last when a workspace has too many, and with them the tasks are dead no more', async ({
  one,
}) => {
  const target = aQueueTarget();
  const large = JSON.stringify({ x: 'a'.repeat(50_000) });
  const oldest = await failed(one, target, large);
  const newer = await failed(one, target, large);
  const link = new PlayedLink();
  one.container(target.queue, link);
  const { taskId: good } = await submitted(one, target, large);
  await one.result(await sent(link));
  await reaches(one, good, 'COMPLETE');
  await drained(one);
  const trimmedTo = async (workspaceBytes: number): Promise<readonly TaskId[]> => {
    const upkeep = new InputUpkeep({
      db: one.db,
      removeObject: () => Promise.resolve(),
      workspaceBytes,
      clock: systemClock,
      log: quiet,
    });
    await upkeep.round(new AbortController().signal);
    const kept: TaskId[] = [];
    for (const taskId of [oldest, newer, good]) if (await hasKeptInput(one.db, taskId)) kept.push(taskId);
    return kept;
  };
  expect(await trimmedTo(1_000_000)).toEqual([oldest, newer, good]);
  expect(await trimmedTo(120_000)).toEqual([oldest, newer]);
  expect(await trimmedTo(60_000)).toEqual([newer]);
  expect(await dead(one, target)).toEqual([newer]);
});

test('tasks of a deployment that is deleted are dead no more once their inputs are gone', async ({ one }) => {
  const workspace = await aWorkspace(one.db);
  const stub = await aStub(one.db, workspace.id, 'gone');
  const { id } = await aDeployment(one.db, stub);
  const target = { ...aQueueTarget(), workspaceId: workspace.id, deploymentId: id };
  const taskId = await failed(one, target);
  expect(await dead(one, target)).toEqual([taskId]);
  await one.db.query('update deployments set deleted_at = now() where id = $1', [id]);
  const parts = { db: one.db, removeObject: () => Promise.resolve(), clock: systemClock, log: quiet };
  await new InputUpkeep({ ...parts, workspaceBytes: 1024 ** 2 }).round(new AbortController().signal);
  await waitFor(async () => (await dead(one, target)).length === 0, 'it is dead no more');
});
