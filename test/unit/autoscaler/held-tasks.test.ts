// Tasks that flow control holds, and tasks that are due later, want no container.
import { expect, test } from 'vitest';
import { controlledInFlightOf, inFlightOf } from '#scheduler/stores/queues/task-queues.ts';

test.for([
  ['held tasks alone', { waiting: 0, active: 0, delayed: 0, held: 50, soon: 0 }, 0],
  ['tasks that run beside held ones', { waiting: 1, active: 2, delayed: 0, held: 50, soon: 0 }, 3],
  ['tasks whose turns come later', { waiting: 0, active: 0, delayed: 40, held: 0, soon: 0 }, 0],
  ['a retry that is due soon', { waiting: 0, active: 0, delayed: 4, held: 50, soon: 1 }, 1],
] as const)('%s', ([, depth, wanted]) => {
  expect(inFlightOf({ prioritized: 0, ...depth })).toBe(wanted);
});

test.for([
  ['a paused queue wants what runs', { paused: true, limit: null }, 2],
  ['a bounded one wants so many', { paused: false, limit: 5 }, 5],
  ['one whose bound was lowered lets tasks end', { paused: false, limit: 1 }, 2],
  ['a bound that is not reached changes nothing', { paused: false, limit: 50 }, 12],
] as const)('%s', ([, control, wanted]) => {
  const depth = { waiting: 10, active: 2, delayed: 3, prioritized: 0, held: 4, soon: 0 };
  expect(controlledInFlightOf(depth, control)).toBe(wanted);
});
