import fc from 'fast-check';
import { expect, test } from 'vitest';
import { challengesIn } from '#agent/images/guard/challenges.ts';

const read = (text: string): unknown =>
  challengesIn(text).map(({ scheme, params }) => [scheme, Object.fromEntries(params)]);

test.each<[string, unknown]>([
  ['', []],
  [' , ,', []],
  ['Basic', [['basic', {}]]],
  ['Basic realm="a"', [['basic', { realm: 'a' }]]],
  ['BEARER Realm="https://a/t",SERVICE=b', [['bearer', { realm: 'https://a/t', service: 'b' }]]],
  ['Bearer realm = "a" , service\t=\t"b"', [['bearer', { realm: 'a', service: 'b' }]]],
  ['Bearer realm="a",,service="b",', [['bearer', { realm: 'a', service: 'b' }]]],
  // Each of two challenges has its own realm, in both orders.
  [
    'Bearer realm="https://a/t",service="s", Basic realm="x"',
    [
      ['bearer', { realm: 'https://a/t', service: 's' }],
      ['basic', { realm: 'x' }],
    ],
  ],
  [
    'Basic realm="x", Bearer realm="https://a/t"',
    [
      ['basic', { realm: 'x' }],
      ['bearer', { realm: 'https://a/t' }],
    ],
  ],
  [
    'Negotiate, Bearer realm="a"',
    [
      ['negotiate', {}],
      ['bearer', { realm: 'a' }],
    ],
  ],
  [
    'Negotiate YWJj==, Bearer realm="a"',
    [
      ['negotiate', {}],
      ['bearer', { realm: 'a' }],
    ],
  ],
  [
    'Digest realm="d", qop="auth, auth-int", algorithm=MD5, Basic realm="b"',
    [
      ['digest', { realm: 'd', qop: 'auth, auth-int', algorithm: 'MD5' }],
      ['basic', { realm: 'b' }],
    ],
  ],
  // A quoted text may look like a challenge.
  [
    'Basic realm="x, Bearer realm=evil", Bearer realm="a"',
    [
      ['basic', { realm: 'x, Bearer realm=evil' }],
      ['bearer', { realm: 'a' }],
    ],
  ],
  [
    String.raw`Basic realm="say \"Bearer realm=\\\"", Bearer realm="a"`,
    [
      ['basic', { realm: String.raw`say "Bearer realm=\"` }],
      ['bearer', { realm: 'a' }],
    ],
  ],
  ['Bearer realm="a",realm="b"', [['bearer', { realm: 'a' }]]],
  ['Bearer error="x",xrealm="b",realm="a"', [['bearer', { error: 'x', xrealm: 'b', realm: 'a' }]]],
  // Servers that leave a comma out.
  ['Bearer realm="a" service="b"', [['bearer', { realm: 'a', service: 'b' }]]],
  // Text that is no challenge ends the list.
  ['realm="a"', []],
  ['Basic realm="b", "Bearer realm="a"', [['basic', { realm: 'b' }]]],
  [
    'Basic realm="b", Bearer realm="a',
    [
      ['basic', { realm: 'b' }],
      ['bearer', {}],
    ],
  ],
  ['Bearer"realm"', []],
  ['XBearer realm="a"', [['xbearer', { realm: 'a' }]]],
])('%s', (text, challenges) => expect(read(text)).toEqual(challenges));

test('each list of challenges is read as it was written', () => {
  const token = fc.stringMatching(/^[a-z][a-z0-9-]{0,8}$/);
  const params = fc.dictionary(token, fc.string({ unit: fc.constantFrom('a', ',', ' ', '"', '\\', '=', '/', ':') }), {
    minKeys: 1,
    maxKeys: 4,
  });
  const quoted = (value: string): string => `"${value.replace(/["\\]/g, String.raw`\$&`)}"`;
  fc.assert(
    fc.property(fc.array(fc.tuple(token, params), { maxLength: 4 }), (challenges) => {
      const text = challenges
        .map(
          ([scheme, said]) =>
            `${scheme} ${Object.entries(said)
              .map(([name, value]) => `${name}=${quoted(value)}`)
              .join(', ')}`,
        )
        .join(', ');
      expect(read(text)).toEqual(challenges.map(([scheme, said]) => [scheme, { ...said }]));
    }),
  );
});

test('any text of 32 KiB is read at once', () => {
  for (const part of ['a', 'a ', 'a=', 'a="', '\\"', '"', 'a b', '=', 'a,']) {
    const text = `Bearer ${part.repeat(32_768 / part.length)}`;
    const beganMs = performance.now();
    challengesIn(text);
    expect(performance.now() - beganMs, part).toBeLessThan(1_000);
  }
});
