import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { encodeTaskRecord, isNewer, parseTaskRecord } from '#scheduler/tasks/records/task-record.ts';
import type { RecordRank, TaskRecord } from '#scheduler/tasks/records/task-record.ts';

const record: TaskRecord = {
  taskId: 't' as TaskId,
  workspaceId: 'w' as WorkspaceId,
  stubId: 's' as StubId,
  deploymentId: null,
  queue: 'tq-s' as QueueName,
  kind: 'taskqueue',
  sync: false,
  status: 'RUNNING',
  attempt: 12,
  rank: 1,
  containerId: null,
  failureReason: '',
  createdAtMs: 1,
  startedAtMs: 2,
  endedAtMs: null,
  durationMs: null,
  result: '{"a": 1.0}',
  deadlineMs: 3,
};

test('a record is read as it was written, and its text starts with what the script compares', () => {
  expect(parseTaskRecord(encodeTaskRecord(record))).toEqual(record);
  expect(encodeTaskRecord(record)).toMatch(/^\{"attempt":12,"rank":1,/);
});

test('a text that is no record is refused', () => {
  for (const text of ['', 'null', '{}', '{"attempt":1,"rank":0,"taskId":"t"}']) {
    expect(() => parseTaskRecord(text)).toThrow(expect.objectContaining({ code: 'bad_record' }));
  }
});

test('one attempt’s records win in the order of its life, a newer attempt over an older one, and a final status is kept', () => {
  const place = fc.record({ attempt: fc.nat(5), rank: fc.constantFrom<RecordRank>(0, 1, 2, 3, 4) });
  fc.assert(
    fc.property(fc.array(place, { minLength: 1 }), (places) => {
      const [first, ...rest] = places;
      let held = first ?? { attempt: 0, rank: 0 };
      for (const told of rest) {
        const before = held;
        if (isNewer(told, held)) held = told;
        expect(isNewer(held, held)).toBe(false);
        // A completion may follow another end, of the same attempt or a later one; after it nothing may.
        if (before.rank === 4) expect(held).toEqual(before);
        else if (before.rank === 3 && held !== before) {
          expect(held.rank).toBe(4);
          expect(held.attempt).toBeGreaterThanOrEqual(before.attempt);
        } else if (held !== before) {
          expect(held.attempt * 10 + held.rank).toBeGreaterThan(before.attempt * 10 + before.rank);
        }
      }
    }),
    { numRuns: 2_000 },
  );
});
