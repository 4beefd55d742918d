import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { WorkspaceId } from '../../../shared/domain/ids.ts';
import { QueueQuota } from '../../../scheduler/tasks/admission/queue-quota.ts';

const log = pino({ level: 'silent' });
const W = 'w' as WorkspaceId;
const LIMIT = 1_600_000;

function aQuota(said: () => Promise<number>) {
  let asked = 0;
  const quota = new QueueQuota({ ask: () => ((asked += 1), said()), log });
  return { quota, asked: () => asked };
}

test('a workspace far below its quota is answered at once, and asked for once in a sixteenth of it', async () => {
  const { quota, asked } = aQuota(() => Promise.resolve(0));
  for (let count = 0; count < 100; count += 1) {
    expect(quota.hasRoom(W, 1_000, LIMIT)).toBe(true);
    quota.added(W, 1_000);
  }
  expect(asked()).toBe(0);
  // No call waits for the answer.
  expect(quota.hasRoom(W, 1_000, LIMIT)).toBe(true);
  expect(asked()).toBe(1);
});

test('a queue that other replicas have filled is full here, and a flood of refused calls asks once in a while', async () => {
  const { quota, asked } = aQuota(() => Promise.resolve(LIMIT));
  quota.added(W, LIMIT / 16);
  expect(quota.hasRoom(W, 1_000, LIMIT)).toBe(true);
  await setImmediate();
  for (let count = 0; count < 1_000; count += 1) expect(await quota.hasRoom(W, 1_000, LIMIT)).toBe(false);
  expect(asked()).toBeLessThan(20);
});

test('what was let in while the database was asked still counts', async () => {
  const answer = Promise.withResolvers<number>();
  const { quota } = aQuota(() => answer.promise);
  quota.added(W, LIMIT / 16);
  expect(quota.hasRoom(W, 1_000, LIMIT)).toBe(true);
  quota.added(W, LIMIT / 2);
  answer.resolve(LIMIT / 2);
  await setImmediate();
  expect(await quota.hasRoom(W, 1_000, LIMIT)).toBe(false);
});

test('calls of one moment do not all see the same room', () => {
  const { quota } = aQuota(() => Promise.resolve(0));
  let taken = 0;
  for (let count = 0; count < 100; count += 1) {
    if (quota.hasRoom(W, LIMIT / 10, LIMIT) !== true) continue;
    quota.reserve(W, LIMIT / 10);
    taken += 1;
  }
  expect(taken).toBe(10);
});

test('inputs of synchronous calls count while their callers wait', async () => {
  const { quota } = aQuota(() => Promise.resolve(0));
  const call = Promise.withResolvers<void>();
  quota.waits(W, LIMIT, call.promise);
  expect(await quota.hasRoom(W, 1_000, LIMIT)).toBe(false);
  call.resolve();
  await call.promise;
  expect(quota.hasRoom(W, 1_000, LIMIT)).toBe(true);
});

test('while the database does not answer, what is known decides', async () => {
  const { quota } = aQuota(() => Promise.reject(new Error('away')));
  quota.added(W, LIMIT / 16);
  expect(await quota.hasRoom(W, 1_000, LIMIT)).toBe(true);
});

test('small inputs of synchronous calls are not counted, whatever the quota', () => {
  const { quota } = aQuota(() => Promise.resolve(LIMIT));
  expect([quota.counts(1_023, true), quota.counts(1_024, true), quota.counts(0, false)]).toEqual([false, true, true]);
});
