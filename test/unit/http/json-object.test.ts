import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isRecord } from '#shared/json.ts';
import { ObjectScan, scanObject } from '../../../scheduler/api/http/json-object.ts';

interface Judged {
  readonly callbackUrl: unknown;
}

function parsed(text: string): Judged | null {
  try {
    const given = JSON.parse(text) as unknown;
    if (!isRecord(given)) return null;
    const { kwargs } = given;
    return { callbackUrl: (isRecord(kwargs) ? kwargs : given)['callback_url'] };
  } catch {
    return null;
  }
}

function scanned(text: string, most: number): Judged | null {
  const scan = new ObjectScan(Buffer.from(text));
  for (;;) {
    const verdict = scan.step(most);
    if (verdict !== 'more') return verdict === 'whole' ? { callbackUrl: scan.callbackUrl } : null;
  }
}

/** Texts near JSON: pieces of its grammar, in any order. */
const piece = fc.constantFrom(
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    ' ',
    '\n',
    '\t',
    '\r',
    '\f',
    '\u00a0',
    '\ufeff',
    '"',
    '\\',
    '\\u',
    '\\u00e9',
    '\\ud800',
    '\\x',
    '\\/',
  ],
  ...['"kwargs"', '"callback_url"', '"callback\\u005furl"', '"a"', '""', '"é"', '"\u0001"', '"\u007f"', '"__proto__"'],
  ...['0', '1', '-', '-0', '01', '1.', '.5', '1.5', '1e', '1e5', '1E+5', '1e-', '0e0', '+1', 'NaN', 'Infinity'],
  ...['true', 'false', 'null', 'nul', 'True', 'truefalse'],
);
const nearJson = fc.array(piece, { maxLength: 12 }).map((pieces) => `{${pieces.join('')}`);
const callbacks = fc.oneof(
  fc.constant('"https://a.example"'),
  fc.constant('null'),
  fc.constant('[1,{"callback_url":2}]'),
  fc.constant('7'),
);
const member = fc.oneof(
  callbacks.map((value) => `"callback_url" : ${value}`),
  fc
    .array(callbacks, { maxLength: 2 })
    .map((values) => `"kwargs":{${values.map((value) => `"callback_url":${value}`).join(',')}}`),
  callbacks.map((value) => `"kwargs":${value}`),
  fc.tuple(fc.string(), fc.jsonValue()).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`),
  callbacks.map((value) => `"x":{"kwargs":{"callback_url":${value}},"callback_url":1}`),
);
const objects = fc.array(member, { maxLength: 5 }).map((members) => `{${members.join(', ')}}`);
/** A good object with a byte taken out, doubled or put in. */
const damaged = fc
  .tuple(objects, fc.nat(), fc.constantFrom('', ',', '"', '}', '0', '\\', '\n', 'e'))
  .map(([text, at, put]) => {
    const place = at % (text.length + 1);
    return text.slice(0, place) + put + text.slice(place + (put === '' ? 1 : 0));
  });

describe('the scan of a body', () => {
  test('accepts what JSON.parse accepts of an object, and finds the same callback, in slices of any size', () => {
    fc.assert(
      fc.property(fc.oneof(nearJson, objects, damaged), fc.integer({ min: 1, max: 9 }), (text, most) => {
        expect(scanned(text, most)).toEqual(parsed(text));
      }),
      { numRuns: 2_000 },
    );
  });

  test('bears depth that no recursion would', () => {
    const deep = 20_000;
    const open = `{"a":${'['.repeat(deep)}`;
    expect(scanned(`${open}${']'.repeat(deep)}}`, 4096)).toEqual(parsed(`${open}${']'.repeat(deep)}}`));
    expect(scanned(`${open}${']'.repeat(deep - 1)}}`, 4096)).toBeNull();
  });

  test('turns the event loop between slices', async () => {
    let turns = 0;
    const count = setInterval(() => turns++, 0);
    const large = `{"a":${JSON.stringify(Array.from({ length: 100_000 }, (_, index) => ({ index })))}}`;
    expect(await scanObject(Buffer.from(large))).toEqual({ callbackUrl: undefined });
    clearInterval(count);
    expect(turns).toBeGreaterThan(5);
  });

  test('does not build a callback that is far too long', async () => {
    const long = 'x'.repeat(100_000);
    expect(await scanObject(Buffer.from(`{"callback_url":"${long}"}`))).toEqual({ callbackUrl: false });
  });
});
