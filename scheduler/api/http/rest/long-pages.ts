// Pages whose records hold the configuration of a stub, which may be long. Records are made a few at a time, and a page
// ends before it takes too many bytes: its `next` goes on there.
import type { StubRecord } from '#shared/api/rest/stubs.ts';
import { writeCursor } from './paging.ts';
import type { Cursor } from './paging.ts';

/** Records that are made at once. */
const PORTION = 50;
/** About the bytes of a page. */
const MOST_BYTES = 16 * 1024 * 1024;
/** Bytes of a record beside the configuration. */
const BYTES_BESIDE = 2_000;

/** A page as `pageOf` cuts it, and how its rows are shown. */
export interface LongPage<Row, Shown> {
  readonly page: readonly Row[];
  readonly next: string;
  readonly cursorAt: (row: Row) => Cursor;
  /** Makes the records of a few rows, one for each. */
  readonly show: (some: readonly Row[]) => Promise<readonly Shown[]> | readonly Shown[];
  /** The record within that has the configuration. */
  readonly stubOf: (shown: Shown) => StubRecord | null;
  readonly mostBytes?: number;
}

/** The records of a page, as far as they fit: one at least, so that a caller who goes on gets to the end. */
export async function longPage<Row, Shown>(
  whole: LongPage<Row, Shown>,
): Promise<{ readonly data: Shown[]; readonly next: string }> {
  const { page, next, cursorAt, show, stubOf, mostBytes = MOST_BYTES } = whole;
  const data: Shown[] = [];
  let bytes = 0;
  for (let from = 0; from < page.length; from += PORTION) {
    for (const shown of await show(page.slice(from, from + PORTION))) {
      bytes += (stubOf(shown)?.config.length ?? 0) + BYTES_BESIDE;
      const last = page[data.length - 1];
      if (last !== undefined && bytes > mostBytes) return { data, next: writeCursor(cursorAt(last)) };
      data.push(shown);
    }
  }
  return { data, next };
}
