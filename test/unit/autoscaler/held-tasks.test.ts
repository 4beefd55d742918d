// Tasks that flow control holds, and tasks that are due later, want no container.
import { expect, test } from 'vitest';
import { inFlightOf } from '#scheduler/stores/queues/task-queues.ts';

test.for([
  ['held tasks alone', { waiting: 0, active: 0, delayed: 0, held: 50, soon: 0 }, 0],
  ['tasks that run beside held ones', { waiting: 1, active: 2, delayed: 0, held: 50, soon: 0 }, 3],
  ['tasks whose turns come later', { waiting: 0, active: 0, delayed: 40, held: 0, soon: 0 }, 0],
  ['a retry that is due soon', { waiting: 0, active: 0, delayed: 4, held: 50, soon: 1 }, 1],
] as const)('%s', ([, depth, wanted]) => {
  expect(inFlightOf({ prioritized: 0, ...depth })).toBe(wanted);
});
