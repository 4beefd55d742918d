// Inputs that outlive their tasks, and other runs of them, on a real database and Redis.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { hasKeptInput, keptJobOf, openJobOf } from '#scheduler/stores/store/queries/task-inputs.ts';
import { acceptedJobOf, insertAcceptedTasks, listTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { inputKeyOf } from '#scheduler/tasks/dispatch/bodies.ts';
import { TaskInputs } from '#scheduler/tasks/inputs/inputs.ts';
import { Reruns } from '#scheduler/tasks/inputs/reruns.ts';
import type { RerunOutcome } from '#scheduler/tasks/inputs/reruns.ts';
import { InputUpkeep } from '#scheduler/tasks/inputs/upkeep.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { aDeployment, aStub, aWorkspace } from './store-fixture.ts';
import { PlayedLink, aTarget, quiet } from './tasks-fixture.ts';
import { aQueueTarget, drained, put, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

/** Numbers beyond JavaScript's, repeated keys and escapes: nothing of it survives being parsed and written anew. */
const EXACT = '{ "n":12345678901234567890123, "n": 1.0, "b":"\\u0000\\ud83d\\ude00é", "2":1, "1":2 }';

const bounds = { days: 7, bytes: 1024 ** 2, workspaceBytes: 1024 ** 2 };
const inputsOf = (one: World): TaskInputs =>
  new TaskInputs({
    bodies: one.bodies,
    jobOf: (taskId) => openJobOf(one.db, taskId),
    keptJobOf: (taskId) => keptJobOf(one.db, taskId),
    caughtUp: () => drained(one),
    bounds,
  });

/** The signal of a leadership that lasts. */
const leading = new AbortController().signal;
const upkeepOf = (one: World, workspaceBytes: number): InputUpkeep =>
  new InputUpkeep({
    db: one.db,
    removeObject: (taskId) => one.bytes.removeBytes(inputKeyOf(taskId)),
    workspaceBytes,
    clock: systemClock,
    log: quiet,
  });

async function recordOf(one: World, taskId: TaskId): Promise<TaskRecord> {
  const record = await one.records.read(taskId);
  if (record === undefined) throw new Error('no record');
  return record;
}

const inputOf = async (one: World, taskId: TaskId): Promise<string> => {
  const found = await inputsOf(one).read(await recordOf(one, taskId));
  return 'why' in found ? `none: ${found.why}` : found.input;
};

/** Runs a task to its end. */
async function ended(one: World, target: Target, input: string, outcome: 'ok' | 'error' = 'ok'): Promise<TaskId> {
  const link = new PlayedLink();
  one.container(target.queue, link);
  const { taskId } = await submitted(one, target, input);
  await one.result(await sent(link), outcome === 'ok' ? '1' : '{"error":"KeyError: 1"}', outcome);
  await reaches(one, taskId, outcome === 'ok' ? 'COMPLETE' : 'ERROR');
  return taskId;
}

describe('an asynchronous task', () => {
  test('has its input byte by byte while it waits and after its end', async ({ one }) => {
    const target = aQueueTarget();
    const waiting = await put(one, target, EXACT);
    expect(await inputOf(one, waiting)).toBe(EXACT);
    const link = new PlayedLink();
    one.container(target.queue, link);
    await one.result(await sent(link));
    await reaches(one, waiting, 'COMPLETE');
    expect(await inputOf(one, waiting)).toBe(EXACT);
    // The record takes the input from the row of the task to the kept ones.
    await drained(one);
    expect(await inputOf(one, waiting)).toBe(EXACT);
    expect(await acceptedJobOf(one.db, waiting)).toBeUndefined();
    expect(await taskById(one.db, waiting)).toMatchObject({ inputState: 'kept', inputBytes: Buffer.byteLength(EXACT) });
  });

  test('keeps a large input as the object that it is, up to the bound of one', async ({ one }) => {
    const large = JSON.stringify({ x: 'é'.repeat(100_000) });
    const taskId = await ended(one, aQueueTarget(), large, 'error');
    expect(await inputOf(one, taskId)).toBe(large);
    expect(one.bytes.objects.has(inputKeyOf(taskId))).toBe(true);
    const larger = await ended(one, aQueueTarget(), JSON.stringify({ x: 'a'.repeat(1024 ** 2) }));
    expect(await inputOf(one, larger)).toBe('none: it is larger than 1048576 bytes (LONGSHORE_INPUT_BYTES)');
    await waitFor(() => !one.bytes.objects.has(inputKeyOf(larger)), 'its object is gone');
  });

  test('of a deployment that keeps no inputs has none, not even while it waits', async ({ one }) => {
    const target = aQueueTarget({ keepInputs: false });
    const taskId = await put(one, target);
    expect(await inputOf(one, taskId)).toBe('none: its deployment keeps no inputs (keep_inputs)');
    const link = new PlayedLink();
    one.container(target.queue, link);
    await one.result(await sent(link));
    await reaches(one, taskId, 'COMPLETE');
    await drained(one);
    expect(await inputOf(one, taskId)).toBe('none: its deployment keeps no inputs (keep_inputs)');
    expect(await hasKeptInput(one.db, taskId)).toBe(false);
  });

  test('that is cancelled in its queue keeps its input', async ({ one }) => {
    const target = aQueueTarget();
    const taskId = await put(one, target, EXACT);
    const caller = {
      workspaceId: target.workspaceId,
      workspaceDbId: 1,
      tokenId: 't',
      type: 'workspace',
      isAdmin: false,
    };
    await one.actions.stopTasks(caller as Parameters<typeof one.actions.stopTasks>[0], [taskId]);
    await reaches(one, taskId, 'CANCELLED');
    expect(await inputOf(one, taskId)).toBe(EXACT);
  });
});

describe('a synchronous call', () => {
  test('keeps its input when it fails, and nothing when it succeeds', async ({ one }) => {
    const failed = await ended(one, aTarget(), EXACT, 'error');
    expect(await inputOf(one, failed)).toBe(EXACT);
    const done = await ended(one, aTarget(), EXACT);
    expect(await inputOf(one, done)).toBe('none: synchronous calls keep their input only when they fail');
    await drained(one);
    expect(await taskById(one.db, done)).not.toHaveProperty('inputState');
    const off = await ended(one, aTarget({ keepInputs: false }), EXACT, 'error');
    expect(await inputOf(one, off)).toContain('its deployment keeps no inputs');
    const large = await ended(one, aTarget(), JSON.stringify({ x: 'a'.repeat(100_000) }), 'error');
    expect((await inputOf(one, large)).length).toBe(100_008);
  });
});

describe('kept inputs', () => {
  test('of a workspace beyond its bound go, the oldest first, with their objects', async ({ one }) => {
    const target = aQueueTarget();
    const other = await ended(one, aQueueTarget(), EXACT);
    const large = JSON.stringify({ x: 'a'.repeat(100_000) });
    const ids: TaskId[] = [];
    for (let count = 0; count < 3; count += 1) {
      ids.push(await ended(one, { ...target, queue: `${target.queue}${count}` as Target['queue'] }, large));
      await drained(one);
    }
    const upkeep = upkeepOf(one, 250_000);
    await upkeep.round(leading);
    const [oldest, ...newer] = ids as [TaskId, ...TaskId[]];
    expect(await inputOf(one, oldest)).toMatch(/^none: it was removed: inputs are kept for 7 days/);
    expect(one.bytes.objects.has(inputKeyOf(oldest))).toBe(false);
    for (const taskId of newer) expect(await inputOf(one, taskId)).toBe(large);
    // A workspace that gets much is looked at without waiting for the next round.
    const tighter = upkeepOf(one, 150_000);
    tighter.added(new Map([[target.workspaceId, 100_000]]));
    await waitFor(async () => !(await hasKeptInput(one.db, newer[0] as TaskId)), 'the older one is gone');
    await tighter.stop();
    expect(await hasKeptInput(one.db, newer[1] as TaskId)).toBe(true);
    expect(await inputOf(one, other)).toBe(EXACT);
  });

  test('of a deployment that is deleted cannot be read from then on, and go in the next round', async ({ one }) => {
    const workspace = await aWorkspace(one.db);
    const stub = await aStub(one.db, workspace.id, 'secret');
    const { id } = await aDeployment(one.db, stub);
    const target = { ...aQueueTarget(), workspaceId: workspace.id, deploymentId: id };
    const taskId = await ended(one, target, EXACT);
    await drained(one);
    expect(await inputOf(one, taskId)).toBe(EXACT);
    const { taskId: waiting } = await submitted(one, target, EXACT);
    expect(await inputOf(one, waiting)).toBe(EXACT);
    const upkeep = upkeepOf(one, 1024 ** 2);
    await upkeep.round(leading);
    expect(await hasKeptInput(one.db, taskId)).toBe(true);
    await one.db.query('update deployments set deleted_at = now() where id = $1', [id]);
    expect(await inputOf(one, taskId)).toMatch(/^none: it was removed: .*all go with their deployment$/);
    expect(await inputOf(one, waiting)).toMatch(/^none/);
    await upkeep.round(leading);
    expect(await hasKeptInput(one.db, taskId)).toBe(false);
  });
});

describe('a rerun', () => {
  const reruns = (one: World, target: Target): Reruns =>
    new Reruns({
      inputs: inputsOf(one),
      targets: { byDeployment: () => undefined as never, byName: () => undefined as never, byStub: () => target },
      submissions: one.submissions,
    });
  const run = async (one: World, target: Target, taskId: TaskId): Promise<RerunOutcome> =>
    await reruns(one, target).run(await recordOf(one, taskId), { mayCall: () => true });
  const taskOf = (outcome: RerunOutcome): TaskId => {
    if (outcome.kind !== 'rerun' || outcome.submission.kind !== 'accepted') throw new Error(JSON.stringify(outcome));
    return outcome.submission.taskId;
  };

  test('is a new task with the same bytes, names the task, and can run again itself', async ({ one }) => {
    const target = aQueueTarget();
    const first = await ended(one, aQueueTarget(), EXACT, 'error');
    const link = new PlayedLink();
    one.container(target.queue, link);
    const second = taskOf(await run(one, target, first));
    expect(second).not.toBe(first);
    expect((await sent(link)).input).toBe(EXACT);
    await one.result(link.orders[0] as never);
    expect(await reaches(one, second, 'COMPLETE')).toMatchObject({ rerunOf: first });
    await drained(one);
    expect(await taskById(one.db, second)).toMatchObject({ rerunOf: first });
    // A filter that chooses tasks to run again looks for the reruns that there are.
    const filter = { workspaceId: target.workspaceId, limit: 10 };
    const found = await listTasks(one.db, { ...filter, rerunOf: [first, newId<TaskId>()] });
    expect(found.map(({ taskId }) => taskId)).toEqual([second]);
    expect(await listTasks(one.db, { ...filter, rerunOf: [second] })).toEqual([]);
    expect(await inputOf(one, second)).toBe(EXACT);
  });

  test('of a call that failed for its waiting caller runs with nobody waiting', async ({ one }) => {
    const target = aTarget();
    const failed = await ended(one, aTarget(), EXACT, 'error');
    const link = new PlayedLink();
    one.container(target.queue, link);
    const again = taskOf(await run(one, target, failed));
    await one.result(await sent(link), '"done"');
    expect(await reaches(one, again, 'COMPLETE')).toMatchObject({ rerunOf: failed, result: '"done"' });
  });

  test('passes the admission of every call: a stopped deployment, no input and a full queue refuse it', async ({
    one,
  }) => {
    const target = aQueueTarget({ maxPendingTasks: 1 });
    const taskId = await ended(one, target, EXACT);
    expect(await run(one, { ...target, active: false }, taskId)).toMatchObject({ kind: 'stopped' });
    const off = await ended(one, aQueueTarget({ keepInputs: false }), EXACT);
    expect(await run(one, target, off)).toEqual({
      kind: 'no_input',
      why: 'its deployment keeps no inputs (keep_inputs)',
    });
    const full = aQueueTarget({ maxPendingTasks: 1 });
    await put(one, full);
    expect(await run(one, full, taskId)).toMatchObject({ submission: { kind: 'queue_full' } });
    const outcome = await reruns(one, target).run(await recordOf(one, taskId), { mayCall: () => false });
    expect(outcome).toEqual({ kind: 'no_deployment' });
  });

  test('whose commit is in doubt is refused and does not run: the next try makes the one task', async ({
    start,
    db,
  }) => {
    let isInDoubt = false;
    const one = await start({
      // The database commits, and its answer is lost.
      commit: async (batch) => {
        await insertAcceptedTasks(db, batch);
        if (isInDoubt) throw new Error('no answer');
      },
    });
    const target = aQueueTarget();
    const first = await ended(one, aQueueTarget(), EXACT, 'error');
    isInDoubt = true;
    expect(await run(one, target, first)).toMatchObject({ submission: { kind: 'unavailable' } });
    isInDoubt = false;
    const link = new PlayedLink();
    one.container(target.queue, link);
    const again = await waitFor(async () => {
      const outcome = await run(one, target, first);
      return outcome.kind === 'rerun' && outcome.submission.kind === 'accepted' && outcome.submission.taskId;
    }, 'admission is open again');
    await one.result(await sent(link));
    await reaches(one, again, 'COMPLETE');
    const statuses = async (): Promise<readonly string[]> => {
      await drained(one);
      const { rows } = await db.query<{ status: string }>('select status from tasks where rerun_of = $1', [first]);
      return rows.map((row) => row.status).toSorted();
    };
    await waitFor(async () => !(await statuses()).includes('PENDING'), 'the refused task is over');
    expect(await statuses()).toEqual(['CANCELLED', 'COMPLETE']);
    expect(link.orders.map((order) => order.taskId)).toEqual([again]);
  });
});

test('a task of nobody has no input', async ({ one }) => {
  expect(await hasKeptInput(one.db, newId<TaskId>())).toBe(false);
  expect(await keptJobOf(one.db, newId<TaskId>())).toBeUndefined();
});
