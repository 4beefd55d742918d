import { expect, test } from 'vitest';
import { bodyWith } from '../../../scheduler/api/http/inference/json-body.ts';

test('a field by which a request is checked goes out once, also where its value does not change', () => {
  const text = '{"model":"other","temperature":9,"own":1,"own":2,"model":"llama","temperature":1}';
  const value = JSON.parse(text) as Record<string, string>;
  expect(bodyWith({ text, value }, value).text).toBe('{"own":1,"own":2,"model":"llama","temperature":1}');
});
