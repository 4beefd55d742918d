import { describe, expect, test } from 'vitest';
import type { ContainerId, DeploymentId, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { taskEvents } from '#scheduler/tasks/records/task-events.ts';
import type { TaskRecord } from '#scheduler/tasks/records/records.ts';

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
const told = (...records: readonly TaskRecord[]) =>
  taskEvents(records.map((record, at) => ({ record, atMs: CREATED + 100 * (at + 1) })));
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
