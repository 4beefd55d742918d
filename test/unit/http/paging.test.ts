import { Type } from 'typebox';
import { describe, expect, test } from 'vitest';
import { LogQuery } from '#shared/api/rest/logs.ts';
import { QueryFlag, QueryInteger, QueryList, QueryText, QueryTime } from '#shared/api/rest/query.ts';
import { cursorOf, pageLimit, pageOf, pageOffset, writeCursor } from '../../../scheduler/api/http/rest/paging.ts';
import { compileQuery } from '../../../scheduler/api/http/rest/query.ts';

describe('a page', () => {
  const row = (atMs: number, id = 'a') => ({ atMs, id });

  test('names its last row when there is more', () => {
    const { page, next } = pageOf([row(3), row(2, 'ab-1'), row(1)], 2, (one) => one);
    expect(page).toEqual([row(3), row(2, 'ab-1')]);
    expect(cursorOf({ cursor: next })).toEqual(row(2, 'ab-1'));
  });

  test('is the last one when there is not', () => {
    expect(pageOf([row(2), row(1)], 2, (one) => one).next).toBe('');
    expect(pageOf([], 2, () => row(0))).toEqual({ page: [], next: '' });
  });

  test('has a size with a default and a most', () => {
    expect([pageLimit({}), pageLimit({ limit: 0 }), pageLimit({ limit: 7 }), pageLimit({ limit: 5000 })]).toEqual([
      10, 10, 7, 1000,
    ]);
    expect([pageOffset({}), pageOffset({ offset: 9 })]).toEqual([0, 9]);
  });

  test.each(['x', '!!', Buffer.from('1:..').toString('base64url'), Buffer.from('-1:a').toString('base64url')])(
    'a cursor that is not ours is refused: %s',
    (cursor) => {
      expect(() => cursorOf({ cursor })).toThrow(expect.objectContaining({ code: 'invalid_cursor' }));
    },
  );

  test('no cursor is the first page', () => {
    expect(cursorOf({})).toBeUndefined();
    expect(cursorOf({ cursor: writeCursor({ atMs: 5, id: 'f' }) })).toEqual({ atMs: 5, id: 'f' });
  });
});

const read = compileQuery(
  Type.Object({ name: QueryText(), limit: QueryInteger(), active: QueryFlag(), ids: QueryList(), at: QueryTime() }),
);

describe('a query', () => {
  test('is read by what each parameter is; empty ones, and what is not described, are not there', () => {
    expect(read({ name: 'a', limit: '7', active: 't', ids: 'a, b,,c', at: '2030-01-31', other: 'x' })).toEqual({
      name: 'a',
      limit: 7,
      active: true,
      ids: ['a', 'b', 'c'],
      at: Date.UTC(2030, 0, 31),
    });
    expect(read({ name: '', limit: '', active: '', ids: '', at: '' })).toEqual({});
    expect(read({})).toEqual({});
  });

  test('does not look at what stands for another one that is there', () => {
    const readLogs = compileQuery(LogQuery);
    const instead = { size: 'abc', worker_id: ['a', 'b'] };
    expect(readLogs({ limit: '100', machine_id: 'm', ...instead })).toEqual({ limit: 100, machine_id: 'm' });
    expect(readLogs({ size: '5', worker_id: 'w' })).toEqual({ size: 5, worker_id: 'w' });
    expect(() => readLogs({ limit: '0', ...instead })).toThrow('query parameter worker_id must be given once');
    expect(() => readLogs({ limit: '0', size: 'abc' })).toThrow('query parameter size must be a number');
  });

  test.each([
    [{ limit: '-1' }, 'query parameter limit must be a number, 0 or more'],
    [{ limit: 'x' }, 'query parameter limit must be a number, 0 or more'],
    [{ limit: '1.5' }, 'query parameter limit must be a number, 0 or more'],
    [{ active: 'yes' }, 'query parameter active must be true or false'],
    [{ name: ['a', 'b'] }, 'query parameter name must be given once'],
    [{ ids: 'a\0' }, 'query parameter ids must be text without NUL'],
  ])('%j is refused by the name of the parameter', (query, text) => {
    expect(() => read(query)).toThrow(expect.objectContaining({ code: 'invalid_query', message: text }));
  });
});

describe('a time', () => {
  test.each([
    ['2030-01-31T12:00:00Z', Date.UTC(2030, 0, 31, 12)],
    ['2030-01-31T12:00:00.5+02:00', Date.UTC(2030, 0, 31, 10, 0, 0, 500)],
    ['2030-01-31T12:00:00 02:00', Date.UTC(2030, 0, 31, 10)],
    ['2030-01-31', Date.UTC(2030, 0, 31)],
    ['2030-01-31T12:00:00.123456789Z', Date.UTC(2030, 0, 31, 12, 0, 0, 123)],
  ])('%s is read', (text, ms) => {
    expect(read({ at: text }).at).toBe(ms);
  });

  test.each(['noon', '5', '2030-13-01T00:00:00Z', '2030-01-31T12:00:00', '2030-02-30T25:00:00Z'])(
    '%s is refused by the name of the parameter',
    (text) => {
      expect(() => read({ at: text })).toThrow(/^query parameter at must be a time/);
    },
  );
});
