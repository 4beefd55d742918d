import { describe, expect, test } from 'vitest';
import { cursorOf, pageLimit, pageOf, pageOffset, writeCursor } from '../../../scheduler/http/rest/paging.ts';
import { timeQuery } from '../../../scheduler/http/rest/rest.ts';

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
    expect([pageLimit({}), pageLimit({ limit: '0' }), pageLimit({ limit: '7' }), pageLimit({ limit: '5000' })]).toEqual(
      [10, 10, 7, 1000],
    );
    expect([pageOffset({}), pageOffset({ offset: '9' })]).toEqual([0, 9]);
    for (const limit of ['-1', 'x', '1.5']) expect(() => pageLimit({ limit })).toThrow(/limit/);
  });

  test.each(['x', '!!', Buffer.from('1:..').toString('base64url'), Buffer.from('-1:a').toString('base64url')])(
    'a cursor that is not ours is refused: %s',
    (cursor) => {
      expect(() => cursorOf({ cursor })).toThrow(expect.objectContaining({ code: 'invalid_cursor' }));
    },
  );

  test('an empty cursor is none', () => {
    expect(cursorOf({ cursor: '' })).toBeUndefined();
    expect(cursorOf({ cursor: writeCursor({ atMs: 5, id: 'f' }) })).toEqual({ atMs: 5, id: 'f' });
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
    expect(timeQuery({ at: text }, 'at')).toBe(ms);
  });

  test.each(['noon', '5', '2030-13-01T00:00:00Z', '2030-01-31T12:00:00', '2030-02-30T25:00:00Z'])(
    '%s is refused by the name of the parameter',
    (text) => {
      expect(() => timeQuery({ at: text }, 'at')).toThrow(/^query parameter at must be a time/);
    },
  );
});
