import { expect, test } from 'vitest';
import { errorLine, readResult } from '../../../console/parts/task-failure.ts';

const TRACE = 'Traceback (most recent call last):\n  File "a.py", line 5\nFileNotFoundError: no weights\n';

test('a traceback is taken out of a result, and nothing else is', () => {
  expect(readResult({ error: TRACE })).toEqual({ error: TRACE, rest: undefined });
  expect(readResult({ error: TRACE, key: 1 })).toEqual({ error: TRACE, rest: { key: 1 } });
  for (const result of [null, 'a\nb', [{ error: TRACE }], { error: 'short' }, { error: 3 }, {}])
    expect(readResult(result)).toEqual({ error: '', rest: result });
});

test('the line of a failure is that of the last attempt, else the last of its error', () => {
  expect(errorLine([{ error: 'first' }, { error: 'second' }, { error: '' }], 'x', { error: TRACE })).toBe('second');
  expect(errorLine([], 'start_failed', { error: TRACE })).toBe('FileNotFoundError: no weights');
  // The result of a task that did not fail is no failure, whatever its fields are called.
  expect(errorLine([], '', { error: TRACE })).toBe('');
  for (const result of [null, undefined, 'text', { error: 3 }]) expect(errorLine([], 'start_failed', result)).toBe('');
});
