import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { encodeTaskRecord, isNewer, parseTaskRecord } from '#scheduler/tasks/records.ts';
import type { RecordRank, TaskRecord } from '#scheduler/tasks/records.ts';

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

test('in whatever order records come, the same one is the newest', () => {
  const place = fc.record({ attempt: fc.nat(5), rank: fc.constantFrom<RecordRank>(0, 1, 2, 3, 4) });
  fc.assert(
    fc.property(fc.array(place, { minLength: 1 }), fc.infiniteStream(fc.nat()), (places, random) => {
      const last = (all: typeof places) => all.reduce((held, one) => (isNewer(held, one) ? held : one));
      const shuffled = places
        .map((one) => ({ one, at: random.next().value ?? 0 }))
        .toSorted((a, b) => a.at - b.at)
        .map(({ one }) => one);
      expect(last(shuffled)).toEqual(last(places));
    }),
  );
});
