// JSON of users by its places in the text: no character of it changes.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  JsonText,
  itemTextsOf,
  jsonTextOf,
  laidOut,
  memberText,
  membersOf,
  stringifyExactly,
  withMembers,
} from '#shared/json-text.ts';
import { EXACT } from '../helpers/exact-json.ts';

describe('a text', () => {
  test('is written as it is, wherever it stands', () => {
    const texts = EXACT.map((text) => new JsonText(text));
    expect(stringifyExactly(texts)).toBe(`[${EXACT.join(',')}]`);
    expect(stringifyExactly({ a: texts[0], b: { c: texts[1] }, d: null })).toBe(
      `{"a":${EXACT[0]},"b":{"c":${EXACT[1]}},"d":null}`,
    );
    expect(stringifyExactly(texts[0])).toBe(EXACT[0]);
    expect(stringifyExactly({ a: 1 })).toBe('{"a":1}');
  });

  test('is its value for other writers', () => {
    expect(JSON.stringify({ a: new JsonText('{"b": 1.0}') })).toBe('{"a":{"b":1}}');
  });

  test('with the marks of another text is not taken for it', () => {
    const inner = stringifyExactly({ a: new JsonText('1.0'), said: 'json:0:' });
    expect(stringifyExactly({ inner, b: new JsonText('2.0') })).toBe(`{"inner":${JSON.stringify(inner)},"b":2.0}`);
  });

  test('is none where it is no JSON', () => {
    for (const text of ['', '{', '1,2', 'undefined', '{"a":1}}', '[1', '"\n"', '1e', '01'])
      expect(jsonTextOf(text)).toBe(undefined);
    for (const text of EXACT) expect(jsonTextOf(text)?.text).toBe(text);
  });

  test('that is deep is written', () => {
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    expect(stringifyExactly({ a: new JsonText(deep) })).toBe(`{"a":${deep}}`);
    expect(laidOut(`${'['.repeat(1000)}1${']'.repeat(1000)}`, 2).length).toBeLessThan(1_000_000);
  });
});

const anyJson = fc.oneof(fc.jsonValue({ maxDepth: 5 }), fc.constantFrom(...EXACT.map((text) => new JsonText(text))));
/** JSON with white space between its tokens. */
const spaced = fc
  .tuple(anyJson, fc.constantFrom('', ' ', '\n\t', '\r\n  '))
  .map(([value, space]) => laidOut(stringifyExactly(value), 1).replaceAll('\n', `\n${space}`));

describe('any text', () => {
  test('is laid out as its value would be', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), fc.constantFrom(1, 2, 4), (value, indent) => {
        const text = JSON.stringify(value);
        expect(laidOut(text, indent)).toBe(JSON.stringify(value, null, indent));
        const around = { a: [{ b: 1 }, { c: value }], d: value };
        const texts = { a: [{ b: 1 }, { c: new JsonText(text) }], d: new JsonText(text) };
        expect(stringifyExactly(texts, indent)).toBe(JSON.stringify(around, null, indent));
      }),
    );
  });

  test('keeps its tokens when it is laid out', () => {
    for (const text of EXACT) {
      expect(laidOut(laidOut(text, 2), 4)).toBe(laidOut(text, 4));
      expect(laidOut(text, 2).replaceAll(/\s/g, '')).toBe(text.replaceAll(/\s/g, ''));
    }
  });

  test('of an object has the members that a parser finds, each with its own text', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.string({ unit: 'binary' }), spaced), { maxLength: 5 }), (pairs) => {
        const text = ` {\n${pairs.map(([name, value]) => `${JSON.stringify(name)} : ${value}\t`).join(',')}} `;
        expect(membersOf(text).map(({ name, valueFrom, to }) => [name, text.slice(valueFrom, to)])).toEqual(pairs);
        for (const [name] of pairs)
          expect(memberText(text, name)).toBe(pairs.findLast(([other]) => other === name)?.[1]);
      }),
    );
  });

  test('of a list has the items that a parser finds', () => {
    fc.assert(
      fc.property(fc.array(spaced, { maxLength: 5 }), (items) => {
        expect(itemTextsOf(`[ ${items.join(' , ')}\n]`)).toEqual(items);
      }),
    );
  });
});

test('changed members change alone', () => {
  const text = ' { "10" : 1.0, "9":[1e400 , -0.0],\n"a":1,"b": "\\u0000" , "a": 2, "9": 3 } ';
  expect(withMembers(text, {})).toBe(text);
  expect(withMembers(text, { set: { a: 'true', c: '[]' }, keeps: (name) => name !== 'b' })).toBe(
    ' { "10" : 1.0, "9":[1e400 , -0.0] , "a": true, "9": 3,"c":[] } ',
  );
  expect(withMembers(text, { once: new Set(['9']) })).toBe(' { "10" : 1.0,\n"a":1,"b": "\\u0000" , "a": 2, "9": 3 } ');
  expect(withMembers(text, { keeps: (name) => name === 'b' })).toBe(' { "b": "\\u0000" } ');
  expect(withMembers(text, { keeps: () => false })).toBe(' {  } ');
  expect(withMembers('{ }', { set: { ['a"']: '1' } })).toBe('{ "a\\"":1}');
  expect(withMembers('{"__proto__":{"a":1},"\\u0061":2}', { set: { a: '3' } })).toBe(
    '{"__proto__":{"a":1},"\\u0061":3}',
  );
});

test('any change gives the object that a parser would have changed', () => {
  const names = fc.constantFrom('a', 'b', '"', '\n', 'toString');
  fc.assert(
    fc.property(
      fc.array(fc.tuple(names, spaced), { maxLength: 6 }),
      fc.dictionary(names, fc.integer()),
      fc.array(names),
      (pairs, set, dropped) => {
        const text = `{${pairs.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(' ,\t')}}`;
        const before = JSON.parse(text) as Record<string, unknown>;
        for (const name of dropped) delete before[name];
        const texts = Object.fromEntries(Object.entries(set).map(([name, value]) => [name, String(value)]));
        const changed = withMembers(text, { set: texts, keeps: (name) => !dropped.some((one) => one === name) });
        expect(JSON.parse(changed)).toEqual({ ...before, ...set });
      },
    ),
  );
});
