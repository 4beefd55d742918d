import { describe, expect, test } from 'vitest';
import { DEATH_WINDOW_MS, decideRestart, MAX_DEATHS } from '#shared/restart.ts';

describe('a child that died', () => {
  test('is started again, later each time, but never after more than five seconds', () => {
    const delays = [1, 2, 3, 4].map((deaths) => {
      const decision = decideRestart(Array<number>(deaths).fill(1000), 1000);
      return decision.kind === 'restart' ? decision.delayMs : -1;
    });
    expect(delays).toEqual([200, 400, 800, 1600]);
  });

  test('is given up after five deaths within a minute', () => {
    const decision = decideRestart(Array<number>(MAX_DEATHS).fill(1000), 1000 + DEATH_WINDOW_MS - 1);
    expect(decision).toEqual({ kind: 'give_up', deaths: 5, withinMs: DEATH_WINDOW_MS });
  });

  test('starts afresh when its deaths are longer ago than that', () => {
    const deathsMs = [0, 1, 2, 3, 4, 5, 6, DEATH_WINDOW_MS + 1000];
    expect(decideRestart(deathsMs, DEATH_WINDOW_MS + 1000)).toEqual({ kind: 'restart', delayMs: 200 });
  });
});
