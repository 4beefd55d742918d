import { expect, test } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { RecentRecords } from '../../../scheduler/tasks/records/recent-records.ts';

const [ENDED, AGAIN] = ['ended' as TaskId, 'again' as TaskId];

test('a record that is tried again and again while Redis is away pushes no other out', () => {
  let nowMs = 0;
  const recent = new RecentRecords(() => nowMs);
  recent.note(ENDED, 'the end');
  recent.away();
  for (let tries = 0; tries < 100; tries += 1) {
    nowMs += 500;
    recent.note(AGAIN, 'x'.repeat(1024 ** 2));
  }
  expect(recent.all()).toHaveLength(2);
  expect(recent.all()).toContain('the end');
});

test('records are let go a while after Redis is back', () => {
  let nowMs = 0;
  const recent = new RecentRecords(() => nowMs);
  recent.note(ENDED, 'the end');
  recent.away();
  recent.back();
  for (const atMs of [14_000, 20_000, 26_000]) {
    nowMs = atMs;
    recent.note(AGAIN, 'another');
  }
  expect(recent.all()).toEqual(['another']);
});
