import { describe, expect, test } from 'vitest';
import { EXIT } from '#cli/exit-codes.ts';
import { idMeant, wholeIdOf } from '#cli/short-id.ts';

const ONE = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';
const OTHER = '0f6b9c77-1c3d-4f60-8d25-0b1f7e3a9f11';
const ids = () => Promise.resolve([ONE, OTHER]);

describe('part of an id', () => {
  test.for([
    ['0f6b2a1e', ONE],
    ['0F6B2', ONE],
    // As examples and cut cells have it.
    ['0f6b9…', OTHER],
    ['0f6b9c77-1c3d...', OTHER],
    ['1c0a9f11', ONE],
    ['1c0a', ONE],
    [ONE, ONE],
    // Nothing has it, it is too short, or it is no part of an id.
    ['ffff', 'ffff'],
    ['0f6', '0f6'],
    ['nobody', 'nobody'],
    ['', ''],
  ] as const)('%s means %s', async ([text, id]) => {
    expect(await wholeIdOf(text, { noun: 'task', ids })).toBe(id);
  });

  test('that several ids have is refused with them', async () => {
    const refused = {
      exitCode: EXIT.usage,
      message: `0f6b is part of several task ids: ${ONE}, ${OTHER}; give more of one`,
    };
    await expect(wholeIdOf('0f6b', { noun: 'task', ids })).rejects.toMatchObject(refused);
    await expect(wholeIdOf('9f11', { noun: 'task', ids })).rejects.toThrow('part of several');
    const many = Array.from({ length: 9 }, (_, index) => `abcd000${index}`);
    expect(() => idMeant('abcd', many, 'machine')).toThrow(/abcd0004, …; give more of one$/);
  });

  test('a whole id, and a token that may list nothing, need no list', async () => {
    const never = (): Promise<readonly string[]> => Promise.reject(new Error('listed'));
    expect(await wholeIdOf(ONE, { noun: 'task', ids: never })).toBe(ONE);
    expect(await wholeIdOf('1a2b3c4d', { noun: 'machine', ids: never, whole: /^[0-9a-f]{8}$/ })).toBe('1a2b3c4d');
    expect(await wholeIdOf('1a2b', { noun: 'machine', ids: never })).toBe('1a2b');
  });
});
