import { expect, test } from 'vitest';
import type { StubRecord } from '#shared/api/rest/stubs.ts';
import { longPage } from '#scheduler/api/http/rest/long-pages.ts';
import { cursorOf } from '#scheduler/api/http/rest/paging.ts';

interface Row {
  readonly at: number;
}
const rowsFrom = (first: number, count: number): Row[] => Array.from({ length: count }, (_, n) => ({ at: first - n }));

/** Shows rows whose configurations have so many characters each. */
async function shown(page: readonly Row[], configLength: number, mostBytes: number) {
  const portions: number[] = [];
  const answer = await longPage({
    page,
    next: 'the-end',
    cursorAt: ({ at }: Row) => ({ atMs: at, id: 'a' }),
    show: (some) => {
      portions.push(some.length);
      return some.map(({ at }) => ({ at, stub: { config: 'x'.repeat(configLength) } as StubRecord }));
    },
    stubOf: ({ stub }) => stub,
    mostBytes,
  });
  return { ats: answer.data.map(({ at }) => at), next: answer.next, portions };
}

test('a page of short records is whole, and its records are made a few at a time', async () => {
  const rows = rowsFrom(200, 120);
  const { ats, next, portions } = await shown(rows, 10, 10_000_000);
  expect([ats, next, portions]).toEqual([rows.map(({ at }) => at), 'the-end', [50, 50, 20]]);
  expect(await shown([], 10, 1)).toEqual({ ats: [], next: 'the-end', portions: [] });
});

test('a page of long records ends early, and its next goes on behind the last of them', async () => {
  const { ats, next, portions } = await shown(rowsFrom(200, 120), 8_000, 35_000);
  expect([ats, cursorOf({ cursor: next }), portions]).toEqual([[200, 199, 198], { atMs: 198, id: 'a' }, [50]]);
});

test('a record that is longer than a page is a page of its own', async () => {
  const { ats, next } = await shown(rowsFrom(9, 2), 8_000, 100);
  expect([ats, cursorOf({ cursor: next })]).toEqual([[9], { atMs: 9, id: 'a' }]);
  expect(await shown(rowsFrom(9, 1), 8_000, 100)).toMatchObject({ ats: [9], next: 'the-end' });
});
