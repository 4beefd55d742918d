import { expect, test } from 'vitest';
import { bodyWith, readBody } from '../../../scheduler/api/http/inference/json-body.ts';

test.each([
  ['{"a":}', 'the body is no JSON object: byte 5 is }, where a value has to come'],
  ['{\n"a": 1,\n"b" 2}', 'the body is no JSON object: byte 14 (line 3) is 2, where a colon has to come'],
  ['[1]', 'the body is an array, and has to be a JSON object'],
  ['   ', 'send a JSON object'],
  ['', 'send a JSON object'],
  [Buffer.from([0x7b, 0x22, 0xff]), 'the body is no JSON object: byte 2 begins no character of UTF-8'],
  [
    `{"password":"${'s3cret'.repeat(50)}" "b":1}`,
    'the body is no JSON object: byte 315 is ", where a comma or } has to come',
  ],
])('the body %s is invalid_json, and the error says where', (body, message) => {
  expect(() => readBody(Buffer.from(body))).toThrow(expect.objectContaining({ code: 'invalid_json', message }));
});

test('a field by which a request is checked goes out once, also where its value does not change', () => {
  const text = '{"model":"other","temperature":9,"own":1,"own":2,"model":"llama","temperature":1}';
  const value = JSON.parse(text) as Record<string, string>;
  expect(bodyWith({ text, value }, value).text).toBe('{"own":1,"own":2,"model":"llama","temperature":1}');
});
