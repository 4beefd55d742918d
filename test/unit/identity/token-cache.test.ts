import { expect, test } from 'vitest';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Caller } from '../../../scheduler/workspaces/identity/caller.ts';
import { TokenCache } from '../../../scheduler/workspaces/identity/token-cache.ts';

const aCaller = (id = 't'): Caller => ({
  workspaceId: 'w' as WorkspaceId,
  workspaceDbId: 1,
  tokenId: id as TokenId,
  type: 'workspace',
  isAdmin: false,
});

test('a caller is known until its token is invalidated', () => {
  const cache = new TokenCache();
  cache.put('h', aCaller(), 0, cache.generation);
  expect(cache.get('h', 1, true)).toEqual(aCaller());
  cache.invalidate('h');
  expect(cache.get('h', 1, true)).toBeUndefined();
});

test('an answer asked for before an invalidation is not kept', () => {
  const cache = new TokenCache();
  const before = cache.generation;
  cache.invalidate('h');
  cache.put('h', aCaller(), 0, before);
  expect(cache.get('h', 0, true)).toBeUndefined();
});

test('while no messages arrive a caller is believed for one second only', () => {
  const cache = new TokenCache();
  cache.put('h', aCaller(), 0, cache.generation);
  expect(cache.get('h', 999, false)).toEqual(aCaller());
  expect(cache.get('h', 1_000, false)).toBeUndefined();
});

test('a worthless token is remembered for a few seconds', () => {
  const cache = new TokenCache();
  cache.put('h', null, 0, cache.generation);
  expect(cache.get('h', 4_999, true)).toBeNull();
  expect(cache.get('h', 5_000, true)).toBeUndefined();
});

test('the least recently used caller leaves a full cache', () => {
  const cache = new TokenCache(2);
  cache.put('a', aCaller('a'), 0, cache.generation);
  cache.put('b', aCaller('b'), 0, cache.generation);
  cache.get('a', 0, true);
  cache.put('c', aCaller('c'), 0, cache.generation);
  expect(cache.size).toBe(2);
  expect(cache.get('b', 0, true)).toBeUndefined();
  expect(cache.get('a', 0, true)?.tokenId).toBe('a');
});

test('clearing forgets everything', () => {
  const cache = new TokenCache();
  cache.put('a', aCaller(), 0, cache.generation);
  cache.put('b', null, 0, cache.generation);
  cache.clear();
  expect(cache.get('a', 0, true)).toBeUndefined();
  expect(cache.get('b', 0, true)).toBeUndefined();
});
