import { expect, test } from 'vitest';
import { standsFor } from '#scheduler/tasks/records/task-events.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';

const at = (status: TaskRecord['status'], attempt: number, rank: number, startedAtMs: number | null = null) => ({
  record: { status, attempt, rank, startedAtMs, createdAtMs: 1, endedAtMs: null } as TaskRecord,
  atMs: 5,
});
const [created, running] = [at('PENDING', 0, 0), at('RUNNING', 1, 1, 2)];

test('a record that shows the changes of an earlier one stands for it: those events are told once', () => {
  expect(standsFor(running, created)).toBe(true);
  expect(standsFor(at('COMPLETE', 1, 4, 2), running)).toBe(true);
  expect(standsFor(at('CANCELLED', 0, 3), created)).toBe(true);
});

test('a change that no later record shows is told by its own: an attempt that was retried, a start that an end does not know', () => {
  const retry = at('RETRY', 1, 2, 2);
  expect(standsFor(retry, running)).toBe(true);
  expect(standsFor(at('RUNNING', 2, 1, 9), retry)).toBe(false);
  expect(standsFor(at('COMPLETE', 2, 4, 9), running)).toBe(false);
  expect(standsFor(at('CANCELLED', 1, 3), running)).toBe(false);
});
