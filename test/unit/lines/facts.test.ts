// Facts of an order: what another replica needs to adopt its attempt, without input and secrets.
import { expect, test } from 'vitest';
import type { DeploymentId, InstanceId, MachineId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId, queueNameOf, tickTaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { agrees, encodeFacts, parseFacts } from '#scheduler/tasks/lines/facts.ts';

const JOB: TaskJob = {
  v: 1,
  taskId: newId<TaskId>(),
  workspaceId: 'ws' as WorkspaceId,
  stubId: 'stub' as StubId,
  deploymentId: 'deployment' as DeploymentId,
  kind: 'endpoint',
  sync: true,
  replica: 'replica' as InstanceId,
  input: '{"password": "hunter2"}',
  query: { key: ['hunter2'] },
  callbackUrl: 'https://user:hunter2@example.com',
  timeoutMs: 60_000,
  deadlineMs: 2_000,
  createdAtMs: 1_000,
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
};
const queue = queueNameOf(JOB.deploymentId, JOB.stubId);
const ORDER = { attempt: 2, queue, sentAtMs: 1_500 };

test('facts come back as they were sent, without input, query and callback', () => {
  const bytes = encodeFacts(JOB, ORDER);
  expect(bytes.toString()).not.toContain('hunter2');
  const { input: _input, query: _query, callbackUrl: _callbackUrl, ...kept } = JOB;
  expect(parseFacts(bytes)).toEqual({ v: 1, ...ORDER, job: kept });
});

test.each([
  ['nothing', Buffer.alloc(0)],
  ['no JSON', Buffer.from('{')],
  ['another version', Buffer.from(encodeFacts(JOB, ORDER).toString().replace('"v":1', '"v":2'))],
  ['no attempt', encodeFacts(JOB, { ...ORDER, attempt: 0 })],
  ['far too much', Buffer.alloc(5_000, ' ')],
])('an agent that returns %s has no facts', (_what, bytes) => {
  expect(parseFacts(bytes)).toBeUndefined();
});

const forged = (change: (job: Record<string, unknown>) => void): Buffer => {
  const facts = JSON.parse(encodeFacts(JOB, ORDER).toString()) as { readonly job: Record<string, unknown> };
  change(facts.job);
  return Buffer.from(JSON.stringify(facts));
};

test.each([
  ['an object that is dropped with the task', forged((job) => (job['inputObjectId'] = 'somebodys-object'))],
  ['an address to call', forged((job) => (job['callbackUrl'] = 'https://example.com'))],
  ['an asynchronous task', forged((job) => (job['sync'] = false))],
  ['the task of a tick to come', forged((job) => (job['taskId'] = tickTaskId('d' as DeploymentId, 60_000)))],
])('an agent that names %s is not believed', (_what, bytes) => {
  expect(parseFacts(bytes)).toBeUndefined();
});

test('facts agree with the row of a container of that machine, workspace and queue alone', () => {
  const facts = parseFacts(encodeFacts(JOB, ORDER));
  if (facts === undefined) throw new Error('no facts');
  const machineId = 'machine' as MachineId;
  const { workspaceId, deploymentId, stubId } = JOB;
  const row = { machineId, workspaceId, deploymentId, stubId };
  expect(agrees(facts, machineId, row)).toBe(true);
  expect(agrees(facts, 'other' as MachineId, row)).toBe(false);
  expect(agrees(facts, machineId, undefined)).toBe(false);
  expect(agrees(facts, machineId, { ...row, workspaceId: 'other' as WorkspaceId })).toBe(false);
  expect(agrees(facts, machineId, { ...row, deploymentId: null })).toBe(false);
  expect(agrees(facts, machineId, { ...row, machineId: null })).toBe(false);
});
