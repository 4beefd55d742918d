/** Requests made up from the API's own description: shaped as it says, or nearly so, with ids that are real, ids that are nobody's, and texts that are none. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import fc from 'fast-check';

type Schema = Readonly<Record<string, unknown>>;
interface Route {
  readonly method: string;
  readonly path: string;
  readonly query: readonly { readonly name: string; readonly schema: Schema }[];
  readonly body: Schema | undefined;
}

export type Who = 'own' | 'admin' | 'other' | 'restricted' | 'revoked' | 'nobody';

/** A request but for its real ids: `{{n}}` in path, query or body stands for the n-th id that is known when it is sent. */
export interface FuzzRequest {
  readonly route: string;
  readonly method: string;
  readonly url: string;
  readonly body: string | undefined;
  readonly who: Who;
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

/** Every operation of docs/openapi.json. */
export function documentedRoutes(): readonly Route[] {
  const file = join(resolve(import.meta.dirname, '..', '..'), 'docs', 'openapi.json');
  const { paths } = JSON.parse(readFileSync(file, 'utf8')) as {
    paths: Record<string, Record<string, Record<string, unknown>>>;
  };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method]) => METHODS.includes(method))
      .map(([method, operation]) => routeOf(method, path, operation)),
  );
}

function routeOf(method: string, path: string, operation: Readonly<Record<string, unknown>>): Route {
  const parameters = (operation['parameters'] ?? []) as { name: string; in: string; schema: Schema }[];
  const content = (operation['requestBody'] as { content?: Record<string, { schema?: Schema }> } | undefined)?.content;
  return {
    method: method.toUpperCase(),
    path,
    query: parameters.filter((parameter) => parameter.in === 'query'),
    body: content?.['application/json']?.schema,
  };
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
/** So many ids are told apart; which one each means is known when it is sent. */
const IDS = 64;

const text = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom(
      'a',
      'app:handler',
      'default',
      'endpoint/deployment',
      'taskqueue',
      'hello',
      'name=a',
      '100',
    ),
  },
  { weight: 4, arbitrary: fc.nat(IDS - 1).map((n) => `{{${n}}}`) },
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

/** What a schema describes, now and then something else. */
function valueOf(schema: Schema, depth = 0): fc.Arbitrary<unknown> {
  const wanted = shaped(schema, depth);
  return fc.oneof({ weight: 12, arbitrary: wanted }, { weight: 1, arbitrary: anything });
}

function shaped(schema: Schema, depth: number): fc.Arbitrary<unknown> {
  const options = (schema['anyOf'] ?? schema['oneOf']) as readonly Schema[] | undefined;
  if (depth > 5) return anything;
  if (options !== undefined && options.length > 0) {
    return fc.oneof(...options.map((option) => valueOf(option, depth + 1)));
  }
  if ('const' in schema) return fc.constant(schema['const']);
  const values = schema['enum'] as readonly unknown[] | undefined;
  if (values !== undefined && values.length > 0) return fc.constantFrom(...values);
  switch (schema['type']) {
    case 'string':
      return schema['format'] === 'int64' ? number.map(String) : text;
    case 'integer':
    case 'number':
      return number;
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'array':
      return fc.array(valueOf((schema['items'] ?? {}) as Schema, depth + 1), { maxLength: 5 });
    case 'object': {
      const properties = Object.entries((schema['properties'] ?? {}) as Record<string, Schema>);
      const fields = properties.map(([name, field]) => [name, valueOf(field, depth + 1)] as const);
      return fc.record(Object.fromEntries(fields), { requiredKeys: [] });
    }
    default:
      return anything;
  }
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

/** @param ws - the own workspace, which most paths that want one get */
export function requestArbitrary(routes: readonly Route[], ws: string): fc.Arbitrary<FuzzRequest> {
  return fc.oneof(...routes.map((route) => requestOf(route, ws)));
}

function requestOf(route: Route, ws: string): fc.Arbitrary<FuzzRequest> {
  const names = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '');
  const inPath = fc.tuple(
    ...names.map((name) =>
      name === 'ws' ? fc.oneof({ weight: 9, arbitrary: fc.constant(ws) }, { weight: 1, arbitrary: text }) : text,
    ),
  );
  const inQuery = fc.record(Object.fromEntries(route.query.map(({ name, schema }) => [name, valueOf(schema)])), {
    requiredKeys: [],
  });
  const inBody = route.method === 'GET' ? fc.constant(undefined) : bodyOf(route.body);
  return fc.record({ inPath, inQuery, inBody, who: WHO }).map(({ inPath: said, inQuery: asked, inBody: body, who }) => {
    let index = 0;
    const path = route.path.replace(/\{\w+\}/g, () => encoded(said[index++]));
    const query = Object.entries(asked).map(([name, value]) => `${name}=${encoded(value)}`);
    return {
      route: `${route.method} ${route.path}`,
      method: route.method,
      url: query.length === 0 ? path : `${path}?${query.join('&')}`,
      body,
      who,
    };
  });
}

/** Where nothing is described, as the invoke routes, any JSON; now and then none at all. */
function bodyOf(schema: Schema | undefined): fc.Arbitrary<string | undefined> {
  const json = (schema === undefined ? anything : valueOf(schema)).map((value) => JSON.stringify(value));
  return fc.oneof(
    { weight: 12, arbitrary: json },
    { weight: 1, arbitrary: fc.constantFrom(undefined, '', '{', '[]', 'null', '"', '{"a":', '\ufeff{}') },
  );
}
