// Every verb of the REST API and of invoking, on a real scheduler with real stores, in every kind of call. Calls come
// as documented, with an unknown id, with another workspace's, with no token, a bad or a revoked one, and with an
// unreadable body. The rows are in rest-verbs/. There is no machine: containers stay PENDING.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { restRoutes } from '#scheduler/api/http/rest/routes.ts';
import type { RestRouteParts } from '#scheduler/api/http/rest/routes.ts';
import { documentedRoutes, faultOf, routeAt } from '../helpers/documented.ts';
import { waitFor } from '../helpers/programs.ts';
import { aProvidersFile } from '../helpers/providers-file.ts';
import { restVerbs } from './rest-verbs.ts';
import { UNAUTHORIZED, invokeVerbs } from './rest-verbs/invoke.ts';
import { restParts } from './rest-verbs/parts.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Platform } from './verbs-fixture.ts';
import { meets } from './verbs-kit.ts';
import type { Expected, Verb } from './verbs-kit.ts';

let platform: Platform;
const providersFile = aProvidersFile();
beforeAll(async () => {
  // Nothing listens at the address of the webhooks.
  platform = await aPlatform({ LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1', LONGSHORE_PROVIDERS_FILE: providersFile.path });
});
afterAll(async () => {
  await platform.stop();
  providersFile.remove();
});

const parts = restParts(() => platform);
const { rest, unique } = parts;
const REST = restVerbs(parts);
const INVOKE = invokeVerbs(parts);
const NOT_JSON: Expected = { status: 400 };

interface Surface {
  readonly name: string;
  readonly verbs: readonly Verb[];
  readonly path: (line: string) => string;
  readonly refused: Expected;
  readonly malformed: Expected;
}
const SURFACES: readonly Surface[] = [
  {
    name: 'REST',
    verbs: REST,
    path: (line) => rest(line.replace(' ', ' /api/v1')),
    refused: { code: 'unauthorized', message: 'Unauthorized' },
    malformed: NOT_JSON,
  },
  { name: 'invoke', verbs: INVOKE, path: (line) => line, refused: UNAUTHORIZED, malformed: NOT_JSON },
];

const routes = documentedRoutes();
/** Expects an answer that docs/openapi.json has for the route: status and fields, no more and no less. */
async function described(line: string, body: unknown, token: string): Promise<Answer> {
  const answer = await platform.call(line, body, { token });
  const [method = '', url = ''] = line.split(' ');
  expect(routeAt(routes, method, url), `${line} is described`).toBeDefined();
  expect(faultOf(routes, { method, url, status: answer.status, text: answer.text })).toBeUndefined();
  return answer;
}

let walked = 0;
describe.each(SURFACES)('$name', (surface) => {
  describe.each(surface.verbs)('$name', (verb) => {
    let id = NOBODY;
    const send = async (token: string, about: string = id, body: unknown = verb.body?.(about)): Promise<Answer> =>
      described(surface.path(verb.line(about)), body, token);
    const caller = (): string => (verb.byAdmin === true ? platform.admin.token : platform.own.token);
    const isNotDone = async (): Promise<void> => {
      if (verb.done !== undefined) expect(await verb.done(id)).toBe(false);
      walked += 1;
    };
    beforeAll(async () => {
      id = (await verb.make?.()) ?? NOBODY;
    });

    const { unknown } = verb;
    if (unknown !== undefined) {
      test('an id of nobody’s', async () => {
        meets(await send(caller(), NOBODY), unknown);
        meets(await send(caller(), 'nothing'), verb.noId ?? unknown);
        await isNotDone();
      });

      test('another workspace’s id', async () => {
        meets(await send(platform.other.token), verb.foreign ?? unknown);
        await isNotDone();
      });
    }

    test.each([
      ['no token', (): string => ''],
      ['a bad token', (): string => 'eyJhbGciOiJIUzI1NiJ9.eyJ0eXAiOiJhZG1pbiJ9.c2lnbmF0dXJl'],
      ['a token that was switched off', (): string => platform.revoked],
    ] as const)('%s', async (_name, token) => {
      // Authorize is open to callers on this host only to make the first workspace, which exists here.
      meets(await send(token()), verb.refused ?? surface.refused);
      await isNotDone();
    });

    if (verb.byAdmin === true) {
      test('a caller who is not the administrator', async () => {
        meets(await send(platform.own.token), surface.refused);
        await isNotDone();
      });
    }

    if (verb.malformed !== null) {
      const { line, body = '{"a": ', answer = surface.malformed } = verb.malformed ?? {};
      test('what cannot be read', async () => {
        const broken =
          line === undefined
            ? await send(caller(), id, body)
            : await described(surface.path(line), undefined, caller());
        if (!('status' in answer)) expect(broken.status).toBe(400);
        meets(broken, answer);
        await isNotDone();
      });
    }

    test('as it should be', async () => {
      meets(await send(caller()), verb.ok);
      walked += 1;
      const { done: isDone } = verb;
      if (isDone !== undefined) await waitFor(async () => (await isDone(id)) || undefined, `${verb.name} was done`);
    });
  });
});

test.each([
  ['application/json', 201],
  ['application/json; charset=utf-8', 201],
  ['application/merge-patch+json', 201],
  ['application/x-www-form-urlencoded', 201],
  ['', 201],
  ['text/plain;charset=UTF-8', 415],
  ['application/jsonx', 415],
  ['application/octet-stream', 415],
  ['multipart/form-data; boundary=x', 415],
])('a body of the REST API that is declared as %j is answered %i', async (type, status) => {
  const body = { name: unique('SECRET_').replace('-', ''), value: 'a' };
  const headers = type === '' ? {} : { 'content-type': type };
  const { token } = platform.own;
  const answer = await platform.call(rest('POST /api/v1/secret/{ws}'), body, { token, headers });
  expect([answer.status, answer.json['code']]).toEqual([status, status === 201 ? undefined : 'unsupported_media_type']);
  // A body on GET means nothing, with any content type, and so does a type without a body.
  expect((await platform.call(rest('GET /api/v1/secret/{ws}'), body, { token, headers })).status).toBe(200);
});

test('every route of the REST API has a row', () => {
  const named = new Set(
    REST.map((verb) => {
      const [method = '', url = ''] = rest(verb.line(NOBODY).replace(' ', ' /api/v1')).split(' ');
      return `${method} ${routeAt(routes, method, url)?.path.replace('/api/v1', '')}`;
    }),
  );
  const missing = restRoutes({} as RestRouteParts)
    .map(({ method, path }) => `${method} ${path}`)
    .filter((route) => !named.has(route));
  expect(missing).toEqual([]);
});

test('every verb was walked through every case', () => {
  const verbs = REST.length + INVOKE.length;
  const cases = [...REST, ...INVOKE].reduce(
    (sum, verb) =>
      sum +
      4 +
      (verb.unknown === undefined ? 0 : 2) +
      (verb.malformed === null ? 0 : 1) +
      (verb.byAdmin === true ? 1 : 0),
    0,
  );
  process.stdout.write(`verbs: ${verbs}, cases: ${walked}\n`);
  expect(walked).toBe(cases);
});
