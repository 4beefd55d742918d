import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { apiPage } from '../../../scheduler/ops/api-page.ts';
import { openApiDocument } from '../../../scheduler/ops/openapi.ts';
import { SUMMARIES } from '../../../scheduler/ops/summaries.ts';

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

test('everything has a summary, and no summary is of nothing', () => {
  const { paths } = openApiDocument('0') as { paths: Record<string, Record<string, Record<string, unknown>>> };
  const all = Object.values(paths).flatMap((methods) => Object.values(methods));
  expect(all.filter(({ summary }) => summary === '' || summary === undefined)).toEqual([]);
  const names = new Set(all.map(({ operationId }) => operationId));
  expect(Object.keys(SUMMARIES).filter((name) => !names.has(name))).toEqual([]);
});

test('the page has every operation, fields of records inside, and a call to try; texts are escaped', () => {
  const document = openApiDocument('0') as { paths: Record<string, Record<string, { operationId?: string }>> };
  const page = apiPage(document, 'https://gpu.example.org/<base>');
  for (const methods of Object.values(document.paths)) {
    for (const { operationId } of Object.values(methods)) {
      if (operationId !== undefined) expect(page).toContain(`<section id="${operationId}"><h3>${operationId}</h3>`);
    }
  }
  expect(page).toContain('<td><code>volumes[].mountPath</code></td><td>string</td>');
  expect(page).toContain('curl -X POST https://gpu.example.org/&lt;base&gt;/api/v1/gateway/deployments/ID/scale');
  expect(page).not.toContain('<base>');
});
