// Field kinds from which messages of every surface are built. A schema describes the wire, as openapi.json shows it;
// the static type is the one handlers use. The conversions of each kind are in scheduler/api/http/decode.ts and
// encode.ts.
import { Type } from 'typebox';
import type { Static, TObject, TSchema } from 'typebox';
import type { JsonText } from '../json-text.ts';

export const Text = (options: Record<string, unknown> = {}) => Type.String(options);
export const Flag = (options: Record<string, unknown> = {}) => Type.Boolean(options);
export const Float = (options: Record<string, unknown> = {}) => Type.Number(options);
/** A JSON number on the wire; digits in a string are accepted too. */
export const Uint32 = (options: Record<string, unknown> = {}) =>
  Type.Integer({ minimum: 0, maximum: 4_294_967_295, ...options });

export const Int32 = (options: Record<string, unknown> = {}) =>
  Type.Integer({ minimum: -2_147_483_648, maximum: 2_147_483_647, ...options });

/**
 * A decimal string on the wire, accepted as a string or a number; a number in code.
 * Values beyond 2^53 lose their last digits, and no field here reaches them.
 */
export const Int64 = (options: Record<string, unknown> = {}) =>
  Type.Unsafe<number>({ type: 'string', format: 'int64', pattern: '^-?[0-9]+$', ...options });

/** The most items of a list: an int64 as plain digits in the query; 0 means all. */
export const ListLimit = () => Type.Unsafe<number>({ type: 'integer', format: 'int64', minimum: 0 });

/** Standard base64 out; standard or URL-safe in. */
export const Bytes = (options: Record<string, unknown> = {}) =>
  Type.Unsafe<Uint8Array>({ type: 'string', format: 'byte', ...options });

/** RFC 3339 UTC, or null. */
export const Timestamp = (options: Record<string, unknown> = {}) =>
  nullable(Type.String({ format: 'date-time', ...options }));

/** A key with its accepted values; scheduler/api/http/filters.ts has the three spellings of it in a query string. */
export const Filters = (options: Record<string, unknown> = {}) =>
  Type.Unsafe<Readonly<Record<string, readonly string[]>>>({ type: 'string', format: 'filters', ...options });

export const nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>(Type.Union([schema, Type.Null()]));

/** Request header by which a client asks for the fields below; its value is `1`. */
export const FIELDS_HEADER = 'x-longshore-fields';

/** Header of the answer with the text of a refusal whose field was left out. */
export const ERROR_HEADER = 'x-longshore-error';

/**
 * A field that the interface document does not have. Answers carry it only for callers that send `FIELDS_HEADER`, so
 * that clients of others see the document's shapes. On the wire it is optional; handlers always give it.
 */
export const beyondDocument = <T extends TSchema>(schema: T): T =>
  Object.assign(Type.Optional(schema), { [BEYOND]: true });
const BEYOND = 'x-longshore-field';
export const isBeyondDocument = (schema: object): boolean => (schema as Record<string, unknown>)[BEYOND] === true;

/** Free JSON as a value of JavaScript. JSON of users that is given back is {@link Exact}. */
export const Anything = (options: Record<string, unknown> = {}) => Type.Unknown(options);

/**
 * JSON of users that keeps its text. In a request it must be a field of the message itself, not of an object in it.
 * @param schema - its description on the wire; an object or a list is checked to be one
 */
export const Exact = (schema: object = {}) => Type.Unsafe<JsonText>({ ...schema, [EXACT]: true });
const EXACT = Symbol('exact');
export const isExact = (schema: object): boolean => EXACT in schema;

/** Names of the message's fields that are {@link Exact}. */
export function exactFields(message: TObject): readonly string[] {
  const fields = Object.entries(message.properties as Readonly<Record<string, TSchema>>);
  return fields.filter(([, schema]) => choicesOf(schema).some(isExact)).map(([name]) => name);
}
const choicesOf = (schema: TSchema): readonly TSchema[] =>
  (schema as { readonly anyOf?: readonly TSchema[] }).anyOf ?? [schema];

/** Converts epoch milliseconds to a Timestamp field. */
export function timestampOf(ms: number): string;
export function timestampOf(ms: number | null | undefined): string | null;
export function timestampOf(ms: number | null | undefined): string | null {
  return ms === null || ms === undefined ? null : new Date(ms).toISOString();
}

/** The answer of most verbs: success, and the error text otherwise. */
export const Done = Type.Object({ ok: Flag(), errMsg: Text() });
export type Done = Static<typeof Done>;
