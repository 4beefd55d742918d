/**
 * Walks every operation of the gateway through everything that may be sent to it. The scheduler is real, with real
 * stores of either kind and no machine. Each calling file is the whole suite on one kind of stores.
 */
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { gatewayVerbs } from './gateway-verbs.ts';
import { POD_ROUTES } from './gateway-verbs/pods.ts';
import { hasFields } from './gateway-verbs/row.ts';
import type { GatewayVerb } from './gateway-verbs/row.ts';
import { aContained } from './contained.ts';
import type { Contained } from './contained.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform, Sent, StoreKind } from './verbs-fixture.ts';
import { kitOf, meets } from './verbs-kit.ts';
import type { Expected } from './verbs-kit.ts';

const OPERATIONS = 31;
const NO_TOKEN = { code: 16, message: 'invalid or missing token', details: [] };
const UNREADABLE = { code: 3, details: [] };
const BAD_TOKEN = 'eyJhbGciOiJIUzI1NiJ9.eyJ0eXAiOiJhZG1pbiJ9.c2lnbmF0dXJl';

interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
}
interface Described {
  readonly operationId: string;
  readonly requestBody?: { readonly content: { readonly 'application/json'?: { readonly schema: Schema } } };
}

/** Fields of a request's body, by operation, as openapi.json describes them. */
function describedBodies(): ReadonlyMap<string, Readonly<Record<string, Schema>>> {
  const { paths } = JSON.parse(readFileSync(new URL('../../docs/openapi.json', import.meta.url), 'utf8')) as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  };
  const all = Object.values(paths).flatMap((path) => Object.values(path));
  return new Map(
    all.map((one) => [one.operationId, one.requestBody?.content['application/json']?.schema.properties ?? {}]),
  );
}

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** The value with snake_case names, at every level. */
function inSnakeCase(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inSnakeCase);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [snake(name), inSnakeCase(inner)]));
}

function lineInSnakeCase(line: string): string {
  const [path = '', query] = line.split('?');
  return query === undefined ? path : `${path}?${query.replace(/[A-Za-z]+(?==)/g, snake)}`;
}

/** The answer to callers without the right, in the field that the answer has for errors. */
function refusalIn(fields: string): Json {
  const name = ['errMsg', 'errorMsg', 'error'].find((field) => fields.split(' ').includes(field));
  return name === undefined ? { ok: false } : { ok: false, [name]: 'Unauthorized Access' };
}

/** A copy of the value with that field changed; `path` is dotted. */
function changed(value: Json, path: string, change: (old: unknown) => unknown): Json {
  const [name = '', ...rest] = path.split('.');
  const inner = rest.length === 0 ? change(value[name]) : changed(value[name] as Json, rest.join('.'), change);
  return { ...value, [name]: inner };
}

export function walkGateway(stores: StoreKind): void {
  let platform: Platform;
  const kit = kitOf(() => platform);
  const verbs = gatewayVerbs(() => platform, kit);
  const bodies = describedBodies();
  let walked = 0;
  const each = (name: string, run: () => Promise<void>): void =>
    test(name, async () => {
      await run();
      walked += 1;
    });

  let contained: Promise<Contained> | undefined;
  /** Credential of a container of the own workspace, which lives as long as the walk. */
  const containerToken = async (): Promise<string> => (await (contained ??= aContained(platform))).token;
  let byContainers = 0;

  beforeAll(async () => {
    platform = await aPlatform({}, stores);
    // The walk makes more pools than a workspace may have.
    for (const { workspaceId } of [platform.own, platform.admin, platform.other]) {
      const limits = { counts: { pools: 1000 } };
      const line = `PUT /api/v1/workspace/${workspaceId}/limits`;
      expect((await platform.call(line, limits, { token: platform.admin.token })).status).toBe(200);
    }
  });
  afterAll(async () => {
    await (await contained)?.stop();
    await platform.stop();
  });

  describe.each(verbs)('$name', (verb) => {
    const made = async (): Promise<string> => (await verb.make?.()) ?? NOBODY;
    // Refused calls change nothing, so all of them can share one object.
    let one: Promise<string> | undefined;
    const untouched = (): Promise<string> => (one ??= made());
    const ask = (line: string, body: unknown, sent: Sent): Promise<Answer> => platform.gateway(line, body, sent);
    const send = (id: string, sent: Sent = {}, body: unknown = verb.body?.(id)): Promise<Answer> =>
      ask(verb.line(id), body, sent);
    const isDone = async (id: string): Promise<void> => {
      const { done } = verb;
      if (done !== undefined) await waitFor(async () => (await done(id)) || undefined, `${verb.name} was done`);
    };
    const isNotDone = async (id: string): Promise<void> => {
      if (verb.done !== undefined) expect(await verb.done(id)).toBe(false);
    };
    /** A whole answer of the operation, done or refused. */
    const answers = (answer: Answer, expected: Expected): void => {
      meets(answer, expected);
      expect(answer.status).toBe(200);
      hasFields(answer.json, verb);
    };
    const isRpcStatus = ({ status, json }: Answer, expectedStatus: number): void => {
      expect(status).toBe(expectedStatus);
      expect(Object.keys(json)).toEqual(['code', 'message', 'details']);
    };
    /** Tests another spelling of the same request. */
    const alike = (name: string, sendAlike: (id: string) => Promise<Answer>): void =>
      each(name, async () => {
        const id = await made();
        answers(await sendAlike(id), verb.ok);
        await isDone(id);
      });

    refusals(verb);
    spellings(verb);
    for (const [name, failure] of Object.entries(verb.failures ?? {})) {
      each(`fails as documented: ${name}`, async () => {
        const id = (await failure.make?.()) ?? (await made());
        const sent = failure.token === undefined ? {} : { token: failure.token() };
        const answer = await ask((failure.line ?? verb.line)(id), (failure.body ?? verb.body)?.(id), sent);
        if ('code' in failure.answer) {
          meets(answer, failure.answer);
          isRpcStatus(answer, 400);
        } else answers(answer, failure.answer);
      });
    }

    function refusals(of: GatewayVerb): void {
      const { unknown, noId, foreign, refused, restricted, ok, malformed, container, fields } = of;
      if (unknown !== undefined) {
        each('an id of nobody’s, and one that is none', async () => {
          answers(await send(NOBODY), unknown);
          answers(await send('nothing'), noId ?? unknown);
        });
        each('another workspace’s id', async () => {
          const id = await untouched();
          answers(await send(id, { token: platform.other.token }), foreign ?? unknown);
          await isNotDone(id);
        });
      }
      each('no token, a bad one, one that was switched off', async () => {
        const id = await untouched();
        for (const token of ['', BAD_TOKEN, platform.revoked]) {
          // Authorize is open to callers on this host only to make the first workspace, which exists here.
          const answer = await send(id, { token });
          meets(answer, refused ?? NO_TOKEN);
          if (refused === undefined) isRpcStatus(answer, 401);
        }
        await isNotDone(id);
      });
      each('a restricted token', async () => {
        const id = await (restricted === undefined ? made() : untouched());
        answers(await send(id, { token: platform.restricted }), restricted ?? ok);
        await (restricted === undefined ? isDone(id) : isNotDone(id));
      });
      each('a container’s credential', async () => {
        const id = await untouched();
        answers(await send(id, { token: await containerToken() }), container ?? restricted ?? refusalIn(fields));
        await isNotDone(id);
        byContainers += 1;
      });
      if (malformed !== null) {
        each('what cannot be read, whoever sends it', async () => {
          const id = await untouched();
          const { line, body } = malformed ?? {};
          const broken = (token: string): Promise<Answer> =>
            line === undefined ? send(id, { token }, body ?? '{"a": ') : ask(line, undefined, { token });
          const answer = await broken(platform.own.token);
          meets(answer, UNREADABLE);
          isRpcStatus(answer, 400);
          // A body is read for a known caller alone. A query is read for every
          // caller, and so is the body that asks for the first workspace.
          const stranger = await broken('');
          const isRead = line?.startsWith('GET ') === true || refused !== undefined;
          meets(stranger, isRead ? UNREADABLE : NO_TOKEN);
          isRpcStatus(stranger, isRead ? 400 : 401);
          await isNotDone(id);
        });
      }
      if (!verb.line(NOBODY).startsWith('GET ')) {
        each('bodies that are no JSON object', async () => {
          const id = await untouched();
          for (const body of ['[1]', '"text"', '5', '{"a":1}{', Buffer.from('{"a":"\xff"}', 'latin1')]) {
            const answer = await send(id, {}, body);
            meets(answer, UNREADABLE);
            isRpcStatus(answer, 400);
          }
          await isNotDone(id);
        });
      }
      each('a deadline that cannot be read, and another method', async () => {
        const id = await untouched();
        const late = await send(id, { headers: { 'grpc-timeout': 'soon' } });
        meets(late, UNREADABLE);
        isRpcStatus(late, 400);
        const other = await ask(verb.line(id).replace(/^\w+ /, 'PUT '), undefined, {});
        meets(other, { code: 12, message: 'Method Not Allowed' });
        isRpcStatus(other, 501);
        await isNotDone(id);
      });
    }

    function spellings({ name, int64 = [] }: GatewayVerb): void {
      alike('as it should be', (id) => send(id));
      alike('in the other spelling', (id) => ask(lineInSnakeCase(verb.line(id)), inSnakeCase(verb.body?.(id)), {}));
      alike('with fields that nobody knows, and a token without its scheme', (id) => {
        const line = verb.line(id);
        const more = { unknownField: { deep: [1, null] }, anotherOne: 'x' };
        const body = line.startsWith('GET ') ? more : { ...more, ...(verb.body?.(id) as Json | undefined) };
        const headers = { authorization: platform.own.token };
        return ask(`${line}${line.includes('?') ? '&' : '?'}unheardOf=1&nobody[knows]=2`, body, { token: '', headers });
      });
      alike('with a JSON content type whatever comes, and a slash at the end', (id) => {
        const [path = '', query] = verb.line(id).split('?');
        const line = `${path}/${query === undefined ? '' : `?${query}`}`;
        return ask(line, verb.body?.(id), { headers: { 'content-type': 'application/json' } });
      });
      if (verb.line(NOBODY).startsWith('GET ')) {
        alike('with a body that means nothing', (id) => ask(verb.line(id), '{"no json', {}));
      } else {
        alike('with null for what is not sent', (id) => {
          const body = (verb.body?.(id) ?? {}) as Json;
          const nulls = Object.keys(bodies.get(name) ?? {}).filter((field) => !(field in body));
          return send(id, {}, { ...body, ...Object.fromEntries(nulls.map((field) => [field, null])) });
        });
      }
      for (const field of int64) {
        each(`${field} as a string and as a number`, async () => {
          for (const write of [String, Number]) {
            const id = await made();
            answers(await send(id, {}, changed(verb.body?.(id) as Json, field, write)), verb.ok);
          }
          const id = await untouched();
          for (const bad of ['1.5', 1.5, '9223372036854775808', '0x10', true, {}]) {
            const answer = await send(
              id,
              {},
              changed(verb.body?.(id) as Json, field, () => bad),
            );
            meets(answer, UNREADABLE);
            isRpcStatus(answer, 400);
          }
        });
      }
    }
  });

  test.each(POD_ROUTES)('%s says that there is no such pod', async (route, fields, body) => {
    const line = route.replace('{id}', 'pod-1').replace('{path}', '%2Fmnt%2Fa%20b');
    const { status, json } = await platform.gateway(line, { stubId: '', unheardOf: 1, ...body });
    expect(status).toBe(200);
    hasFields(json, { fields: `ok errorMsg ${fields}`.trim() });
    expect(json).toMatchObject({ ok: false, errorMsg: 'Container not found: pod-1' });
    if (fields.includes('exitCode')) expect(json['exitCode']).toBe(-1);
    expect((await platform.gateway(line, {}, { token: '' })).json).toEqual(NO_TOKEN);
    walked += 1;
  });

  describe('filters', () => {
    /** Each filter in the three forms, the last two with the values as lists. */
    const forms = (filters: Readonly<Record<string, string>>): readonly string[] => {
      const lists = Object.fromEntries(Object.entries(filters).map(([key, values]) => [key, values.split(',')]));
      const wrapped = Object.fromEntries(Object.entries(lists).map(([key, values]) => [key, { values }]));
      const pairs = Object.entries(filters).map(([key, values]) => `${key}=${values}`);
      return [
        `filters=${encodeURIComponent(pairs.join(';'))}`,
        ...[filters, lists, wrapped].map((json) => `filters=${encodeURIComponent(JSON.stringify(json))}`),
        Object.entries(filters)
          .map(([key, values]) => `filters[${key}]=${encodeURIComponent(values)}`)
          .join('&'),
        Object.entries(lists)
          .flatMap(([key, values]) => values.map((value) => `${encodeURIComponent(`filters[${key}]`)}=${value}`))
          .join('&'),
      ];
    };
    const finds = async (path: string, field: string, filters: Readonly<Record<string, string>>, ids: unknown[]) => {
      for (const query of forms(filters)) {
        const rows = await kit.list(`${path}?${query}`, field);
        expect([query, rows.map((row) => row['id'] ?? row['name'])]).toEqual([query, ids]);
      }
    };

    each('of ListDeployments', async () => {
      const said = { stubType: 'taskqueue/deployment' };
      const name = kit.unique('Filtered');
      const first = await platform.deploy(name, said);
      const second = await platform.deploy(name, { ...said, env: ['V=2'] });
      await platform.gateway(`POST /deployments/${first.id}/stop`);
      const of = (filters: Readonly<Record<string, string>>, ids: unknown[]) =>
        finds('/deployments', 'deployments', { name, ...filters }, ids);
      await of({}, [second.id, first.id]);
      await of({ name: name.slice(1) }, [second.id, first.id]);
      await of({ name: name.toLowerCase() }, []);
      await of({ version: '2' }, [second.id]);
      await of({ active: 'yes' }, [second.id]);
      await of({ active: 'F', version: '1' }, [first.id]);
      // Unknown names, and values that cannot be read, are no filters.
      await of({ colour: 'red', version: 'two', active: 'perhaps' }, [second.id, first.id]);
    });

    each('of ListTasks', async () => {
      const waits = await kit.aTask({ env: ['FILTERED=1'] });
      const runs = await kit.aStartedTask({ env: ['FILTERED=2'] }, 'container-of-mine');
      const { stubId, stubName } = (await kit.list(`/tasks?filters=id=${waits}`, 'tasks'))[0] ?? {};
      const both = `${waits},${runs}`;
      await waitFor(
        async () => (await kit.list(`/tasks?filters=container-id=container-of-mine`, 'tasks')).length > 0,
        'the list has the start',
      );
      for (const spelling of ['id', 'ids', 'task-id', 'task-ids', 'task_id', 'task_ids']) {
        await finds('/tasks', 'tasks', { [spelling]: both, status: 'PENDING' }, [waits]);
      }
      for (const [key, value] of [
        ['stub-id', stubId],
        ['stub-ids', `${String(stubId)},${NOBODY}`],
        ['stub_id', stubId],
        ['stub_ids', stubId],
      ] as const) {
        await finds('/tasks', 'tasks', { [key]: String(value) }, [waits]);
      }
      for (const key of ['container-id', 'container-ids', 'container_id', 'container_ids']) {
        await finds('/tasks', 'tasks', { [key]: 'container-of-mine' }, [runs]);
      }
      for (const key of ['stub-name', 'stub-names', 'stub_name', 'stub_names']) {
        await finds('/tasks', 'tasks', { [key]: String(stubName), id: waits }, [waits]);
        await finds('/tasks', 'tasks', { [key]: 'nobody', id: waits }, []);
      }
      await finds('/tasks', 'tasks', { status: 'RUNNING,PENDING', id: both }, [runs, waits]);
      await finds('/tasks', 'tasks', { id: `${waits},nonsense` }, [waits]);
      // A filter without any valid id is no filter.
      await finds('/tasks', 'tasks', { id: 'nonsense', stub_id: String(stubId) }, [waits]);
    });

    each('of ListPools', async () => {
      for (const name of ['filter-a', 'filter-b']) await platform.gateway('POST /pools', { name });
      await finds('/pools', 'pools', { name: 'filter-b,filter-a,filter-c' }, ['filter-a', 'filter-b']);
      await finds('/pools', 'pools', { name: 'filter' }, []);
      const [first] = await kit.list('/pools?limit=1', 'pools');
      expect(first?.['name']).toBe('filter-a');
    });
  });

  each('limits and orders of lists', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) ids.unshift(await kit.aDeployment());
    const found = (await kit.list('/deployments?limit=2', 'deployments')).map((row) => row['id']);
    expect(found).toEqual(ids.slice(0, 2));
    const all = await kit.list('/deployments?limit=9223372036854775807', 'deployments');
    expect(all.length).toBeGreaterThan(2);
    expect((await platform.gateway('GET /deployments?limit=1&limit=2')).json).toMatchObject(UNREADABLE);
  });

  each('what is too large, and what is nowhere', async () => {
    const large = await platform.gateway('POST /auth/sign', Buffer.alloc(16 * 1024 * 1024 + 1, ' '));
    expect([large.status, large.json['code']]).toEqual([429, 8]);
    const nowhere = await platform.gateway('POST /nowhere/at/all', {});
    expect([nowhere.status, nowhere.json]).toEqual([404, { code: 5, message: 'Not Found', details: [] }]);
  });

  each('what is signed can be checked with the key of the workspace', async () => {
    const current = await platform.call('GET /api/v1/workspace/current');
    const payload = Buffer.from('[1, 2]').toString('base64');
    const { json } = await platform.gateway('POST /auth/sign', { payload });
    const hmac = createHmac('sha256', String(current.json['signing_key']));
    expect(json['signature']).toBe(hmac.update(`${payload}:${String(json['timestamp'])}`).digest('hex'));
    // The other alphabet, without padding, is the same bytes.
    const urlSafe = await platform.gateway('POST /auth/sign', { payload: '-_8' });
    expect(urlSafe.json['ok']).toBe(true);
  });

  test(`${OPERATIONS} operations were walked`, () => {
    const theirs = verbs.filter((verb) => verb.ours !== true);
    process.stdout.write(
      `gateway on ${stores}: ${theirs.length} operations, ${verbs.length} with ours, ${walked} cases, ${byContainers} with a container’s credential\n`,
    );
    expect(byContainers).toBe(verbs.length);
    expect(theirs).toHaveLength(OPERATIONS);
    const described = new Set([...bodies.keys()]);
    expect(verbs.filter(({ name }) => !described.has(name))).toEqual([]);
  });
}
