// docs/openapi.json against the recommended rules of a published linter. Each exception has its reason here, and one
// that nothing needs any more fails.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { expect, test } from 'vitest';

const FILE = join(import.meta.dirname, '../../../docs/openapi.json');
const source = readFileSync(FILE, 'utf8');
const document = JSON.parse(source) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly responses: object }>>>>;
};

interface Exception {
  readonly rule: string;
  readonly why: string;
  /** Whether it holds for the operation, or for the path where there is none. */
  readonly holds: (path: string, method: string) => boolean;
}

const OPEN_PAGES = /^\/(?:docs|openapi\.json|api\/v1\/health(?:\/live)?)$/;
const EXCEPTIONS: readonly Exception[] = [
  {
    rule: 'no-ambiguous-paths',
    why: 'the interface has these paths; a literal part of a path wins over a parameter',
    holds: (path) => /^\/(?:endpoint|taskqueue|function|schedule|asgi|pod)\//.test(path),
  },
  {
    rule: 'operation-2xx-response',
    why: 'a WebSocket is answered 101; a route that is not built yet answers 501 alone',
    holds: (path, method) =>
      ['101', '501'].some((status) => status in (document.paths[path]?.[method]?.responses ?? {})),
  },
  {
    rule: 'operation-4xx-response',
    why: 'pages for everybody refuse nobody',
    holds: (path) => OPEN_PAGES.test(path),
  },
];

test('docs/openapi.json passes the recommended rules of a published linter', { timeout: 30_000 }, async () => {
  const config = await createConfig({ extends: ['recommended'] });
  const problems = await lintFromString({ source, absoluteRef: FILE, config });
  const used = new Set<Exception>();
  const left = problems.filter(({ ruleId, location }) => {
    const pointer = location[0]?.pointer ?? '';
    const [, path = '', method = ''] = /^#\/paths\/([^/]+)(?:\/([a-z]+))?/.exec(pointer) ?? [];
    const named = path.replaceAll('~1', '/').replaceAll('~0', '~');
    const exception = EXCEPTIONS.find((one) => one.rule === ruleId && one.holds(named, method));
    if (exception !== undefined) used.add(exception);
    return exception === undefined;
  });
  expect(left.map(({ ruleId, message, location }) => `${ruleId}: ${message} ${location[0]?.pointer}`)).toEqual([]);
  expect(EXCEPTIONS.filter((exception) => !used.has(exception))).toEqual([]);
});
