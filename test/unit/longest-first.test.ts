import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { LONGEST, longestFirst } from '../helpers/longest-first.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');

test('every long file of the list is there, once', () => {
  expect(LONGEST.filter((name) => !existsSync(join(ROOT, name)))).toEqual([]);
  expect(new Set(LONGEST).size).toBe(LONGEST.length);
});

test('long files come first, in the order of the list, and the others stay in theirs', () => {
  const [long = '', longer = ''] = [LONGEST[1], LONGEST[0]].map((name) => join(ROOT, String(name)));
  expect(longestFirst(['/b.test.ts', long, '/a.test.ts', longer], (path) => path)).toEqual([
    longer,
    long,
    '/b.test.ts',
    '/a.test.ts',
  ]);
});
