import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { GuardMachine, Guards } from '#scheduler/fleet/guard.ts';
import { guardsAfter } from '#scheduler/fleet/guard.ts';
import { stories } from '../../helpers/stories.ts';

const NOW = 1_000_000;
const NONE: Guards = new Map();
const pool = (poolId: number, all: number, silent: number, silentSinceMs = NOW - 1_000): GuardMachine[] =>
  Array.from({ length: all }, (_none, index) => ({ poolId, silentSinceMs: index < silent ? silentSinceMs : null }));
const on = (before: Guards, machines: readonly GuardMachine[], stalledAtMs: number | null = null): number[] =>
  [...guardsAfter(before, machines, NOW, stalledAtMs).keys()].toSorted((a, b) => a - b);

describe('the mass-disconnect guard', () => {
  test('goes on when half of a pool, at least three, fall silent within a minute', () => {
    expect(on(NONE, [...pool(1, 6, 3), ...pool(2, 20, 1)])).toEqual([1]);
    expect(on(NONE, [...pool(1, 7, 3), ...pool(2, 20, 0)])).toEqual([]);
    expect(on(NONE, [...pool(1, 4, 2), ...pool(2, 20, 0)])).toEqual([]);
    expect(on(NONE, [...pool(1, 6, 3, NOW - 61_000), ...pool(2, 20, 0)])).toEqual([]);
  });

  test('goes on wherever one is silent when it is three in ten of all', () => {
    const machines = [...pool(1, 4, 1), ...pool(2, 3, 1), ...pool(3, 3, 1), ...pool(4, 3, 0)];
    expect(on(NONE, machines)).toEqual([]);
    expect(on(NONE, machines.slice(0, 10))).toEqual([1, 2, 3]);
  });

  test('goes off below a fifth, however long that takes', () => {
    const before: Guards = new Map([[1, 'mass']]);
    expect(on(before, pool(1, 10, 2, NOW - 3600_000))).toEqual([1]);
    expect(on(before, pool(1, 11, 2, NOW - 3600_000))).toEqual([]);
    expect(on(before, [])).toEqual([]);
  });

  test('is on for a minute after this process stood still, whatever the size of the pool', () => {
    expect(on(NONE, [...pool(1, 1, 1), ...pool(2, 5, 0)], NOW - 60_000)).toEqual([1]);
    expect(on(new Map([[1, 'stall']]), pool(1, 1, 1), NOW - 60_001)).toEqual([]);
  });

  test('lets an installation of two lose one, or both', () => {
    expect(on(NONE, pool(1, 2, 1))).toEqual([]);
    expect(on(NONE, pool(1, 2, 2))).toEqual([]);
  });

  test('whatever the machines: on only where one is silent, and the same again when nothing changed', () => {
    const machine = fc.record({
      poolId: fc.nat({ max: 2 }),
      silentSinceMs: fc.option(fc.integer({ min: NOW - 120_000, max: NOW }), { nil: null }),
    });
    fc.assert(
      fc.property(fc.array(machine, { maxLength: 12 }), fc.subarray([0, 1, 2]), (machines, before) => {
        const guards = guardsAfter(new Map(before.map((id) => [id, 'mass'])), machines, NOW, null);
        for (const id of guards.keys())
          expect(machines.some((one) => one.poolId === id && one.silentSinceMs !== null)).toBe(true);
        expect(guardsAfter(guards, machines, NOW, null)).toEqual(guards);
      }),
      { numRuns: stories(2_000) },
    );
  });
});
