// Reads a query by its schema (shared/api/rest/query.ts): the handler does not
// see undescribed parameters, and an unreadable one is refused by its name.
import type { Static, TObject, TSchema } from 'typebox';
import { isUuid } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { queryBoolean } from '../decode.ts';
import type { Query } from '../decode.ts';

interface Facts {
  readonly type?: string;
  readonly format?: string;
  readonly 'x-unless'?: string;
  readonly 'x-id'?: boolean;
}

/** Compiles a reader of queries, once per route. The reader throws AppError `invalid_query`. */
export function compileQuery<Schema extends TObject>(schema: Schema): (query: Query) => Static<Schema> {
  const parameters = Object.entries(schema.properties as Readonly<Record<string, TSchema>>).map(
    ([name, property]) => [name, readerOf(property as Facts), (property as Facts)['x-unless']] as const,
  );
  return (query) => {
    const read: Record<string, unknown> = {};
    for (const [name, reader, unless] of parameters) {
      // A parameter that another one replaces is not used, and so not judged; a 0 there replaces nothing.
      if (unless !== undefined && Boolean(read[unless])) continue;
      const text = textOf(query, name);
      if (text !== undefined) read[name] = reader(text, name);
    }
    return read as Static<Schema>;
  };
}

type Reader = (text: string, name: string) => unknown;

function readerOf({ type, format, 'x-id': isId = false }: Facts): Reader {
  switch (type) {
    case 'integer':
      return readInteger;
    case 'boolean':
      return readFlag;
    case 'array':
      return isId ? (text) => readList(text).map(readId) : readList;
    default:
      return format === 'date-time' ? readTime : isId ? readId : (text) => text;
  }
}

const badQuery = (name: string, what: string): AppError =>
  new AppError('invalid_query', `query parameter ${name} must be ${what}`);

/** The text of a parameter; an empty one counts as absent. */
function textOf(query: Query, name: string): string | undefined {
  const value = query[name];
  if (value === undefined || value === '') return undefined;
  if (typeof value !== 'string') throw badQuery(name, 'given once');
  if (value.includes('\0')) throw badQuery(name, 'text without NUL');
  return value;
}

function readInteger(text: string, name: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw badQuery(name, 'a number, 0 or more');
  return Number(text);
}

function readFlag(text: string, name: string): boolean {
  const value = queryBoolean(text);
  if (value === undefined) throw badQuery(name, 'true or false');
  return value;
}

const readList = (text: string): readonly string[] =>
  text
    .split(',')
    .map((value) => value.trim())
    .filter((value) => value !== '');

/** An id as the database has it: UUIDs are stored in lower case. */
const readId = (text: string): string => (isUuid(text) ? text.toLowerCase() : text);

/** Reads a time that may be given as unix milliseconds, too. @throws AppError `invalid_query` */
export function instantOf(text: string, name: string): number {
  return /^[0-9]{1,15}$/.test(text) ? Number(text) : readTime(text, name);
}

function readTime(text: string, name: string): number {
  const ms = timeMsOf(text);
  if (ms === undefined) throw badQuery(name, 'a time such as 2030-01-31T12:00:00Z');
  return ms;
}

/** Epoch milliseconds of a time as RFC 3339 has it; undefined: it is none. */
export function timeMsOf(text: string): number | undefined {
  // A plus sign that was not encoded arrives as a space.
  const written = text.replace(/ (?=[0-9]{2}:[0-9]{2}$)/, '+');
  const ms = TIME.test(written) ? Date.parse(written) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}
const TIME =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2}))?$/;
