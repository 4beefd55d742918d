import { expect, test } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import { linesOf } from '#cli/commands/explain.ts';

const NOW = Date.parse('2026-01-02T00:00:00Z');

test('an explanation is read as sentences, with what to do at the end', () => {
  const found: Explanation = {
    kind: 'task',
    id: 't',
    workspace_id: 'w',
    state: 'RETRY',
    since: '2026-01-01T23:59:48Z',
    summary: 'task t of hello/v1 failed (handler_error) and is tried again',
    waits_for: 'its back-off, then a free slot',
    until: '2026-01-02T00:00:30Z',
    details: ['1 of 3 retries are used', 'kept until 2026-01-02T00:01:30.250Z, seen 2026-01-01T23:59:56Z'],
    next_steps: ['`longshore logs --task t` shows what it wrote'],
    leader_answered: true,
    task: {
      status: 'RETRY',
      failure_reason: 'handler_error',
      synchronous: false,
      deployment_id: 'd',
      stub_id: 's',
      position: null,
      queue_depth: 1,
      created_at: null,
      started_at: null,
      ended_at: null,
      deadline: null,
      next_retry_at: '2026-01-02T00:00:30Z',
      retries_used: 1,
      retries: 3,
      losses: 0,
      attempts: [
        {
          attempt: 1,
          container_id: 'c',
          machine_id: 'm',
          started_at: null,
          ended_at: '2026-01-01T23:59:50Z',
          outcome: 'handler_error',
          error: "KeyError: 'x'",
        },
      ],
      containers: [],
    },
    container: null,
    deployment: null,
    scaling: null,
  };
  expect(linesOf(found, NOW)).toEqual([
    'task t of hello/v1 failed (handler_error) and is tried again (for 12s)',
    'waits for: its back-off, then a free slot, 30s more at most',
    '  - 1 of 3 retries are used',
    '  - kept until 00:01:30 UTC (in 90s), seen 23:59:56 UTC (4s ago)',
    "  attempt 1 in c: handler_error 10s ago: KeyError: 'x'",
    'what to do:',
    '  - `longshore logs --task t` shows what it wrote',
  ]);
  // Numbers of attempts that no container began are not missing without a word.
  const [first] = found.task?.attempts ?? [];
  const attempts = [2, 3, 5, 9].flatMap((attempt) => (first === undefined ? [] : [{ ...first, attempt, error: '' }]));
  const lines = linesOf({ ...found, task: found.task && { ...found.task, attempts } }, NOW);
  expect(lines.filter((line) => line.startsWith('  attempt'))).toEqual([
    '  attempt 1 was given back before it began',
    '  attempt 2 in c: handler_error 10s ago',
    '  attempt 3 in c: handler_error 10s ago',
    '  attempt 4 was given back before it began',
    '  attempt 5 in c: handler_error 10s ago',
    '  attempts 6 to 8 were given back before they began',
    '  attempt 9 in c: handler_error 10s ago',
  ]);
});
