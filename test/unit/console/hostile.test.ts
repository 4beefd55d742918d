import { expect, test } from 'vitest';
import { commandsIn, shownLine, shownText, withoutSubject } from '../../../console/parts/hostile.ts';
import { spanOf } from '../../../console/parts/time.ts';
import { word } from '../../../console/parts/word.ts';

test('characters that nobody sees, or that turn a line, are shown as codes, and colours are left out', () => {
  expect(shownText('\u001b[31mred\u001b[0m \u001b]0;title\u0007done')).toBe('red done');
  expect(shownText('a\u202egnp.exe\u2066b')).toBe('a\\u202egnp.exe\\u2066b');
  expect(shownText('nul\0 bell\u0007 \u200b\ufeff')).toBe('nul\\u0000 bell\\u0007 \\u200b\\ufeff');
  expect(shownText('tab\t, line\r\nand <b>markup</b> stay')).toBe('tab\t, line\nand <b>markup</b> stay');
});

test('a line of 19 MB is cut before it is looked at', () => {
  const shown = shownLine(`\u001b${'x'.repeat(19 * 1024 * 1024)}`);
  expect(shown.length).toBeLessThan(5 * 1024);
  expect(shown).toContain('characters more');
});

test('commands in a sentence stand between backticks', () => {
  expect(commandsIn('try `longshore logs a`, or `longshore status`')).toEqual(['longshore logs a', 'longshore status']);
  expect(commandsIn('nothing')).toEqual([]);
});

test('names are words of a shell, and spans are short', () => {
  expect([word('hello-1'), word('a b'), word("it's"), word('$(x)')]).toEqual([
    'hello-1',
    "'a b'",
    `'it'\\''s'`,
    "'$(x)'",
  ]);
  expect([0, 999, 1_500, 59_000, 61_000, 3_700_000, 90_000_000].map(spanOf)).toEqual([
    '0 ms',
    '999 ms',
    '1.5 s',
    '59 s',
    '1 m 1 s',
    '1 h 1 m',
    '1 d 1 h',
  ]);
});

test('a sentence leaves out the name and the state that stand beside it, and nothing else', () => {
  expect(withoutSubject('ocr v1 is FAILING: the last call failed', 'ocr', 'FAILING')).toBe('The last call failed');
  for (const [name, state] of [
    ['ocr', 'IDLE'],
    ['other', 'FAILING'],
    ['', 'FAILING'],
  ] as const)
    expect(withoutSubject('ocr v1 is FAILING: it failed', name, state)).toBe('ocr v1 is FAILING: it failed');
  // A name may hold the words itself.
  expect(withoutSubject('a is IDLE: b v1 is IDLE: no task waits', 'a is IDLE: b', 'IDLE')).toBe('No task waits');
});
