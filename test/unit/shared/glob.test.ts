import { expect, test } from 'vitest';
import { compileGlob, hasWildcards } from '../../../shared/domain/glob.ts';

const picks = (pattern: string, names: readonly string[]): readonly string[] => names.filter(compileGlob(pattern));

test('stars, question marks and sets match names as shells match them', () => {
  const names = ['a.txt', 'b.txt', 'ab.txt', 'a.json', '.txt', 'ü.txt', 'a]b', '-'];
  expect(picks('*.txt', names)).toEqual(['a.txt', 'b.txt', 'ab.txt', '.txt', 'ü.txt']);
  expect(picks('?.txt', names)).toEqual(['a.txt', 'b.txt', 'ü.txt']);
  expect(picks('[a-c].txt', names)).toEqual(['a.txt', 'b.txt']);
  expect(picks('[!b].txt', names)).toEqual(['a.txt', 'ü.txt']);
  expect(picks('a[]]b', names)).toEqual(['a]b']);
  expect(picks('[a-]', names)).toEqual(['-']);
  expect(picks('**', names)).toEqual(names);
  expect(picks('a*b*t', names)).toEqual(['ab.txt']);
  expect(picks('[*].txt', [...names, '*.txt'])).toEqual(['*.txt']);
});

test('a bracket that is not closed stands for itself, and a plain name matches itself alone', () => {
  expect(picks('[a', ['[a', 'a'])).toEqual(['[a']);
  expect(picks('a.txt', ['a.txt', 'aXtxt'])).toEqual(['a.txt']);
  expect(['a', 'a*', 'a?', '[a'].map(hasWildcards)).toEqual([false, true, true, true]);
});

test('a pattern of many stars is judged, where a matcher that tries every division would not end', () => {
  const matches = compileGlob(`${'*a'.repeat(120)}*b`);
  expect(matches('a'.repeat(255))).toBe(false);
  expect(matches(`${'a'.repeat(255)}b`)).toBe(true);
});
