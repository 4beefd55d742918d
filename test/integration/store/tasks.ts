// Records of tasks, on the database of `store.test.ts`.
import { beforeAll, describe, expect, test } from 'vitest';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import type { DeploymentId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../../scheduler/stores/store/db.ts';
import { recentCalls } from '../../../scheduler/stores/store/queries/recent-calls.ts';
import {
  acceptedJobOf,
  acceptedJobsOf,
  insertAcceptedTasks,
  listTasks,
  taskById,
  taskOwners,
  unbegunTasksOf,
  upsertTaskRecords,
  upsertTaskRecordsSaying,
} from '../../../scheduler/stores/store/queries/tasks.ts';
import { aContainerId, aRecord, aStub, aWorkspace } from '../store-fixture.ts';

/** @param of - the database, which is open when the tests run */
export function taskTests(of: () => Db): void {
  describe('tasks', () => {
    let db: Db;
    beforeAll(() => {
      db = of();
    });

    test('a record is read back as it was written, with what belongs to it', async () => {
      const workspace = await aWorkspace(db);
      const stub = await aStub(db, workspace.id, 'named');
      const record = aRecord({
        workspaceId: workspace.id,
        stubId: stub.id,
        status: 'COMPLETE',
        attempt: 1,
        rank: 3,
        startedAtMs: 1_800_000_000_200,
        endedAtMs: 1_800_000_000_301,
        durationMs: 100.5,
        containerHostname: 'host-1',
        deadlineMs: 1_800_000_600_000,
        past: [
          {
            attempt: 1,
            containerId: 'c',
            machineId: 'm',
            startedAtMs: 1,
            endedAtMs: 2,
            outcome: 'lost',
            error: 'é "x"',
          },
        ],
        result: '{"a":"\\u0000 é 😀"}',
      });
      await upsertTaskRecords(db, [record]);
      expect(await taskById(db, record.taskId)).toMatchObject({ ...record, stubName: 'named', deploymentName: null });
      const [listed] = await listTasks(db, { workspaceId: workspace.id, limit: 5 });
      expect(listed?.taskId).toBe(record.taskId);
      expect(listed?.past).toBeUndefined();
      // A record that is made without them leaves those that are known.
      const { past: _past, ...later } = record;
      await upsertTaskRecords(db, [{ ...later, rank: 4 }]);
      expect((await taskById(db, record.taskId))?.past).toEqual(record.past);
      expect(listed?.result).toBeUndefined();
    });

    test('a record of another workspace changes no row, and tells of none', async () => {
      const [mine, theirs] = [await aWorkspace(db), await aWorkspace(db)];
      const record = aRecord({ workspaceId: mine.id, status: 'RUNNING', attempt: 1, rank: 1 });
      await upsertTaskRecords(db, [record]);
      const before = await taskById(db, record.taskId);
      const forged = { ...record, workspaceId: theirs.id, status: 'COMPLETE', rank: 3, result: '"forged"' } as const;
      expect(await upsertTaskRecordsSaying(db, [forged])).toEqual(new Map());
      expect(await taskById(db, record.taskId)).toEqual(before);
    });

    test('every value of a column is written as it is, whatever its batch holds', async () => {
      const texts = [
        '',
        '{}',
        'null',
        'NULL',
        '{a,b}',
        'a"b',
        'a\\b',
        '\\',
        '"',
        "'",
        ' x ',
        'é 😀',
        '\n\t\r',
        '\\n',
        '\u0001',
        '\\u0001',
      ];
      const { id: workspaceId } = await aWorkspace(db);
      // A batch in which all texts are simple is written in another way.
      for (const some of [texts.filter((text) => !/\p{Cc}/u.test(text)), texts]) {
        const records = some.map((failureReason, at) =>
          aRecord({ workspaceId, failureReason, result: failureReason, durationMs: at / 3, sync: at % 2 === 0 }),
        );
        const accepted = some.map((text) => ({ record: aRecord({ workspaceId }), job: text, owner: newInstanceId() }));
        await upsertTaskRecords(db, records);
        await insertAcceptedTasks(db, accepted);
        for (const record of records) expect(await taskById(db, record.taskId)).toMatchObject({ ...record });
        for (const { record, job } of accepted) expect(await acceptedJobOf(db, record.taskId)).toBe(job);
      }
    });

    test('whatever the order and however often records come, the furthest one stands', async () => {
      const base = aRecord();
      const steps = [
        { status: 'PENDING', attempt: 0, rank: 0 },
        { status: 'RUNNING', attempt: 1, rank: 1 },
        { status: 'RETRY', attempt: 1, rank: 2 },
        { status: 'RUNNING', attempt: 2, rank: 1 },
        { status: 'ERROR', attempt: 2, rank: 3 },
        { status: 'COMPLETE', attempt: 2, rank: 4 },
      ] as const;
      for (const order of [steps, steps.toReversed(), [...steps.slice(3), ...steps.slice(0, 3)]]) {
        const taskId = newId<TaskId>();
        for (const step of [...order, ...order]) await upsertTaskRecords(db, [{ ...base, taskId, ...step }]);
        expect(await taskById(db, taskId)).toMatchObject(steps[5]);
      }
    });

    test('a final status stays, but for a completion of an attempt that none came after', async () => {
      const record = aRecord();
      const status = async (): Promise<string | undefined> => (await taskById(db, record.taskId))?.status;
      await upsertTaskRecords(db, [{ ...record, status: 'TIMEOUT', attempt: 2, rank: 3 }]);
      for (const late of [
        { status: 'RUNNING', attempt: 3, rank: 1 },
        { status: 'ERROR', attempt: 3, rank: 3 },
        { status: 'COMPLETE', attempt: 1, rank: 4 },
      ] as const) {
        await upsertTaskRecords(db, [{ ...record, ...late }]);
        expect(await status()).toBe('TIMEOUT');
      }
      await upsertTaskRecords(db, [{ ...record, status: 'COMPLETE', attempt: 2, rank: 4 }]);
      await upsertTaskRecords(db, [{ ...record, status: 'CANCELLED', attempt: 3, rank: 3 }]);
      expect(await status()).toBe('COMPLETE');
    });

    test('recent calls are counted by how they ended, also behind a long queue', async () => {
      const { workspaceId, stubId, queue } = aRecord();
      const deploymentId = newId<DeploymentId>();
      const base = { workspaceId, stubId, queue, deploymentId };
      const nowMs = Date.now();
      const ended = (agoMs: number, status: 'COMPLETE' | 'ERROR' | 'TIMEOUT' | 'CANCELLED', more = {}) =>
        aRecord({
          ...base,
          status,
          attempt: 1,
          rank: 3,
          createdAtMs: nowMs - agoMs - 1,
          endedAtMs: nowMs - agoMs,
          ...more,
        });
      const counted = () => recentCalls(db, { ...base }, nowMs - 86_400_000);
      expect(await counted()).toEqual({
        ended: 0,
        failed: 0,
        firstFailedAtMs: null,
        failingSinceMs: null,
        last: undefined,
      });
      const newest = ended(10_000, 'TIMEOUT');
      await upsertTaskRecords(db, [
        ended(90_000_000, 'ERROR'),
        ended(50_000, 'ERROR'),
        ended(40_000, 'COMPLETE'),
        ended(30_000, 'ERROR'),
        newest,
        ended(5_000, 'CANCELLED'),
        ended(1_000, 'ERROR', { deploymentId: newId<DeploymentId>() }),
      ]);
      // Nothing that waits keeps the calls before it from being found.
      const waiting = (index: number) => aRecord({ ...base, createdAtMs: nowMs + index });
      for (const half of [0, 500])
        await upsertTaskRecords(
          db,
          Array.from({ length: 500 }, (_value, index) => waiting(half + index)),
        );
      expect(await counted()).toEqual({
        ended: 4,
        failed: 3,
        firstFailedAtMs: nowMs - 50_000,
        failingSinceMs: nowMs - 30_000,
        last: { taskId: newest.taskId, endedAtMs: nowMs - 10_000 },
      });
      await upsertTaskRecords(db, [ended(2_000, 'COMPLETE')]);
      expect(await counted()).toMatchObject({ ended: 5, failed: 3, failingSinceMs: null });
      // Wrong input says nothing of the handler, before or after a fault of it.
      const wrong = (agoMs: number) => ended(agoMs, 'ERROR', { failureReason: 'invalid_request_payload' });
      await upsertTaskRecords(db, [wrong(1_900)]);
      expect(await counted()).toMatchObject({ ended: 6, failed: 4, failingSinceMs: null });
      const fault = ended(1_800, 'ERROR', { failureReason: 'handler_error' });
      await upsertTaskRecords(db, [fault, wrong(1_700)]);
      expect(await counted()).toMatchObject({
        failed: 6,
        failingSinceMs: nowMs - 1_800,
        last: { taskId: fault.taskId },
      });
    });

    test('500 records go in one statement, and a batch above that is refused', async () => {
      const workspaceId = newId<WorkspaceId>();
      const records = Array.from({ length: 500 }, (_value, index) =>
        aRecord({ workspaceId, createdAtMs: 1_800_000_000_000 + index, failureReason: 'bad \ud800 text\0' }),
      );
      await upsertTaskRecords(db, records);
      const page = await listTasks(db, { workspaceId, limit: 3 });
      expect(page.map((row) => row.createdAtMs)).toEqual([1_800_000_000_499, 1_800_000_000_498, 1_800_000_000_497]);
      const last = page[2];
      const next = await listTasks(db, {
        workspaceId,
        limit: 2,
        before: { createdAtMs: last?.createdAtMs ?? 0, taskId: last?.taskId ?? '' },
      });
      expect(next.map((row) => row.createdAtMs)).toEqual([1_800_000_000_496, 1_800_000_000_495]);
      await expect(upsertTaskRecords(db, [...records, aRecord()])).rejects.toThrow(RangeError);
    });

    test('lists follow their filters and stay in their workspace', async () => {
      const workspaceId = newId<WorkspaceId>();
      const containerId = aContainerId();
      const one = aRecord({ workspaceId, status: 'COMPLETE', rank: 3, containerId });
      const two = aRecord({ workspaceId, createdAtMs: 1_800_000_001_000 });
      await upsertTaskRecords(db, [one, two]);
      const ids = async (filter: object): Promise<string[]> =>
        (await listTasks(db, { workspaceId, limit: 10, ...filter })).map((row) => row.taskId);
      expect(await ids({})).toEqual([two.taskId, one.taskId]);
      expect(await ids({ statuses: ['COMPLETE'] })).toEqual([one.taskId]);
      expect(await ids({ stubIds: [two.stubId] })).toEqual([two.taskId]);
      expect(await ids({ containerIds: [containerId] })).toEqual([one.taskId]);
      expect(await ids({ deploymentIds: [one.deploymentId] })).toEqual([one.taskId]);
      expect(await ids({ ids: [one.taskId, 'not-a-uuid'] })).toEqual([one.taskId]);
      expect(await ids({ ids: [] })).toEqual([]);
      expect(await ids({ createdFromMs: 1_800_000_000_500 })).toEqual([two.taskId]);
      expect(await ids({ createdToMs: 1_800_000_000_500 })).toEqual([one.taskId]);
      expect(await ids({ workspaceId: newId<WorkspaceId>() })).toEqual([]);
    });

    test('an accepted task keeps its queue entry until it ends, whichever is written first', async () => {
      const owner = newInstanceId();
      const record = aRecord({ sync: false, kind: 'taskqueue' });
      const job = JSON.stringify({ taskId: record.taskId, input: '{"a":1}' });
      const early = aRecord({ sync: false, kind: 'taskqueue', status: 'RUNNING', attempt: 1, rank: 1 });
      await upsertTaskRecords(db, [early]);
      await insertAcceptedTasks(db, [
        { record, job, owner },
        { record: { ...early, status: 'PENDING', attempt: 0, rank: 0 }, job, owner },
      ]);
      await insertAcceptedTasks(db, [{ record, job: 'other', owner }]);
      const jobs = () => Promise.all([record, early].map(({ taskId }) => acceptedJobOf(db, taskId)));
      expect(await jobs()).toEqual([job, job]);
      expect((await taskById(db, early.taskId))?.status).toBe('RUNNING');
      await upsertTaskRecords(db, [{ ...record, status: 'COMPLETE', attempt: 1, rank: 3 }]);
      expect(await jobs()).toEqual([undefined, job]);
      await insertAcceptedTasks(db, [{ record, job, owner }]);
      expect((await taskById(db, record.taskId))?.status).toBe('COMPLETE');
      expect(await jobs()).toEqual([undefined, job]);
    });

    test('accepted tasks without an attempt are found by their owner, oldest first, a page at a time', async () => {
      const owner = newInstanceId();
      const at = (createdAtMs: number, over = {}) =>
        aRecord({ sync: false, kind: 'taskqueue', status: 'PENDING', attempt: 0, rank: 0, createdAtMs, ...over });
      const [third, first, second, begun, over] = [at(3_000), at(1_000), at(2_000), at(500), at(700)];
      const accepted = [third, first, second, begun, over].map((record) => ({ record, job: '{}', owner }));
      await insertAcceptedTasks(db, [...accepted, { record: at(1_500), job: '{}', owner: newInstanceId() }]);
      await upsertTaskRecords(db, [
        { ...begun, status: 'RUNNING', attempt: 1, rank: 1 },
        { ...over, status: 'CANCELLED', rank: 3 },
      ]);
      expect(await taskOwners(db)).toContain(owner);
      const page = await unbegunTasksOf(db, owner, 0, 2);
      expect(page.map(({ taskId }) => taskId)).toEqual([first.taskId, second.taskId]);
      const next = await unbegunTasksOf(db, owner, 0, 2, page.at(-1));
      expect(next.map(({ taskId }) => taskId)).toEqual([third.taskId]);
      expect((await unbegunTasksOf(db, owner, 2_000, 5)).map(({ taskId }) => taskId)).toEqual([
        second.taskId,
        third.taskId,
      ]);
      expect(await acceptedJobsOf(db, [first.taskId, over.taskId])).toEqual(['{}']);
    });
  });
}
