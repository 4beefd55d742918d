// Spans of tasks by size: 24 bins, each twice as wide as the one before. Percentiles are read from them. Pure.

/** Length of a sum. */
export const BUCKET_MS = 5 * 60_000;

/** Bins of a span. The first is below 1 ms, the last has no end. */
export const BINS = 24;

/** Empty bins. */
export const noBins = (count = BINS): number[] => Array.from({ length: count }, () => 0);

/** The bin of a span: below 1 ms, below 2, below 4 and so on; the last from 70 minutes on. */
export const binOf = (ms: number): number =>
  ms < 1 || Number.isNaN(ms) ? 0 : Math.min(BINS - 1, Math.floor(Math.log2(ms)) + 1);

/** Where a bin begins, in milliseconds. */
const startOf = (bin: number): number => (bin === 0 ? 0 : 2 ** (bin - 1));

/**
 * The span that so many of the counted ones do not exceed.
 * @param share - such as 0.95
 * @returns null: nothing was counted
 */
export function percentileOf(bins: readonly number[], share: number): number | null {
  const total = bins.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let before = 0;
  for (const [bin, count] of bins.entries()) {
    if (count > 0 && before + count >= share * total) {
      // Within a bin spans lie evenly, as far as anybody knows.
      const within = Math.min(1, Math.max(0, (share * total - before) / count));
      const start = startOf(bin);
      const end = bin === BINS - 1 ? start * 2 : startOf(bin + 1);
      return Math.round((start + within * (end - start)) * 10) / 10;
    }
    before += count;
  }
  return null;
}

export const addBins = (a: readonly number[], b: readonly number[]): number[] =>
  Array.from({ length: BINS }, (_, bin) => (a[bin] ?? 0) + (b[bin] ?? 0));
