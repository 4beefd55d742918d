// Bins of spans, percentiles that are read from them, and sums of tasks that ended.
import { describe, expect, test } from 'vitest';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import {
  BINS,
  BUCKET_MS,
  addBins,
  binOf,
  noBins,
  packBins,
  percentileOf,
  unpackBins,
} from '#scheduler/domain/task-histogram.ts';
import { sumsOf } from '#scheduler/stores/store/queries/task-stats.ts';
import type { EndedRecord, TaskStatsRow } from '#scheduler/stores/store/queries/task-stats.ts';
import { TaskStatistics, statisticsOf } from '#scheduler/tasks/records/task-stats.ts';

const binned = (spans: readonly number[]): number[] => {
  const bins = noBins();
  for (const span of spans) bins[binOf(span)]! += 1;
  return bins;
};

test('each bin is twice as wide as the one before, and the last has no end', () => {
  expect([0, 0.9, 1, 1.9, 2, 3.9, 4, 1_000, 2 ** 22, 1e12, -5, NaN].map(binOf)).toEqual([
    0, 0, 1, 1, 2, 2, 3, 10, 23, 23, 0, 0,
  ]);
});

test('a percentile lies within a factor of two of the true one, for any spans', () => {
  let seed = 11;
  const random = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) / 2_147_483_648;
  for (let story = 0; story < 2_000; story += 1) {
    const spans = Array.from({ length: 1 + Math.floor(random() * 50) }, () => 2 ** (random() * 20));
    const sorted = spans.toSorted((a, b) => a - b);
    for (const share of [0.5, 0.95, 0.99]) {
      const truth = sorted[Math.ceil(share * sorted.length) - 1] ?? 0;
      const read = percentileOf(binned(spans), share) ?? 0;
      expect(read).toBeGreaterThanOrEqual(truth / 2 - 0.1);
      expect(read).toBeLessThanOrEqual(truth * 2 + 0.1);
    }
  }
  expect(percentileOf(binned([]), 0.5)).toBeNull();
  const both = binned([1]);
  addBins(both, binned([1, 5]));
  expect(both).toEqual(binned([1, 1, 5]));
});

test('packed bins add up as numbers, without a carry into the next bin', () => {
  const bins = Array.from({ length: 2 * BINS }, (_, bin) => (bin % 3 === 0 ? 0 : 10 ** (bin % 12) - 1));
  const most = bins.map(() => 99_999_999_999);
  const sum = String(BigInt(packBins(bins)) + BigInt(packBins(most)) + BigInt(packBins(bins)));
  expect(unpackBins(sum, 2 * BINS)).toEqual(bins.map((count) => 2 * count + 99_999_999_999));
  expect(unpackBins(String(BigInt(packBins(bins))), 2 * BINS)).toEqual(bins);
  expect(unpackBins('0', 3)).toEqual([0, 0, 0]);
});

const ended = (changes: Partial<Record<keyof EndedRecord, unknown>> = {}): EndedRecord =>
  ({
    workspaceId: 'w',
    stubId: 's',
    deploymentId: 'd',
    status: 'COMPLETE',
    createdAtMs: BUCKET_MS,
    startedAtMs: BUCKET_MS + 4,
    endedAtMs: BUCKET_MS + 104,
    ...changes,
  }) as EndedRecord;

test('sums are one for each deployment, five minutes and status, in an order that all writers share', () => {
  const sums = sumsOf([
    ended({ deploymentId: null, stubId: 't' }),
    ended(),
    ended({ status: 'ERROR', startedAtMs: null }),
    ended({ endedAtMs: 2 * BUCKET_MS }),
    ended(),
  ]);
  expect(
    sums.map(({ bucketMs, deploymentId, stubId, status, bins }) => [
      bucketMs / BUCKET_MS,
      deploymentId || stubId,
      status,
      bins.slice(0, BINS).reduce((a, b) => a + b),
      bins.slice(BINS).reduce((a, b) => a + b),
    ]),
  ).toEqual([
    [1, 'd', 'COMPLETE', 2, 2],
    [1, 'd', 'ERROR', 1, 0],
    [1, 't', 'COMPLETE', 1, 1],
    [2, 'd', 'COMPLETE', 1, 1],
  ]);
});

const aRow = (changes: Partial<TaskStatsRow>): TaskStatsRow => ({
  interval: null,
  stubId: 's' as StubId,
  deploymentId: null,
  sums: 1,
  calls: 1,
  statuses: { COMPLETE: 1 },
  bars: [],
  counts: packBins(binned([4])),
  ...changes,
});

test('a range has the spans of its intervals, and says what was left out', async () => {
  const rows = [
    aRow({ interval: 2, counts: packBins([...binned([1000]), ...binned([])]), statuses: { TIMEOUT: 1 } }),
    aRow({ interval: 0, counts: packBins([...binned([1, 1]), ...binned([4, 4])]), statuses: { COMPLETE: 2 } }),
    aRow({ calls: 3 }),
  ];
  const { total, series, groups, truncated } = await statisticsOf(rows, { fromMs: 300 }, 10);
  expect([total.calls, total.errors, total.statuses, truncated]).toEqual([3, 1, { TIMEOUT: 1, COMPLETE: 2 }, false]);
  expect([total.runs.p50, series[0]?.runs.p50, total.waits.p99]).toEqual([6, 6, 1008.6]);
  expect(series.map(({ atMs, calls }) => [atMs, calls])).toEqual([
    [300, 2],
    [320, 1],
  ]);
  expect(groups).toHaveLength(1);
  expect((await statisticsOf([aRow({ interval: 0, sums: 20_000 })], { fromMs: 0 }, 10)).truncated).toBe(true);
  const many = Array.from({ length: 1_001 }, () => aRow({}));
  const cut = await statisticsOf(many, { fromMs: 0 }, 10);
  expect([cut.groups.length, cut.truncated]).toEqual([1_000, true]);
});

test('reading a long answer leaves the event loop its turns', async () => {
  let turns = 0;
  let isOver = false;
  const turn = (): void => {
    turns += 1;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await statisticsOf(
    Array.from({ length: 2_000 }, (_, interval) => aRow({ interval })),
    { fromMs: 0 },
    10,
  );
  isOver = true;
  expect(turns).toBeGreaterThanOrEqual(19);
});

describe('answers that are kept', () => {
  const filter = { workspaceId: 'w' as WorkspaceId, fromMs: 0, toMs: 10 * BUCKET_MS };
  const aService = () => {
    const clock = { ms: 0, monotonicMs: () => clock.ms };
    const asked: (() => void)[] = [];
    const query = (): Promise<never> =>
      new Promise((resolve) => {
        asked.push(() => resolve({ rows: [], rowCount: 0 } as never));
      });
    const service = new TaskStatistics({
      db: { reads: { of: () => ({ query }), waiting: 0, onRead: undefined } },
      clock,
      caughtUp: async () => undefined,
    });
    const settled = async (count: number): Promise<void> => {
      while (asked.length < count) await new Promise((resolve) => setImmediate(resolve));
    };
    return { clock, asked, service, settled };
  };

  test('the same question is read once, for all who ask within a second', async () => {
    const { clock, asked, service, settled } = aService();
    const readers = [service.of(filter, BUCKET_MS), service.of({ ...filter, toMs: filter.toMs - 1 }, BUCKET_MS)];
    await settled(1);
    asked[0]!();
    await Promise.all(readers);
    clock.ms = 999;
    await service.of(filter, BUCKET_MS);
    expect(asked).toHaveLength(1);
    clock.ms = 1_000;
    const again = service.of(filter, BUCKET_MS);
    await settled(2);
    asked[1]!();
    await again;
  });

  test('a workspace has one reading at a time, and others do not wait for it', async () => {
    const { asked, service, settled } = aService();
    const first = service.of(filter, BUCKET_MS);
    const second = service.of(filter, 2 * BUCKET_MS);
    const other = service.of({ ...filter, workspaceId: 'v' as WorkspaceId }, BUCKET_MS);
    await settled(2);
    asked[1]!();
    await other;
    expect(asked).toHaveLength(2);
    asked[0]!();
    await first;
    await settled(3);
    asked[2]!();
    await second;
  });
});
