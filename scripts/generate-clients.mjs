// Writes the table of the published client's calls in docs/clients.md. A unit test fails when it is out of date.
import { readFileSync, writeFileSync } from 'node:fs';
import { REFUSED_CALLS } from '../scheduler/api/grpc/services/refused.ts';
import { SERVICES } from '../scheduler/api/grpc/services/index.ts';
import { withCalls } from './clients-page.mjs';

const PAGE = 'docs/clients.md';
const results = JSON.parse(readFileSync('test/tools/python-client/results.json', 'utf8'));
writeFileSync(PAGE, withCalls(readFileSync(PAGE, 'utf8'), { results, services: SERVICES, refused: REFUSED_CALLS }));
