import { expect, test } from 'vitest';
import type { StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { parseTaskJob } from '#scheduler/stores/queues/jobs.ts';
import { whyNoInput, whyNotKept } from '#scheduler/domain/task-inputs.ts';
import { FailedInputs } from '#scheduler/tasks/inputs/failed-inputs.ts';

const jobOf = (changes: Partial<TaskJob> = {}): TaskJob => ({
  v: 1,
  taskId: 't' as TaskId,
  workspaceId: 'w' as WorkspaceId,
  stubId: 's' as StubId,
  deploymentId: null,
  kind: 'endpoint',
  sync: true,
  replica: 'r' as TaskJob['replica'],
  input: '{"n": 1.0}',
  timeoutMs: 0,
  deadlineMs: 0,
  createdAtMs: 0,
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
  ...changes,
});

test('a synchronous call keeps its input only when it fails, and only if it may', () => {
  const inputs = new FailedInputs({ monotonicMs: () => 0 });
  const { keptJob, ...said } = inputs.of(jobOf(), 'ERROR');
  expect(said).toEqual({ inputState: 'kept', inputBytes: 10 });
  expect(parseTaskJob(keptJob ?? '').input).toBe('{"n": 1.0}');
  expect(inputs.of(jobOf(), 'TIMEOUT').inputState).toBe('kept');
  for (const status of ['COMPLETE', 'CANCELLED'] as const) expect(inputs.of(jobOf(), status)).toEqual({});
  expect(inputs.of(jobOf({ sync: false }), 'ERROR')).toEqual({});
  expect(inputs.of(jobOf({ forgetsInput: 'off' }), 'ERROR')).toEqual({ inputState: 'off', inputBytes: 10 });
  expect(inputs.of(jobOf({ stream: true }), 'ERROR').inputState).toBe('streamed');
});

test('a workspace whose calls all fail keeps only as many bytes in a minute, and each other one its own', () => {
  let nowMs = 0;
  const inputs = new FailedInputs({ monotonicMs: () => nowMs }, 3_000);
  const state = (workspaceId: string) =>
    inputs.of(jobOf({ workspaceId: workspaceId as WorkspaceId }), 'ERROR').inputState;
  // A small input counts a KiB.
  expect([state('w'), state('w'), state('w'), state('other')]).toEqual(['kept', 'kept', 'too_many', 'kept']);
  nowMs = 60_000;
  expect(state('w')).toBe('kept');
});

test('an input is kept up to its bound in bytes, unless its deployment keeps none', () => {
  expect(whyNotKept({ keepInputs: true, input: 'é'.repeat(5) }, 10)).toBeUndefined();
  expect(whyNotKept({ keepInputs: true, input: 'é'.repeat(6) }, 10)).toBe('too_large');
  expect(whyNotKept({ keepInputs: false, input: '' }, 10)).toBe('off');
});

test('a task without an input says why', () => {
  const bounds = { days: 7, bytes: 10, workspaceBytes: 100 };
  const said = (changes: Partial<Parameters<typeof whyNoInput>[0]>): string =>
    whyNoInput({ sync: false, isOver: true, status: 'ERROR', isOfModel: false, ...changes }, bounds);
  expect(said({})).toMatch(/^it was removed: inputs are kept for 7 days .* more than 100 bytes/);
  expect(said({ inputState: 'off' })).toContain('keep_inputs');
  expect(said({ inputState: 'too_large' })).toContain('larger than 10 bytes');
  expect(said({ inputState: 'streamed' })).toContain('pass by');
  expect(said({ inputState: 'too_many' })).toContain('in that minute');
  expect(said({ sync: true, isOver: false, status: 'RUNNING' })).toContain('has not ended');
  expect(said({ sync: true, status: 'COMPLETE' })).toContain('only when they fail');
  expect(said({ sync: true })).toContain('lost with the process');
  expect(said({ isOfModel: true })).toContain('calls of models');
});
