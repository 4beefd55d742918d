import { Type } from 'typebox';
import { expect, test } from 'vitest';
import { Bytes, Flag, Int64, Text, Timestamp, Uint32, nullable } from '#shared/api/fields.ts';
import { compileEncoder } from '../../../scheduler/api/http/encode.ts';

const Inner = Type.Object({ size: Int64(), name: Text() });
const Message = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  total: Uint32(),
  size: Int64(),
  at: Timestamp(),
  meta: nullable(Inner),
  list: Type.Array(Inner),
  map: Type.Record(Type.String(), Type.Boolean()),
  signature: Bytes(),
});
const encode = compileEncoder(Message);

test('an empty answer has every field with its zero', () => {
  expect(encode({})).toEqual({
    ok: false,
    errMsg: '',
    total: 0,
    size: '0',
    at: null,
    meta: null,
    list: [],
    map: {},
    signature: '',
  });
});

test('int64 goes out as digits at every depth, fields nobody listed do not go out', () => {
  expect(
    encode({ size: 2 ** 53, meta: { size: 5, name: 'n', secret: 1 }, list: [{ size: 7 }], other: true }),
  ).toMatchObject({
    size: '9007199254740992',
    meta: { size: '5', name: 'n' },
    list: [{ size: '7', name: '' }],
  });
  expect(JSON.stringify(encode({ other: 'leak', meta: { secret: 'leak' } }))).not.toContain('leak');
});

test('bytes go out as padded base64', () => {
  expect(encode({ signature: new Uint8Array([251, 255]) })).toMatchObject({ signature: '+/8=' });
});
