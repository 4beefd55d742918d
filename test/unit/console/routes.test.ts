// The console's sources against the API: every right that a screen asks for is a route, and every address that it reads
// is one, with query parameters that the route has.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { buildProgram } from '#cli/program.ts';
import { allOperations } from '#scheduler/api/operations/index.ts';
import type { OperationParts } from '#scheduler/api/operations/index.ts';
import { isForSessions } from '#scheduler/api/operations/operation.ts';
import { restRoutes } from '#scheduler/api/http/rest/routes.ts';
import type { RestRouteParts } from '#scheduler/api/http/rest/routes.ts';

const ROOT = join(import.meta.dirname, '../../../console');
const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' }).filter((file) => /\.tsx?$/.test(file));
const texts = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
const routes = restRoutes({} as RestRouteParts).filter(({ byTokenOnly = false }) => !byTokenOnly);
const operations = allOperations({} as OperationParts)
  .filter(isForSessions)
  .map(({ method, path }) => ({ method, path: `/gateway${path}` }));
const served = [...routes, ...operations];
const lines = new Set(served.map(({ method, path }) => `${method} ${path}`));
const found = (pattern: RegExp): readonly string[] =>
  [...texts.values()].flatMap((text) => [...text.matchAll(pattern)].map((match) => match[1] ?? ''));

test('every right that the console asks for is a route of the API', () => {
  const rights = found(/\b(?:may\(|right: )'([A-Z]+ [^']+)'/g);
  expect(rights.length).toBeGreaterThan(5);
  expect(rights.filter((right) => !lines.has(right))).toEqual([]);
});

test('every address that the console reads is one of the API, and none holds the signing key', () => {
  const addresses = found(
    /`(\/(?:deployment|explain|gateway|logs|task|task-summary|workspace|session|container)\/(?:\w+\/)?\$\{[^`]*)`/g,
  );
  expect(addresses.length).toBeGreaterThan(5);
  const shape = (path: string): string => path.replace(/\{\w+\}/g, '*');
  const known = new Set(served.map(({ path }) => shape(path)));
  const asked = addresses.map((address) =>
    address
      .replace(/\$\{queryOf\(.*$/s, '')
      .replace(/\$\{encodeURIComponent\([^)]*\)\}|\$\{[^}]*\}/g, '*')
      .replace(/\?.*$/, ''),
  );
  expect(asked.filter((path) => !known.has(path))).toEqual([]);
  for (const [file, text] of texts) expect([file, text.includes('workspace/current')]).toEqual([file, false]);
});

test('every command that the console shows is one of the command line', () => {
  const shown = found(/[`"'](longshore \w[^`"']*)/g).map((line) => line.split(' ').slice(1));
  expect(shown.length).toBeGreaterThan(8);
  const unknown = shown.filter((words) => {
    let at: Command = buildProgram(() => undefined);
    for (const word of words) {
      const inner = at.commands.find((one) => one.name() === word);
      if (inner === undefined) break;
      at = inner;
    }
    const flags = words.filter((word) => word.startsWith('--') && !['--context', '--json'].includes(word));
    return at.commands.length > 0 || flags.some((flag) => !at.options.some((option) => option.long === flag));
  });
  expect(unknown).toEqual([]);
});

/** Files that write lines to copy, which read the token of the command line. */
const LINES = ['parts/call-lines.ts', 'parts/curl.ts'];

test('the console makes no HTML of text, keeps no token, and imports types of shared/ alone', () => {
  for (const [file, text] of texts) {
    expect([file, /innerHTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write|\beval\(/.test(text)]).toEqual([
      file,
      false,
    ]);
    expect([file, /authorization/i.test(text)]).toEqual([file, LINES.includes(file)]);
    for (const line of text.split('\n').filter((one) => one.includes("from '#")))
      expect([file, line]).toEqual([file, expect.stringMatching(/^import type .* from '#shared\//)]);
  }
});
