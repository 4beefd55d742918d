import { expect, test } from 'vitest';
import { arrayText, storableText } from '../../../scheduler/stores/store/rows.ts';

test('ordinary text is stored as it is', () => {
  expect(storableText('größe 😀 {"a":"\\u0000"}')).toBe('größe 😀 {"a":"\\u0000"}');
});

test('what Postgres refuses is replaced instead of failing the batch', () => {
  expect(storableText('a\0b')).toBe('a\ufffdb');
  expect(storableText(`half \ud83d pair`)).toBe('half \ufffd pair');
});

test.each([
  [['a', null, 'b,c'], '{"a",null,"b,c"}'],
  [['say "x"', 'c:\\n'], '{"say \\"x\\"","c:\\\\n"}'],
  [['two\nlines', undefined, '"\\'], '{"two\nlines",null,"\\"\\\\"}'],
  [[1, 2.5, null, -0.1], '{1,2.5,null,-0.1}'],
  [[true, false], '{true,false}'],
  [[null, undefined], null],
  [[], null],
])('the array %j is written as %j', (values, text) => {
  expect(arrayText(values)).toBe(text);
});
