// Time series of metrics: the steps of stored sums, and the ranges that a read takes of each. Pure.

/** Seconds of a sample. */
export const SAMPLE_STEP = 5;
/** Seconds of the stored rows, each a multiple of the one before. */
export const CONTAINER_STEPS = [SAMPLE_STEP, 60, 3600] as const;
export const POOL_STEPS = [SAMPLE_STEP, 60, 300] as const;

/** Most samples, or sums of them, that a read looks at. Source: reference, REST §8. */
export const MOST_SCANNED = 50_000;
export const MOST_BUCKETS = 1_000;

/** Rows of a step in a range of time: from its begin on, before its end. */
export interface Segment {
  readonly step: number;
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * The largest step that divides the buckets. Buckets of at least a minute that no larger step divides are made of
 * minutes: a minute then counts for the bucket in which it begins.
 */
export function stepOf(intervalMs: number, steps: readonly number[]): number {
  const dividing = steps.findLast((step) => intervalMs % (step * 1000) === 0) ?? SAMPLE_STEP;
  return Math.max(dividing, intervalMs >= 60_000 ? 60 : SAMPLE_STEP);
}

/**
 * Splits a range so that each row lies within it: rows of the step in the middle, and rows of smaller steps at the
 * edges. Segments follow each other and cover the range.
 */
export function segmentsOf(
  range: { readonly fromMs: number; readonly toMs: number },
  step: number,
  steps: readonly number[],
): readonly Segment[] {
  const { fromMs, toMs } = range;
  if (toMs <= fromMs) return [];
  const below = steps.filter((other) => other < step);
  const smaller = below.at(-1);
  if (smaller === undefined) return [{ step, fromMs, toMs }];
  const stepMs = step * 1000;
  const wholeFromMs = Math.ceil(fromMs / stepMs) * stepMs;
  const wholeToMs = Math.floor(toMs / stepMs) * stepMs;
  if (wholeToMs <= wholeFromMs) return segmentsOf(range, smaller, steps);
  return [
    ...segmentsOf({ fromMs, toMs: wholeFromMs }, smaller, steps),
    { step, fromMs: wholeFromMs, toMs: wholeToMs },
    ...segmentsOf({ fromMs: wholeToMs, toMs }, smaller, steps),
  ];
}
