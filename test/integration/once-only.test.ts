// Effects that cost money or are seen outside happen once, on both drivers of the store, with a fault at each
// statement: it is refused, done without an answer, or done late.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openInstallation } from '#scheduler/workspaces/identity/installation.ts';
import { DOUBTS, doubtAt } from '../helpers/doubtful-db.ts';
import type { Doubt } from '../helpers/doubtful-db.ts';
import { CALLBACK_STATEMENTS, playCallbackStory } from '../helpers/once-callbacks.ts';
import { KEY_STATEMENTS, playKeyStory } from '../helpers/once-keys.ts';
import {
  CREATE_STATEMENTS,
  MACHINE_STATEMENTS,
  playDeath,
  playMachineStory,
  playStandstill,
} from '../helpers/once-machines.ts';
import { playTickStory, TICK_STATEMENTS } from '../helpers/once-ticks.ts';
import { sealer } from '../helpers/provisioning-story.ts';
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
  const stories = doubtsAt(statements).map(({ name, next }) => named(name, play(next)));
  expectMet(await Promise.all(stories));
}

/** Plays them one after another. */
async function withEachDoubtInTurn(
  statements: number,
  play: (next: () => Doubt | undefined) => Promise<number>,
): Promise<void> {
  const met: number[] = [];
  for (const { name, next } of doubtsAt(statements)) met.push(await named(name, play(next)));
  expectMet(met);
}

const doubtsAt = (statements: number) =>
  DOUBTS.flatMap((doubt) =>
    Array.from({ length: statements }, (_, at) => ({
      name: `${doubt} at statement ${at}`,
      next: doubtAt(doubt, at),
    })),
  );

const named = <T>(name: string, story: Promise<T>): Promise<T> =>
  story.catch((error: unknown) => {
    throw new Error(name, { cause: error });
  });

const expectMet = (met: readonly number[]): void =>
  expect(met.filter((count) => count > 0).length).toBeGreaterThan(met.length / 2);

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

  test('a callback arrives, and again only where a statement failed', async () => {
    // The stories take turns, because each process claims whatever is due.
    await withEachDoubtInTurn(CALLBACK_STATEMENTS, (next) => playCallbackStory(opened.db, next));
  });

  test('a machine of a provider is created once, and the provider takes no blame for the database', async () => {
    await openInstallation(opened.db, sealer);
    // The number of the leader is the installation's, so that the stories come one after another.
    await withEachDoubtInTurn(MACHINE_STATEMENTS, (next) => playMachineStory(opened.db, next));
  });

  test.each([
    ['dies', playDeath],
    ['stands still', playStandstill],
  ])('a machine of a provider is created once where its leader %s', async (_name, play) => {
    await openInstallation(opened.db, sealer);
    const met: number[] = [];
    for (const isAfter of [false, true])
      for (let at = 0; at < CREATE_STATEMENTS; at += 1)
        met.push(Number(await named(`${isAfter ? 'after' : 'before'} statement ${at}`, play(opened.db, at, isAfter))));
    expectMet(met);
  });
});
