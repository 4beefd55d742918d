// Bins of spans, percentiles that are read from them, and sums of tasks that ended.
import { expect, test } from 'vitest';
import { BINS, BUCKET_MS, addBins, binOf, noBins, percentileOf } from '#scheduler/domain/task-histogram.ts';
import { sumsOf } from '#scheduler/stores/store/queries/task-stats.ts';
import type { EndedRecord } from '#scheduler/stores/store/queries/task-stats.ts';
import { statisticsOf } from '#scheduler/tasks/records/task-stats.ts';

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
  expect(addBins(binned([1]), binned([1, 5]))).toEqual(binned([1, 1, 5]));
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
    durationMs: 100,
    ...changes,
  }) as EndedRecord;

test('sums are one for each deployment, five minutes and status, in an order that all writers share', () => {
  const sums = sumsOf([
    ended({ deploymentId: null, stubId: 't' }),
    ended(),
    ended({ status: 'ERROR', startedAtMs: null, durationMs: null }),
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
  const rows = sums.map((sum) => ({
    bucketMs: sum.bucketMs,
    stubId: sum.stubId,
    deploymentId: sum.deploymentId === '' ? null : sum.deploymentId,
    status: sum.status,
    waits: sum.bins.slice(0, BINS),
    runs: sum.bins.slice(BINS),
  })) as Parameters<typeof statisticsOf>[0];
  const { total, series, groups, bars } = statisticsOf(rows, 0, 2 * BUCKET_MS);
  expect([total.calls, total.errors, total.statuses]).toEqual([5, 1, { COMPLETE: 4, ERROR: 1 }]);
  expect(series.map(({ atMs, calls }) => [atMs / BUCKET_MS, calls])).toEqual([
    [0, 4],
    [2, 1],
  ]);
  expect(groups.map(({ deploymentId, stubId, calls }) => [deploymentId, stubId, calls])).toEqual([
    ['d', 's', 4],
    [null, 't', 1],
  ]);
  expect([...(bars.get('d') ?? [])]).toEqual([
    [0, 3],
    [2 * BUCKET_MS, 1],
  ]);
});
