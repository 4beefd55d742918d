/**
 * Requests generated from the API's own description: as described, with one deviation, or only nearly so. Their ids are
 * real, or nobody's, or no ids at all. Each request decides how its body is made and how likely it is right. So the
 * generator reaches the code behind the checks as well as the checks.
 */
import fc from 'fast-check';
import type { Route, Schema } from './documented.ts';

export type Who = 'own' | 'admin' | 'other' | 'restricted' | 'revoked' | 'nobody';

/**
 * A request with placeholders for real ids: `{{n}}` in path, query
 * or body stands for the n-th id that is known when it is sent.
 */
export interface FuzzRequest {
  readonly route: string;
  readonly method: string;
  readonly url: string;
  readonly body: string | undefined;
  readonly who: Who;
}

const ODD_TEXTS = [
  '',
  ' ',
  '\0',
  'null',
  '../..',
  '%00',
  '-1',
  '999999999999999999999',
  'é😀',
  '\ud800',
  "';--",
  '{}',
  'v1',
  'latest',
  '*',
];
/** Number of distinct ids; the meaning of each is decided when the request is sent. */
const IDS = 64;

const word = fc.constantFrom(
  'a',
  'app:handler',
  'default',
  'endpoint/deployment',
  'taskqueue/deployment',
  'taskqueue',
  'hello',
  'name=a',
  '100',
);
const id = fc.nat(IDS - 1).map((n) => `{{${n}}}`);
const text = fc.oneof(
  { weight: 4, arbitrary: word },
  { weight: 4, arbitrary: id },
  { weight: 2, arbitrary: fc.constantFrom(...ODD_TEXTS) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1_000, max: 20_000 }).map((length) => 'x'.repeat(length)) },
);
const number = fc.oneof(
  fc.integer({ min: 0, max: 200 }),
  fc.constantFrom(-1, 0, 2 ** 31, 2 ** 32, 2 ** 53, 1e300, 0.5),
  fc.integer(),
);
const anything = fc.oneof(
  fc.jsonValue({ maxDepth: 4 }),
  fc.constantFrom<unknown>([], {}, null, '', 0, [[[[]]]]),
  text,
  number,
);

/**
 * Generators of texts, numbers and values: as described, or with odd ones among them, and now and then of another type.
 */
interface Making {
  readonly text: fc.Arbitrary<string>;
  readonly number: (schema: Schema) => fc.Arbitrary<number>;
  readonly value: (wanted: fc.Arbitrary<unknown>) => fc.Arbitrary<unknown>;
}

const AS_DESCRIBED: Making = {
  text: fc.oneof(word, id, fc.string({ maxLength: 12 })),
  number: ({ minimum, maximum, type }) => {
    const min = typeof minimum === 'number' ? minimum : type === 'integer' ? -1_000 : 0;
    const max = Math.min(typeof maximum === 'number' ? maximum : 1_000_000, Number.MAX_SAFE_INTEGER);
    const whole = { min: Math.ceil(min), max: Math.max(Math.ceil(min), Math.floor(max)) };
    const near = { ...whole, max: Math.min(whole.max, whole.min + 100) };
    return fc.oneof(fc.integer(near), fc.integer(whole), fc.constantFrom(min, max));
  },
  value: (wanted) => wanted,
};
const MIXED: Making = {
  text,
  number: () => number,
  value: (wanted) => fc.oneof({ weight: 12, arbitrary: wanted }, { weight: 1, arbitrary: anything }),
};

const valueOf = (schema: Schema, making: Making, depth = 0): fc.Arbitrary<unknown> =>
  making.value(shaped(schema, making, depth));

function shaped(schema: Schema, making: Making, depth: number): fc.Arbitrary<unknown> {
  const options = (schema['anyOf'] ?? schema['oneOf'] ?? schema['allOf']) as readonly Schema[] | undefined;
  if (depth > 6) return anything;
  if (options !== undefined && options.length > 0) {
    return fc.oneof(...options.map((option) => valueOf(option, making, depth + 1)));
  }
  if ('const' in schema) return fc.constant(schema['const']);
  const values = schema['enum'] as readonly unknown[] | undefined;
  if (values !== undefined && values.length > 0) return fc.constantFrom(...values);
  switch (schema['type']) {
    case 'string':
      return textOf(schema, making);
    case 'integer':
    case 'number':
      return making.number(schema);
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'array':
      return fc.array(valueOf((schema['items'] ?? {}) as Schema, making, depth + 1), { maxLength: 5 });
    case 'object':
      return objectOf(schema, making, depth);
    default:
      return anything;
  }
}

const time = fc
  .date({ min: new Date('2000-01-01'), max: new Date('2100-01-01'), noInvalidDate: true })
  .map((date) => date.toISOString());

function textOf(schema: Schema, making: Making): fc.Arbitrary<unknown> {
  const {
    format,
    pattern,
    minLength = 0,
    maxLength = Infinity,
  } = schema as {
    readonly format?: string;
    readonly pattern?: string;
    readonly minLength?: number;
    readonly maxLength?: number;
  };
  switch (format) {
    case 'int64':
      return making.number({ type: 'integer' }).map(String);
    case 'uuid':
      return making.value(id);
    case 'date-time':
      return making.value(time);
    case 'byte':
      return making.value(fc.base64String({ maxLength: 40 }));
    case 'filters':
      return fc.oneof(
        fc.constantFrom('name=a', 'task-id={{1}};name=a,b', '{"name":["a"]}', 'status=PENDING'),
        making.text,
      );
    default:
  }
  if (making === MIXED) return making.text;
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern), { maxLength: 40 });
  return making.text.map((made) => (made === '' && minLength > 0 ? 'a' : made.slice(0, maxLength)));
}

function objectOf(schema: Schema, making: Making, depth: number): fc.Arbitrary<unknown> {
  const properties = Object.entries((schema['properties'] ?? {}) as Record<string, Schema>);
  const fields = Object.fromEntries(properties.map(([name, field]) => [name, valueOf(field, making, depth + 1)]));
  const required = making === MIXED ? [] : ((schema['required'] ?? []) as string[]);
  const said = fc.record(fields, { requiredKeys: required });
  const [values] = Object.values((schema['patternProperties'] ?? {}) as Record<string, Schema>);
  const more = values ?? (schema['additionalProperties'] as Schema | boolean | undefined);
  if (more === undefined || more === false) return said;
  const free = more === true ? anything : valueOf(more, making, depth + 1);
  return fc
    .tuple(fc.dictionary(fc.oneof(word, fc.string({ maxLength: 8 })), free, { maxKeys: 4 }), said)
    .map(([others, listed]) => ({ ...others, ...listed }));
}

/** A copy of the value with one difference: another value, a missing one, or an additional one. */
function butForOne(value: unknown, place: number, other: unknown): unknown {
  const places = placesIn(value);
  const path = places[place % places.length] ?? [];
  return changedAt(value, path, other);
}

function placesIn(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => placesIn(inner, [...path, key]))];
}

const GONE = Symbol('gone');

function changedAt(value: unknown, [key, ...rest]: readonly string[], other: unknown): unknown {
  if (key === undefined) {
    if (other !== GONE) return other;
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value, unknown: 1 } : null;
  }
  const inner = changedAt((value as Schema)[key], rest, other);
  if (Array.isArray(value)) return value.map((item: unknown, index) => (String(index) === key ? inner : item));
  if (rest.length > 0 || other !== GONE) return { ...(value as object), [key]: inner };
  return Object.fromEntries(Object.entries(value as object).filter(([name]) => name !== key));
}

const WHO = fc.oneof(
  { weight: 12, arbitrary: fc.constant<Who>('own') },
  { weight: 4, arbitrary: fc.constant<Who>('admin') },
  { weight: 1, arbitrary: fc.constantFrom<Who>('other', 'restricted', 'revoked', 'nobody') },
);

/** A lone half of a pair cannot be in a URL. */
const encoded = (value: unknown): string =>
  encodeURIComponent((typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).toWellFormed()).replace(
    /%7B%7B(\d+)%7D%7D/g,
    '{{$1}}',
  );

/** A list of the query is one value, with commas. */
const inQuery = (value: unknown): string =>
  Array.isArray(value) ? value.map((item) => encoded(item)).join(',') : encoded(value);

/** @param ws - the own workspace, which most paths that want one get */
export function requestArbitrary(routes: readonly Route[], ws: string): fc.Arbitrary<FuzzRequest> {
  return fc.oneof(...routes.map((route) => requestOf(route, ws)));
}

function requestOf(route: Route, ws: string): fc.Arbitrary<FuzzRequest> {
  const names = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '');
  const path = fc.tuple(...names.map((name) => partOf(name, ws)));
  const query = fc.oneof(
    ...[AS_DESCRIBED, MIXED].map((making) =>
      fc.record(Object.fromEntries(route.query.map(({ name, schema }) => [name, valueOf(schema, making)])), {
        requiredKeys: [],
      }),
    ),
  );
  const body = route.method === 'GET' ? fc.constant(undefined) : bodyOf(route.body);
  return fc.record({ path, query, body, who: WHO }).map((made) => {
    let index = 0;
    const at = route.path.replace(/\{\w+\}/g, () => encoded(made.path[index++]));
    const asked = Object.entries(made.query).map(([name, value]) => `${name}=${inQuery(value)}`);
    return {
      route: `${route.method} ${route.path}`,
      method: route.method,
      url: asked.length === 0 ? at : `${at}?${asked.join('&')}`,
      body: made.body,
      who: made.who,
    };
  });
}

/** A part of a path: mostly an existing one, so that the code behind the lookup is reached. */
function partOf(name: string, ws: string): fc.Arbitrary<string> {
  if (name === 'ws') return fc.oneof({ weight: 9, arbitrary: fc.constant(ws) }, { weight: 1, arbitrary: text });
  const there = name === 'name' ? fc.constant('hello') : name === 'version' ? fc.constantFrom('v1', 'latest') : id;
  return fc.oneof({ weight: 2, arbitrary: there }, { weight: 1, arbitrary: text });
}

/** A body: without a description, any JSON; now and then no JSON at all. */
function bodyOf(schema: Schema | undefined): fc.Arbitrary<string | undefined> {
  const none = fc.constantFrom(undefined, '', '{', '[]', 'null', '"', '{"a":', '\ufeff{}');
  if (schema === undefined) return fc.oneof({ weight: 6, arbitrary: json(anything) }, { weight: 1, arbitrary: none });
  const asDescribed = valueOf(schema, AS_DESCRIBED);
  const other = fc.oneof(anything, fc.constant(GONE));
  const near = fc.tuple(asDescribed, fc.nat(), other).map(([value, place, by]) => butForOne(value, place, by));
  return fc.oneof(
    { weight: 5, arbitrary: json(asDescribed) },
    { weight: 4, arbitrary: json(near) },
    { weight: 4, arbitrary: json(valueOf(schema, MIXED)) },
    { weight: 1, arbitrary: json(anything) },
    { weight: 1, arbitrary: none },
  );
}

const json = (value: fc.Arbitrary<unknown>): fc.Arbitrary<string> => value.map((made) => JSON.stringify(made) ?? '');
