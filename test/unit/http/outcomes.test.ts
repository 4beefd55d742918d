import { expect, test } from 'vitest';
import type { TaskStatus } from '#shared/domain/status.ts';
import { outcomes } from '#scheduler/api/http/invoke/outcomes.ts';
import * as endings from '#scheduler/domain/endings.ts';

test.each([
  [endings.COMPLETED, 200, undefined],
  [endings.LOST, 502, 'Backend route unavailable'],
  [endings.INPUT_LOST, 500, 'the input of the task could not be read'],
  [endings.RESULT_NOT_STORED, 500, 'result could not be stored'],
  [endings.EXPIRED, 504, 'expired'],
  [endings.WAIT_LIMIT, 504, 'Timed out waiting for a backend container'],
  [endings.CANCELLED, 503, 'task cancelled'],
  [endings.CALLER_LEFT, 499, 'caller left'],
  [endings.CALLER_GONE, 503, 'caller is gone'],
  [endings.SCHEDULER_STOPPING, 503, 'scheduler is stopping'],
  [endings.DEPLOYMENT_STOPPED, 503, 'deployment stopped'],
  [endings.DEPLOYMENT_DELETED, 503, 'deployment stopped'],
])('callers of a task that ends as %j get %i', ({ status, reason }, httpStatus, text) => {
  expect(outcomes.httpStatusOf(status, reason)).toBe(httpStatus);
  expect(outcomes.textOf(reason)).toBe(text);
});

test.each([
  ['ERROR', 'start_failed', 500],
  ['ERROR', 'not_placed', 503],
  ['TIMEOUT', 'execution_timeout', 504],
  ['TIMEOUT', 'ended_by_runner', 504],
  ['CANCELLED', 'ended_by_runner', 500],
] as const)('%s for the reason %s is %i, and the text is the task’s own', (status, reason, httpStatus) => {
  expect(outcomes.httpStatusOf(status, reason)).toBe(httpStatus);
  expect(outcomes.textOf(reason)).toBeUndefined();
});

test('without a reason the status of the task decides, and a task that completed is 200 whatever the reason', () => {
  const byStatus: [TaskStatus, number][] = [
    ['COMPLETE', 200],
    ['ERROR', 500],
    ['CANCELLED', 503],
    ['TIMEOUT', 504],
    ['EXPIRED', 504],
    ['PENDING', 500],
  ];
  for (const [status, httpStatus] of byStatus) expect(outcomes.httpStatusOf(status)).toBe(httpStatus);
  for (const reason of endings.END_REASONS) expect(outcomes.httpStatusOf('COMPLETE', reason)).toBe(200);
});

test('records keep the failure reasons that they always had', () => {
  const recorded = [endings.CALLER_LEFT, endings.SCHEDULER_STOPPING, endings.COMPLETED, endings.LOST];
  expect(recorded.map(endings.failureReasonOf)).toEqual(['request_cancelled', 'caller_gone', '', 'lost']);
  expect(endings.reasonOfRecord('lost')).toBe('lost');
  expect(endings.reasonOfRecord('')).toBe('completed');
  expect(endings.reasonOfRecord('gpu_unavailable')).toBeUndefined();
});
