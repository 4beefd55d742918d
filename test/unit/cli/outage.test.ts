import { expect, test } from 'vitest';
import { Outage } from '#cli/outage.ts';

test('a person hears of an outage at once, then once a minute, and of its end', () => {
  const outage = new Outage();
  expect(outage.over()).toBe(false);
  const told = [0, 5, 30, 59, 60, 61, 119, 125, 200].map((seconds) => outage.failed(seconds * 1_000));
  expect(told.filter((text) => text !== undefined)).toEqual([
    'the connection is lost; dialling again',
    'the scheduler has not answered for 1 min; Ctrl-C ends this command',
    'the scheduler has not answered for 2 min; Ctrl-C ends this command',
    'the scheduler has not answered for 3 min; Ctrl-C ends this command',
  ]);
  expect(outage.over()).toBe(true);
  expect(outage.failed(300_000)).toBe('the connection is lost; dialling again');
});
