// Reads JSON and query strings by a message's schema. Reading is lenient: both spellings of a
// name, numbers or digits in strings, null as absent, unknown fields dropped. Missing fields are
// filled in, so that a handler sees every field. Called by the binder; compiled once per message.
import type { TObject, TSchema } from 'typebox';
import { Type } from 'typebox';
import { isExact } from '#shared/api/fields.ts';
import { JsonText } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import { parseFilters } from './filters.ts';

/** A request that cannot be read; the text names the field. */
export class DecodeError extends Error {
  readonly field: string;
  /** The rule for the field's value, without the value that was sent. */
  readonly rule: string;
  constructor(field: string, rule: string, got = '') {
    super(field === '' ? `${rule}${got}` : `parsing field "${field}": ${rule}${got}`);
    this.name = 'DecodeError';
    this.field = field;
    this.rule = rule;
  }
}

type Decode = (value: unknown, field: string) => unknown;
type Properties = Readonly<Record<string, TSchema>>;

interface SchemaFacts {
  readonly type?: string;
  readonly format?: string;
  readonly anyOf?: readonly TSchema[];
  readonly items?: TSchema;
  readonly properties?: Properties;
  readonly patternProperties?: Properties;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly default?: unknown;
}

/** Deepest free JSON: a deeper value is refused before any code walks it. */
const MAX_DEPTH = 64;
/** The bound of int64: the largest value is one less, and the check of digits refuses the bound itself. */
const INT64_MAX = 2 ** 63;

export const snakeOf = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** A decoder of the whole message from JSON (`undefined` and null read as `{}`). */
export function compileDecoder(schema: TObject): (value: unknown) => Record<string, unknown> {
  const decode = decoderOf(schema);
  return (value) => decode(value ?? {}, '') as Record<string, unknown>;
}

function decoderOf(schema: TSchema): Decode {
  const facts = schema as SchemaFacts;
  if (facts.anyOf !== undefined) {
    const inner = facts.anyOf.find((member) => (member as SchemaFacts).type !== 'null');
    return inner === undefined ? () => null : decoderOf(inner);
  }
  if (isExact(schema)) return exactDecoder(facts);
  switch (facts.format) {
    case 'int64':
      return (value, field) => {
        if (typeof value === 'string' && DIGITS.test(value) && BigInt.asIntN(64, BigInt(value)) !== BigInt(value)) {
          throw wrong(field, 'a 64-bit integer', value);
        }
        return readNumber(value, field, 'a 64-bit integer', true, facts.minimum ?? -INT64_MAX, INT64_MAX);
      };
    case 'byte':
      return readBytes;
    case 'filters':
      return (value, field) => {
        // An object is either read already by the query reader below, or a client's JSON.
        if (typeof value === 'object') return readFilters([['', JSON.stringify(value)]], field);
        if (typeof value !== 'string') throw wrong(field, 'a string', value);
        return readFilters([['', value]], field);
      };
    default:
  }
  switch (facts.type) {
    case 'string':
      return (value, field) => {
        if (typeof value !== 'string') throw wrong(field, 'a string', value);
        checkText(value, field);
        return value;
      };
    case 'boolean':
      return (value, field) => {
        if (typeof value !== 'boolean') throw wrong(field, 'true or false', value);
        return value;
      };
    case 'integer':
      return (value, field) =>
        readNumber(value, field, 'an integer', true, facts.minimum ?? -INT64_MAX, facts.maximum ?? INT64_MAX);
    case 'number':
      return (value, field) =>
        readNumber(value, field, 'a number', false, facts.minimum ?? -Infinity, facts.maximum ?? Infinity);
    case 'array':
      return arrayDecoder(facts.items ?? Type.Unknown());
    case 'object':
      if (facts.properties !== undefined) return objectDecoder(facts.properties);
      return recordDecoder(Object.values(facts.patternProperties ?? {})[0] ?? Type.Unknown());
    default:
      return (value, field) => {
        checkFree(value, field, MAX_DEPTH, checkText);
        return value;
      };
  }
}

/** Reads JSON that keeps its text. The text can be stored whatever its strings mean, so these are not checked. */
function exactDecoder({ type }: SchemaFacts): Decode {
  return (given, field) => {
    const text = given instanceof JsonText ? given : new JsonText(JSON.stringify(given));
    const { value } = text;
    if (type === 'object' && !isRecord(value)) throw wrong(field, 'an object', value);
    if (type === 'array' && !Array.isArray(value)) throw wrong(field, 'a list', value);
    checkFree(value, field, MAX_DEPTH);
    return text;
  };
}

function objectDecoder(properties: Properties): Decode {
  const fields = Object.entries(properties).map(([name, schema]) => ({
    name,
    snake: snakeOf(name),
    optional: Type.IsOptional(schema),
    decode: decoderOf(schema),
    zero: zeroOf(schema),
  }));
  return (value, field) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong(field, 'an object', value);
    const raw = value as Readonly<Record<string, unknown>>;
    const out: Record<string, unknown> = {};
    for (const { name, snake, optional, decode, zero } of fields) {
      let found = Object.hasOwn(raw, name) ? raw[name] : undefined;
      if ((found === undefined || found === null) && snake !== name && Object.hasOwn(raw, snake)) found = raw[snake];
      if (found !== undefined && found !== null) out[name] = decode(found, field === '' ? name : `${field}.${name}`);
      else if (!optional) out[name] = zero();
    }
    return out;
  };
}

function arrayDecoder(items: TSchema): Decode {
  const decode = decoderOf(items);
  return (value, field) => {
    if (!Array.isArray(value)) throw wrong(field, 'a list', value);
    return value.map((item: unknown, index) => {
      if (item === null) throw wrong(`${field}[${index}]`, 'a value', item);
      return decode(item, `${field}[${index}]`);
    });
  };
}

function recordDecoder(values: TSchema): Decode {
  const decode = decoderOf(values);
  return (value, field) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong(field, 'an object', value);
    const out = Object.create(null) as Record<string, unknown>;
    for (const [key, item] of Object.entries(value)) out[key] = decode(item, `${field}.${key}`);
    return out;
  };
}

/** The value of a field that was not sent. */
export function zeroOf(schema: TSchema): () => unknown {
  const facts = schema as SchemaFacts;
  if (facts.default !== undefined) return () => facts.default;
  if (facts.anyOf !== undefined) return () => null;
  switch (facts.format) {
    case 'int64':
      return () => 0;
    case 'byte':
      return () => new Uint8Array(0);
    case 'filters':
      return () => ({});
    default:
  }
  switch (facts.type) {
    case 'string':
      return () => '';
    case 'boolean':
      return () => false;
    case 'integer':
    case 'number':
      return () => 0;
    case 'array':
      return () => [];
    case 'object': {
      const parts = Object.entries(facts.properties ?? {})
        .filter(([, property]) => !Type.IsOptional(property))
        .map(([name, property]) => [name, zeroOf(property)] as const);
      return () => Object.fromEntries(parts.map(([name, zero]) => [name, zero()]));
    }
    default:
      return () => null;
  }
}

/** Bounded in length to be cheap to check; no valid number has more digits. */
const DIGITS = /^-?[0-9]{1,40}$/;
const NUMBER = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;

function readNumber(value: unknown, field: string, what: string, whole: boolean, low: number, high: number): number {
  let number: number;
  if (typeof value === 'number') number = value;
  else if (typeof value === 'string' && NUMBER.test(value)) number = Number(value);
  else throw wrong(field, what, value);
  if (!Number.isFinite(number) || (whole && !Number.isInteger(number))) throw wrong(field, what, value);
  if (number < low || number > high)
    throw new DecodeError(field, `must be ${what} from ${boundText(low)} to ${boundText(high)}`);
  return number;
}

/** Digits of a bound; the largest int64 is no number of JavaScript. */
const boundText = (bound: number): string => {
  if (bound === INT64_MAX) return String(2n ** 63n - 1n);
  return Number.isInteger(bound) ? String(BigInt(bound)) : String(bound);
};

const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

function readBytes(value: unknown, field: string): Uint8Array {
  if (typeof value !== 'string' || !BASE64.test(value)) throw wrong(field, 'base64 text', value);
  return new Uint8Array(Buffer.from(value, 'base64'));
}

function readFilters(entries: readonly (readonly [string, string])[], field: string): unknown {
  const parsed = parseFilters(entries);
  if (parsed === null) throw new DecodeError(field, 'must be key=value,value;key=value or a JSON object');
  return parsed;
}

/** Refuses text that the database cannot hold, or that a header or a file name may not carry. */
function checkText(text: string, field: string): void {
  if (text.includes('\0') || !text.isWellFormed()) throw new DecodeError(field, 'must be well-formed text without NUL');
}

function checkFree(value: unknown, field: string, left: number, check?: typeof checkText): void {
  if (typeof value === 'string') check?.(value, field);
  if (typeof value !== 'object' || value === null) return;
  if (left === 0) throw new DecodeError(field, `is nested deeper than ${MAX_DEPTH} levels`);
  for (const [key, item] of Object.entries(value)) {
    check?.(key, field);
    checkFree(item, field, left - 1, check);
  }
}

function wrong(field: string, what: string, value: unknown): DecodeError {
  const got = value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value;
  const shown = typeof value === 'string' || typeof value === 'number' ? ` ${JSON.stringify(value).slice(0, 40)}` : '';
  return new DecodeError(field, `must be ${what}`, `, got ${got}${shown}`);
}

const TRUE: ReadonlySet<string> = new Set(['1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE: ReadonlySet<string> = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** The only spellings of booleans in query strings; undefined: neither. */
export const queryBoolean = (text: string): boolean | undefined =>
  TRUE.has(text) ? true : FALSE.has(text) ? false : undefined;

/** A query as it came. */
export type Query = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * Compiles a reader of query parameters: raw values by the message's schema, as the
 * JSON decoder takes them. Unknown parameters are ignored, repeated scalars refused.
 */
export function compileQueryReader(schema: TObject): (query: Query) => Record<string, unknown> {
  const fields = Object.entries(schema.properties as Properties).map(([name, property]) => ({
    name,
    snake: snakeOf(name),
    facts: property as SchemaFacts,
  }));
  const reader = (query: Query): Record<string, unknown> => {
    const out: Record<string, unknown> = {};
    for (const { name, snake, facts } of fields) {
      if (facts.format === 'filters') {
        const entries = filterEntries(query, name);
        if (entries.length > 0) out[name] = readFilters(entries, name);
        continue;
      }
      const found = query[name] ?? query[snake];
      if (found === undefined) continue;
      if (facts.type === 'array') {
        out[name] = typeof found === 'string' ? [found] : found;
        continue;
      }
      if (typeof found !== 'string') throw new DecodeError(name, 'too many values for the field');
      out[name] = facts.type === 'boolean' ? readQueryBoolean(found, name) : found;
    }
    return out;
  };
  return reader;
}

function readQueryBoolean(text: string, field: string): boolean {
  const value = queryBoolean(text);
  if (value === undefined) throw wrong(field, 'true or false', text);
  return value;
}

function filterEntries(query: Query, name: string): (readonly [string, string])[] {
  const entries: (readonly [string, string])[] = [];
  for (const [key, values] of Object.entries(query)) {
    const inner =
      key === name ? '' : key.startsWith(`${name}[`) && key.endsWith(']') ? key.slice(name.length + 1, -1) : null;
    if (inner === null || values === undefined) continue;
    for (const value of typeof values === 'string' ? [values] : values) entries.push([inner, value]);
  }
  return entries;
}
