import { expect, test } from 'vitest';
import { formatEvent } from '#cli/commands/events.ts';

const event = (type: string, data: object) => ({
  type,
  timestamp: '2026-01-02T03:04:05.678Z',
  machine_id: 'm1',
  data: { machine_id: 'm1', ...data },
});

test('an event of a machine names its pool, and says why it ended, each word once', () => {
  const attrs = { reason: 'not_created', failure: 'create: ended with exit code 1: no quota' };
  const machine = { action: 'failed', status: 'failed', pool_name: 'gpu', provider: 'cloud', attrs };
  expect(formatEvent(event('compute.machine', machine))).toBe(
    '2026-01-02 03:04:05.678 compute.machine      m1 failed gpu not_created create: ended with exit code 1: no quota',
  );
  const pool = { action: 'shrink', status: 'decided', pool_name: 'gpu', reason: 'idle', attrs: { machines: 1 } };
  expect(formatEvent(event('compute.pool', pool))).toBe(
    '2026-01-02 03:04:05.678 compute.pool         m1 decided shrink gpu idle',
  );
});
