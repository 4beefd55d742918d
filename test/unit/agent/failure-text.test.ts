import { expect, test } from 'vitest';
import { cutText, exitText, failureText } from '../../../agent/slots/failure-text.ts';

test.each([
  ['RuntimeError: no model', 'Traceback (most recent call last):\n  File "app.py", line 3\nRuntimeError: no model\n'],
  [
    'SyntaxError: invalid syntax (app.py, line 1)',
    '  File "app.py", line 1\n    def f(:\nSyntaxError: invalid syntax\n',
  ],
  ['ValueError: two\nlines', 'Traceback (most recent call last):\nValueError: two\nlines\n'],
])('a start that failed tells its error once: %j', (error, traceback) => {
  expect(failureText(error, traceback)).toBe(traceback.trimEnd());
});

test('an error without a traceback, or with one that ends otherwise, is told', () => {
  expect(failureText('no handler', '')).toBe('no handler');
  expect(failureText('A: b', 'Traceback\nC: d')).toBe('A: b\nTraceback\nC: d');
  expect(failureText('A: b', `${'line\n'.repeat(100)}A: b`).split('\n')).toHaveLength(20);
});

test('a text is cut to its size by bytes, keeps its beginning and its end, and no character is torn', () => {
  expect(cutText('short')).toBe('short');
  for (const letter of ['x', 'ä', '€', '😀']) {
    const cut = cutText(`KeyError: ${letter.repeat(1_000_000)} the end`);
    expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(16 * 1024);
    expect(Buffer.byteLength(cut)).toBeGreaterThan(16 * 1024 - 20);
    expect(cut).toMatch(/^KeyError: [^]*\n\[\.\.\.\]\n[^]* the end$/);
    expect(cut).not.toContain('\uFFFD');
  }
  expect(cutText('x'.repeat(100), 4)).toBe('');
});

test('an attempt that a reload ended says so, with the time that it had', () => {
  expect(exitText(143, 10_020)).toBe('ended by a reload: the call still ran 10 s after files were saved');
  expect(exitText(137, 13_000)).toMatch(/^ended by a reload/);
  expect(exitText(3, 500)).toBe('process exited (code 3)');
  expect(exitText(137, undefined)).toBe('process exited (code 137)');
});
