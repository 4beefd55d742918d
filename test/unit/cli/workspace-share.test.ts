import { expect, test } from 'vitest';
import { shareRows, shareText } from '../../../cli/commands/share-text.ts';
import { changeOf } from '../../../cli/commands/workspace-share.ts';

test('flags become a change; what is not named stays', () => {
  expect(changeOf({})).toBeUndefined();
  expect(changeOf({ weight: '0.5', guarantee: ['H100=16', 'cpu=64'], limit: ['H100=none'] })).toEqual({
    weight: 0.5,
    guaranteed: { H100: 16, cpu: 64 },
    limits: { H100: null },
  });
  expect(changeOf({ weight: 'default' })).toEqual({ weight: null });
  expect(changeOf({ clear: true })).toEqual({ weight: null, guaranteed: null, limits: null });
});

test.each([
  [{ weight: 'two' }, '--weight two: it must be a number above 0'],
  [{ weight: '0' }, '--weight 0'],
  [{ weight: '-1' }, '--weight -1'],
  [{ guarantee: ['H100'] }, '--guarantee H100: it must be MARKET=NUMBER'],
  [{ limit: ['H100=1.5'] }, '--limit H100=1.5: it must be MARKET=NUMBER'],
  [{ limit: ['H100=1', 'H100=2'] }, '--limit H100=2: H100 is named twice'],
  [{ clear: true, weight: '2' }, '--clear puts all of the share back'],
])('%j is refused', (flags, problem) => {
  expect(() => changeOf(flags)).toThrow(problem);
});

test('a share is shown by market, and in a few words', () => {
  const share = { weight: 2, guaranteed: { H100: 16, L4: 4 }, limits: { H100: 32, cpu: 64 } };
  expect(shareRows(share)).toEqual([
    ['H100', '16', '32'],
    ['L4', '4', 'none'],
    ['cpu', '-', '64'],
  ]);
  expect(shareText(share)).toBe('weight 2, H100 16 to 32, L4 from 4, cpu up to 64');
  expect(shareText({ weight: 1, guaranteed: {}, limits: {} })).toBe('');
});
