// Helpers of the query files: rows to values, and values to parameters.
import type { Queryable } from './db.ts';

export const msOf = (at: Date): number => at.getTime();
export const msOrNull = (at: Date | null): number | null => (at === null ? null : at.getTime());
export const dateOrNull = (ms: number | null | undefined): Date | null =>
  ms === null || ms === undefined ? null : new Date(ms);

/**
 * Text that Postgres accepts: it refuses NUL and lone surrogates, and a single such value would fail its whole batch.
 */
export function storableText(text: string): string {
  const wellFormed = text.isWellFormed() ? text : text.toWellFormed();
  return wellFormed.includes('\0') ? wellFormed.replaceAll('\0', '\ufffd') : wellFormed;
}

/** The first row, mapped; undefined when there is none. */
export async function maybeOne<R, T>(
  db: Queryable,
  sql: string,
  params: readonly unknown[],
  map: (row: R) => T,
): Promise<T | undefined> {
  const { rows } = await db.query<R>(sql, params);
  const row = rows[0];
  return row === undefined ? undefined : map(row);
}

/** The row of a statement that always returns one. */
export async function one<R, T>(
  db: Queryable,
  sql: string,
  params: readonly unknown[],
  map: (row: R) => T,
): Promise<T> {
  const found = await maybeOne(db, sql, params, map);
  if (found === undefined) throw new Error('a statement that always returns a row returned none');
  return found;
}

export async function many<R, T>(
  db: Queryable,
  sql: string,
  params: readonly unknown[],
  map: (row: R) => T,
): Promise<T[]> {
  const { rows } = await db.query<R>(sql, params);
  return rows.map(map);
}
