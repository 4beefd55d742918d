// Random stories of a whole installation with asynchronous tasks, decided by the product's own functions; lines/ has
// those of synchronous tasks. Steps are enqueue, place, start, end, crash, lost and repeated messages, cancel, drain,
// and dying agents, hosts, schedulers and leaders. After every step every invariant that the scheduler has to keep is
// true. `npm run properties` plays 10 000 stories.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { remember, verify, verifySecrets } from './invariants.ts';
import { aStory, play } from './steps.ts';
import type { Step } from './steps.ts';
import type { World } from './world.ts';
import { aWorld } from './world.ts';
import { stories } from '../../helpers/stories.ts';

const SEEDS = stories(1_000);
const LONGEST = 140;

/** @throws Error with the story so far, of which fast-check finds a short one */
function tellStory(steps: readonly Step[]): World {
  const world = aWorld();
  for (const step of steps) {
    const before = remember(world);
    try {
      play(world, step);
      verify(world, before, step.name);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new Error(`${why}\n  ${world.story.join('\n  ')}`, { cause: error });
    }
  }
  verifySecrets(world);
  return world;
}

describe('whatever happens in whatever order', () => {
  const done = new Map<string, number>();

  test(`every invariant holds after every step (${SEEDS} stories)`, { timeout: 600_000 }, () => {
    fc.assert(
      fc.property(aStory(LONGEST), (steps) => {
        for (const [what, times] of tellStory(steps).done) done.set(what, (done.get(what) ?? 0) + times);
      }),
      { numRuns: SEEDS, unbiased: true },
    );
  });

  test('the stories go far: every kind of event happened in them, and often', () => {
    const rare = [...EVENTS].filter((what) => (done.get(what) ?? 0) < SEEDS / 200);
    expect(rare, JSON.stringify([...done])).toEqual([]);
  });
});

const EVENTS: readonly string[] = [
  'enqueued',
  'scaled up',
  'scaled down',
  'placed',
  'no room',
  'fenced off',
  'moved',
  'refused',
  'arrived',
  'arrived twice',
  'ready',
  'sent',
  'handler',
  'ended',
  'retry',
  'again',
  'given back',
  'adopted',
  'cancelled',
  'late',
  'ended at the fetch',
  'exited',
  'cut',
  'connected',
  'machine lost',
  'rebooted',
  'scheduler killed',
];
