import type { LookupAddress } from 'node:dns';
import { expect, test } from 'vitest';
import { Lookups } from '#scheduler/tasks/webhooks/lookups.ts';
import { NoPlaceError } from '#scheduler/tasks/webhooks/places.ts';

const FOUND: LookupAddress[] = [{ address: '192.0.2.1', family: 4 }];

/** A resolver whose names answer when the test says so. */
function aResolver(bounds = { waitMs: 5, answerMs: 5_000 }) {
  const asked = new Map<string, () => void>();
  const lookups = new Lookups((host) => {
    const answer = Promise.withResolvers<readonly LookupAddress[]>();
    asked.set(host, () => answer.resolve(FOUND));
    return answer.promise;
  }, bounds);
  return { asked, lookups };
}

test('names that nobody answers for hold up the workspace that named them, and no other', async () => {
  const { asked, lookups } = aResolver();
  const held = lookups.addressesOf('hole-1', 'slow');
  const next = ['hole-2', 'hole-3', 'hole-4'].map((host) => lookups.addressesOf(host, 'slow'));
  const other = lookups.addressesOf('good', 'other');
  // The workspace's other lookups find no place, which says nothing about their addresses.
  for (const one of await Promise.allSettled(next)) expect(one).toMatchObject({ reason: expect.any(NoPlaceError) });
  expect([...asked.keys()]).toEqual(['hole-1', 'good']);
  asked.get('good')?.();
  expect(await other).toEqual(FOUND);
  asked.get('hole-1')?.();
  await held;
  const again = lookups.addressesOf('hole-2', 'slow');
  await new Promise(setImmediate);
  asked.get('hole-2')?.();
  expect(await again).toEqual(FOUND);
});

test('two at a time, whosever they are; who waits comes next', async () => {
  const { asked, lookups } = aResolver({ waitMs: 5_000, answerMs: 5_000 });
  const all = ['a', 'b', 'c', 'd'].map((name) => lookups.addressesOf(name, name));
  for (const turn of [
    ['a', 'b'],
    ['c', 'd'],
  ]) {
    await new Promise(setImmediate);
    expect([...asked.keys()]).toEqual(turn);
    for (const [name, answer] of asked) {
      answer();
      asked.delete(name);
    }
  }
  expect(await Promise.all(all)).toEqual([FOUND, FOUND, FOUND, FOUND]);
});

test('a place is the resolver’s until it answers, also when its caller has stopped waiting', async () => {
  const { asked, lookups } = aResolver({ waitMs: 5, answerMs: 5 });
  await expect(lookups.addressesOf('hole', 'slow')).rejects.toThrow('hole was not resolved in 5 ms');
  await expect(lookups.addressesOf('good', 'slow')).rejects.toThrow(NoPlaceError);
  expect([...asked.keys()]).toEqual(['hole']);
});
