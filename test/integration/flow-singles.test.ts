// Keys of flow control with one task, on a real Redis and a real database: calls that are skipped, replace a task, or
// are gathered in one.
import { describe, expect } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { pruneSingles } from '#scheduler/stores/store/queries/task-singles.ts';
import { acceptedJobOf, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import { PlayedLink } from './tasks-fixture.ts';
import { aQueueTarget, drained, put, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

const aSingle = (flow: Target['config']['flow']): Target => aQueueTarget({ flow: { key: 'customer', ...flow } });
const OF_A = '{"customer":"a"}';
const OF_B = '{"customer":"b"}';
const submit = (one: World, target: Target, input = OF_A) => one.submissions.submit(target, { input });

describe('singleton skip', () => {
  test('a key has one open task, which other calls get, until it has ended', async ({ one }) => {
    const target = aSingle({ singleton: 'skip' });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const first = await put(one, target, OF_A);
    expect(await submit(one, target)).toEqual({ kind: 'skipped', by: 'singleton', taskId: first });
    await submitted(one, target, OF_B);
    const order = await sent(link);
    expect(await submit(one, target)).toEqual({ kind: 'skipped', by: 'singleton', taskId: first });
    await one.result(order);
    await reaches(one, first, 'COMPLETE');
    const { taskId } = await submitted(one, target, OF_A);
    expect(taskId).not.toBe(first);
  });

  test('of many calls at once, at two schedulers, one becomes a task, and all get its id', async ({ start }) => {
    const [one, two] = [await start(), await start()];
    const target = aSingle({ singleton: 'skip' });
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_none, at) => submit(at % 2 === 0 ? one : two, target)),
    );
    const accepted = answers.filter(({ kind }) => kind === 'accepted');
    expect(accepted.length).toBe(1);
    const ids = answers.map((answer) => ('taskId' in answer ? answer.taskId : answer.kind));
    expect(new Set(ids).size).toBe(1);
  });

  test('a call that is refused, and a scheduler that died after its claim, leave the key free', async ({ one }) => {
    const target = aSingle({ singleton: 'skip' });
    const full: Target = { ...target, config: { ...target.config, maxPendingTasks: 0 } };
    expect(await submit(one, full)).toMatchObject({ kind: 'queue_full' });
    const { taskId } = await submitted(one, target, OF_A);
    expect(await submit(one, target)).toMatchObject({ taskId });
    await one.db.query(
      `insert into task_singles (queue, key, workspace_id, task_id, claimed_at)
       values ($1, 'b', $2, 'never-written', now() - interval '11 seconds')`,
      [target.queue, target.workspaceId],
    );
    await submitted(one, target, OF_B);
  });

  test('claims go when their tasks are over, and stay before', async ({ one }) => {
    const target = aSingle({ singleton: 'skip' });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const [first, other] = [await put(one, target, OF_A), await put(one, target, OF_B)];
    await one.result(await sent(link));
    await reaches(one, first, 'COMPLETE');
    await drained(one);
    await pruneSingles(one.db, 0, 1_000);
    const { rows } = await one.db.query<{ task_id: string }>('select task_id from task_singles where queue = $1', [
      target.queue,
    ]);
    expect(rows).toEqual([{ task_id: other }]);
  });
});

describe('singleton replace', () => {
  test('a later call cancels the task that waits', async ({ one }) => {
    const target = aSingle({ singleton: 'replace' });
    const first = await put(one, target, OF_A);
    const second = await put(one, target, OF_A);
    expect(await reaches(one, first, 'CANCELLED')).toMatchObject({ failureReason: 'replaced' });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    expect((await sent(link)).taskId).toBe(second);
  });

  test('one that runs goes on, and the last call begins after it', async ({ one }) => {
    const target = aSingle({ singleton: 'replace' });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const first = await put(one, target, OF_A);
    const order = await sent(link);
    await reaches(one, first, 'RUNNING');
    // The job has its flow control as admission read it: one of the key at a time.
    const held = await put(one, target, OF_A);
    const last = await put(one, target, OF_A);
    await reaches(one, held, 'CANCELLED');
    expect(link.orders.length).toBe(1);
    await one.result(order);
    expect((await sent(link, 2)).taskId).toBe(last);
    await reaches(one, first, 'COMPLETE');
  });

  test('one that runs is cancelled where the deployment wants it', async ({ one }) => {
    const target = aSingle({ singleton: 'replace', cancelsRunning: true });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const first = await put(one, target, OF_A);
    await sent(link);
    await reaches(one, first, 'RUNNING');
    const second = await put(one, target, OF_A);
    await reaches(one, first, 'CANCELLED');
    expect((await sent(link, 2)).taskId).toBe(second);
  });
});

describe('a debounce', () => {
  const inputOf = async (one: World, target: Target, taskId: TaskId) =>
    (await one.queues.read(target.queue, taskId))?.input;

  test('calls of a key are one task with the input of the last, in the queue and in the row', async ({ one }) => {
    const target = aSingle({ debounce: 600 });
    const first = await put(one, target, '{"customer":"a","n":1}');
    const before = await one.queues.read(target.queue, first);
    for (const n of [2, 3])
      expect(await submit(one, target, `{"customer":"a","n":${n}}`)).toEqual({
        kind: 'skipped',
        by: 'debounce',
        taskId: first,
      });
    await submitted(one, target, OF_B);
    expect(await inputOf(one, target, first)).toBe('{"customer":"a","n":3}');
    expect(await acceptedJobOf(one.db, first)).toContain('\\"n\\":3');
    const after = await one.queues.read(target.queue, first);
    expect(after?.flow?.atMs).toBeGreaterThanOrEqual(before?.flow?.atMs ?? Infinity);
    expect(after?.createdAtMs).toBe(before?.createdAtMs);
    // The task asks for no container until then.
    await waitFor(async () => (await one.queues.depth(target.queue)).delayed === 2, 'both wait');
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, soon: 0 });
    expect(await taskById(one.db, first)).toMatchObject({ status: 'PENDING', inputBytes: 22 });
  });

  test('the task begins when no further call came, and a call after that is another one', async ({ one }) => {
    const target = aSingle({ debounce: 1 });
    const link = new PlayedLink();
    one.container(target.queue, link, 10);
    const first = await put(one, target, OF_A);
    const order = await sent(link);
    expect(order.taskId).toBe(first);
    const { taskId } = await submitted(one, target, OF_A);
    expect(taskId).not.toBe(first);
  });

  test('it begins at its longest time, however often calls come', async ({ one }) => {
    const target = aSingle({ debounce: 600, debounceMax: 700 });
    const first = await put(one, target, OF_A);
    const job = await one.queues.read(target.queue, first);
    await submit(one, target);
    const after = await one.queues.read(target.queue, first);
    expect(after?.flow?.atMs).toBeLessThanOrEqual((job?.createdAtMs ?? 0) + 700_000);
    const short = aSingle({ debounce: 600, debounceMax: 600 });
    const other = await put(one, short, OF_A);
    const at = (await one.queues.read(short.queue, other))?.flow?.atMs;
    await submit(one, short);
    expect((await one.queues.read(short.queue, other))?.flow?.atMs).toBeLessThanOrEqual(at ?? 0);
  });

  test('an input that comes when the task has begun becomes a task of its own', async ({ one }) => {
    const target = aSingle({ debounce: 600 });
    const first = await put(one, target, OF_A);
    await one.queues.flow().promote(target.queue, first);
    // The row says that it waits, and its job does not any more.
    const { taskId } = await submitted(one, target, '{"customer":"a","n":2}');
    expect(taskId).not.toBe(first);
    expect(await submit(one, target, '{"customer":"a","n":3}')).toMatchObject({ taskId });
  });
});
