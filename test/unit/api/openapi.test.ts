import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openApiDocument } from '../../../scheduler/ops/openapi.ts';

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
