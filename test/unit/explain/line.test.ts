// Sentences on the place in line of a workspace.
import { expect, test } from 'vitest';
import { lineTexts } from '#scheduler/api/explain/line.ts';

const place = { market: 'H100', before: 2, others: 4, used: 12, fairShare: 16, limit: null };

test('a workspace learns its place, what it holds, and how many are further below what is fair', () => {
  expect(lineTexts(place)).toEqual([
    'third in line for H100: this workspace holds 12 of its fair share of 16; two are further below theirs',
  ]);
  expect(lineTexts({ ...place, before: 1 })[0]).toMatch(/^second in line .*; one is further below its own$/);
  expect(lineTexts({ ...place, before: 0 })).toEqual([
    'first in line for H100: this workspace holds 12 of its fair share of 16',
  ]);
  expect(lineTexts({ ...place, before: 12 })[0]).toMatch(
    /^number 13 in line for H100: .*; 12 are further below theirs$/,
  );
  expect(lineTexts({ ...place, market: 'cpu', used: 1.25, fairShare: 1 })[0]).toContain(
    'line for CPU: this workspace holds 1.3 of its fair share of 1 core;',
  );
});

test('alone in a market, or by arrival, it has no place among others', () => {
  expect(lineTexts({ ...place, before: 0, others: 0 })).toEqual([]);
  expect(lineTexts({ ...place, before: null })).toEqual([]);
});

test('a limit is what it waits for, whoever else waits', () => {
  const says = [
    'limit of the workspace: it holds 8 of H100 and may hold 8, so the next container waits until another one of it ends',
  ];
  expect(lineTexts({ ...place, used: 8, limit: 8 })).toEqual(says);
  expect(lineTexts({ ...place, used: 8, limit: 8, before: null, others: 0 })).toEqual(says);
  expect(lineTexts({ ...place, market: 'cpu', used: 2, limit: 2 })[0]).toContain('it holds 2 cores and may hold 2,');
});
