// The description of every route that people call, generated from the schemas that bind it. Committed as
// docs/openapi.json; a test fails when that file is out of date.
import type { TObject, TSchema } from 'typebox';
import { AppRecord } from '#shared/api/rest/app-record.ts';
import { AppWithLatest } from '#shared/api/rest/apps.ts';
import { ContainerRecord } from '#shared/api/rest/containers.ts';
import { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import { EventRecord } from '#shared/api/rest/events.ts';
import { LimitsRecord } from '#shared/api/rest/limits.ts';
import { LogRecord } from '#shared/api/rest/logs.ts';
import { SecretRecord } from '#shared/api/rest/secrets.ts';
import { SigningKeyRecord } from '#shared/api/rest/signing-keys.ts';
import { StackRecord } from '#shared/api/rest/stacks.ts';
import { StubRecord } from '#shared/api/rest/stubs.ts';
import { RestTask } from '#shared/api/rest/tasks.ts';
import { TokenRecord } from '#shared/api/rest/tokens.ts';
import { WorkspaceRecord } from '#shared/api/rest/workspaces.ts';
import { allOperations } from '../../operations/index.ts';
import type { OperationParts } from '../../operations/index.ts';
import type { Operation } from '../../operations/operation.ts';
import { HTTP_STATUS } from '../error-map.ts';
import { REST_BASE } from '../rest/rest.ts';
import type { RestRoute } from '../rest/route.ts';
import { restRoutes } from '../rest/routes.ts';
import type { RestRouteParts } from '../rest/routes.ts';
import { INPUTS, PLAIN_ROUTES } from './plain-routes.ts';
import type { Content, PlainRoute } from './plain-route.ts';
import { isOfPods, summaryOf } from './summaries.ts';

type Described = Record<string, unknown>;

/** Records that stand in more than one answer, by their names in the description. */
const NAMED: Readonly<Record<string, TSchema>> = {
  App: AppRecord,
  AppWithLatest,
  Container: ContainerRecord,
  Deployment: DeploymentRecord,
  Event: EventRecord,
  Inputs: INPUTS,
  Limits: LimitsRecord,
  LogLine: LogRecord,
  Secret: SecretRecord,
  SigningKey: SigningKeyRecord,
  Stack: StackRecord,
  Stub: StubRecord,
  Task: RestTask,
  Token: TokenRecord,
  Workspace: WorkspaceRecord,
};
const NAME_OF: ReadonlyMap<unknown, string> = new Map(Object.entries(NAMED).map(([name, schema]) => [schema, name]));

/** Operations and routes without services behind them: enough to describe them. */
const describedOperations = (): readonly Operation[] => allOperations({} as OperationParts);
const describedRoutes = (): readonly RestRoute[] => restRoutes({} as RestRouteParts);

export function openApiDocument(version: string): Described {
  const paths: Record<string, Described> = {};
  const add = (method: string, path: string, described: Described): void => {
    (paths[path] ??= {})[method.toLowerCase()] = described;
  };
  for (const operation of describedOperations()) {
    add(operation.method, `/api/v1/gateway${operation.path}`, describeOperation(operation));
  }
  for (const route of describedRoutes()) add(route.method, `${REST_BASE}${route.path}`, describeRest(route));
  for (const route of PLAIN_ROUTES) {
    const [method = 'GET', path = '/'] = route.http.split(' ');
    add(method, path, describePlain(route, path));
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Longshore',
      version,
      description:
        'Self-hosted serverless GPU platform. What can be answered stands with each route. Beside that: 404 for a path that is none, 405 for a method that a path has not (on the gateway 501), and 500 with the code internal, which is a fault of ours.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'the installation that serves this description' }],
    security: [{ bearer: [] }],
    components: {
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } },
      schemas: {
        RpcStatus: {
          type: 'object',
          properties: { code: { type: 'integer' }, message: { type: 'string' }, details: { type: 'array', items: {} } },
        },
        Problem: {
          type: 'object',
          properties: { message: { type: 'string' }, code: { type: 'string' }, request_id: { type: 'string' } },
        },
        Refusal: {
          type: 'object',
          description:
            'error says why, with a code where programs need one, and a detail of an input that cannot be read; message stands in its place in six texts of 400 and 401, which docs/errors.md lists',
          properties: {
            message: { type: 'string' },
            error: { type: 'string' },
            code: { type: 'string' },
            detail: { type: 'string' },
          },
        },
        ModelError: {
          type: 'object',
          description: 'as clients of OpenAI read it',
          properties: {
            error: {
              type: 'object',
              properties: {
                message: { type: 'string' },
                type: { type: 'string' },
                code: { type: ['string', 'null'] },
                param: { type: ['string', 'null'] },
                request_id: { type: 'string' },
              },
            },
          },
        },
        ...Object.fromEntries(Object.entries(NAMED).map(([name, schema]) => [name, plain({ ...schema })])),
      },
      responses: Object.fromEntries(
        Object.entries(NOT_PROCESSED).map(([status, description]) => [
          `NotProcessed${status}`,
          { description, ...jsonContent({ $ref: '#/components/schemas/RpcStatus' }) },
        ]),
      ),
    },
    paths: Object.fromEntries(Object.entries(paths).toSorted(([a], [b]) => (a < b ? -1 : 1))),
  };
}

/** Causes of an RPC status from the gateway; an operation's own refusal is 200 with ok false. */
const NOT_PROCESSED: Readonly<Record<number, string>> = {
  400: 'The request cannot be read: the message names the field',
  401: 'No token, or a bad one',
  429: 'The body is larger than 16 MiB, or too many bad tokens came from this address',
  503: 'The database or the queues are away, the scheduler is stopping, or too many bodies are under way',
  504: 'It took longer than 30 s, or than Grpc-Timeout said, or its body came too slowly',
};

function describeOperation(operation: Operation): Described {
  const inPath = namesIn(operation.path);
  const properties = Object.entries(operation.request.properties as Readonly<Record<string, TSchema>>);
  const rest = properties.filter(([name]) => !inPath.includes(name));
  const inQuery = operation.method === 'GET' || operation.method === 'DELETE' ? rest : [];
  const hasBody = operation.method !== 'GET' && operation.method !== 'DELETE' && rest.length > 0;
  return {
    operationId: operation.name,
    summary: summaryOf(operation.name),
    tags: [isOfPods(operation.name) ? 'pods' : 'gateway'],
    ...(operation.scope === 'open' ? { security: [{}, { bearer: [] }] } : {}),
    ...parametersOf(inPath, inQuery),
    ...(hasBody ? { requestBody: jsonContent(bodySchema(operation.request, inPath)) } : {}),
    responses: {
      200: { description: 'Done, or refused with ok false', ...jsonContent(plain(operation.response)) },
      ...Object.fromEntries(
        Object.keys(NOT_PROCESSED).map((status) => [status, { $ref: `#/components/responses/NotProcessed${status}` }]),
      ),
    },
  };
}

/** Refusals that any route may give; the routes list their handlers' own codes. */
function errorsOf(route: RestRoute): readonly string[] {
  const parameters = Object.keys(route.query?.properties ?? {});
  return [
    ...(route.path.includes('{') || route.method !== 'GET' ? ['bad_request'] : []),
    ...(parameters.length > 0 ? ['invalid_query'] : []),
    ...(parameters.includes('cursor') ? ['invalid_cursor'] : []),
    'unauthorized',
    ...(route.method === 'GET'
      ? []
      : ['body_too_slow', 'body_too_large', 'unsupported_media_type', 'invalid_body', 'bodies_full']),
    'rate_limited',
    'draining',
    'database_unavailable',
    'database_timeout',
    route.method === 'GET' ? 'database_busy' : 'database_outcome_unknown',
    'deadline_exceeded',
    ...(route.errors ?? []),
  ];
}

function describeRest(route: RestRoute): Described {
  return {
    operationId: operationIdOf(route.method, route.path),
    summary: route.summary,
    tags: [route.tag ?? 'workspace'],
    ...parametersOf(namesIn(route.path), Object.entries(route.query?.properties ?? {})),
    ...(route.body === undefined ? {} : { requestBody: jsonContent(bodySchema(route.body, [])) }),
    responses: {
      [route.status ?? 200]:
        route.stream === undefined
          ? { description: 'Done', ...(route.answer === undefined ? {} : jsonContent(plain(route.answer))) }
          : describeStream(route.stream),
      ...problemsOf(errorsOf(route)),
    },
  };
}

/** A stream of server-sent events: its content has the schema of a frame's data. */
const describeStream = ({ frames }: NonNullable<RestRoute['stream']>): Described => ({
  description: `Server-sent events. ${frames.description}`,
  content: { 'text/event-stream': { schema: plain(frames.data) } },
});

function describePlain(route: PlainRoute, path: string): Described {
  const { body, answer = [] } = route;
  const answers = Array.isArray(answer) ? (answer as readonly Content[]) : [answer as Content];
  const refusals = Object.entries(route.refusals ?? {}).map(([status, description]) => [
    status,
    {
      description,
      ...jsonContent({ $ref: `#/components/schemas/${route.dialect === 'openai' ? 'ModelError' : 'Refusal'}` }),
    },
  ]);
  const others = Object.entries(route.others ?? {}).map(([status, { description, content }]) => [
    status,
    { description, ...(content === undefined ? {} : { content: contentOf([content]) }) },
  ]);
  const query = (route.query ?? []).map((name) => [name, { type: 'string' }] as const);
  return {
    operationId: operationIdOf(route.http.split(' ')[0] ?? 'GET', path),
    summary: route.summary,
    tags: [route.tag],
    ...(route.open === true ? { security: [] } : {}),
    ...parametersOf(namesIn(path), query, Object.entries(route.headers ?? {})),
    ...(body === undefined ? {} : { requestBody: { content: contentOf([body].flat()) } }),
    responses: {
      ...(route.upgrades === true
        ? { 101: { description: 'The WebSocket is open' } }
        : { 200: { description: 'Done', ...(answers.length === 0 ? {} : { content: contentOf(answers) }) } }),
      ...problemsOf(route.errors ?? []),
      ...Object.fromEntries([...refusals, ...others]),
    },
  };
}

/** Name of a route for generated clients: `GET /task/{ws}/{taskId}` is `getTaskByTaskId`. */
function operationIdOf(method: string, path: string): string {
  const words = path
    .replace(REST_BASE, '')
    .split('/')
    .filter((part) => part !== '' && part !== '{ws}')
    .map((part) =>
      part
        .replace(/^\{(\w+)\}$/, 'by-$1')
        .replaceAll(/(?:^|[^a-zA-Z0-9]+)(\w)/g, (_, first: string) => first.toUpperCase()),
    );
  return `${method.toLowerCase()}${words.join('')}`;
}

const contentOf = (contents: readonly Content[]) =>
  Object.fromEntries(contents.map(({ type, schema }) => [type, { schema: plain(schema) }]));

/** Codes by their status; docs/errors.md says what each means and how to cure it. */
function problemsOf(codes: readonly string[]): Described {
  const byStatus = new Map<number, readonly string[]>();
  for (const code of new Set(codes)) {
    const status = HTTP_STATUS[code];
    if (status === undefined) throw new Error(`${code} has no status`);
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const schema = { $ref: '#/components/schemas/Problem' };
  return Object.fromEntries(
    [...byStatus].map(([status, some]) => [status, { description: some.join(', '), ...jsonContent(schema) }]),
  );
}

const namesIn = (path: string): readonly string[] => [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '');

function parametersOf(
  inPath: readonly string[],
  inQuery: readonly (readonly [string, unknown])[],
  headers: readonly (readonly [string, string])[] = [],
): Described {
  const parameters = [
    ...inPath.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...inQuery.map(([name, schema]) => ({
      name,
      in: 'query',
      required: false,
      ...separated(schema),
      schema: plain(schema),
    })),
    ...headers.map(([name, description]) => ({
      name,
      in: 'header',
      required: false,
      description,
      schema: { type: 'string' },
    })),
  ];
  return parameters.length === 0 ? {} : { parameters };
}

/** A list in a query is a single value, with commas. */
const separated = (schema: unknown) =>
  (schema as { readonly type?: string }).type === 'array' ? { style: 'form', explode: false } : {};

/** The schema of a request's body: every field may be left out, and then has its default. */
function bodySchema(request: TObject, inPath: readonly string[]): unknown {
  const schema = plain(request) as { properties: Record<string, unknown>; required?: unknown };
  for (const name of inPath) delete schema.properties[name];
  delete schema.required;
  return schema;
}

const jsonContent = (schema: unknown) => ({ content: { 'application/json': { schema } } });

/** A copy without TypeBox's own properties; named records become references. */
function plain(schema: unknown): unknown {
  const named = (_key: string, value: unknown): unknown => {
    const name = NAME_OF.get(value);
    if (name !== undefined) return { $ref: `#/components/schemas/${name}` };
    return isAnything(value) ? withoutChoice(value) : value;
  };
  return JSON.parse(JSON.stringify(schema, named)) as unknown;
}

/** Whether a choice has a member that takes any value, so that it is no choice. */
const isAnything = (value: unknown): value is Described & { readonly anyOf: readonly object[] } =>
  typeof value === 'object' &&
  value !== null &&
  'anyOf' in value &&
  Array.isArray(value.anyOf) &&
  value.anyOf.some((member: object) => Object.keys(member).length === 0);

const withoutChoice = ({ anyOf: _anyOf, ...others }: Described): Described => others;
