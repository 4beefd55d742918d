// The contract of every route of the workspace REST API, generated from the list of routes. Each is called without a
// token, with a bad, a revoked and another workspace's one, and with values that cannot be read. Each list is paged to
// its end while rows are added, and read where there is nothing. Each filter is tried. A route, a list or a parameter
// without its row fails. Ids, answers and effects of single routes are in verbs.test.ts, which must know each route,
// too. There is no machine.
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { restRoutes } from '#scheduler/api/http/rest/routes.ts';
import type { RestRouteParts } from '#scheduler/api/http/rest/routes.ts';
import type { RestRoute } from '#scheduler/api/http/rest/route.ts';
import { waitFor } from '../helpers/programs.ts';
import { LISTS, PAGED_ELSEWHERE, READ_ELSEWHERE } from './contract-lists.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const BAD_TOKEN = 'eyJhbGciOiJIUzI1NiJ9.eyJ0eXAiOiJhZG1pbiJ9.c2lnbmF0dXJl';
/** Parameters of pages: every list is paged. */
const OF_PAGES: ReadonlySet<string> = new Set(['limit', 'cursor', 'offset', 'pagination']);

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

let cases = 0;
const kit = kitOf(() => platform);
const routes = restRoutes({} as RestRouteParts);
const nameOf = ({ method, path }: RestRoute): string => `${method} ${path}`;
const lineOf = (route: RestRoute, query = '', workspaceId = platform.own.workspaceId): string => {
  const path = route.path.replace('{ws}', workspaceId).replaceAll(/\{\w+\}/g, NOBODY);
  return `${route.method} /api/v1${path}${query === '' ? '' : `?${query}`}`;
};
const callerOf = (route: RestRoute): string => (route.scope === 'admin' ? platform.admin.token : platform.own.token);
const hasWorkspace = (route: RestRoute): boolean => route.path.includes('{ws}');
const takesBody = (route: RestRoute): boolean => route.method !== 'GET' && route.body !== undefined;

async function refuses(answer: Answer | Promise<Answer>, status: number, code: string, about?: string): Promise<void> {
  const { status: got, json } = await answer;
  expect([got, json['code']]).toEqual([status, code]);
  if (about !== undefined) expect(json['message']).toContain(about);
  expect(json['request_id']).toEqual(expect.any(String));
  cases += 1;
}

interface Facts {
  readonly type?: string;
  readonly format?: string;
  readonly anyOf?: readonly Facts[];
  readonly 'x-unless'?: string;
}
const propertiesOf = (schema: { readonly properties: object } | undefined): readonly (readonly [string, Facts])[] =>
  Object.entries(schema?.properties ?? {}) as [string, Facts][];

/** Values of a query parameter that cannot be read; text is taken as it is, without NUL and once. */
function badValues(name: string, { type, format }: Facts): readonly string[] {
  const bad = ['%00', `a&${name}=b`];
  if (type === 'integer') return [...bad, '-1', '1.5', 'x', '1e3', '9'.repeat(16)];
  if (type === 'boolean') return [...bad, 'perhaps', '2'];
  if (format === 'date-time') return [...bad, 'yesterday', '2030-13-01T00:00:00Z', '12'];
  return type === 'array' ? ['%00'] : bad;
}

/** A value of another type than the field's; undefined: every value is of its type. */
function wrongValue({ type, anyOf }: Facts): unknown {
  const types = new Set([type, ...(anyOf ?? []).map((member) => member.type)]);
  if (types.size === 1 && types.has(undefined)) return undefined;
  return types.has('object') ? 'text' : { wrong: { deeply: 1 } };
}

describe.each(routes.map((route) => [nameOf(route), route] as const))('%s', (_name, route) => {
  test('is for known callers alone', async () => {
    const line = lineOf(route);
    for (const token of ['', BAD_TOKEN, platform.revoked]) {
      await refuses(platform.call(line, {}, { token }), 401, 'unauthorized');
    }
    if (route.scope === 'full') {
      await refuses(platform.call(line, {}, { token: platform.restricted }), 401, 'unauthorized');
    }
    if (route.scope === 'admin') {
      await refuses(platform.call(line, {}, { token: platform.own.token }), 401, 'unauthorized');
    }
    if (!hasWorkspace(route)) return;
    // A token of another workspace, and a workspace that nobody has.
    await refuses(platform.call(line, {}, { token: platform.other.token }), 401, 'unauthorized');
    await refuses(platform.call(lineOf(route, '', NOBODY), {}, { token: platform.own.token }), 401, 'unauthorized');
    await refuses(platform.call(lineOf(route, '', NOBODY), {}, { token: platform.admin.token }), 400, 'bad_request');
  });

  const parameters = propertiesOf(route.query);
  test('refuses values that cannot be read, by their names', async () => {
    const token = callerOf(route);
    for (const [name, facts] of parameters) {
      for (const bad of badValues(name, facts)) {
        await refuses(platform.call(lineOf(route, `${name}=${bad}`), {}, { token }), 400, 'invalid_query', name);
      }
    }
    if (!takesBody(route)) return;
    const line = lineOf(route);
    for (const body of ['{"a": ', 'null x', Buffer.from('{"a":"\xff"}', 'latin1')]) {
      await refuses(platform.call(line, body, { token }), 400, 'bad_request');
    }
    for (const body of ['[1]', '"text"', '5']) await refuses(platform.call(line, body, { token }), 422, 'invalid_body');
    for (const [name, facts] of propertiesOf(route.body)) {
      const wrong = wrongValue(facts);
      if (wrong === undefined) continue;
      await refuses(platform.call(line, { [name]: wrong }, { token }), 422, 'invalid_body', name);
    }
    const type = { 'content-type': 'text/csv' };
    await refuses(platform.call(line, {}, { token, headers: type }), 415, 'unsupported_media_type');
  });
});

/** A list: an answer with records and the cursor of the next page. */
const isList = (route: RestRoute): boolean => route.method === 'GET' && 'cursor' in (route.query?.properties ?? {});

describe.each(routes.filter(isList).map((route) => [nameOf(route), route] as const))('%s', (name, route) => {
  const list = LISTS[name];
  const add = list?.add;
  if (list === undefined || add === undefined) {
    test('is paged elsewhere', () => {
      const file = PAGED_ELSEWHERE[name];
      expect(file, `${name}: a row in LISTS, or the file that pages it`).toBeDefined();
      expect(existsSync(join(ROOT, file ?? ''))).toBe(true);
    });
    return;
  }
  const pageOf = async (query: string, owner = platform.own): Promise<Json> => {
    const token = route.scope === 'admin' ? platform.admin.token : owner.token;
    const answer = await platform.call(lineOf(route, query, owner.workspaceId), undefined, { token });
    expect([query, answer.status]).toEqual([query, 200]);
    return answer.json;
  };
  const idsOf = (page: Json): readonly string[] => (page['data'] as Json[]).map((row) => list.idOf(row));

  test('has nothing where nothing was made', async () => {
    if (list.isNeverEmpty === true) return;
    expect(await pageOf('', platform.other)).toMatchObject({ data: [], next: '' });
    cases += 1;
  });

  test('is paged to the end while rows are added, each earlier row once', async () => {
    const made: string[] = [];
    for (let n = 0; n < 5; n += 1) made.push(await add(platform, kit));
    await waitFor(async () => {
      const listed = new Set(idsOf(await pageOf('limit=1000')));
      return made.every((id) => listed.has(id)) || undefined;
    }, 'the list has them');
    const seen: string[] = [];
    let cursor = '';
    for (let pages = 0; pages === 0 || cursor !== ''; pages += 1) {
      expect(pages).toBeLessThan(200);
      const [page] = await Promise.all([
        pageOf(new URLSearchParams({ limit: '2', cursor }).toString()),
        pages < 3 ? add(platform, kit) : undefined,
      ]);
      expect((page['data'] as Json[]).length).toBeLessThanOrEqual(2);
      seen.push(...idsOf(page));
      cursor = String(page['next']);
    }
    expect(new Set(seen).size).toBe(seen.length);
    expect(made.filter((id) => !seen.includes(id))).toEqual([]);
    for (const bad of ['!', 'x', Buffer.from('0:0:0').toString('base64url')]) {
      const token = callerOf(route);
      await refuses(platform.call(lineOf(route, `cursor=${bad}`), {}, { token }), 400, 'invalid_cursor');
    }
    cases += 1;
  });
});

/** Parameters that are no parts of a page. */
const parametersOf = (route: RestRoute): readonly string[] =>
  propertiesOf(route.query)
    .map(([parameter]) => parameter)
    .filter((parameter) => !OF_PAGES.has(parameter));
/** Whether a file names the parameter. */
const namedIn = (file: string): ((parameter: string) => boolean) => {
  const text = readFileSync(join(ROOT, file), 'utf8');
  return (parameter) => new RegExp(`\\b${parameter}\\b`).test(text);
};

describe.each(routes.filter((route) => parametersOf(route).length > 0).map((route) => [nameOf(route), route] as const))(
  'parameters of %s',
  (name, route) => {
    const elsewhere = READ_ELSEWHERE[name];
    const names = parametersOf(route);
    if (elsewhere !== undefined) {
      test('are tried elsewhere', () => {
        const isNamed = namedIn(elsewhere);
        expect(names.filter((parameter) => !isNamed(parameter))).toEqual([]);
      });
      return;
    }
    const filters = LISTS[name]?.filters;
    test('have a row each', () => {
      const isNamed = filters?.elsewhere === undefined ? () => false : namedIn(filters.elsewhere);
      expect(names.filter((parameter) => filters?.cases[parameter] === undefined && !isNamed(parameter))).toEqual([]);
      expect(Object.keys(filters?.cases ?? {}).filter((parameter) => !names.includes(parameter))).toEqual([]);
    });
    if (filters === undefined) return;
    let world: Readonly<Record<string, string>> = {};
    beforeAll(async () => {
      world = await filters.make(platform, kit);
    });
    test.each(Object.entries(filters.cases))('%s', async (_parameter, rows) => {
      const label = new Map(Object.entries(world).map(([key, id]) => [id, key]));
      const valueOf = (key: string, isUpper: boolean): string =>
        isUpper ? (world[key] ?? '').toUpperCase() : (world[key] ?? '');
      const fill = (text: string): string =>
        text.replaceAll(/<(\w+)(\^?)>/g, (_, key: string, mark: string) =>
          encodeURIComponent(valueOf(key, mark !== '')),
        );
      for (const [query, expected] of rows) {
        const line = lineOf(route, fill(`${filters.always ?? ''}${query}`));
        const { status, json } = await platform.call(line);
        expect([query, status]).toEqual([query, 200]);
        const data = (Array.isArray(json) ? json : json[LISTS[name]?.field ?? 'data']) as Json[];
        const found = data.map((row) => label.get(LISTS[name]?.idOf(row) ?? '')).filter((key) => key !== undefined);
        expect([query, found.toSorted()]).toEqual([query, expected.split(' ').filter(Boolean).toSorted()]);
        cases += 1;
      }
    });
  },
);

test('every route was walked', () => {
  process.stdout.write(`contract: ${routes.length} routes, ${cases} cases\n`);
  expect(cases).toBeGreaterThan(routes.length * 4);
});
