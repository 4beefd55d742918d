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

export type ArrayValue = string | number | boolean | null | undefined;

/**
 * Text of an array parameter. A batch of rows has one for each column: a text crosses to the embedded database's thread
 * as one value, and no driver looks at each element. `unnest` reads the null of a column without values as nulls.
 */
export function arrayText(values: readonly ArrayValue[]): string | null {
  if (values.every((value) => value === null || value === undefined)) return null;
  const json = JSON.stringify(values);
  // An array's text has JSON's quotes, and escapes quotes and backslashes alike, but has no other escapes.
  if (!OTHER_ESCAPE.test(json)) return `{${json.slice(1, -1)}}`;
  return `{${values.map(elementText).join(',')}}`;
}

const OTHER_ESCAPE = /\\[^"\\]/;
const elementText = (value: ArrayValue): string =>
  typeof value === 'string' ? `"${value.replace(/["\\]/g, String.raw`\$&`)}"` : JSON.stringify(value ?? null);

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
