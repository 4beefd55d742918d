// The description of everything people call, generated from the schemas that bind it. Committed as docs/openapi.json; a test fails when that is behind.
import type { TObject, TSchema } from 'typebox';
import { allOperations } from '../operations/index.ts';
import type { OperationParts } from '../operations/index.ts';
import type { Operation } from '../operations/operation.ts';

interface PlainRoute {
  readonly http: string;
  readonly summary: string;
  readonly tag: string;
  readonly open?: boolean;
  readonly query?: readonly string[];
}

const PLAIN_ROUTES: readonly PlainRoute[] = [
  { http: 'GET /api/v1/workspace/current', tag: 'workspace', summary: 'The workspace of the token' },
  { http: 'GET /api/v1/task/{ws}/{taskId}', tag: 'workspace', summary: 'One task, with its result' },
  {
    http: 'GET /api/v1/deployment/{ws}',
    tag: 'workspace',
    summary: 'Deployments, newest first',
    query: ['name', 'search_query', 'active', 'version', 'stub_type', 'subdomain', 'limit', 'cursor', 'pagination'],
  },
  { http: 'GET /api/v1/deployment/{ws}/{deploymentId}', tag: 'workspace', summary: 'One deployment' },
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
      'query',
      'limit',
      'page',
      'after_seq',
    ],
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
  { http: 'GET /metrics', tag: 'operations', summary: 'Prometheus metrics' },
  { http: 'GET /api/v1/health', tag: 'operations', summary: 'Ready for traffic', open: true },
  { http: 'GET /api/v1/health/live', tag: 'operations', summary: 'Alive', open: true },
  { http: 'GET /openapi.json', tag: 'operations', summary: 'This description', open: true },
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
    tags: ['gateway'],
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
      200: { description: 'OK' },
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
