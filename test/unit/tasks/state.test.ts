import fc from 'fast-check';
import { expect, test } from 'vitest';
import { outcomes } from '#scheduler/api/http/invoke/outcomes.ts';
import { failureReasonOf } from '#scheduler/domain/endings.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { isTerminalTask, TASK_STATUSES } from '#shared/domain/status.ts';
import { isNewer } from '#scheduler/tasks/records/task-record.ts';
import type { AttemptOutcome, EndingFacts } from '#scheduler/tasks/state.ts';
import { endingOf, RANK, TASK_TRANSITIONS, verdictOf } from '#scheduler/tasks/state.ts';

const EVENTS = [...new Set(Object.values(TASK_TRANSITIONS).flatMap((row) => Object.keys(row)))];
const next = (state: TaskStatus, event: string): TaskStatus | undefined => {
  const row: Readonly<Record<string, TaskStatus>> = TASK_TRANSITIONS[state];
  return row[event];
};

test('a final status is left only for a late COMPLETE, and COMPLETE never', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...EVENTS), { maxLength: 20 }), (events) => {
      let state: TaskStatus = 'PENDING';
      for (const event of events) {
        const to = next(state, event);
        if (to === undefined) continue;
        if (isTerminalTask(state)) expect(to).toBe('COMPLETE');
        expect(state).not.toBe('COMPLETE');
        state = to;
      }
    }),
    { numRuns: 10_000 },
  );
});

test('every status can be reached, and from every one that is not final a final one can', () => {
  const reach = (from: TaskStatus): Set<TaskStatus> => {
    const seen = new Set<TaskStatus>([from]);
    for (const state of seen) {
      for (const event of EVENTS) {
        const to = next(state, event);
        if (to !== undefined) seen.add(to);
      }
    }
    return seen;
  };
  expect([...reach('PENDING')].sort()).toEqual([...TASK_STATUSES].sort());
  for (const status of TASK_STATUSES) expect(reach(status).has('COMPLETE') || status === 'COMPLETE').toBe(true);
});

test('the records of one attempt win in the order of its life', () => {
  const at = (status: TaskStatus, attempt = 1) => ({ attempt, rank: RANK[status] as 0 | 1 | 2 | 3 | 4 });
  expect(isNewer(at('RUNNING'), at('PENDING'))).toBe(true);
  expect(isNewer(at('ERROR'), at('RUNNING'))).toBe(true);
  expect(isNewer(at('COMPLETE'), at('TIMEOUT'))).toBe(true);
  expect(isNewer(at('PENDING', 2), at('RUNNING', 1))).toBe(true);
});

test.each([
  ['ok', 'COMPLETE', 200, ''],
  ['error', 'ERROR', 500, 'handler_error'],
  ['retry', 'ERROR', 500, 'handler_error'],
  ['exited', 'ERROR', 500, 'process_exited'],
  ['timeout', 'TIMEOUT', 504, 'execution_timeout'],
  ['cancelled', 'CANCELLED', 503, 'request_cancelled'],
  ['lost', 'ERROR', 502, 'lost'],
] as const)(
  'a synchronous task whose attempt is %s is %s, HTTP %d',
  (outcome: AttemptOutcome, status, httpStatus, reason) => {
    const verdict = verdictOf(outcome, { ...FACTS, sync: true });
    expect(verdict).toMatchObject({ kind: 'final', status });
    const ending = endingOf(outcome, FACTS);
    expect(verdict).toMatchObject(ending);
    expect(failureReasonOf(ending)).toBe(reason);
    expect(outcomes.httpStatusOf(status, ending.reason)).toBe(httpStatus);
    if (outcome === 'timeout') expect(ending.detail).toBe('task ran longer than its limit of 1.5 s');
  },
);

const FACTS: EndingFacts = {
  sync: false,
  timeoutMs: 1500,
  retries: 2,
  retriesUsed: 0,
  losses: 0,
  stopping: false,
  died: 0,
};

test.each([
  ['a handler that asks for it is retried while the budget lasts', 'retry', {}, { kind: 'retry' }],
  ['and is ERROR after it', 'retry', { retriesUsed: 2 }, { kind: 'final', status: 'ERROR' }],
  ['a process that exits is the user’s failure', 'exited', {}, { kind: 'retry' }],
  ['unless its container was told to stop', 'exited', { stopping: true }, { kind: 'again' }],
  ['a raising handler that is not retried is final', 'error', {}, { kind: 'final', status: 'ERROR' }],
  ['a lost attempt runs again whatever the user’s budget', 'lost', { retries: 0 }, { kind: 'again' }],
  ['five times', 'lost', { losses: 4 }, { kind: 'again' }],
  ['and not a sixth', 'lost', { losses: 5 }, { kind: 'final', failureReason: 'infrastructure_limit' }],
  ['user retries do not use that budget up', 'lost', { losses: 4, retriesUsed: 2 }, { kind: 'again' }],
  ['three containers that died on it are enough', 'lost', { died: 3 }, { kind: 'final', failureReason: 'poison_task' }],
  ['whoever’s fault it was', 'exited', { died: 3 }, { kind: 'final', status: 'ERROR', failureReason: 'poison_task' }],
  ['two are not', 'lost', { died: 2 }, { kind: 'again' }],
  ['the execution limit is final', 'timeout', {}, { kind: 'final', status: 'TIMEOUT' }],
] as const)('asynchronous: %s', (_name, outcome, changes, expected) => {
  expect(verdictOf(outcome, { ...FACTS, ...changes })).toMatchObject(expected);
});
