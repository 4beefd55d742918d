// Lines as one text, and back.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LogLines } from '#shared/domain/log-lines.ts';
import {
  areJoined,
  JOINED_SPAN_MS,
  joinLines,
  MOST_JOINED_BYTES,
  MOST_JOINED_LINES,
  separateLines,
} from '#shared/domain/log-lines.ts';

const lines = fc.array(
  fc.record({
    of: fc.constantFrom('a', 'b'),
    line: fc.oneof(
      fc.string({ maxLength: 20 }),
      fc.string({ unit: 'binary', maxLength: 20 }),
      fc.constantFrom('', '\n', 'x\ny', 'z'.repeat(MOST_JOINED_BYTES), 'ü'.repeat(1_000)),
    ),
    atMs: fc.integer({ min: 1_000, max: 1_000 + 2 * JOINED_SPAN_MS }),
  }),
  { maxLength: 300 },
);

describe('joined lines', () => {
  test('are the same lines in the same order when they are taken apart, and within the bounds', () => {
    fc.assert(
      fc.property(lines, (some) => {
        const joined = joinLines<LogLines & { readonly of: string }>(some, (line, first) => line.of === first.of);
        expect(joined.flatMap(separateLines).map(({ of, line, atMs }) => ({ of, line, atMs }))).toEqual(some);
        for (const { line, afterMs } of joined) if (afterMs !== undefined) expect(areJoined(line, afterMs)).toBe(true);
        expect(joinLines(joined, () => false)).toEqual(joined);
      }),
    );
  });

  test('share a text as far as the bounds go', () => {
    const of = (count: number, line: string) => Array.from({ length: count }, () => ({ line, atMs: 1 }));
    const counts = (some: ReturnType<typeof of>) =>
      joinLines(some, () => true).map(({ line }) => line.split('\n').length);
    expect(counts(of(2 * MOST_JOINED_LINES + 1, 'x'))).toEqual([MOST_JOINED_LINES, MOST_JOINED_LINES, 1]);
    expect(counts(of(3, 'x'.repeat(MOST_JOINED_BYTES / 2 - 1)))).toEqual([2, 1]);
  });

  test.each<[string, string, number[]]>([
    ['fewer line ends than times', 'a', [0, 1]],
    ['more line ends than times', 'a\nb\nc', [0, 1]],
    ['no times', 'a', []],
    ['one time', 'a', [0]],
    ['too many lines', 'a\n'.repeat(MOST_JOINED_LINES), Array(MOST_JOINED_LINES + 1).fill(0)],
    ['too many bytes', `a\n${'ü'.repeat(MOST_JOINED_BYTES / 2)}`, [0, 0]],
    ['times too far apart', 'a\nb', [0, JOINED_SPAN_MS]],
  ])('are refused with %s', (_what, text, afterMs) => {
    expect(areJoined(text, afterMs)).toBe(false);
  });
});
