import { expect, test } from 'vitest';
import type { Attempt } from '../../../agent/slots/attempts.ts';
import { UnacknowledgedAttempts, keyOf } from '../../../agent/slots/attempts.ts';

const MIB = 1024 * 1024;
/** All parts share these bytes, so the test takes less memory than it counts. */
const BODY = Buffer.alloc(64 * MIB);

function anAttempt(attempts: UnacknowledgedAttempts, containerId: string, taskId: string): Attempt {
  const attempt: Attempt = {
    key: keyOf(taskId, 'token'),
    taskId,
    token: 'token',
    containerId,
    timeoutMs: 0,
    facts: Buffer.alloc(0),
    sinceMs: 0,
    process: 0,
    started: true,
    begun: true,
    ending: undefined,
    limitTimer: undefined,
    killTimer: undefined,
    awayTimer: undefined,
    chunks: [],
    chunkBytes: 0,
    frames: 0,
    hasGap: false,
    hadNoRoom: false,
    result: undefined,
  };
  attempts.add(attempt);
  return attempt;
}

/** Keeps results of a container until there is no room for another one. @returns how many */
function fill(attempts: UnacknowledgedAttempts, containerId: string): number {
  for (let count = 0; ; count += 1) {
    const attempt = anAttempt(attempts, containerId, `${containerId}-${count}`);
    if (!attempts.hasRoom(attempt, BODY.length)) return count;
    attempts.finish(attempt, 'ok', 1, BODY);
  }
}

test('a container keeps so many bytes of results, and gets the room back when they are acknowledged', () => {
  const attempts = new UnacknowledgedAttempts();
  const kept = fill(attempts, 'a');
  expect(kept).toBe(3);
  for (let at = 0; at < kept; at += 1) attempts.acknowledge(keyOf(`a-${at}`, 'token'));
  attempts.acknowledge(keyOf(`a-${kept}`, 'token'));
  expect(fill(attempts, 'a')).toBe(kept);
});

test('however many containers hold on to their results, another one has room', () => {
  const attempts = new UnacknowledgedAttempts();
  for (let at = 0; at < 20; at += 1) fill(attempts, `greedy-${at}`);
  expect(attempts.hasRoom(anAttempt(attempts, 'b', 'b'), 16 * MIB)).toBe(true);
});

test('the last ten thousand acknowledged attempts are known by name, and not all of them for ever', () => {
  const attempts = new UnacknowledgedAttempts();
  const key = (at: number): string => keyOf(`t-${at}`, 'token');
  for (let at = 0; at < 30_000; at += 1) {
    anAttempt(attempts, 'a', `t-${at}`);
    attempts.acknowledge(key(at));
  }
  expect([attempts.wasAcked(key(29_999)), attempts.wasAcked(key(20_000)), attempts.wasAcked(key(9_999))]).toEqual([
    true,
    true,
    false,
  ]);
});
