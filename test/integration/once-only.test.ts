// Effects that cost money or are seen outside happen once, on both drivers of the store, with a fault at each
// statement: it is refused, done without an answer, or done late.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DOUBTS, doubtAt } from '../helpers/doubtful-db.ts';
import type { Doubt } from '../helpers/doubtful-db.ts';
import { KEY_STATEMENTS, playKeyStory } from '../helpers/once-keys.ts';
import { playTickStory, TICK_STATEMENTS } from '../helpers/once-ticks.ts';
import { aRedis } from '../helpers/services.ts';
import type { PrivateRedis } from '../helpers/services.ts';
import { aDb, KINDS } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aTarget } from './tasks-fixture.ts';
import { aQueueTarget } from './tasks-world.ts';

let redis: PrivateRedis;
beforeAll(async () => (redis = await aRedis()));
afterAll(() => redis.stop());

/** Plays a story with each fault at each of its statements. */
async function withEachDoubt(
  statements: number,
  play: (next: () => Doubt | undefined) => Promise<number>,
): Promise<void> {
  const stories = DOUBTS.flatMap((doubt) =>
    Array.from({ length: statements }, (_, at) =>
      play(doubtAt(doubt, at)).catch((error: unknown) => {
        throw new Error(`${doubt} at statement ${at}`, { cause: error });
      }),
    ),
  );
  const met = await Promise.all(stories);
  expect(met.filter((count) => count > 0).length).toBeGreaterThan(stories.length / 2);
}

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => (opened = await aDb(kind)));
  afterAll(() => opened.stop());

  test.each([
    ['a task queue', aQueueTarget],
    ['an endpoint', aTarget],
  ])('an Idempotency-Key of %s has one task, which runs once', async (_name, target) => {
    const { db } = opened;
    await withEachDoubt(KEY_STATEMENTS, (next) => playKeyStory({ redis, db, target: target(), next }));
  });

  test('a tick of a schedule has one task, which runs once, whichever of two leaders makes it', async () => {
    await withEachDoubt(TICK_STATEMENTS, (next) => playTickStory(redis, opened.db, next));
  });
});
