// Writes docs/openapi.json from the schemas that bind the surfaces. A unit test fails when the file is out of date.
import { readFileSync, writeFileSync } from 'node:fs';
import { openApiDocument } from '../scheduler/api/http/description/openapi.ts';

const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
writeFileSync('docs/openapi.json', `${JSON.stringify(openApiDocument(version), null, 2)}\n`);
