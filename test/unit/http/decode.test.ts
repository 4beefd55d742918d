import { Type } from 'typebox';
import { describe, expect, test } from 'vitest';
import { Anything, Bytes, Filters, Flag, Float, Int64, ListLimit, Text, Uint32, nullable } from '#shared/api/fields.ts';
import { compileDecoder, compileQueryReader, DecodeError } from '../../../scheduler/api/http/decode.ts';

const Inner = Type.Object({ maxContainers: Uint32(), type: Text() });
const Message = Type.Object({
  stubId: Text(),
  cpu: Int64(),
  workers: Uint32(),
  keepWarmSeconds: Type.Optional(Float()),
  forceCreate: Flag(),
  autoscaler: nullable(Inner),
  env: Type.Array(Text()),
  items: Type.Array(Inner),
  labels: Type.Record(Type.String(), Type.Boolean()),
  payload: Bytes(),
  free: nullable(Anything()),
});
const decode = compileDecoder(Message);
const fieldOf = (value: unknown): string => {
  try {
    decode(value);
  } catch (error) {
    if (error instanceof DecodeError) return error.field;
    throw error;
  }
  return 'nothing was refused';
};

describe('decoding a message', () => {
  test('an empty message has every field, absent optional ones stay absent', () => {
    expect(decode({})).toEqual({
      stubId: '',
      cpu: 0,
      workers: 0,
      forceCreate: false,
      autoscaler: null,
      env: [],
      items: [],
      labels: {},
      payload: new Uint8Array(0),
      free: null,
    });
    expect(decode(undefined)).toEqual(decode({}));
    expect(decode(null)).toEqual(decode({}));
  });

  test('both spellings are read, inside other messages and lists too', () => {
    const camel = { stubId: 's', forceCreate: true, autoscaler: { maxContainers: 3 }, items: [{ maxContainers: 1 }] };
    const snake = {
      stub_id: 's',
      force_create: true,
      autoscaler: { max_containers: 3 },
      items: [{ max_containers: 1 }],
    };
    expect(decode(snake)).toEqual(decode(camel));
    expect(decode(camel)).toMatchObject({ autoscaler: { maxContainers: 3, type: '' }, items: [{ maxContainers: 1 }] });
  });

  test('int64 comes as a number or as digits; so do the smaller numbers', () => {
    for (const cpu of [1000, '1000', '1e3']) expect(decode({ cpu })).toMatchObject({ cpu: 1000 });
    expect(decode({ workers: '4', keepWarmSeconds: '1.5' })).toMatchObject({ workers: 4, keepWarmSeconds: 1.5 });
    expect(decode({ cpu: '9223372036854775807' })['cpu']).toBeCloseTo(2 ** 63, -3);
  });

  test('null is the same as absent, also in the other spelling', () => {
    expect(decode({ stubId: null, stub_id: 'x', cpu: null, env: null, autoscaler: null })).toMatchObject({
      stubId: 'x',
      cpu: 0,
      env: [],
      autoscaler: null,
    });
  });

  test('unknown fields are dropped and inherited ones are not fields', () => {
    expect(decode({ nope: 1, autoscaler: { maxContainers: 1, other: 2 } })['autoscaler']).toEqual({
      maxContainers: 1,
      type: '',
    });
    expect(decode(JSON.parse('{"__proto__": {"stubId": "x"}}') as unknown)['stubId']).toBe('');
  });

  test('bytes are read in both alphabets', () => {
    expect(decode({ payload: '-_8=' })['payload']).toEqual(decode({ payload: '+/8' })['payload']);
  });

  test.each([
    [{ stubId: 5 }, 'stubId'],
    [{ cpu: 'x' }, 'cpu'],
    [{ cpu: 1.5 }, 'cpu'],
    [{ cpu: '99999999999999999999' }, 'cpu'],
    [{ workers: -1 }, 'workers'],
    [{ workers: 4_294_967_296 }, 'workers'],
    [{ workers: true }, 'workers'],
    [{ workers: ' 4' }, 'workers'],
    [{ force_create: 'true' }, 'forceCreate'],
    [{ autoscaler: [] }, 'autoscaler'],
    [{ autoscaler: { max_containers: 'many' } }, 'autoscaler.maxContainers'],
    [{ env: 'A=B' }, 'env'],
    [{ env: ['A=B', 3] }, 'env[1]'],
    [{ env: [null] }, 'env[0]'],
    [{ items: [{}, { type: 1 }] }, 'items[1].type'],
    [{ labels: { a: 1 } }, 'labels.a'],
    [{ payload: '*' }, 'payload'],
    [{ stubId: 'a\0b' }, 'stubId'],
    [{ stubId: '\ud800' }, 'stubId'],
    [{ free: { deep: ['\0'] } }, 'free'],
    [[], ''],
    ['text', ''],
  ])('%j is refused and the field is named', (value, field) => {
    expect(fieldOf(value)).toBe(field);
  });

  test('free JSON may not be nested without end', () => {
    let value: unknown = 1;
    for (let level = 0; level < 200; level++) value = [value];
    expect(fieldOf({ free: value })).toBe('free');
  });
});

describe('reading a query', () => {
  const Request = Type.Object({ limit: ListLimit(), isShell: Flag(), poolName: Text(), filters: Filters() });
  const readQuery = compileQueryReader(Request);
  const read = (query: Record<string, string | string[]>) => compileDecoder(Request)(readQuery(query));

  test('numbers, booleans and both spellings', () => {
    expect(read({ limit: '10', is_shell: 'T', pool_name: 'gpu', other: 'x' })).toEqual({
      limit: 10,
      isShell: true,
      poolName: 'gpu',
      filters: {},
    });
    for (const text of ['0', 'f', 'F', 'FALSE', 'false', 'False'])
      expect(read({ isShell: text })['isShell']).toBe(false);
  });

  test.each([[{ limit: 'ten' }], [{ limit: ['1', '2'] }], [{ isShell: 'yes' }], [{ poolName: ['a', 'b'] }]])(
    '%j is refused',
    (query) => {
      expect(() => read(query as Record<string, string | string[]>)).toThrow(DecodeError);
    },
  );

  test.each([
    [{ filters: 'status=RUNNING,PENDING;stub-id=a' }],
    [{ filters: '{"status":["RUNNING","PENDING"],"stub-id":"a"}' }],
    [{ filters: '{"status":{"values":["RUNNING","PENDING"]},"stub-id":{"values":["a"]}}' }],
    [{ 'filters[status]': 'RUNNING,PENDING', 'filters[stub-id]': 'a' }],
    [{ 'filters[status]': ['RUNNING', 'PENDING'], 'filters[stub-id]': ['a'] }],
  ])('%j means the same filters', (query) => {
    expect(read(query as Record<string, string | string[]>)['filters']).toEqual({
      status: ['RUNNING', 'PENDING'],
      'stub-id': ['a'],
    });
  });

  test.each([[{ filters: 'nonsense' }], [{ filters: '{bad' }], [{ filters: '{"a":{"b":1}}' }]])(
    'filters that are none of the forms are refused: %j',
    (query) => {
      expect(() => read(query as Record<string, string>)).toThrow(/filters/);
    },
  );
});
