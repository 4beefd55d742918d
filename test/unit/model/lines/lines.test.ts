// Random stories of synchronous tasks at three scheduler processes, decided by the product's own functions
// (scheduler/tasks/lines). Messages are lost and arrive in any order; replicas, agents and hosts die; machines dial
// other replicas while the old one lives, dies or stands still; commits are late. `npm run properties` plays 10 000
// stories.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { comeToRest, verify } from './invariants.ts';
import type { Step } from './steps.ts';
import { aStory, play } from './steps.ts';
import type { World } from './world.ts';
import { aWorld } from './world.ts';
import { stories } from '../../../helpers/stories.ts';

const SEEDS = stories(1_000);
const LONGEST = 60;

/** @throws Error with the story so far, of which fast-check finds a short one */
function tellStory(steps: readonly Step[]): World {
  const world = aWorld();
  try {
    for (const step of steps) {
      play(world, step);
      verify(world);
    }
    world.story.push('-- all faults are over');
    comeToRest(world);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`${why}\n  ${world.story.join('\n  ')}`, { cause: error });
  }
  return world;
}

describe('whatever happens in whatever order', () => {
  const done = new Map<string, number>();

  test(
    `a synchronous task runs once at most, and its caller gets one answer (${SEEDS} stories)`,
    { timeout: 600_000 },
    () => {
      fc.assert(
        fc.property(aStory(LONGEST), (steps) => {
          for (const [what, times] of tellStory(steps).done) done.set(what, (done.get(what) ?? 0) + times);
        }),
        { numRuns: SEEDS, unbiased: true },
      );
    },
  );

  test('the stories go far: every kind of event happened in them, and often', () => {
    const rare = EVENTS.filter((what) => (done.get(what) ?? 0) < SEEDS / 200);
    expect(rare, JSON.stringify([...done])).toEqual([]);
  });
});

const EVENTS: readonly string[] = [
  'called',
  'full',
  'offered',
  'take',
  'refuse',
  'room',
  'recalled: has',
  'recalled: refused',
  'recalled: returned',
  'taken and given back',
  'sent',
  'runs',
  'not run',
  'never began',
  'handler',
  'ended',
  'answered',
  'cancelled',
  'adopted',
  'result adopted',
  'handed over',
  'now waiting',
  'now unsure',
  'now away',
  'now orphaned',
  'now ending',
  'unknown attempt',
  'machine lost',
  'message lost',
  'written',
  'written late',
  'spilled',
  'ended by the leader',
  'killed',
  'agent killed',
  'frozen',
  'goes on',
];
