// Writes docs/openapi.json from the schemas that the surfaces are bound by; a unit test fails when the file is behind.
import { readFileSync, writeFileSync } from 'node:fs';
import { openApiDocument } from '../scheduler/http/description/openapi.ts';

const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
writeFileSync('docs/openapi.json', `${JSON.stringify(openApiDocument(version), null, 2)}\n`);
