import { expect, test } from 'vitest';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import { orderProblem, secondsProblem, secondsText, SharingSetting } from '#scheduler/workspaces/identity/sharing.ts';

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
  for (const text of ['60', '0', 'off', 'off', '90', '']) sharing.setSeconds('reserve_after', text);
  expect(heard).toEqual([0, null, 90, 60]);
  sharing.setSeconds('reserve_after', 'off');
  sharing.setOrder('arrival');
  expect(sharing.now).toEqual({ ...DEFAULT_SHARING, order: 'arrival', reserveAfterSeconds: null });
});

test('each time has a setting of its own', () => {
  const sharing = new SharingSetting();
  sharing.setSeconds('reclaim_after', 'off');
  sharing.setSeconds('reclaim_notice', '0');
  sharing.setSeconds('reclaim_min_run', '30');
  expect(sharing.now).toEqual({ ...DEFAULT_SHARING, reclaimAfterSeconds: null, noticeSeconds: 0, minRunSeconds: 30 });
  sharing.setSeconds('reclaim_notice', 'off');
  expect(sharing.now.noticeSeconds).toBe(DEFAULT_SHARING.noticeSeconds);
});

test.for([
  ['reserve_after', 3600, true],
  ['reclaim_after', 3600, true],
  ['reclaim_notice', 120, false],
  ['reclaim_min_run', 86_400, false],
] as const)('%s is whole seconds up to %s, or off: %s', ([name, most, mayBeOff]) => {
  const problem = `must be seconds from 0 to ${most}${mayBeOff ? ', or off' : ''}`;
  for (const text of ['0', '60', String(most), ...(mayBeOff ? ['off'] : [])])
    expect(secondsProblem(name, text)).toBeUndefined();
  for (const text of ['', '-1', String(most + 1), '1.5', 'never', ...(mayBeOff ? [] : ['off'])])
    expect(secondsProblem(name, text)).toBe(problem);
});

test('a value is written as it is read', () => {
  expect([secondsText(null), secondsText(90)]).toEqual(['off', '90']);
});

test('an order is one of two words', () => {
  expect([orderProblem('share'), orderProblem('arrival')]).toEqual([undefined, undefined]);
  for (const text of ['', 'Share', 'size']) expect(orderProblem(text)).toBe('must be share or arrival');
});
