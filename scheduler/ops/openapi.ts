// The description of everything people call, generated from the schemas that bind it. Committed as docs/openapi.json; a test fails when that is behind.
import type { TObject, TSchema } from 'typebox';
import { Explanation } from '#shared/api/explain.ts';
import { allOperations } from '../operations/index.ts';
import type { OperationParts } from '../operations/index.ts';
import type { Operation } from '../operations/operation.ts';
import { isToCome, summaryOf } from './summaries.ts';

interface PlainRoute {
  readonly http: string;
  readonly summary: string;
  readonly tag: string;
  readonly open?: boolean;
  readonly query?: readonly string[];
  /** Of the answer; absent: not described. */
  readonly response?: TSchema;
}

const PLAIN_ROUTES: readonly PlainRoute[] = [
  { http: 'GET /api/v1/workspace/current', tag: 'workspace', summary: 'The workspace of the token' },
  {
    http: 'GET /api/v1/workspace',
    tag: 'workspace',
    summary: 'All workspaces (administrator)',
    query: ['limit', 'cursor'],
  },
  {
    http: 'POST /api/v1/workspace',
    tag: 'workspace',
    summary: 'Make a workspace; the answer holds its first token, this once (administrator)',
  },
  { http: 'GET /api/v1/workspace/{ws}/limits', tag: 'workspace', summary: 'What a workspace may have, and has' },
  {
    http: 'PUT /api/v1/workspace/{ws}/limits',
    tag: 'workspace',
    summary: 'Change limits by group and name; null: the default again (administrator)',
  },
  {
    http: 'GET /api/v1/signing-key',
    tag: 'installation',
    summary: 'The keys that tokens are signed with (administrator)',
  },
  {
    http: 'POST /api/v1/signing-key',
    tag: 'installation',
    summary: 'Make a newer one, which signs from now on (administrator)',
  },
  {
    http: 'DELETE /api/v1/signing-key/{keyId}',
    tag: 'installation',
    summary: 'End a key and every token that it signed (administrator)',
  },
  {
    http: 'GET /api/v1/app/{ws}',
    tag: 'workspace',
    summary: 'Apps, latest activity first',
    query: ['name', 'limit', 'cursor'],
  },
  {
    http: 'GET /api/v1/app/{ws}/latest',
    tag: 'workspace',
    summary: 'Apps with what was made last in each, latest activity first',
    query: ['name', 'limit', 'cursor'],
  },
  { http: 'GET /api/v1/app/{ws}/{appId}', tag: 'workspace', summary: 'One app with what was made last in it' },
  {
    http: 'GET /api/v1/container/{ws}',
    tag: 'workspace',
    summary: 'Live containers',
    query: ['stub_id', 'app_id', 'status'],
  },
  {
    http: 'GET /api/v1/task/{ws}',
    tag: 'workspace',
    summary: 'Tasks, newest first',
    query: [
      'status',
      'task_ids',
      'stub_ids',
      'stub_names',
      'stub_types',
      'container_ids',
      'app_id',
      'created_at_start',
      'created_at_end',
      'min_duration',
      'max_duration',
      'skip_details',
      'limit',
      'offset',
      'cursor',
    ],
  },
  { http: 'DELETE /api/v1/task/{ws}', tag: 'workspace', summary: 'Cancel tasks', query: ['task_ids'] },
  { http: 'GET /api/v1/task/{ws}/{taskId}', tag: 'workspace', summary: 'One task, with its result' },
  {
    http: 'GET /api/v1/deployment/{ws}',
    tag: 'workspace',
    summary: 'Deployments, newest first',
    query: [
      'name',
      'search_query',
      'active',
      'version',
      'stub_type',
      'stub_ids',
      'app_id',
      'subdomain',
      'min_containers',
      'created_at_start',
      'created_at_end',
      'show_deleted',
      'limit',
      'offset',
      'cursor',
      'pagination',
    ],
  },
  { http: 'GET /api/v1/deployment/{ws}/{deploymentId}', tag: 'workspace', summary: 'One deployment' },
  { http: 'DELETE /api/v1/deployment/{ws}/{deploymentId}', tag: 'workspace', summary: 'Stop and delete a deployment' },
  { http: 'POST /api/v1/deployment/{ws}/start/{deploymentId}', tag: 'workspace', summary: 'Start a deployment' },
  { http: 'POST /api/v1/deployment/{ws}/stop/{deploymentId}', tag: 'workspace', summary: 'Stop a deployment' },
  { http: 'GET /api/v1/deployment/{deploymentId}/url', tag: 'workspace', summary: 'Where a deployment is invoked' },
  {
    http: 'GET /api/v1/logs/{ws}',
    tag: 'workspace',
    summary: 'Log lines',
    query: [
      'object_type',
      'object_id',
      'container_id',
      'task_id',
      'stub_id',
      'deployment_id',
      'app_id',
      'machine_id',
      'query',
      'limit',
      'page',
      'after_seq',
      'start_time',
      'end_time',
    ],
  },
  {
    http: 'GET /api/v1/explain/{ws}/{id}',
    tag: 'workspace',
    summary: 'Why a task, a container or a deployment (by its id, or its name) is as it is',
    response: Explanation,
  },
  {
    http: 'PUT /api/v1/gateway/objects/upload/{objectId}',
    tag: 'objects',
    summary: 'Upload to the address that CreateObject gave',
    open: true,
    query: ['expires', 'signature'],
  },
  { http: 'POST /endpoint/{name}', tag: 'invoke', summary: 'Call the newest version' },
  { http: 'POST /endpoint/{name}/latest', tag: 'invoke', summary: 'Call the newest version' },
  { http: 'POST /endpoint/{name}/{version}', tag: 'invoke', summary: 'Call version v{n}' },
  { http: 'POST /endpoint/id/{stubId}', tag: 'invoke', summary: 'Call a stub' },
  { http: 'POST /endpoint/public/{stubId}', tag: 'invoke', summary: 'Call a public stub', open: true },
  { http: 'POST /endpoint/{name}/warmup', tag: 'invoke', summary: 'Start a container of the newest version' },
  { http: 'POST /endpoint/{name}/latest/warmup', tag: 'invoke', summary: 'Start a container of the newest version' },
  { http: 'POST /endpoint/{name}/{version}/warmup', tag: 'invoke', summary: 'Start a container of version v{n}' },
  { http: 'POST /endpoint/id/{stubId}/warmup', tag: 'invoke', summary: 'Start a container of a stub' },
  {
    http: 'POST /taskqueue/{name}',
    tag: 'invoke',
    summary: "Put a task to the newest version; answers with the task's id",
  },
  { http: 'POST /taskqueue/{name}/latest', tag: 'invoke', summary: 'Put a task to the newest version' },
  { http: 'POST /taskqueue/{name}/{version}', tag: 'invoke', summary: 'Put a task to version v{n}' },
  { http: 'POST /taskqueue/id/{stubId}', tag: 'invoke', summary: 'Put a task to a stub' },
  { http: 'POST /taskqueue/public/{stubId}', tag: 'invoke', summary: 'Put a task to a public stub', open: true },
  ...['function', 'schedule'].flatMap((kind): PlainRoute[] => [
    { http: `POST /${kind}/{name}`, tag: 'invoke', summary: "Run the newest version; answers with the task's id" },
    { http: `POST /${kind}/{name}/latest`, tag: 'invoke', summary: 'Run the newest version' },
    { http: `POST /${kind}/{name}/{version}`, tag: 'invoke', summary: 'Run version v{n}' },
    { http: `POST /${kind}/id/{stubId}`, tag: 'invoke', summary: 'Run a stub' },
  ]),
  { http: 'GET /metrics', tag: 'operations', summary: 'Prometheus metrics' },
  { http: 'GET /api/v1/health', tag: 'operations', summary: 'Ready for traffic', open: true },
  { http: 'GET /api/v1/health/live', tag: 'operations', summary: 'Alive', open: true },
  { http: 'GET /openapi.json', tag: 'operations', summary: 'This description', open: true },
  { http: 'GET /docs', tag: 'operations', summary: 'The same as a page', open: true },
];

/** All operations without anything behind them: enough to describe them. */
const describedOperations = (): readonly Operation[] => allOperations({} as OperationParts);

export function openApiDocument(version: string): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of describedOperations()) {
    const path = (paths[`/api/v1/gateway${operation.path}`] ??= {});
    path[operation.method.toLowerCase()] = describeOperation(operation);
  }
  for (const route of PLAIN_ROUTES) {
    const [method = 'GET', url = '/'] = route.http.split(' ');
    const path = (paths[url] ??= {});
    path[method.toLowerCase()] = describePlain(route, url);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Longshore',
      version,
      description: 'Self-hosted serverless GPU platform.',
      license: { name: 'Apache-2.0' },
    },
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
      },
    },
    paths: Object.fromEntries(Object.entries(paths).toSorted(([a], [b]) => (a < b ? -1 : 1))),
  };
}

function describeOperation(operation: Operation): Record<string, unknown> {
  const inPath = [...operation.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '');
  const properties = Object.entries(operation.request.properties as Readonly<Record<string, TSchema>>);
  const rest = properties.filter(([name]) => !inPath.includes(name));
  const inQuery = operation.method === 'GET' || operation.method === 'DELETE' ? rest : [];
  const parameters = [
    ...inPath.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...inQuery.map(([name, schema]) => ({ name, in: 'query', required: false, schema: plain(schema) })),
  ];
  const hasBody = operation.method !== 'GET' && operation.method !== 'DELETE' && rest.length > 0;
  return {
    operationId: operation.name,
    summary: summaryOf(operation.name),
    tags: [isToCome(operation.name) ? 'pods' : 'gateway'],
    ...(operation.scope === 'open' ? { security: [{}, { bearer: [] }] } : {}),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(hasBody ? { requestBody: jsonContent(bodySchema(operation.request, inPath)) } : {}),
    responses: {
      200: { description: 'Done, or refused with ok false', ...jsonContent(plain(operation.response)) },
      default: { description: 'Not processed', ...jsonContent({ $ref: '#/components/schemas/RpcStatus' }) },
    },
  };
}

function describePlain(route: PlainRoute, url: string): Record<string, unknown> {
  const inPath = [...url.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '');
  const parameters = [
    ...inPath.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...(route.query ?? []).map((name) => ({ name, in: 'query', required: false, schema: { type: 'string' } })),
  ];
  return {
    summary: route.summary,
    tags: [route.tag],
    ...(route.open === true ? { security: [] } : {}),
    ...(parameters.length === 0 ? {} : { parameters }),
    responses: {
      200: { description: 'OK', ...(route.response === undefined ? {} : jsonContent(plain(route.response))) },
      default: { description: 'Refused', ...jsonContent({ $ref: '#/components/schemas/Problem' }) },
    },
  };
}

/** Every field may be left out of a request: what is absent has its default. */
function bodySchema(request: TObject, inPath: readonly string[]): unknown {
  const schema = plain(request) as { properties: Record<string, unknown>; required?: unknown };
  for (const name of inPath) delete schema.properties[name];
  delete schema.required;
  return schema;
}

const jsonContent = (schema: unknown) => ({ content: { 'application/json': { schema } } });

/** A copy without what TypeBox keeps for itself. */
const plain = (schema: TSchema): unknown => JSON.parse(JSON.stringify(schema)) as unknown;
