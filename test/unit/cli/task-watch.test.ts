import { expect, test } from 'vitest';
import { tableLines } from '#cli/commands/task-watch.ts';

test("a deployment's tasks are counted by status, in records of both spellings", () => {
  const nowMs = Date.parse('2030-01-01T00:01:00Z');
  const tasks = [
    {
      id: 'b',
      status: 'RUNNING',
      created_at: '2030-01-01T00:00:50Z',
      started_at: '2030-01-01T00:00:55Z',
      container_id: 'taskqueue-x-12345678',
    },
    {
      id: 'a',
      status: 'COMPLETE',
      createdAt: '2030-01-01T00:00:00Z',
      startedAt: '2030-01-01T00:00:01Z',
      endedAt: '2030-01-01T00:00:03Z',
    },
  ];
  expect(tableLines('hello', tasks, nowMs)).toEqual([
    'hello: 1 RUNNING, 1 COMPLETE   q: leave',
    '',
    'ID  STATUS    CREATED  LAST TRY  IN',
    'b   RUNNING   10s ago  5.0s      12345678',
    'a   COMPLETE  60s ago  2.0s      -',
  ]);
  expect(tableLines('hello', [], nowMs)[0]).toBe('hello: no task yet   q: leave');
});
