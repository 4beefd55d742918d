import { describe, expect, test } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Breaker } from '#scheduler/control/autoscaler/breaker.ts';
import {
  breakerAfterFailure,
  breakerPhase,
  CLOSED_BREAKER,
  provesStarts,
} from '#scheduler/control/autoscaler/breaker.ts';

const NOW = 1_000_000;
const failure = (id: string, atMs: number, createdAtMs = atMs - 1000) => ({
  containerId: id as ContainerId,
  createdAtMs,
  atMs,
  reason: 'user_error',
  message: 'ImportError',
});
const afterThree = (atMs = NOW): Breaker =>
  ['a', 'b', 'c'].reduce((breaker, id) => breakerAfterFailure(breaker, failure(id, atMs)), CLOSED_BREAKER);

test('two failures in a row change nothing, the third opens it for a minute', () => {
  const two = breakerAfterFailure(breakerAfterFailure(CLOSED_BREAKER, failure('a', NOW)), failure('b', NOW));
  expect(breakerPhase(two, NOW)).toBe('closed');
  const three = breakerAfterFailure(two, failure('c', NOW));
  expect(three).toMatchObject({ failures: 3, opened: 1, coolsUntilMs: NOW + 60_000, last: { containerId: 'c' } });
  expect([breakerPhase(three, NOW + 59_999), breakerPhase(three, NOW + 60_000)]).toEqual(['cooling', 'probing']);
});

test('each probe that fails cools twice as long, fifteen minutes at most', () => {
  let breaker = afterThree();
  const cooldowns = [(breaker.coolsUntilMs - NOW) / 1000];
  for (let probe = 0; probe < 6; probe += 1) {
    const atMs = breaker.coolsUntilMs + 5;
    const id = `probe-${probe}`;
    breaker = breakerAfterFailure({ ...breaker, probe: id as ContainerId }, failure(id, atMs));
    cooldowns.push((breaker.coolsUntilMs - atMs) / 1000);
    expect(breaker.probe).toBeNull();
  }
  expect(cooldowns).toEqual([60, 120, 240, 480, 900, 900, 900]);
});

describe('what was started before it opened', () => {
  test('and fails while it cools does not cool longer', () => {
    const later = breakerAfterFailure(afterThree(), failure('d', NOW + 10));
    expect(later).toMatchObject({ failures: 4, opened: 1, coolsUntilMs: NOW + 60_000 });
  });

  test('and fails while another container probes leaves the answer to that one; without one it is the answer', () => {
    const probing = { ...afterThree(), probe: 'p' as ContainerId };
    expect(breakerAfterFailure(probing, failure('late', NOW + 61_000))).toMatchObject({ opened: 1, probe: 'p' });
    expect(breakerAfterFailure(afterThree(), failure('late', NOW + 61_000)).opened).toBe(2);
  });
});

test('only a container of the row, or a later one, proves that starts work', () => {
  const breaker = breakerAfterFailure(CLOSED_BREAKER, failure('a', NOW, NOW - 5000));
  expect(provesStarts(breaker, { createdAtMs: NOW - 3600_000 })).toBe(false);
  expect(provesStarts(breaker, { createdAtMs: NOW - 5001 })).toBe(true);
  expect(provesStarts(breaker, { createdAtMs: NOW })).toBe(true);
});
