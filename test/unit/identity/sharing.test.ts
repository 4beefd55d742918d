import { expect, test } from 'vitest';
import { orderProblem, SharingSetting } from '#scheduler/workspaces/identity/sharing.ts';

test('placement hears of another order, and only then', () => {
  const sharing = new SharingSetting();
  const heard: string[] = [];
  sharing.onChange(({ order }) => heard.push(order));
  for (const text of ['share', 'arrival', 'arrival', 'share', '']) sharing.set(text);
  expect(heard).toEqual(['arrival', 'share']);
  expect(sharing.now).toEqual({ order: 'share' });
});

test('an order is one of two words', () => {
  expect([orderProblem('share'), orderProblem('arrival')]).toEqual([undefined, undefined]);
  for (const text of ['', 'Share', 'size']) expect(orderProblem(text)).toBe('must be share or arrival');
});
