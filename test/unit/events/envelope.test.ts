import { Value } from 'typebox/value';
import { describe, expect, test } from 'vitest';
import { CloudEvent, EventRecord } from '#shared/api/rest/events.ts';
import { newId } from '#shared/domain/ids.ts';
import type { AppId, ContainerId, MachineId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { EventRow } from '#scheduler/stores/store/queries/events.ts';
import { cloudEventOf, eventRecordOf } from '#scheduler/workspaces/events/envelope.ts';
import {
  EVENT_KINDS,
  asksForAudit,
  isForWebhooks,
  isTypeEntry,
  matchesTypes,
} from '#scheduler/workspaces/events/kinds.ts';

const AT = Date.UTC(2030, 0, 2, 3, 4, 5, 678);
const anEvent = (over: Partial<EventRow> = {}): EventRow => ({
  workspaceId: newId<WorkspaceId>(),
  seq: 7,
  id: '70dbd888a1a2a3a4a5a6a7a8',
  type: 'task.updated',
  atMs: AT,
  storedAtMs: AT + 200,
  data: { id: 'x', status: 'RUNNING' },
  ...over,
});

describe('the envelope', () => {
  test('is a CloudEvent with the ids that are known, in lower-case attributes', () => {
    const event = anEvent({
      stubId: newId<StubId>(),
      taskId: newId<TaskId>(),
      appId: newId<AppId>(),
      containerId: 'c' as ContainerId,
      machineId: newId<MachineId>(),
      data: { pool_name: 'gpu' },
    });
    const told = cloudEventOf(event);
    expect(told).toEqual({
      specversion: '1.0',
      id: event.id,
      source: 'longshore',
      type: 'task.updated',
      time: '2030-01-02T03:04:05.678Z',
      datacontenttype: 'application/json',
      workspaceid: event.workspaceId,
      stubid: event.stubId,
      taskid: event.taskId,
      appid: event.appId,
      containerid: 'c',
      workerid: event.machineId,
      machineid: event.machineId,
      poolname: 'gpu',
      data: { pool_name: 'gpu' },
    });
    expect(Value.Check(CloudEvent, told)).toBe(true);
  });

  test('leaves out what is not known, and a record has the whole CloudEvent inside', () => {
    const event = anEvent();
    const record = eventRecordOf(event);
    expect(record).toEqual({
      seq_num: 7,
      stored_at_ns: (AT + 200) * 1_000_000,
      type: 'task.updated',
      timestamp: '2030-01-02T03:04:05.678Z',
      workspace_id: event.workspaceId,
      data: event.data,
      cloud_event: cloudEventOf(event),
    });
    expect(Value.Check(EventRecord, record)).toBe(true);
  });

  test('shows the fields of container events beside their data', () => {
    const data = {
      id: 'image.load',
      domain: 'worker',
      parent_id: 'container.startup',
      start_time: '2030-01-02T03:04:05.000Z',
      end_time: '2030-01-02T03:04:06.500Z',
      duration_ms: 1500,
      success: false,
      source: 'agent',
      reason: 'pull_failed',
      message: 'cannot pull',
      attrs: { image: 'i' },
    };
    const [stubType, appId] = ['endpoint/deployment', newId<AppId>()];
    const record = eventRecordOf(anEvent({ type: 'container.lifecycle', data, stubType, appId }));
    const { id, ...fields } = data;
    expect(record).toMatchObject({ event_id: id, ...fields, stub_type: stubType, app_id: appId });
    // The data have the ids that only the row knows.
    expect(record.data).toEqual({ ...data, stub_type: stubType, app_id: appId });
    expect(record.cloud_event.data).toEqual(record.data);
    expect(Value.Check(EventRecord, record)).toBe(true);
  });
});

describe('a filter of kinds', () => {
  test.each([
    ['task.created', ['task.created'], true],
    ['task.created', ['task.updated'], false],
    ['task.created', ['task.*'], true],
    ['task.created', ['stub.*', 'task.c*'], true],
    ['tasks.created', ['task.*'], false],
    ['stub.state.warning', ['stub.*'], true],
    ['stub.deploy', ['*'], true],
    ['stub.deploy', [], true],
    ['audit.token.created', [], false],
    ['audit.token.created', ['*'], false],
    ['audit.token.created', ['a*'], false],
    ['audit.token.created', ['audit.*'], true],
    ['audit.token.created', ['audit.token.created'], true],
  ])('%s is named by %j: %s', (type, entries, isNamed) => {
    expect(matchesTypes(type, entries)).toBe(isNamed);
  });

  test('says what it may contain', () => {
    expect(['*', 'task.*', 'stub.state.warning', 'deployment.started'].every(isTypeEntry)).toBe(true);
    expect(['', '*.created', 'task..created', 'Task', 'task.created,', 'a'.repeat(129)].some(isTypeEntry)).toBe(false);
    expect([asksForAudit(['task.*', 'audit.*']), asksForAudit(['*']), asksForAudit(undefined)]).toEqual([
      true,
      false,
      false,
    ]);
  });

  test('webhooks get what was changed, and neither logs, samples nor the audit trail', () => {
    expect(Object.keys(EVENT_KINDS).filter(isForWebhooks)).toEqual(
      expect.arrayContaining([
        'task.created',
        'task.updated',
        'stub.deploy',
        'deployment.scaled',
        'stub.state.healthy',
      ]),
    );
    expect(
      ['container.event', 'container.lifecycle', 'container.log', 'gateway.endpoint.called', 'audit.x', 'none'].some(
        isForWebhooks,
      ),
    ).toBe(false);
  });
});
