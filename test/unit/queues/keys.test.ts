import { expect, test } from 'vitest';
import { keysOf } from '#scheduler/stores/queues/keys.ts';

const everyKey = (prefix?: string): string[] =>
  Object.entries(keysOf(prefix)).flatMap(([name, key]) => {
    // The name of a queue is no key: its keys begin with the prefix, as every queue's do.
    if (name.endsWith('Queue')) return [];
    if (typeof key === 'string') return key === (prefix ?? 'ls') ? [] : [key];
    if (Array.isArray(key)) return key as string[];
    return [(key as (id: string) => string | readonly string[])('0123456789abcdef')].flat();
  });

test('every key and channel is ours by its prefix, and no two are the same', () => {
  const keys = everyKey();
  expect(keys.every((key) => key.startsWith('ls:'))).toBe(true);
  expect(new Set(keys).size).toBe(keys.length);
});

test('no key lies among those of a task queue', () => {
  expect(everyKey().filter((key) => key.startsWith('ls:tq-'))).toEqual([]);
});

test('two prefixes share nothing', () => {
  expect(new Set([...everyKey('a'), ...everyKey('b')]).size).toBe(everyKey('a').length * 2);
});

test('a prefix that would break a key is refused', () => {
  for (const prefix of ['', 'a:b', 'a b', 'a*', 'x'.repeat(65)]) expect(() => keysOf(prefix)).toThrow(TypeError);
});
