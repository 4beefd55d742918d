import { expect, test } from 'vitest';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import { orderProblem, reserveAfterProblem, SharingSetting } from '#scheduler/workspaces/identity/sharing.ts';

test('placement hears of another order, and only then', () => {
  const sharing = new SharingSetting();
  const heard: string[] = [];
  sharing.onChange(({ order }) => heard.push(order));
  for (const text of ['share', 'arrival', 'arrival', 'share', '']) sharing.setOrder(text);
  expect(heard).toEqual(['arrival', 'share']);
  expect(sharing.now).toEqual(DEFAULT_SHARING);
});

test('placement hears of another time until a machine is reserved, and of none', () => {
  const sharing = new SharingSetting();
  const heard: (number | null)[] = [];
  sharing.onChange(({ reserveAfterSeconds }) => heard.push(reserveAfterSeconds));
  for (const text of ['60', '0', 'off', 'off', '90', '']) sharing.setReserveAfter(text);
  expect(heard).toEqual([0, null, 90, 60]);
  sharing.setReserveAfter('off');
  sharing.setOrder('arrival');
  expect(sharing.now).toEqual({ order: 'arrival', reserveAfterSeconds: null });
});

test('the time until a machine is reserved is within an hour, or off', () => {
  for (const text of ['0', '60', '3600', 'off']) expect(reserveAfterProblem(text)).toBeUndefined();
  for (const text of ['', '-1', '3601', '1.5', 'never'])
    expect(reserveAfterProblem(text)).toBe('must be seconds from 0 to 3600, or off');
});

test('an order is one of two words', () => {
  expect([orderProblem('share'), orderProblem('arrival')]).toEqual([undefined, undefined]);
  for (const text of ['', 'Share', 'size']) expect(orderProblem(text)).toBe('must be share or arrival');
});
