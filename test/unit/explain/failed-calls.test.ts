import { expect, test } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { explainDeployment } from '#scheduler/api/explain/deployment.ts';
import { failedCallTexts } from '#scheduler/api/explain/failed-calls.ts';
import type { CallsThatEnded } from '#scheduler/api/explain/failed-calls.ts';
import { rolloutTexts } from '#scheduler/api/explain/rollout.ts';
import type { RolloutView } from '#scheduler/api/explain/rollout.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import { NO_POOL } from '#scheduler/domain/named-pool.ts';
import type { RecentCalls } from '#scheduler/stores/store/queries/recent-calls.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { NOW, ROW, aContainer, at, scalingOf } from './facts.ts';

const last = { taskId: 't-9' as TaskId, endedAtMs: NOW - 1000 };
const failing: RecentCalls = { ended: 4, failed: 4, firstFailedAtMs: NOW - 9000, failingSinceMs: NOW - 9000, last };

const recordOf = (changes: Partial<TaskRecord>): TaskRecord =>
  ({ ...last, status: 'ERROR', failureReason: 'handler_error', containerId: 'c-1', ...changes }) as TaskRecord;

const endedWith = (error: string, changes: Partial<TaskRecord> = {}, calls = failing): CallsThatEnded => ({
  calls,
  last: { record: recordOf(changes), result: JSON.stringify({ error }) },
});

const explained = (ended: CallsThatEnded, scaling = scalingOf({})): Explanation =>
  explainDeployment(ROW as Parameters<typeof explainDeployment>[0], 10, scaling, {
    refusal: '',
    pool: NO_POOL,
    quota: [],
    ended,
  });

test('a deployment whose newest call failed is FAILING where it was idle, with the error and the cure', () => {
  const found = explained(endedWith("ModuleNotFoundError: No module named 'pandas'"));
  expect(found).toMatchObject({
    state: 'FAILING',
    since: at(-9000),
    summary: 'hello v3 is FAILING: the last 4 calls failed; no task waits, so no container runs',
    deployment: { calls: { ended: 4, failed: 4, last_failed: 't-9', last_reason: 'handler_error' } },
  });
  expect(found.details).toContain(`the last 4 calls failed, the first of them at ${at(-9000)}`);
  expect(found.details).toContain(
    `task t-9 failed at ${at(-1000)} (handler_error): ModuleNotFoundError: No module named 'pandas'`,
  );
  expect(found.next_steps).toEqual([
    expect.stringMatching(/^the container lacks pandas: .*python_packages/),
    '`longshore logs --task t-9` shows what it wrote',
    '`longshore task list --deployment hello --status ERROR,TIMEOUT,EXPIRED` lists calls that failed',
  ]);
});

test('a deployment that works again keeps its state, and still tells of the calls that failed', () => {
  const calls = { ...failing, ended: 20, failed: 3, failingSinceMs: null };
  const found = explained(endedWith('KeyError: 1', {}, calls), scalingOf({ containers: [aContainer()] }));
  expect(found.state).toBe('IDLE');
  expect(found.details).toContain(`3 of the last 20 calls failed, the first of them at ${at(-9000)}`);
});

test('a version that did not start in its rollout is FAILING where it was idle, and steps name the version', () => {
  const older = { ...ROW, id: 'd-2', version: 2, rollout: null, rolloutSinceMs: null, rolloutWhy: '' };
  const row = {
    ...ROW,
    rollout: 'failed',
    rolloutSinceMs: NOW - 5000,
    rolloutWhy: 'the start of c-1 failed: no torch',
  };
  const rollout = rolloutTexts({ row, serving: older, highest: row, limitMs: 1 } as unknown as RolloutView);
  const told = (scaling: ReturnType<typeof scalingOf>): Explanation =>
    explainDeployment(ROW as Parameters<typeof explainDeployment>[0], 10, scaling, {
      refusal: '',
      pool: NO_POOL,
      quota: [],
      rollout,
    });
  const found = told(scalingOf({}));
  expect(found).toMatchObject({
    state: 'FAILING',
    since: at(-5000),
    summary: 'hello v3 is FAILING: its rollout failed: the start of c-1 failed: no torch',
  });
  expect(found.details).toContain('calls of hello reach v2, not this version: the start of c-1 failed: no torch');
  const breaker = { ...CLOSED_BREAKER, failures: 1 };
  const steps = told(scalingOf({ breaker })).next_steps;
  expect(steps.join()).toContain('`longshore logs hello/v3`');
  expect(steps.join()).not.toContain('`longshore logs hello`');
  expect(told(scalingOf({ active: false })).state).toBe('STOPPED');
  // A container that a call of its number started works.
  expect(told(scalingOf({ containers: [aContainer()] })).state).toBe('IDLE');
});

test('states that say more than IDLE stay, and so does that of a deployment whose callers err', () => {
  expect(explained(endedWith('KeyError: 1'), scalingOf({ active: false })).state).toBe('STOPPED');
  const byCallers = { ...failing, failingSinceMs: null };
  const wrong = explained(endedWith('n is missing', { failureReason: 'invalid_request_payload' }, byCallers));
  expect(wrong.state).toBe('IDLE');
  expect(wrong.details.join()).toContain('n is missing');
});

test('a call that no container began has no log: the deployment says whether there is a place', () => {
  const waited = { status: 'TIMEOUT', failureReason: 'wait_limit', containerId: null } as const;
  expect(failedCallTexts(endedWith('', waited), 'hello').steps[0]).toBe(
    'no container began it: `longshore explain hello` says whether its containers have a place now',
  );
});

test('a single failed call has one time', () => {
  const one = { ...failing, ended: 1, failed: 1, firstFailedAtMs: last.endedAtMs };
  expect(explained(endedWith('KeyError: 1', {}, one)).details.join('; ')).toContain(
    `the last call failed; task t-9 failed at ${at(-1000)} (handler_error): KeyError: 1`,
  );
  const ofTwo = { ...one, ended: 2 };
  expect(explained(endedWith('KeyError: 1', {}, ofTwo)).details.join('; ')).not.toContain('the first of them');
});

test('a deployment without failed calls says nothing of them', () => {
  const calls = { ended: 5, failed: 0, firstFailedAtMs: null, failingSinceMs: null, last: undefined };
  expect(failedCallTexts({ calls, last: undefined }, 'hello')).toMatchObject({ count: '', details: [], steps: [] });
});

test('an error is one bounded line: the first of a traceback, the last of a start that failed', () => {
  const line = (error: string, changes: Partial<TaskRecord> = {}): string =>
    failedCallTexts(endedWith(error, changes), 'hello').section.last_error;
  expect(line("KeyError: 'x'\n\nTraceback\n  return")).toBe("KeyError: 'x'");
  expect(line('Traceback\nRuntimeError: no weights\n', { failureReason: 'start_failed' })).toBe(
    'RuntimeError: no weights',
  );
  expect(line('x'.repeat(400))).toBe(`${'x'.repeat(300)} …`);
  // The container of a start that failed has the cause, not the task's log.
  const { steps } = failedCallTexts(endedWith('', { failureReason: 'start_failed' }), 'hello');
  expect(steps[0]).toBe('`longshore logs --container c-1` shows what its container wrote');
});
