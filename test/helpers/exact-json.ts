// JSON that JavaScript cannot parse and write again without a change.
import { JsonText } from '#shared/json-text.ts';

/** Each text is JSON, and `JSON.stringify(JSON.parse(text))` is another text. */
export const EXACT: readonly string[] = [
  '{"n":9007199254740993,"f":1.0,"m":10000000000000000000000000,"e":1e400,"z":-0.0,"x":1E+2,"h":0.1000}',
  '{"10":1,"9":2,"b":3,"a":4}',
  '{"a":1,"a":2,"b":{"c":1,"c":1}}',
  String.raw`{"s":"\u0000\ud800 \u2028\/\u00e9","t":["\udfff\ud800"],"\u0061":1}`,
  '{"raw":"\u2028 é 😀","list":[1.0,[2.50,-0.0],{}]}',
  '[9007199254740993,1.0,-0.0]',
  '12345678901234567890',
  String.raw`"\u0000\ud834"`,
];

/** The objects among them in one. */
export const EXACT_OBJECT = `{${EXACT.filter((text) => text.startsWith('{'))
  .map((text) => text.slice(1, -1))
  .join(',')}}`;

/** A value as requests and rows hold free JSON. */
export const jsonText = (value: unknown): JsonText => new JsonText(JSON.stringify(value));
