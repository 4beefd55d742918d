import { describe, expect, test } from 'vitest';
import { DEFAULT_SHARE } from '#scheduler/domain/shares.ts';
import { changedShare, marketOf, readShareChange, shareOf } from '#scheduler/domain/workspace-share.ts';

const read = (sent: unknown) => {
  const said = readShareChange(sent);
  if (said.kind === 'wrong') throw new Error(said.problems.join('\n'));
  return said.change;
};
const problemsOf = (sent: unknown): readonly string[] => {
  const said = readShareChange(sent);
  return said.kind === 'wrong' ? said.problems : [];
};

describe('the share of a row', () => {
  test('has defaults where nothing was given, or something unreadable', () => {
    for (const stored of [null, undefined, {}, [], 'x', { weight: 0, guaranteed: 5, limits: { H100: 'many' } }])
      expect(shareOf(stored)).toEqual(DEFAULT_SHARE);
  });

  test('is as it was given', () => {
    const stored = { weight: 2, guaranteed: { H100: 16 }, limits: { H100: 32, cpu: 0 }, declaredIn: '/etc/pools.json' };
    expect(shareOf(stored)).toEqual({ weight: 2, guaranteed: { H100: 16 }, limits: { H100: 32, cpu: 0 } });
  });
});

describe('a change of a share', () => {
  test('names GPU models as machines do, however they are spelt', () => {
    expect(read({ weight: 0.5, guaranteed: { h100: 16, CPU: 64 }, limits: { rtx6000ada: 1, 'My-GPU': null } })).toEqual(
      {
        weight: 0.5,
        guaranteed: { H100: 16, cpu: 64 },
        limits: { RTX6000Ada: 1, 'My-GPU': null },
      },
    );
  });

  test.each([
    [5, 'share must be an object'],
    [{ wieght: 2 }, 'wieght is no part of a share'],
    [{ weight: 0 }, 'weight must be a number from 0.01 to 1000'],
    [{ weight: '2' }, 'weight must be a number'],
    [{ weight: Number.NaN }, 'weight must be a number'],
    [{ guaranteed: 16 }, 'guaranteed must be an object'],
    [{ guaranteed: ['H100'] }, 'guaranteed must be an object'],
    [{ guaranteed: { any: 1 } }, 'guaranteed.any is no market'],
    [{ limits: { 'two words': 1 } }, 'limits.two words is no market'],
    [JSON.parse('{"limits": {"__proto__": 1}}') as unknown, 'limits.__proto__ is no market'],
    [{ limits: { H100: -1 } }, 'limits.H100 must be a whole number of GPUs from 0 to'],
    [{ limits: { H100: 1.5 } }, 'limits.H100 must be a whole number of GPUs'],
    [{ limits: { cpu: 1e9 } }, 'limits.cpu must be a whole number of cores'],
    [{ limits: { H100: 1, h100: 2 } }, 'limits.h100 names H100 a second time'],
  ])('%j is refused by the name of the field', (sent, problem) => {
    expect(problemsOf(sent)).toHaveLength(1);
    expect(problemsOf(sent)[0]).toContain(problem);
  });

  test('leaves what it does not name, and takes back what it names null', () => {
    const stored = { weight: 2, guaranteed: { H100: 16, L4: 4 }, limits: { H100: 32 } };
    expect(changedShare(stored, { guaranteed: { L4: null, cpu: 8 } })).toEqual({
      kind: 'changed',
      share: { weight: 2, guaranteed: { H100: 16, cpu: 8 }, limits: { H100: 32 } },
    });
    expect(changedShare(stored, { limits: null })).toMatchObject({
      share: { weight: 2, guaranteed: stored.guaranteed },
    });
    expect(changedShare(stored, { weight: null, guaranteed: null, limits: { H100: null } })).toEqual({
      kind: 'changed',
      share: null,
    });
    expect(changedShare(null, { weight: 3 })).toEqual({ kind: 'changed', share: { weight: 3 } });
  });

  test('cannot guarantee more than its limit, also where the other was given before', () => {
    const problems = ['limits.H100 is 8, less than guaranteed.H100, which is 16'];
    expect(changedShare({ guaranteed: { H100: 16 } }, { limits: { H100: 8 } })).toEqual({ kind: 'wrong', problems });
    expect(changedShare({ limits: { H100: 8 } }, { guaranteed: { H100: 16 } })).toEqual({ kind: 'wrong', problems });
    expect(changedShare({ guaranteed: { H100: 16 } }, { limits: { H100: 16, L4: 0 } }).kind).toBe('changed');
  });

  test('names at most 32 markets in all', () => {
    const many = (from: number, count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`GPU-${from + index}`, 1]));
    expect(changedShare({ limits: many(0, 32) }, { limits: many(0, 32) }).kind).toBe('changed');
    expect(changedShare({ limits: many(0, 32) }, { limits: many(32, 1) })).toEqual({
      kind: 'wrong',
      problems: ['limits must name at most 32 markets'],
    });
  });
});

test('a market is a GPU model or cpu', () => {
  expect(['cpu', 'Cpu', 'a100-80', 'h100-mig-1G.10gb', 'A100', 'any', '', 'constructor'].map(marketOf)).toEqual([
    'cpu',
    'cpu',
    'A100-80',
    'H100-MIG-1g.10gb',
    'A100',
    undefined,
    undefined,
    'constructor',
  ]);
});
