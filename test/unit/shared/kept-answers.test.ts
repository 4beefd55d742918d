import { expect, test } from 'vitest';
import { KeptAnswers } from '#shared/kept-answers.ts';

function world(parts: Partial<ConstructorParameters<typeof KeptAnswers<string, number>>[0]> = {}) {
  const clock = { nowMs: 0, monotonicMs: (): number => clock.nowMs };
  const kept = new KeptAnswers<string, number>({ clock, most: 2, leastMs: 1_000, longestMs: 5_000, ...parts });
  let reads = 0;
  const ask = (key: string, tookMs = 0, answer = 0): Promise<number> =>
    kept.of(key, async () => {
      reads += 1;
      await Promise.resolve();
      clock.nowMs += tookMs;
      return answer;
    });
  return { clock, kept, ask, reads: () => reads };
}

test('an answer serves those who come while it is under way and for a second, or for ten times what it took', async () => {
  for (const [tookMs, keptMs] of [
    [0, 1_000],
    [300, 3_000],
    [2_000, 5_000],
  ] as const) {
    const { clock, ask, reads } = world();
    expect(await Promise.all([ask('a', tookMs, 7), ask('a', tookMs, 8)])).toEqual([7, 7]);
    clock.nowMs += keptMs - 1;
    expect(await ask('a')).toBe(7);
    clock.nowMs += 1;
    await ask('a');
    expect([tookMs, reads()]).toEqual([tookMs, 2]);
  }
});

test('a failure is not kept, and neither is an answer that was forgotten', async () => {
  const { kept, ask, reads } = world();
  await expect(kept.of('a', () => Promise.reject(new Error('away')))).rejects.toThrow('away');
  await ask('a');
  await ask('a');
  expect(reads()).toBe(1);
  kept.delete('a');
  await ask('a');
  expect(reads()).toBe(2);
  kept.clear();
  await ask('a');
  expect(reads()).toBe(3);
});

test('beyond the bounds on answers and their sizes, those that were asked first leave', async () => {
  const { ask, reads } = world();
  for (const key of ['a', 'b', 'c', 'c', 'b', 'a']) await ask(key);
  expect(reads()).toBe(4);
  const sized = world({ most: 10, size: { of: (answer) => answer, most: 10 } });
  for (const key of ['a', 'b']) await sized.ask(key, 0, 6);
  for (const key of ['b', 'a']) await sized.ask(key, 0, 6);
  expect(sized.reads()).toBe(3);
});
