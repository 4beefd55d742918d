// Query parameters of the REST API, by type: openapi.json shows the schema, a handler gets
// the static type. Empty counts as absent. scheduler/api/http/rest/query.ts reads them.
import { Type } from 'typebox';

const MOST_DIGITS = 999_999_999_999_999;

/** @param options - `unless`: not looked at where that one, which is described before it, says something */
export const QueryText = (description?: string, options: Unless = {}) =>
  Type.Optional(Type.String({ ...said(description), ...instead(options) }));

/** The id of something: a UUID in any case, or another text. */
export const QueryId = (description?: string) => Type.Optional(Type.String({ ...said(description), 'x-id': true }));

export const QueryInteger = (description?: string, options: Unless = {}) =>
  Type.Optional(Type.Integer({ minimum: 0, maximum: MOST_DIGITS, ...said(description), ...instead(options) }));

interface Unless {
  readonly unless?: string;
}
const instead = ({ unless }: Unless) => (unless === undefined ? {} : { 'x-unless': unless });

/** `true`, `1`, `t` and their likes. */
export const QueryFlag = (description?: string) => Type.Optional(Type.Boolean(said(description)));

/** Values separated by commas. */
export const QueryList = (description?: string) =>
  Type.Optional(Type.Unsafe<readonly string[]>({ type: 'array', items: { type: 'string' }, ...said(description) }));

/** Ids separated by commas, each as {@link QueryId}. */
export const QueryIds = (description?: string) =>
  Type.Optional(
    Type.Unsafe<readonly string[]>({
      type: 'array',
      items: { type: 'string' },
      ...said(description),
      'x-id': true,
    }),
  );

/** RFC 3339 on the wire, a date alone too; epoch milliseconds in code. */
export const QueryTime = (description?: string) =>
  Type.Optional(Type.Unsafe<number>({ type: 'string', format: 'date-time', ...said(description) }));

const said = (description: string | undefined) => (description === undefined ? {} : { description });

/** The page of a list that goes on by `next`. */
export const PAGE = {
  limit: QueryInteger('of a page: 10 when absent or 0, 1000 at most'),
  cursor: QueryText('next of the page before'),
};

/** A page that may be named by its place, too. */
export const PAGE_OR_OFFSET = { ...PAGE, offset: QueryInteger('entries to pass over, at most 1000000') };
