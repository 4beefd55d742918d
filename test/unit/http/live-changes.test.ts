// Changes between two answers, and that the console's patch makes the later answer of the earlier one.
import { expect, test } from 'vitest';
import { changesBetween, seenOf } from '#scheduler/api/http/rest/live-changes.ts';
import { patched } from '../../../console/live/streams.ts';

type Json = Record<string, unknown>;
const between = (before: Json, after: Json): Json | undefined => {
  const text = changesBetween(seenOf(before), seenOf(after));
  return text === undefined ? undefined : (JSON.parse(`{${text}}`) as Json);
};

test('rows that are the same are not sent, nor is an order that stayed', () => {
  const rows = [
    { id: 'a', n: 1 },
    { id: 'b', n: 2 },
  ];
  expect(between({ data: rows, total: 2 }, { data: [rows[0], { id: 'b', n: 3 }], total: 2 })).toEqual({
    rows: [{ id: 'b', n: 3 }],
  });
  expect(between({ data: rows }, { data: rows.toReversed() })).toEqual({ order: ['b', 'a'] });
  expect(between({ data: rows, at: 'then' }, { data: rows, at: 'now' })).toEqual({});
});

test('fields that change with the clock alone do not count', () => {
  const steady = ({ now: _now, ...rest }: Json): Json => ({ ...rest, now: null });
  const [before, after] = [seenOf({ now: 1, n: 1 }, steady), seenOf({ now: 2, n: 1 }, steady)];
  expect(changesBetween(before, after)).toBe('');
});

test('rows without ids of their own are one field; a field that is gone needs the whole answer', () => {
  expect(between({ data: [{ n: 1 }] }, { data: [{ n: 2 }] })).toEqual({ fields: { data: [{ n: 2 }] } });
  expect(between({ a: 1, b: 2 }, { a: 1 })).toBeUndefined();
});

test('a patched answer equals the later one, for any two answers', () => {
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % below;
  };
  const answer = (): Json => {
    const ids = Array.from({ length: 6 }, (_, at) => String(at)).filter(() => random(2) === 0);
    const order = random(2) === 0 ? ids : ids.toReversed();
    return { data: order.map((id) => ({ id, n: random(3) })), total: random(3) };
  };
  for (let story = 0; story < 10_000; story += 1) {
    const [before, after] = [answer(), answer()];
    expect(patched(before, between(before, after) ?? {})).toEqual(after);
  }
});
