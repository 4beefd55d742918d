import { expect, test } from 'vitest';
import { KeptInput } from '#cli/commands/kept-input.ts';

const textOf = (kept: KeptInput): string => Buffer.concat([...kept.pieces]).toString();

test('what the other side has is let go, within a piece and over several', () => {
  const kept = new KeptInput();
  for (const piece of ['abc', 'def', 'ghi']) kept.add(Buffer.from(piece));
  expect([kept.bytes, kept.taken(1), textOf(kept)]).toEqual([9, true, 'bcdefghi']);
  expect([kept.taken(6), textOf(kept)]).toEqual([true, 'ghi']);
  expect([kept.taken(6), kept.taken(8), textOf(kept), kept.bytes]).toEqual([true, true, 'i', 1]);
  expect([kept.taken(9), kept.pieces]).toEqual([true, []]);
  kept.add(Buffer.from('jk'));
  expect([kept.taken(10), textOf(kept)]).toEqual([true, 'k']);
});

test('a place that cannot be right changes nothing', () => {
  const kept = new KeptInput();
  kept.add(Buffer.from('abcd'));
  expect([kept.taken(2), kept.taken(1), kept.taken(5), textOf(kept)]).toEqual([true, false, false, 'cd']);
});
