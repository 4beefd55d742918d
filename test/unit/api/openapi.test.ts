import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openApiDocument } from '../../../scheduler/api/http/description/openapi.ts';
import { SUMMARIES } from '../../../scheduler/api/http/description/summaries.ts';

const ROOT = join(import.meta.dirname, '../../..');
const read = (path: string): unknown => JSON.parse(readFileSync(join(ROOT, path), 'utf8'));

test('docs/openapi.json is what the schemas say (else: npm run generate)', () => {
  const { version } = read('package.json') as { version: string };
  expect(read('docs/openapi.json')).toEqual(JSON.parse(JSON.stringify(openApiDocument(version))));
});

test('every operation describes its answer and the fields of its request', () => {
  const document = openApiDocument('0') as { paths: Record<string, Record<string, Record<string, unknown>>> };
  expect(document.paths['/api/v1/gateway/stubs']?.['post']?.['operationId']).toBe('GetOrCreateStub');
  const parameters = document.paths['/api/v1/gateway/stubs/{stubId}/url']?.['get']?.['parameters'];
  expect(parameters).toMatchObject([
    { name: 'stubId', in: 'path', required: true },
    { name: 'deploymentId', in: 'query' },
    { name: 'urlType', in: 'query' },
    { name: 'isShell', in: 'query' },
  ]);
});

type Json = Readonly<Record<string, unknown>>;
interface Described {
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Json }>> };
  readonly responses: Readonly<
    Record<string, { readonly description?: string; readonly content?: Json; $ref?: string }>
  >;
}
const document = JSON.parse(JSON.stringify(openApiDocument('0'))) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  readonly components: Readonly<Record<string, Json>>;
};
const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, described]) => ({ name: `${method.toUpperCase()} ${path}`, described })),
);
const named = (name: string): Described => {
  const found = routes.find((route) => route.name === name);
  if (found === undefined) throw new Error(`${name} is not described`);
  return found.described;
};

test('every answer is described with its statuses, and what refers to something finds it', () => {
  for (const { name, described } of routes) {
    const statuses = Object.keys(described.responses);
    const good = statuses.filter((status) => status.startsWith('2') && !(IN_PARTS.test(name) && status !== '200'));
    const isBuilt = !statuses.includes('501') || STREAMED.test(name);
    expect(good, name).toHaveLength(isBuilt && !statuses.includes('101') ? 1 : 0);
    expect(statuses.includes('500'), name).toBe(/^POST \/(?:endpoint|v1)\/(?!.*\/warmup$)/.test(name));
    expect(statuses, name).not.toContain('default');
    for (const [status, { content, $ref }] of Object.entries(described.responses)) {
      if (status === '101' || (IN_PARTS.test(name) && (status === '202' || status === '304'))) continue;
      expect(content !== undefined || $ref !== undefined || EMPTY.test(name), name).toBe(true);
    }
  }
  for (const [, kind = '', name = ''] of JSON.stringify(document).matchAll(/"#\/components\/(\w+)\/(\w+)"/g)) {
    expect(document.components[kind]).toHaveProperty(name);
  }
});
/** Routes whose success has no body. */
const EMPTY =
  /^(?:POST|PUT|PATCH|DELETE) \/api\/v1\/(?:deployment|image|secret|token|map|queue|signal|console\/sessions)\/|^POST \/\w+\/.*\/warmup$|^HEAD |^DELETE \/console\/session$/;
/** Routes with further good answers, for parts of the bytes. */
/** Passed on to programs, which any method and any answer may be of. */
const STREAMED = /^\w+ \/(?:asgi|pod|sandbox)\//;
const IN_PARTS = /^POST \/v1\/|\/objects\/(?:upload|download)\/|\/volumes\/files\/|\/(?:docs|install)\/\{file\}/;

test('every surface is described: models, web applications, ports, shells and WebSockets', () => {
  for (const name of [
    'POST /v1/chat/completions',
    'POST /v1/completions',
    'POST /v1/embeddings',
    'POST /v1/models/{id}/invoke',
    'GET /v1/models',
    'GET /v1/models/{id}',
    'GET /asgi/{name}/{path}',
    'POST /pod/public/{workspace}/{name}/{port}/{path}',
    'GET /sandbox/container/{stubId}/{containerId}/{port}/{path}',
    'GET /shell/id/{stubId}/{containerId}',
    'GET /api/v1/gateway/containers/{containerId}/attach',
  ])
    expect(Object.keys(named(name).responses).length, name).toBeGreaterThan(3);
});

test('a route of the REST API says what it takes, what it answers and by which codes it refuses', () => {
  const made = named('POST /api/v1/secret/{ws}');
  expect(made.requestBody?.content['application/json']?.schema).toMatchObject({
    type: 'object',
    properties: { name: { type: 'string', pattern: expect.any(String) }, value: { type: 'string', minLength: 1 } },
  });
  expect(Object.fromEntries(Object.entries(made.responses).map(([status, one]) => [status, one.description]))).toEqual({
    201: 'Done',
    400: 'bad_request',
    401: 'unauthorized',
    408: 'body_too_slow',
    409: 'secret_exists',
    413: 'body_too_large',
    415: 'unsupported_media_type',
    422: 'invalid_body',
    429: 'rate_limited',
    503: 'bodies_full, draining, database_unavailable, database_timeout, database_outcome_unknown',
    504: 'deadline_exceeded',
  });
  expect(made.responses['201']?.content).toEqual({
    'application/json': { schema: { $ref: '#/components/schemas/Secret' } },
  });
  expect(named('GET /api/v1/task/{ws}')).toMatchObject({
    parameters: expect.arrayContaining([
      {
        name: 'status',
        in: 'query',
        required: false,
        style: 'form',
        explode: false,
        schema: { type: 'array', items: { type: 'string' } },
      },
      { name: 'created_at_start', in: 'query', required: false, schema: { type: 'string', format: 'date-time' } },
    ]),
  });
});

test('everything has a summary, and no summary is of nothing', () => {
  const { paths } = openApiDocument('0') as { paths: Record<string, Record<string, Record<string, unknown>>> };
  const all = Object.values(paths).flatMap((methods) => Object.values(methods));
  expect(all.filter(({ summary }) => summary === '' || summary === undefined)).toEqual([]);
  const names = new Set(all.map(({ operationId }) => operationId));
  expect(Object.keys(SUMMARIES).filter((name) => !names.has(name))).toEqual([]);
});
