// Fair shares of a market, and the report that has them.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { WorkspaceShare } from '#scheduler/domain/shares.ts';
import { DEFAULT_SHARE } from '#scheduler/domain/shares.ts';
import { fairShares, jain } from '#scheduler/control/plan/fair-share.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { listShares, placeInLine } from '#scheduler/control/plan/share-report.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aWanted, gpus } from './made.ts';

const claim = (demand: number, weight = 1, guaranteed = 0) => ({ demand, weight, guaranteed });

describe('fair shares', () => {
  test('who wants little gets it, and the others share the rest by weight', () => {
    expect(fairShares(16, [claim(2), claim(100), claim(100)])).toEqual([2, 7, 7]);
    expect(fairShares(16, [claim(4), claim(100, 2), claim(100, 1)])).toEqual([4, 8, 4]);
    expect(fairShares(16, [claim(3), claim(4)])).toEqual([3, 4]);
  });

  test('a guarantee comes first, and only as far as it is asked for', () => {
    expect(fairShares(16, [claim(100, 1, 10), claim(100)])).toEqual([13, 3]);
    expect(fairShares(16, [claim(2, 1, 10), claim(100)])).toEqual([2, 14]);
  });

  test('guarantees beyond the capacity shrink in proportion', () => {
    expect(fairShares(12, [claim(100, 1, 16), claim(100, 1, 8)])).toEqual([8, 4]);
    expect(fairShares(0, [claim(1)])).toEqual([0]);
    expect(fairShares(0, [])).toEqual([]);
  });

  test('they are the capacity or the whole demand, none is more than demanded, and none could grow at the cost of a larger one', () => {
    const amount = fc.nat({ max: 50 });
    const claims = fc.array(fc.record({ demand: amount, guaranteed: amount, weight: fc.constantFrom(0.5, 1, 2) }));
    fc.assert(
      fc.property(fc.nat({ max: 200 }), claims, (capacity, list) => {
        const shares = fairShares(capacity, list);
        const demand = list.reduce((sum, one) => sum + one.demand, 0);
        expect(shares.reduce((sum, one) => sum + one, 0)).toBeCloseTo(Math.min(capacity, demand), 6);
        const guaranteed = list.reduce((sum, one) => sum + one.guaranteed, 0);
        const scale = Math.min(1, capacity / Math.max(1, guaranteed));
        const level = (n: number): number =>
          ((shares[n] ?? 0) - (list[n]?.guaranteed ?? 0) * scale) / (list[n]?.weight ?? 1);
        for (const [n, one] of list.entries()) {
          expect(shares[n]).toBeLessThanOrEqual(one.demand + 1e-9);
          expect(shares[n]).toBeGreaterThanOrEqual(Math.min(one.demand, one.guaranteed * scale) - 1e-9);
          if ((shares[n] ?? 0) > one.demand - 1e-9) continue;
          for (const m of list.keys()) expect(Math.max(0, level(m))).toBeLessThanOrEqual(level(n) + 1e-6);
        }
      }),
      { numRuns: stories(700) },
    );
  });

  test("Jain's index is 1 where all have the same, and 1 / n where one has all", () => {
    expect(jain([2, 2, 2])).toBe(1);
    expect(jain([4, 0, 0, 0])).toBe(0.25);
    expect(jain([])).toBe(1);
  });
});

describe('the report', () => {
  const NOW_MS = 100_000;
  /** A workspace holds some GPUs of 16, and containers of it wait. */
  const world = (
    workspaces: Readonly<Record<string, readonly [held: number, waiting: number, share?: Partial<WorkspaceShare>]>>,
  ): Planner => {
    const planner = new Planner();
    const machineId = 'm-1' as MachineId;
    const free = Array.from({ length: 16 }, () => false);
    planner.setMachine(aMachine({ machineId, gpus: gpus('H100', free, 'g') }));
    for (const [name, [held, waiting, share]] of Object.entries(workspaces)) {
      const workspaceId = name as WorkspaceId;
      planner.setShare(workspaceId, { ...DEFAULT_SHARE, ...share });
      for (let n = 0; n < held; n += 1) {
        const { id, cpuMillicores, memoryBytes } = aWanted({ cpuMillicores: 1, memoryBytes: 1 });
        planner.hold(id, { workspaceId, queue: 'q' as QueueName, machineId, gpuCount: 1, cpuMillicores, memoryBytes });
      }
      for (let n = 0; n < waiting; n += 1)
        planner.add(aWanted({ workspaceId, gpu: ['H100'], gpuCount: 1, createdAtMs: 40_000 + 1000 * n }));
    }
    return planner;
  };
  const rowsOf = (planner: Planner, nowMs = NOW_MS) =>
    listShares(planner.shares(nowMs)).filter(({ market }) => market === 'H100');

  test('it has what each workspace holds, what would be fair, and how long it waits', () => {
    const planner = world({ a: [12, 20, { weight: 1, limits: { H100: 14 } }], b: [2, 3], c: [1, 0] });
    expect(rowsOf(planner)).toEqual([
      {
        market: 'H100',
        workspaceId: 'a',
        used: 12,
        guaranteed: 0,
        limit: 14,
        weight: 1,
        share: 0.75,
        fairShare: 10,
        waiting: 20,
        oldestWaitMs: 60_000,
      },
      expect.objectContaining({ workspaceId: 'b', used: 2, limit: null, fairShare: 5, waiting: 3 }),
      expect.objectContaining({ workspaceId: 'c', used: 1, fairShare: 1, waiting: 0, oldestWaitMs: 0 }),
    ]);
    const [report] = planner.shares(NOW_MS).filter(({ market }) => market === 'H100');
    expect(report?.fairness).toBeCloseTo(jain([12 / 10, 2 / 5, 1]), 9);
  });

  test('a guarantee counts for the share, and above the capacity it shrinks', () => {
    const planner = world({ a: [12, 1, { guaranteed: { H100: 8 }, weight: 2 }], b: [2, 3] });
    expect(rowsOf(planner)).toMatchObject([{ share: (12 - 8) / 16 / 2 }, { share: 2 / 16 }]);
    planner.setShare('b' as WorkspaceId, { ...DEFAULT_SHARE, guaranteed: { H100: 24 } });
    expect(rowsOf(planner, 2 * NOW_MS)[0]).toMatchObject({ share: expect.closeTo((12 - 4) / 16 / 2, 9) });
  });

  test('of many workspaces the largest are listed, and the others as a sum', () => {
    const planner = world(Object.fromEntries(Array.from({ length: 6 }, (_none, n) => [`w-${n}`, [n, 1]])));
    const rows = listShares(planner.shares(NOW_MS), 2).filter(({ market }) => market === 'H100');
    expect(rows.map(({ workspaceId, used, waiting }) => [workspaceId, used, waiting])).toEqual([
      ['w-5', 5, 1],
      ['w-4', 4, 1],
      [null, 6, 4],
    ]);
  });

  test('the place in line counts workspaces that wait and stand better', () => {
    const planner = world({ a: [8, 1], b: [2, 1], c: [0, 0], d: [3, 2], e: [1, 0] });
    const [report] = planner.shares(NOW_MS).filter(({ market }) => market === 'H100');
    if (report === undefined) throw new Error('no report');
    expect(placeInLine(report, 'a' as WorkspaceId, 1)).toMatchObject({ before: 2, used: 8, limit: null });
    expect(placeInLine(report, 'b' as WorkspaceId, 1)).toMatchObject({ before: 0, used: 2 });
    expect(placeInLine(report, 'x' as WorkspaceId, 1)).toBeUndefined();
    planner.setShare('a' as WorkspaceId, { ...DEFAULT_SHARE, limits: { H100: 8 } });
    const limited = planner.shares(NOW_MS + 10_000).find(({ market }) => market === 'H100');
    expect(limited && placeInLine(limited, 'a' as WorkspaceId, 1)).toMatchObject({ limit: 8 });
  });
});
