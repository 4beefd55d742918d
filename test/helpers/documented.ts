/**
 * docs/openapi.json as tests read it: the route of a request, and whether
 * an answer conforms to that route's description, no more and no less.
 */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Compile } from 'typebox/schema';

export type Schema = Readonly<Record<string, unknown>>;

export interface Route {
  readonly method: string;
  /** `/api/v1/task/{ws}` */
  readonly path: string;
  readonly query: readonly { readonly name: string; readonly schema: Schema }[];
  readonly body: Schema | undefined;
  readonly statuses: ReadonlySet<string>;
  /** Statuses with an empty body. */
  readonly empty: ReadonlySet<string>;
  /** Schema of the JSON body, by status. */
  readonly answers: ReadonlyMap<string, Schema>;
}

interface Described {
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly schema: Schema }[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
}
interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

/** Every operation, with its references resolved. */
export function documentedRoutes(): readonly Route[] {
  const file = join(resolve(import.meta.dirname, '..', '..'), 'docs', 'openapi.json');
  const document = JSON.parse(readFileSync(file, 'utf8')) as Schema;
  const paths = inFull(document['paths'], document) as Readonly<Record<string, Readonly<Record<string, Described>>>>;
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method]) => METHODS.includes(method))
      .map(([method, described]) => routeOf(method, path, described)),
  );
}

function routeOf(method: string, path: string, { parameters = [], requestBody, responses }: Described): Route {
  const answers = Object.entries(responses).flatMap(([status, { content }]) => {
    const schema = content?.['application/json']?.schema;
    return schema === undefined ? [] : [[status, schema] as const];
  });
  return {
    method: method.toUpperCase(),
    path,
    query: parameters.filter((parameter) => parameter.in === 'query'),
    body: requestBody?.content?.['application/json']?.schema,
    statuses: new Set(Object.keys(responses)),
    empty: new Set(Object.keys(responses).filter((status) => responses[status]?.content === undefined)),
    answers: new Map(answers),
  };
}

function inFull(value: unknown, document: Schema): unknown {
  const byName = (_key: string, part: unknown): unknown => {
    if (typeof part !== 'object' || part === null || !('$ref' in part)) return part;
    const path = String(part.$ref).split('/').slice(1);
    const found = path.reduce<unknown>((at, name) => (at as Schema | undefined)?.[name], document);
    if (found === undefined) throw new Error(`${String(part.$ref)} is not described`);
    return inFull(found, document);
  };
  return JSON.parse(JSON.stringify(value, byName)) as unknown;
}

/** Which route a path is of; literal segments win over parameters. */
export function routeAt(routes: readonly Route[], method: string, url: string): Route | undefined {
  const path = new URL(url, 'http://localhost').pathname.replace(/(?<=.)\/$/, '');
  const found = routes.filter((route) => route.method === method && patternOf(route.path).test(path));
  return found.toSorted((a, b) => parametersIn(a.path) - parametersIn(b.path))[0];
}

const parametersIn = (path: string): number => path.split('{').length;
const patterns = new Map<string, RegExp>();
function patternOf(path: string): RegExp {
  const known = patterns.get(path);
  if (known !== undefined) return known;
  // The router takes no parameter longer than this.
  const pattern = new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]{1,1024}')}$`);
  patterns.set(path, pattern);
  return pattern;
}

const validators = new WeakMap<Schema, ReturnType<typeof Compile>>();

/** @returns the difference between the answer and its description; undefined: none */
export function undescribed(route: Route, status: number, text: string): string | undefined {
  if (!route.statuses.has(String(status))) return `${status} is not described`;
  if (route.empty.has(String(status))) return text === '' ? undefined : `${status} is described without a body`;
  const schema = route.answers.get(String(status));
  if (schema === undefined) return undefined;
  let validator = validators.get(schema);
  if (validator === undefined) validators.set(schema, (validator = Compile(closed(schema) as object)));
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return `${status} is not the JSON that is described`;
  }
  if (validator.Check(value)) return undefined;
  const [, errors] = validator.Errors(value);
  const said = errors.slice(0, 3).map(({ instancePath, message }) => `${instancePath} ${message}`);
  return `${status} is not as described: ${said.join('; ')}`;
}

/** Objects whose properties are listed have no others. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== 'object' || schema === null) return schema;
  const parts = Object.fromEntries(Object.entries(schema).map(([key, part]) => [key, closed(part)]));
  const isRecord = parts['type'] === 'object' && 'properties' in parts && !('additionalProperties' in parts);
  // JSON Schema does not know our own formats.
  if (typeof parts['format'] === 'string' && OWN_FORMATS.has(parts['format'])) delete parts['format'];
  return isRecord ? { ...parts, additionalProperties: false } : parts;
}
const OWN_FORMATS: ReadonlySet<string> = new Set(['int64', 'filters', 'byte', 'binary']);

export interface Answered {
  readonly method: string;
  readonly url: string;
  readonly status: number;
  readonly text: string;
}

/**
 * Statuses from 500 on that a scheduler without machines may
 * give. Everything else is a fault of ours, described or not.
 */
const EXPECTED: readonly { readonly route: RegExp; readonly status: number; readonly why: string }[] = [
  { route: /^\w+ \/api\/v1\/gateway\//, status: 501, why: 'a method that the path has not' },
  {
    route: /^(?:POST|GET) \/(?:endpoint|taskqueue|function|schedule)\//,
    status: 503,
    why: 'nothing can serve the call',
  },
  { route: /^GET \/metrics\/machines\//, status: 502, why: 'the metrics page of a machine that is not there' },
];

/** @returns the reason why the failure is expected; undefined: it is no failure, or a fault */
export const whyExpected = (routes: readonly Route[], { method, url, status }: Answered): string | undefined => {
  const { pathname } = new URL(url, 'http://localhost');
  const found = EXPECTED.find((one) => one.status === status && one.route.test(`${method} ${pathname}`));
  const route = routeAt(routes, method, url);
  if (status !== 501 || route === undefined) return found?.why;
  return route.statuses.has('501') ? 'a route that is not built yet' : undefined;
};

/** @returns what is wrong with an answer; undefined: nothing */
export function faultOf(routes: readonly Route[], answered: Answered): string | undefined {
  const { method, url, status, text } = answered;
  if (status >= 500 && whyExpected(routes, answered) === undefined) return `${status} is a fault of ours`;
  const route = routeAt(routes, method, url);
  // A part of a path that is empty or too long makes another path. A
  // request that Node's HTTP refuses for its size never reaches a route.
  if (route === undefined || status === 431) return undefined;
  return undescribed(route, status, text);
}
