// Spans of tasks by size: 24 bins, each twice as wide as the one before. Percentiles are read from them. Pure.
// The database has the counts of all bins as one decimal number, because it adds two such numbers in a microsecond.

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
  let total = 0;
  for (const count of bins) total += count;
  if (total === 0) return null;
  let before = 0;
  for (let bin = 0; bin < bins.length; bin += 1) {
    const count = bins[bin] ?? 0;
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

/** Adds counts in place. */
export function addBins(into: number[], bins: readonly number[]): void {
  for (let bin = 0; bin < bins.length; bin += 1) into[bin] = (into[bin] ?? 0) + (bins[bin] ?? 0);
}

/** Decimal digits of a bin. No count of tasks has more, so a sum of packed bins carries nothing into the next bin. */
const DIGITS = 12;

/** Counts as one decimal number: the first bin has the lowest digits. */
export function packBins(bins: readonly number[]): string {
  let text = '';
  for (const count of bins) text = String(count).padStart(DIGITS, '0') + text;
  return text;
}

/** Counts that {@link packBins} packed, or a sum of such numbers. */
export function unpackBins(text: string, count: number): number[] {
  const bins = noBins(count);
  for (let bin = 0, end = text.length; bin < count && end > 0; bin += 1, end -= DIGITS)
    bins[bin] = Number(text.slice(Math.max(0, end - DIGITS), end));
  return bins;
}
