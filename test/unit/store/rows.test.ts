import { expect, test } from 'vitest';
import { storableText } from '../../../scheduler/stores/store/rows.ts';

test('ordinary text is stored as it is', () => {
  expect(storableText('größe 😀 {"a":"\\u0000"}')).toBe('größe 😀 {"a":"\\u0000"}');
});

test('what Postgres refuses is replaced instead of failing the batch', () => {
  expect(storableText('a\0b')).toBe('a\ufffdb');
  expect(storableText(`half \ud83d pair`)).toBe('half \ufffd pair');
});
