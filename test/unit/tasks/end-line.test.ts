import { expect, test } from 'vitest';
import { endLineOf } from '#scheduler/tasks/records/end-line.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';

const aRecord = (changes: Partial<TaskRecord>): TaskRecord =>
  ({ rank: 3, status: 'ERROR', failureReason: 'lost', attempt: 1, sync: false, ...changes }) as TaskRecord;

test.each<[string, Partial<TaskRecord>, string | undefined]>([
  ['a lost machine', {}, 'longshore: the task was lost: its container, or the machine of it, went away (ERROR)'],
  [
    'the end of its time',
    { status: 'TIMEOUT', failureReason: 'execution_timeout' },
    'longshore: the task ran out of time (TIMEOUT)',
  ],
  [
    'a cancellation',
    { status: 'CANCELLED', failureReason: 'request_cancelled' },
    'longshore: the task was cancelled (CANCELLED)',
  ],
  ['a success', { status: 'COMPLETE', failureReason: '' }, undefined],
  ['an exception, which is told where it happens', { failureReason: 'handler_error' }, undefined],
  ['the end of its process, which the machine tells', { failureReason: 'process_exited' }, undefined],
  ['a loss after which it runs again', { status: 'RETRY', rank: 2 }, undefined],
  [
    'a wait whose caller has the answer',
    { status: 'TIMEOUT', failureReason: 'expired', attempt: 0, sync: true },
    undefined,
  ],
  [
    'a deletion before any container had it',
    { status: 'CANCELLED', failureReason: 'deployment_deleted', attempt: 0 },
    undefined,
  ],
])('the log of a task and %s', (_, changes, line) => {
  expect(endLineOf(aRecord(changes))).toBe(line);
});
