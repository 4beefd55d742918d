import { describe, expect, test } from 'vitest';
import type { ContainerId, DeploymentId, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { eventsOf } from '#scheduler/stores/store/queries/events.ts';
import type { NewEvent } from '#scheduler/stores/store/queries/events.ts';
import { packsOf, taskEvents } from '#scheduler/tasks/records/task-events.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';

const CREATED = Date.UTC(2030, 0, 1);
const aRecord = (over: Partial<TaskRecord> = {}): TaskRecord => ({
  taskId: newId<TaskId>(),
  workspaceId: newId<WorkspaceId>(),
  stubId: newId<StubId>(),
  deploymentId: newId<DeploymentId>(),
  queue: 'tq-a' as QueueName,
  kind: 'taskqueue',
  sync: false,
  status: 'PENDING',
  attempt: 0,
  rank: 0,
  containerId: null,
  failureReason: '',
  createdAtMs: CREATED,
  startedAtMs: null,
  endedAtMs: null,
  durationMs: null,
  deadlineMs: CREATED + 1000,
  ...over,
});
const C = 'taskqueue-c-1' as ContainerId;
const rowsOf = (records: readonly TaskRecord[]) =>
  taskEvents(records.map((record, at) => ({ record, atMs: CREATED + 100 * (at + 1) })));
/** The events that readers get from a row. */
const read = ({ more = 0, ...row }: NewEvent) =>
  eventsOf({
    workspace_id: row.workspaceId,
    seq: more + 1,
    more,
    id: row.id,
    type: row.type,
    at: new Date(row.atMs),
    stored_at: new Date(row.atMs),
    app_id: null,
    stub_id: row.stubId ?? null,
    stub_type: null,
    deployment_id: row.deploymentId ?? null,
    task_id: row.taskId ?? null,
    container_id: row.containerId ?? null,
    machine_id: null,
    data: row.data,
  });
const told = (...records: readonly TaskRecord[]) => rowsOf(records).flatMap(read);
const statuses = (events: ReturnType<typeof told>) =>
  events.map(({ data }) => `${String(data['status'])} ${String(data['attempt'])}`);

describe('events of tasks', () => {
  const pending = aRecord();
  const running = (attempt: number): TaskRecord => ({
    ...pending,
    status: 'RUNNING',
    attempt,
    rank: 1,
    containerId: C,
    startedAtMs: CREATED + attempt * 1000,
  });
  const retry: TaskRecord = { ...pending, status: 'RETRY', attempt: 1, rank: 2, containerId: C, failureReason: 'no' };
  const final = (status: 'ERROR' | 'COMPLETE', rank: 3 | 4, attempt = 2): TaskRecord => ({
    ...running(attempt),
    status,
    rank,
    // The last record of an attempt knows its start more exactly.
    startedAtMs: CREATED + attempt * 1000 + 900,
    endedAtMs: CREATED + 9000,
    failureReason: status === 'ERROR' ? 'handler_error' : '',
  });

  test('tell each change once, in order, also those that the batch collapses for rows', () => {
    const events = told(pending, running(1), running(1), retry, running(2), final('ERROR', 3), final('COMPLETE', 4));
    expect(statuses(events)).toEqual(['PENDING 0', 'RUNNING 1', 'RETRY 1', 'RUNNING 2', 'ERROR 2', 'COMPLETE 2']);
    expect(events.map(({ type }) => type)).toEqual(['task.created', ...Array(5).fill('task.updated')]);
    expect(new Set(events.map(({ id }) => id)).size).toBe(6);
    expect(events.every(({ id }) => /^[0-9a-f]{24}$/.test(id))).toBe(true);
  });

  test('have the same ids however the records are cut into batches', () => {
    const whole = told(pending, running(1), retry, running(2), final('COMPLETE', 4));
    const parts = [[pending, running(1)], [retry], [running(2)], [final('COMPLETE', 4)]].flatMap((some) =>
      told(...some),
    );
    expect(new Set(parts.map(({ id }) => id))).toEqual(new Set(whole.map(({ id }) => id)));
  });

  test('are complete when earlier records never reached the stream', () => {
    expect(statuses(told(running(1)))).toEqual(['PENDING 0', 'RUNNING 1']);
    const [created, ran, ended] = told(final('ERROR', 3, 1));
    expect(created).toMatchObject({
      type: 'task.created',
      atMs: CREATED,
      data: { status: 'PENDING', container_id: '', started_at: null, ended_at: null },
    });
    expect(created?.data).not.toHaveProperty('failure_reason');
    expect(ran).toMatchObject({ containerId: C, data: { status: 'RUNNING', container_id: C, ended_at: null } });
    expect(ran?.data).not.toHaveProperty('failure_reason');
    expect(ended).toMatchObject({
      atMs: CREATED + 9000,
      data: { status: 'ERROR', failure_reason: 'handler_error', ended_at: '2030-01-01T00:00:09.000Z' },
    });
    expect(statuses(told(retry))).toEqual(['PENDING 0', 'RUNNING 1', 'RETRY 1']);
  });

  test('are one row where a record comes first, and a row each behind it', () => {
    const shapes = (...records: readonly TaskRecord[]) => rowsOf(records).map(({ type, more = 0 }) => [type, more]);
    expect(shapes(final('COMPLETE', 3, 1))).toEqual([['task', 2]]);
    expect(shapes(running(1), final('COMPLETE', 3, 1))).toEqual([
      ['task', 1],
      ['task.updated', 0],
    ]);
    expect(shapes(pending, final('COMPLETE', 3, 1)).map(([type]) => type)).toEqual([
      'task.created',
      'task.updated',
      'task.updated',
    ]);
  });

  describe('that one container ended together', () => {
    const ended = (over: Partial<TaskRecord> = {}): TaskRecord => ({
      ...final('COMPLETE', 3, 1),
      taskId: newId<TaskId>(),
      ...over,
    });
    const noted = (records: readonly TaskRecord[]) => records.map((record) => ({ record, atMs: CREATED + 9500 }));
    const packedRows = (records: readonly TaskRecord[], without: readonly TaskRecord[] = []) => {
      const packs = new Map(
        [...packsOf(noted(records))].filter(([id]) => !without.some(({ taskId }) => taskId === id)),
      );
      return taskEvents(noted(records), new Map(), packs);
    };

    test('are one row, and are read as each alone would be, the creations first', () => {
      const failed = ended({ status: 'ERROR', failureReason: 'no', createdAtMs: CREATED + 1 });
      const called = ended({ calledBy: newId<WorkspaceId>(), endedAtMs: CREATED + 20_000, attempt: 2 });
      const three = [failed, called, ended({ attempt: 0, startedAtMs: null })];
      const rows = packedRows(three);
      expect(rows.map(({ type, more, taskId, containerId }) => [type, more, taskId, containerId])).toEqual([
        ['task', 7, undefined, C],
      ]);
      const events = rows.flatMap(read);
      expect(events.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
      expect(events.map(({ type }) => type)).toEqual([
        ...Array(3).fill('task.created'),
        ...Array(5).fill('task.updated'),
      ]);
      for (const record of three) {
        const alone = taskEvents(noted([record])).flatMap(read);
        const together = events.filter(({ taskId }) => taskId === record.taskId);
        const own = ({ seq: _seq, storedAtMs: _at, ...event }: (typeof events)[number]) => event;
        expect(together.map(own)).toEqual(alone.map(own));
      }
    });

    test('share no row with those of another container, stub or deployment, or with tasks that go on', () => {
      const others: readonly Partial<TaskRecord>[] = [
        { containerId: 'taskqueue-c-2' as ContainerId },
        { containerId: null },
        { stubId: newId<StubId>() },
        { deploymentId: newId<DeploymentId>() },
        { workspaceId: newId<WorkspaceId>() },
      ];
      const open = { ...running(1), taskId: newId<TaskId>() };
      const rows = packedRows([ended(), ...others.map(ended), open, ended()]);
      expect(rows.map(({ more }) => more)).toEqual([5, 2, 2, 2, 2, 2, 1]);
      expect(rows.map(({ taskId }) => taskId === undefined)).toEqual([true, ...Array(6).fill(false)]);
    });

    test('are at most fifty to a row', () => {
      const many = Array.from({ length: 120 }, () => ended());
      expect(packedRows(many).map(({ more }) => more)).toEqual([149, 149, 59]);
      expect(packedRows(many.slice(0, 51)).map(({ taskId }) => taskId)).toEqual([undefined, many[50]?.taskId]);
    });

    test('leave out a task that the batch has other changes of, or whose row was there', () => {
      const [first, second, known] = [ended(), ended(), ended()];
      const late = { ...first, status: 'COMPLETE', rank: 4 } as const;
      expect([...packsOf(noted([first, second, late])).keys()]).toEqual([]);
      const rows = packedRows([known, first, second], [known]);
      expect(rows.map(({ taskId, more }) => [taskId, more])).toEqual([
        [known.taskId, 2],
        [undefined, 5],
      ]);
      // The row of the only task that is left is found by its own id.
      expect(packedRows([known, first], [known]).map(({ taskId }) => taskId)).toEqual([known.taskId, first.taskId]);
    });
  });

  test('that are told already are not told again', () => {
    const whole = told(pending, running(1), final('COMPLETE', 3, 1));
    const before = new Map([[pending.taskId, new Set(whole.slice(0, 2).map(({ id }) => id))]]);
    const again = taskEvents([{ record: final('COMPLETE', 3, 1), atMs: CREATED }], before);
    expect(again.map(({ id }) => id)).toEqual([whole[2]?.id]);
  });

  test('do not say that a task ran which ended in its queue, or went back unstarted', () => {
    const expired = { ...pending, status: 'EXPIRED', rank: 3, endedAtMs: CREATED + 5 } as const;
    expect(statuses(told(expired))).toEqual(['PENDING 0', 'EXPIRED 0']);
    const back = { ...pending, attempt: 1, rank: 2 } as const;
    expect(statuses(told(back))).toEqual(['PENDING 0', 'PENDING 1']);
  });

  test('have the fields of a task', () => {
    const [event] = told(aRecord({ ...final('COMPLETE', 4), attempt: 0, startedAtMs: null, containerId: null })).slice(
      -1,
    );
    expect(Object.keys(event?.data ?? {}).toSorted()).toEqual([
      'attempt',
      'container_id',
      'created_at',
      'deployment_id',
      'ended_at',
      'external_workspace_id',
      'id',
      'started_at',
      'status',
      'stub_id',
      'updated_at',
      'workspace_id',
    ]);
  });
});
