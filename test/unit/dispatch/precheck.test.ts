import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { InstanceId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { outcomes } from '#scheduler/api/http/invoke/outcomes.ts';
import { precheck } from '#scheduler/tasks/dispatch/precheck.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';

const aJob = (changes: Partial<TaskJob> = {}): TaskJob => ({
  v: 1,
  taskId: 't' as TaskId,
  workspaceId: 'w' as WorkspaceId,
  stubId: 's' as StubId,
  deploymentId: null,
  kind: 'endpoint',
  sync: true,
  replica: 'i' as InstanceId,
  timeoutMs: 0,
  deadlineMs: 100,
  createdAtMs: 0,
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
  ...changes,
});

test('a synchronous job runs only before its deadline, with a caller that waits', () => {
  fc.assert(
    fc.property(fc.record({ nowMs: fc.nat({ max: 200 }), callerWaits: fc.boolean() }), (facts) => {
      const verdict = precheck(aJob(), facts);
      expect(verdict.kind === 'run').toBe(facts.callerWaits && facts.nowMs <= 100);
      if (verdict.kind === 'finish') expect(isTerminalTask(verdict.status)).toBe(true);
    }),
  );
});

test.each([
  ['whose caller is gone', { nowMs: 500, callerWaits: false }, 'CANCELLED', 503],
  ['whose wait limit passed', { nowMs: 500, callerWaits: true }, 'TIMEOUT', 504],
] as const)('a synchronous job %s ends', (_what, facts, status, httpStatus) => {
  const verdict = precheck(aJob(), facts);
  expect(verdict).toMatchObject({ kind: 'finish', status });
  if (verdict.kind === 'finish') expect(outcomes.httpStatusOf(verdict.status, verdict.reason)).toBe(httpStatus);
});

test('an asynchronous job needs no caller, may run again, and expires', () => {
  const job = aJob({ sync: false, kind: 'taskqueue' });
  expect(precheck(job, { nowMs: 50, callerWaits: false })).toEqual({ kind: 'run' });
  expect(precheck(job, { nowMs: 101, callerWaits: false })).toMatchObject({ status: 'EXPIRED' });
});
