// Growth of a pool, as `longshore pool show` tells it.
import { expect, test } from 'vitest';
import { growthLines } from '#cli/commands/pool.ts';

const growth = { verdict: 'max_machines', text: 'pool gpu makes no further machine', step: 'see why', until: '' };
const stuck = { text: 'machine m-1 cannot end', step: 'longshore provider check cloud' };

test('a pool without a provider says nothing of its growth', () => {
  expect([growthLines({}), growthLines({ growth: null })]).toEqual([[], []]);
});

test('each machine that cannot go on is named, with the command to run, and the others are counted', () => {
  expect(growthLines({ growth })).toEqual(['\npool gpu makes no further machine', 'next: see why']);
  expect(growthLines({ growth: { ...growth, stuck: [stuck, stuck], stuckCount: 7 } })).toEqual([
    '\npool gpu makes no further machine',
    'next: see why',
    '\nmachine m-1 cannot end',
    'next: `longshore provider check cloud`',
    '\nmachine m-1 cannot end',
    'next: `longshore provider check cloud`',
    'and 5 more machines that cannot go on',
  ]);
});
