import { expect, test } from 'vitest';
import {
  fieldsOf,
  inputOf,
  invokeLine,
  latestOf,
  problemOf,
  pythonCall,
  pythonOf,
} from '../../../console/parts/call-lines.ts';

const CONFIG = JSON.stringify({
  inputs: { fields: { name: { type: 'String' }, count: { type: 'Integer' }, more: { type: 'JSON' } } },
});

test('a form has the fields that a stub declares, and none where it declares nothing', () => {
  expect(fieldsOf(CONFIG)?.map(({ name, type }) => `${name} ${type}`)).toEqual([
    'name String',
    'count Integer',
    'more JSON',
  ]);
  for (const config of ['', '{}', '{"inputs": null}', '{"inputs": {"fields": {}}}'])
    expect(fieldsOf(config)).toBe(undefined);
});

test('typed texts make the input, and a wrong one is told with its field', () => {
  const fields = fieldsOf(CONFIG) ?? [];
  const made = inputOf(fields, { name: 'a "b"', count: '3', more: '[1]' });
  expect(made).toEqual({ json: '{"name":"a \\"b\\"","count":3,"more":[1]}' });
  expect(inputOf(fields, { count: '3.5', more: '1' })).toEqual({ field: 'count', why: 'is not a whole number' });
  expect(inputOf(fields, { count: '3', more: '{' })).toEqual({ field: 'more', why: 'is not JSON' });
  expect(['', '{"a": 1}', '[1]', '{'].map(problemOf)).toEqual([
    '',
    '',
    'An input is a JSON object.',
    expect.stringMatching(/^This is not JSON: ./),
  ]);
});

test('the address of the latest version is that of one version without its number', () => {
  const shop = { name: 'a b', version: 12 };
  expect(latestOf('http://h/endpoint/a%20b/v12', shop)).toBe('http://h/endpoint/a%20b');
  expect(latestOf('http://h/pod/a%20b/v12/8000', shop)).toBe('http://h/pod/a%20b/8000');
  for (const url of ['http://h/endpoint/public/77', 'http://shop-v12.h', 'http://h/endpoint/a%20b/v1'])
    expect(latestOf(url, shop)).toBe(url);
});

test('a call is copied as Python and as a command', () => {
  expect(pythonOf({ a: [true, null, 1.5], b: 'x "y"\n' })).toBe('{"a": [True, None, 1.5], "b": "x \\"y\\"\\n"}');
  expect(pythonCall('http://h/endpoint/a', '{"on":false}')).toContain('json={"on": False},');
  const hello = { name: 'hello', version: 2, kind: 'taskqueue' };
  expect(invokeLine(hello, '{"a":"it\'s"}')).toBe(
    `longshore invoke hello --version 2 --kind taskqueue --data '{"a":"it'\\''s"}'`,
  );
  expect(invokeLine({ name: 'hello', version: undefined, kind: 'endpoint' }, '{}')).toBe('longshore invoke hello');
});
