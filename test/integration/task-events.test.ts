// Events of tasks and the rows of tasks, written in one transaction, on both kinds of stores.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ContainerId, DeploymentId, TaskId, WebhookId } from '#shared/domain/ids.ts';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import { readEvents } from '#scheduler/stores/store/queries/event-reads.ts';
import { eventsBehind } from '#scheduler/stores/store/queries/webhook-deliveries.ts';
import { insertAcceptedTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { EventReads } from '#scheduler/workspaces/events/reads.ts';
import { writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import { aDb, aDeployment, aRecord, aStub, aWorkspace, KINDS, storedEvents } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe.each(KINDS)('events of tasks on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const eventsOf = (record: TaskRecord) => storedEvents(opened.db, record.workspaceId);
  const statusesOf = async (record: TaskRecord): Promise<readonly unknown[]> =>
    (await eventsOf(record)).map(({ data }) => `${String(data['status'])} ${String(data['attempt'])}`);
  /** Writes a batch as its owner does: rows get each task's newest record, events every change. */
  const write = (...streamed: readonly TaskRecord[]) => {
    const newest = new Map(streamed.map((record) => [record.taskId, record]));
    const entries = streamed.map((record) => ({ record, atMs: record.createdAtMs + 50 }));
    return writeRecords(opened.db, [...newest.values()], entries);
  };
  const aTask = async (): Promise<TaskRecord> => {
    const { id } = await aWorkspace(opened.db);
    const stub = await aStub(opened.db, id);
    const deployment = await aDeployment(opened.db, stub);
    return aRecord({ workspaceId: id, stubId: stub.id, deploymentId: deployment.id }) as TaskRecord;
  };
  const as = (record: TaskRecord, status: TaskRecord['status'], attempt: number, rank: TaskRecord['rank']) => ({
    ...record,
    status,
    attempt,
    rank,
    containerId: 'c' as ContainerId,
    startedAtMs: record.createdAtMs + 10,
    endedAtMs: rank >= 3 ? record.createdAtMs + 20 : null,
  });

  test('tell every change of a batch, with the names of stub and deployment', async () => {
    const task = await aTask();
    const { lastEvents } = await write(task, as(task, 'RUNNING', 1, 1), as(task, 'COMPLETE', 1, 4));
    expect([...lastEvents]).toEqual([[task.workspaceId, 3]]);
    expect(await statusesOf(task)).toEqual(['PENDING 0', 'RUNNING 1', 'COMPLETE 1']);
    const [created, , ended] = await eventsOf(task);
    const stub = { stubId: task.stubId, stubType: 'endpoint/deployment', appId: expect.any(String) };
    expect(created).toMatchObject({ seq: 1, type: 'task.created', taskId: task.taskId, ...stub });
    expect(ended).toMatchObject({
      seq: 3,
      type: 'task.updated',
      ...stub,
      deploymentId: task.deploymentId,
      containerId: 'c',
      data: {
        id: task.taskId,
        status: 'COMPLETE',
        app_id: created?.appId,
        stub_type: 'endpoint/deployment',
        deployment_id: task.deploymentId,
        deployment_name: 'named',
        deployment_version: '1',
        external_workspace_id: null,
        started_at: '2027-01-15T08:00:00.133Z',
        ended_at: '2027-01-15T08:00:00.143Z',
      },
    });
  });

  test('are told once, also when a batch comes again or only its end does', async () => {
    const task = await aTask();
    const batch = [task, as(task, 'RUNNING', 1, 1)];
    await write(...batch);
    // The leader died before it removed the entries from the stream.
    expect([...(await write(...batch)).lastEvents]).toEqual([]);
    await write(...batch, as(task, 'ERROR', 1, 3));
    await write(as(task, 'ERROR', 1, 3));
    await write(as(task, 'COMPLETE', 1, 4));
    expect(await statusesOf(task)).toEqual(['PENDING 0', 'RUNNING 1', 'ERROR 1', 'COMPLETE 1']);
    expect((await eventsOf(task)).map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
  });

  test('of tasks that one container ended are one row, found by each task, and told once', async () => {
    const first = await aTask();
    const [a, b, c] = [first, { ...first, taskId: newId<TaskId>() }, { ...first, taskId: newId<TaskId>() }].map(
      (task) => as(task, 'ERROR', 1, 3),
    ) as [TaskRecord, TaskRecord, TaskRecord];
    expect([...(await write(a, b)).lastEvents]).toEqual([[first.workspaceId, 6]]);
    // The outcome was unknown, and one more task came: the same two tasks begin the batch.
    await write(a, b, c);
    const { rows } = await opened.db.query<{ more: number }>(
      'select more from events where workspace_id = $1 order by seq',
      [first.workspaceId],
    );
    expect(rows.map(({ more }) => more)).toEqual([5, 2]);
    // A late answer replaces the end of one of them.
    await write({ ...b, status: 'COMPLETE', rank: 4 });
    await write({ ...b, status: 'COMPLETE', rank: 4 });
    const reads = new EventReads(opened.db);
    const ofTask = async ({ taskId }: TaskRecord, types?: readonly string[]) =>
      (await reads.latest(first.workspaceId, { taskId, ...(types === undefined ? {} : { types }) }, 10)).events;
    const told = async (record: TaskRecord) => (await ofTask(record)).map(({ data }) => data['status']);
    expect(await told(a)).toEqual(['PENDING', 'RUNNING', 'ERROR']);
    expect(await told(b)).toEqual(['PENDING', 'RUNNING', 'ERROR', 'COMPLETE']);
    expect(await told(c)).toEqual(['PENDING', 'RUNNING', 'ERROR']);
    expect((await ofTask(b)).every(({ taskId, data }) => taskId === b.taskId && data['id'] === b.taskId)).toBe(true);
    expect(await ofTask(b, ['task.created'])).toMatchObject([{ seq: 2, data: { deployment_name: 'named' } }]);
    const all = await eventsOf(first);
    expect(all.map(({ seq }) => seq)).toEqual(Array.from({ length: 10 }, (_, at) => at + 1));
    expect(new Set(all.map(({ id }) => id)).size).toBe(10);
  });

  test('a read has as many events as it asks for, and a few more, of rows that hold many', async () => {
    const first = await aTask();
    const many = Array.from({ length: 200 }, () => as({ ...first, taskId: newId<TaskId>() }, 'COMPLETE', 1, 3));
    await write(...many);
    const reads = new EventReads(opened.db);
    const next = await reads.next(first.workspaceId, 10, 160);
    expect(next.map(({ seq }) => seq)).toEqual(Array.from({ length: 290 }, (_, at) => at + 11));
    const statement = await readEvents(
      opened.db,
      { workspaceId: first.workspaceId },
      { beforeSeq: 601 },
      undefined,
      20,
      500,
    );
    expect([statement.rows, statement.events.length, statement.next]).toEqual([1, 20, 581]);
    const webhook = { id: newId<WebhookId>(), workspaceId: first.workspaceId };
    const page = await eventsBehind(opened.db, webhook, 10, ['task.created'], 20);
    expect([page.events.length, page.upTo]).toEqual([40, 150]);
  });

  test('a record that comes too late tells nothing', async () => {
    const task = await aTask();
    await write(as(task, 'COMPLETE', 1, 4));
    await write(as(task, 'RUNNING', 2, 1));
    expect(await statusesOf(task)).toEqual(['PENDING 0', 'RUNNING 1', 'COMPLETE 1']);
  });

  test('an accepted task whose first records were lost has its creation told', async () => {
    const task = await aTask();
    await insertAcceptedTasks(opened.db, [{ record: task, job: '{}', owner: newInstanceId() }]);
    expect(await eventsOf(task)).toEqual([]);
    await write(as(task, 'RUNNING', 1, 1));
    expect(await statusesOf(task)).toEqual(['PENDING 0', 'RUNNING 1']);
  });

  test('the creation of an accepted task is told once, without another write of its row', async () => {
    const [waiting, begun] = [await aTask(), await aTask()];
    const owner = newInstanceId();
    await insertAcceptedTasks(
      opened.db,
      [waiting, begun].map((record) => ({ record, job: '{}', owner })),
    );
    await write(as(begun, 'RUNNING', 1, 1));
    const places = async () =>
      (
        await opened.db.query('select ctid::text from tasks where id in ($1, $2) order by id', [
          waiting.taskId,
          begun.taskId,
        ])
      ).rows;
    const before = await places();
    expect([...(await write(waiting, begun)).lastEvents]).toEqual([[waiting.workspaceId, 1]]);
    expect([...(await write(waiting, begun)).lastEvents]).toEqual([]);
    expect(await places()).toEqual(before);
    expect(await statusesOf(waiting)).toEqual(['PENDING 0']);
    expect(await statusesOf(begun)).toEqual(['PENDING 0', 'RUNNING 1']);
    await write(as(waiting, 'COMPLETE', 1, 3));
    expect(await statusesOf(waiting)).toEqual(['PENDING 0', 'RUNNING 1', 'COMPLETE 1']);
  });

  test('a batch that fails leaves neither rows nor events', async () => {
    const task = await aTask();
    const bad = { ...task, stubId: null } as unknown as TaskRecord;
    await expect(write({ ...task, taskId: newId<TaskId>() }, bad)).rejects.toThrow();
    expect(await eventsOf(task)).toEqual([]);
    expect(await taskById(opened.db, task.taskId)).toBeUndefined();
  });

  test('a deployment that is unknown leaves its name out', async () => {
    const task = { ...(await aTask()), deploymentId: newId<DeploymentId>() };
    await write(task);
    const [created] = await eventsOf(task);
    expect(created?.data).toHaveProperty('deployment_id');
    expect(created?.data).not.toHaveProperty('deployment_name');
  });
});
