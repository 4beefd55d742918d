// Pages of a list: `limit`, `offset` and the opaque `cursor` that names the last row of the page before, by its time
// and id, or by its name.
import type { HealthRow } from '#shared/api/rest/deployment-health.ts';
import { AppError } from '#shared/errors.ts';

const DEFAULT_PAGE = 10;
const MAX_PAGE = 1_000;
const MAX_OFFSET = 1_000_000;

/** Size of a page: 0 means the default, and the maximum bounds it. */
export const pageLimit = ({ limit }: { readonly limit?: number }): number => Math.min(limit || DEFAULT_PAGE, MAX_PAGE);

export const pageOffset = ({ offset }: { readonly offset?: number }): number => Math.min(offset ?? 0, MAX_OFFSET);

/** End of a page: rows are sorted by `atMs`, then by id, both falling. */
export interface Cursor {
  readonly atMs: number;
  readonly id: string;
}

export const writeCursor = ({ atMs, id }: Cursor): string => Buffer.from(`${atMs}:${id}`).toString('base64url');

/** @throws AppError `invalid_cursor` */
export function cursorOf({ cursor: text }: { readonly cursor?: string }): Cursor | undefined {
  if (text === undefined) return undefined;
  const [, ms, id] = /^([0-9]{1,15}):([0-9a-z-]{1,64})$/.exec(Buffer.from(text, 'base64url').toString('utf8')) ?? [];
  if (ms === undefined || id === undefined) throw notOurs();
  return { atMs: Number(ms), id };
}

/** Cuts rows to a page. @param rows - one more than `limit` where there are more */
export function pageOf<Row>(
  rows: readonly Row[],
  limit: number,
  cursorAt: (row: Row) => Cursor,
): { readonly page: readonly Row[]; readonly next: string } {
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return { page, next: last !== undefined && rows.length > limit ? writeCursor(cursorAt(last)) : '' };
}

const NAME_MARK = 'name:';

/** The name behind which a page of a list by name begins; empty: the first page. @throws AppError `invalid_cursor` */
export function nameCursorOf({ cursor: text }: { readonly cursor?: string }): string {
  if (text === undefined) return '';
  const said = Buffer.from(text, 'base64url').toString('utf8');
  const name = said.slice(NAME_MARK.length);
  if (!said.startsWith(NAME_MARK) || name === '' || name.includes('\0')) throw notOurs();
  return name;
}

/** Cuts rows that are sorted by name to a page. @param rows - one more than `limit` where there are more */
export function pageByName<Row extends { readonly name: string }>(
  rows: readonly Row[],
  limit: number,
): { readonly page: readonly Row[]; readonly next: string } {
  const page = rows.slice(0, limit);
  const last = rows.length > limit ? page.at(-1) : undefined;
  return { page, next: last === undefined ? '' : Buffer.from(`${NAME_MARK}${last.name}`).toString('base64url') };
}

/** A place in the list of deployments by health. */
export type Place = Pick<HealthRow, 'needs_attention' | 'state' | 'name' | 'stub_type'>;

export const writePlaceCursor = ({ needs_attention: needs, state, name, stub_type: type }: Place): string =>
  Buffer.from(JSON.stringify([needs, state, name, type])).toString('base64url');

/** The place behind which a page begins; undefined: the first page. @throws AppError `invalid_cursor` */
export function placeCursor({ cursor: text }: { readonly cursor?: string }): Place | undefined {
  if (text === undefined) return undefined;
  const read = parsed(Buffer.from(text, 'base64url').toString('utf8'));
  if (!Array.isArray(read) || read.length !== 4) throw notOurs();
  const [needs, state, name, type] = read as readonly unknown[];
  if (typeof needs !== 'boolean' || typeof state !== 'string' || typeof name !== 'string' || typeof type !== 'string')
    throw notOurs();
  return { needs_attention: needs, state, name, stub_type: type };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const notOurs = (): AppError => new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
