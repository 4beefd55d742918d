import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { RecordWriter } from '#scheduler/tasks/records/writer.ts';

test('while both stores are away, each is asked about once a second', async () => {
  const asked = { database: 0, redis: 0 };
  const again = Promise.withResolvers<void>();
  const writer = new RecordWriter({
    write: () => {
      asked.database += 1;
      if (asked.database === 2) again.resolve();
      return Promise.reject(new Error('connection refused'));
    },
    spill: () => {
      asked.redis += 1;
      return Promise.reject(new Error('connection refused'));
    },
    onSafe: () => undefined,
    log: pino({ level: 'silent' }),
    collectMs: 10,
    patienceMs: 50,
  });
  const record = { taskId: newId<TaskId>(), sync: false, status: 'PENDING', attempt: 0, rank: 0 } as TaskRecord;
  void writer.append(record);
  await again.promise;
  expect(asked.redis).toBeLessThanOrEqual(2);
  expect(await writer.close()).toBe(1);
});
