// Limits of tokens: every route and operation with every scope, on a real scheduler with both kinds of stores. The
// lists below say what a limited token may call. A route in none of them must refuse every limited token.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allOperations } from '#scheduler/api/operations/index.ts';
import { notBuiltRoutes } from '#scheduler/api/http/rest/not-built.ts';
import { restRoutes } from '#scheduler/api/http/rest/routes.ts';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform, StoreKind } from './verbs-fixture.ts';

/** Routes of the REST API that limited tokens may call. r: scope read · i: scope invoke · a: a token of one app. */
const REST: Readonly<Record<string, string>> = {
  'GET /session': 'ria',
  'POST /console/link': 'ria',
  'GET /workspace/current': 'ria',
  'GET /workspace/{ws}/limits': 'r',
  'GET /workspace/{ws}/markets': 'r',
  'GET /workspace/{ws}/share': 'r',
  'GET /gpu': 'r',
  'GET /gpu-map': 'r',
  'GET /workspace/{ws}/waiting': 'r',
  'GET /credit/{ws}': 'r',
  'GET /credit/{ws}/ledger': 'r',
  'GET /usage/{ws}': 'r',
  'GET /task/{ws}/{taskId}': 'ria',
  'GET /task/{ws}/{taskId}/subscribe': 'ria',
  'GET /task/{ws}/{taskId}/input': 'ia',
  'POST /task/{ws}/{taskId}/rerun': 'ia',
  'POST /task/{ws}/redrive': 'ia',
  'DELETE /task/{ws}/dead': 'a',
  'POST /task/{ws}/rerun': 'a',
  'POST /task/{ws}/cancel': 'a',
  'GET /events/{ws}/history': 'ra',
  'GET /events/{ws}/stream': 'ra',
  'GET /live/{ws}': 'ria',
  'GET /task-stats/{ws}': 'ra',
  'GET /overview/{ws}': 'r',
  'GET /search/{ws}': 'r',
  'GET /task/{ws}': 'ra',
  'GET /task-summary/{ws}': 'ra',
  'DELETE /task/{ws}': 'a',
  'GET /container/{ws}': 'ra',
  'GET /ended-container/{ws}': 'ra',
  'GET /app/{ws}': 'ra',
  'GET /app/{ws}/latest': 'ra',
  'GET /app/{ws}/{appId}': 'ra',
  'GET /logs/{ws}': 'ra',
  'GET /logs/{ws}/stream': 'ra',
  'GET /explain/{ws}/{id}': 'r',
  'GET /deployment-health/{ws}': 'ra',
  'GET /metrics/{ws}/pool-timeseries': 'r',
  'GET /metrics/{ws}/stub-timeseries': 'r',
  'GET /metrics/{ws}/workspace-timeseries': 'r',
  'GET /stack/{ws}': 'r',
  'GET /model/{ws}': 'r',
  'GET /model/{ws}/{modelId}': 'r',
  'GET /volume/{ws}': 'r',
  'GET /volume/{ws}/{volumeName}': 'r',
  'GET /volume/{ws}/{volumeName}/files': 'r',
  'GET /volume/{ws}/{volumeName}/size': 'r',
  'GET /image/{ws}': 'r',
  'GET /image/{ws}/{imageId}': 'r',
  'GET /image/{ws}/{imageId}/output': 'r',
  'GET /deployment/{ws}': 'ra',
  'GET /deployment/{ws}/{deploymentId}': 'ra',
  'GET /deployment/{deploymentId}/url': 'ra',
  'GET /deployment/{ws}/flow/{deploymentId}': 'ra',
  'GET /stub/{ws}/{stubId}': 'ra',
  'PATCH /deployment/{ws}/flow/{deploymentId}': 'a',
  'GET /stub/{stubId}/url': 'ra',
  'POST /deployment/{ws}/rollback/{deploymentId}': 'a',
  'POST /deployment/{ws}/start/{deploymentId}': 'a',
  'POST /deployment/{ws}/stop/{deploymentId}': 'a',
  'DELETE /deployment/{ws}/{deploymentId}': 'a',
};

/** Operations of the gateway that limited tokens may call. */
const GATEWAY: Readonly<Record<string, string>> = {
  Authorize: 'ria',
  ListDeployments: 'ra',
  StopDeployment: 'a',
  StartDeployment: 'a',
  ScaleDeployment: 'a',
  DeleteDeployment: 'a',
  ListTasks: 'ra',
  StopTasks: 'a',
  ListContainers: 'r',
  GetURL: 'ria',
  ListMachines: 'r',
  ListMachineGpus: 'r',
  ListWorkers: 'r',
  ListPools: 'r',
  GetPool: 'r',
  ListEnrolmentTokens: 'r',
};

const LIMITS = [
  ['r', 'the scope read', { scopes: ['read'] }],
  ['i', 'the scope invoke', { scopes: ['invoke'] }],
  ['a', 'a single app', { app_id: 'own' }],
] as const;

const isEmpty = (value: unknown): boolean =>
  typeof value === 'object' && value !== null ? Object.values(value).every(isEmpty) : !value;

const inPath = (path: string, workspaceId: string): string =>
  path.replace('{ws}', workspaceId).replace(/\{\w+\}/g, NOBODY);

describe.each<StoreKind>(['embedded', 'servers'])('limited tokens on %s', (stores) => {
  let platform: Platform;
  let names = 0;
  const tokens = (): string => `/api/v1/token/${platform.own.workspaceId}`;
  const unique = (): string => `limited-${(names += 1)}`;

  const aDeployment = async (appName: string, said: Json = {}) => {
    const name = unique();
    const made = await platform.deploy(name, { appName, forceCreate: true, ...said });
    const { json } = await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/${made.id}`);
    return { ...made, name, appId: String(json['app_id']), subdomain: String(json['subdomain']) };
  };
  const aToken = async (body: Json): Promise<{ readonly id: string; readonly key: string }> => {
    const { status, json, text } = await platform.call(`POST ${tokens()}`, body);
    expect([status, text]).toEqual([201, text]);
    return { id: String(json['id']), key: String(json['key']) };
  };
  const change = (id: string, body: unknown): Promise<Answer> => platform.call(`PATCH ${tokens()}/${id}`, body);
  const tokenIs = async (id: string): Promise<Json> => {
    const { json } = await platform.call(`GET ${tokens()}`);
    return (json['data'] as Json[]).find((one) => one['id'] === id) ?? {};
  };

  let appId = '';
  beforeAll(async () => {
    platform = await aPlatform({}, stores);
    ({ appId } = await aDeployment('own-app'));
    // A pool of the workspace: a list that is allowed is not empty.
    await platform.gateway('POST /machines', { poolName: 'mine' });
  });
  afterAll(() => platform.stop());

  /** The head of a stream, which is then left. */
  const begun = async (path: string, token: string): Promise<Pick<Answer, 'status' | 'json'>> => {
    const answer = await fetch(`http://${platform.address}${path}`, { headers: { authorization: `Bearer ${token}` } });
    if (answer.status !== 200) return { status: answer.status, json: (await answer.json()) as Json };
    await answer.body?.cancel();
    return { status: 200, json: {} };
  };
  const limitedBy = (limit: Json): Json => ('app_id' in limit ? { app_id: appId } : limit);

  test.each(LIMITS)('%s: %s decides about every route', async (letter, _name, limit) => {
    const { key: token } = await aToken(limitedBy(limit));
    const found: Record<string, boolean> = {};
    const wanted: Record<string, boolean> = {};
    for (const { method, path, scope, stream } of restRoutes({} as never)) {
      const line = `${method} ${path}`;
      if (notBuiltRoutes.some((route) => route.method === method && route.path === path)) continue;
      const url = `/api/v1${inPath(path, platform.own.workspaceId)}`;
      const answer =
        stream === undefined ? await platform.call(`${method} ${url}`, undefined, { token }) : await begun(url, token);
      // Not all routes that need an administrator say why they refuse.
      found[line] = answer.status !== 401;
      wanted[line] = (REST[line] ?? '').includes(letter) && scope !== 'admin';
      if (!found[line]) expect(answer.json).toMatchObject({ code: 'unauthorized' });
    }
    for (const { name, method, path } of allOperations({} as never)) {
      const { json, status } = await platform.gateway(`${method} ${inPath(path, '')}`, undefined, { token });
      const text = json['errMsg'] ?? json['errorMsg'] ?? json['error'];
      // Answers without a field for the refusal are empty.
      const isRefused =
        typeof text === 'string'
          ? /^(Unauthorized access|This action is not permitted)$/i.test(text)
          : Object.values(json).every(isEmpty);
      found[name] = status === 200 && !isRefused;
      wanted[name] = (GATEWAY[name] ?? '').includes(letter);
    }
    expect(found).toEqual(wanted);
  });

  const KINDS = [
    ['taskqueue/deployment', (name: string) => `POST /taskqueue/${name}`],
    ['function/deployment', (name: string) => `POST /function/${name}`],
  ] as const;
  test.each(KINDS)('who may invoke a %s, by path and by host', async (stubType, line) => {
    const own = await aDeployment('own-app', { stubType });
    const other = await aDeployment('other-app', { stubType });
    const kind = stubType.split('/')[0];
    const lines = ({ name, stubId, subdomain }: typeof own): [string, string | undefined][] => [
      [line(name), undefined],
      [`${line(name)}/v1`, undefined],
      [`POST /${kind}/id/${stubId}`, undefined],
      ['POST /', `${subdomain}.localhost`],
    ];
    const tell = async (token: string, of: typeof own): Promise<number[]> => {
      const statuses: number[] = [];
      for (const [path, host] of lines(of)) {
        const sent = { token, ...(host === undefined ? {} : { host }) };
        statuses.push((await platform.call(path, {}, sent)).status);
      }
      return statuses;
    };
    const yes = [200, 200, 200, 200];
    const no = [401, 401, 401, 401];
    const tokenFor = async (body: Json): Promise<string> => (await aToken(body)).key;
    const invoke = await tokenFor({ scopes: ['invoke'] });
    const read = await tokenFor({ scopes: ['read'] });
    const both = await tokenFor({ scopes: ['read', 'invoke'] });
    const app = await tokenFor({ app_id: appId });
    const invokeApp = await tokenFor({ app_id: appId, scopes: ['invoke'] });
    expect([await tell(invoke, own), await tell(invoke, other)]).toEqual([yes, yes]);
    expect([await tell(both, own), await tell(both, other)]).toEqual([yes, yes]);
    expect([await tell(read, own), await tell(read, other)]).toEqual([no, no]);
    expect([await tell(app, own), await tell(app, other)]).toEqual([yes, no]);
    expect([await tell(invokeApp, own), await tell(invokeApp, other)]).toEqual([yes, no]);
    const refused = await platform.call(line(own.name), {}, { token: read });
    expect(refused.json).toEqual({ error: 'this token may not invoke: it lacks the scope invoke' });
    const elsewhere = await platform.call(line(other.name), {}, { token: app });
    expect(elsewhere.json).toEqual({ error: 'this token counts for another app alone' });
    if (kind === 'function') return;
    // A public deployment needs no token, so one that is limited is as none.
    const open = await aDeployment('other-app', { stubType, authorized: false });
    expect((await platform.call(`POST /${kind}/id/${open.stubId}`, {}, { token: read })).status).toBe(200);
  });

  test('streamed kinds, containers and warm-ups are closed to those who may not', async () => {
    const asgi = await aDeployment('own-app', { stubType: 'asgi/deployment' });
    const endpoint = await aDeployment('own-app');
    const [read, invoke, app] = await Promise.all([
      aToken({ scopes: ['read'] }),
      aToken({ scopes: ['invoke'] }),
      aToken({ app_id: appId }),
    ]);
    expect((await platform.call(`GET /asgi/${asgi.name}/any`, undefined, { token: read.key })).status).toBe(401);
    expect((await platform.call(`POST /endpoint/${endpoint.name}/warmup`, {}, { token: read.key })).status).toBe(401);
    expect((await platform.call(`POST /endpoint/${endpoint.name}/warmup`, {}, { token: invoke.key })).status).toBe(401);
    for (const { key: token } of [read, invoke, app]) {
      for (const what of ['attach', 'files?path=/a']) {
        const line = `GET /api/v1/gateway/containers/${NOBODY}/${what}`;
        expect((await platform.call(line, undefined, { token })).status).toBe(401);
        // The workspace's own token gets further.
        expect((await platform.call(line)).status).not.toBe(401);
      }
    }
  });

  test('a token of the scope invoke reads the tasks that it put, and no others', async () => {
    const { name } = await aDeployment('own-app', { stubType: 'taskqueue/deployment' });
    const mine = await aToken({ scopes: ['invoke'] });
    const theirs = await aToken({ scopes: ['invoke'] });
    const put = async (token: string): Promise<string> =>
      String((await platform.call(`POST /taskqueue/${name}`, {}, { token })).json['task_id']);
    const ids = [await put(mine.key), await put(theirs.key), await put(platform.own.token)];
    const read = async (token: string, of = ''): Promise<number[]> => {
      const statuses: number[] = [];
      for (const id of ids) {
        const line = `GET /api/v1/task/${platform.own.workspaceId}/${id}${of}`;
        statuses.push((await platform.call(line, undefined, { token })).status);
      }
      return statuses;
    };
    expect(await read(mine.key, '/input')).toEqual([200, 404, 404]);
    expect(await read(mine.key)).toEqual([200, 404, 404]);
    expect(await read(theirs.key)).toEqual([404, 200, 404]);
    expect(await read((await aToken({ scopes: ['invoke', 'read'] })).key)).toEqual([200, 200, 200]);
  });

  test('a token of one app sees and changes that app alone', async () => {
    const said = { stubType: 'taskqueue/deployment' };
    const own = await aDeployment('own-app', said);
    const other = await aDeployment('other-app', said);
    const { key: token } = await aToken({ app_id: appId });
    const ws = platform.own.workspaceId;
    const asked = (line: string, body?: unknown): Promise<Answer> => platform.call(line, body, { token });
    const rest = (line: string) => asked(line.replace(' /', ' /api/v1/').replace('{ws}', ws));
    const put = async (name: string): Promise<string> =>
      String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
    const [ownTask, otherTask] = [await put(own.name), await put(other.name)];

    const appsOf = ({ json }: Answer, field = 'app_id'): unknown[] => [
      ...new Set((json['data'] as Json[]).map((row) => row[field])),
    ];
    expect(appsOf(await rest('GET /deployment/{ws}'))).toEqual([appId]);
    expect((await rest(`GET /deployment/{ws}?app_id=${other.appId}`)).json['data']).toEqual([]);
    expect(appsOf(await rest('GET /app/{ws}'), 'id')).toEqual([appId]);
    expect((await rest(`GET /app/{ws}/${other.appId}`)).status).toBe(404);
    expect((await rest(`GET /deployment/{ws}/${own.id}`)).status).toBe(200);
    expect((await rest(`GET /deployment/{ws}/${other.id}`)).status).toBe(404);
    expect((await rest(`GET /deployment/${other.id}/url`)).status).toBe(404);
    expect((await rest(`GET /task/{ws}/${ownTask}`)).status).toBe(200);
    expect((await rest(`GET /task/{ws}/${otherTask}`)).status).toBe(404);
    await waitFor(async () => (await rest('GET /task/{ws}')).json['data'] as Json[], 'the list has the task');
    const listed = ((await rest('GET /task/{ws}?limit=1000')).json['data'] as Json[]).map((row) => row['id']);
    expect([listed.includes(ownTask), listed.includes(otherTask)]).toEqual([true, false]);
    expect((await rest(`GET /task/{ws}?app_id=${other.appId}`)).json['data']).toEqual([]);
    const logs = await rest(`GET /logs/{ws}?object_type=app&object_id=${other.appId}`);
    expect(logs.json).toMatchObject({ logs: [], object_id: other.appId });

    const gateway = (line: string, body?: unknown) => platform.gateway(line, body, { token });
    const found = (await gateway('GET /deployments?limit=1000')).json['deployments'] as Json[];
    expect([...new Set(found.map((row) => row['appId']))]).toEqual([appId]);
    expect((await gateway(`POST /deployments/${other.id}/stop`)).json).toEqual({
      ok: false,
      errMsg: 'Deployment not found',
    });
    expect((await rest(`POST /deployment/{ws}/stop/${other.id}`)).status).toBe(404);
    expect((await gateway('POST /tasks/stop', { taskIds: [otherTask] })).json).toMatchObject({ ok: false });
    expect((await gateway('POST /tasks/stop', { taskIds: [ownTask] })).json).toMatchObject({ ok: true });
    expect((await rest(`DELETE /task/{ws}?task_ids=${otherTask}`)).status).toBe(200);
    const still = await platform.call(`GET /api/v1/task/${ws}/${otherTask}`);
    expect(still.json['status']).toBe('PENDING');
    expect((await gateway(`GET /stubs/${other.stubId}/url`)).json).toMatchObject({ ok: false });
    expect((await gateway(`GET /stubs/${own.stubId}/url`)).json).toMatchObject({ ok: true });
    expect((await gateway(`POST /deployments/${own.id}/stop`)).json).toEqual({ ok: true, errMsg: '' });
  });

  test('a change counts at once, and an expired token is refused', async () => {
    const { id, key: token } = await aToken({
      name: 'ci',
      expires_at: new Date(Date.now() + 86_400_000).toISOString(),
    });
    const list = (): Promise<Answer> =>
      platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}`, undefined, { token });
    expect((await list()).status).toBe(200);
    expect((await change(id, { scopes: ['invoke'] })).json).toMatchObject({ name: 'ci', scopes: ['invoke'] });
    expect((await list()).status).toBe(401);
    expect((await change(id, { scopes: [] })).status).toBe(200);
    expect((await list()).status).toBe(200);
    expect((await change(id, { active: false })).json).toMatchObject({ active: false });
    expect((await list()).status).toBe(401);
    await change(id, { active: true });
    const expiresAt = Date.now() + 400;
    expect((await change(id, { expires_at: new Date(expiresAt).toISOString() })).status).toBe(200);
    expect((await list()).status).toBe(Date.now() < expiresAt ? 200 : 401);
    await waitFor(async () => (await list()).status === 401, 'the token expires');
    expect(Date.now()).toBeGreaterThanOrEqual(expiresAt);
    expect(Date.now()).toBeLessThan(expiresAt + 5_000);
    expect((await change(id, { expires_at: null })).json['expires_at']).toBeNull();
    expect((await list()).status).toBe(200);
    expect((await platform.call(`DELETE ${tokens()}/${id}`)).status).toBe(200);
    expect((await list()).status).toBe(401);
    const called = await platform.call('POST /endpoint/anything', {}, { token });
    expect([called.status, called.text]).toEqual([401, '{"message":"Unauthorized"}']);
    expect((await platform.call(`DELETE ${tokens()}/${id}`)).json).toMatchObject({ code: 'token_not_found' });
  });

  test('the last use is noted, once a minute', async () => {
    const { id, key: token } = await aToken({ name: 'used' });
    expect((await tokenIs(id))['last_used_at']).toBeNull();
    const before = Date.now();
    await platform.call('GET /api/v1/workspace/current', undefined, { token });
    const usedAt = await waitFor(
      async () => ((await tokenIs(id))['last_used_at'] as string | null) ?? undefined,
      'the use is noted',
      15_000,
    );
    expect(Date.parse(usedAt)).toBeGreaterThanOrEqual(before - 1);
    expect(Date.parse(usedAt)).toBeLessThanOrEqual(Date.now());
  });

  test('tokens that are made at the same moment are no more than the workspace may have', async () => {
    const { own, admin, other } = platform;
    const limits = `/api/v1/workspace/${other.workspaceId}/limits`;
    const counted = async () =>
      ((await platform.call(`GET ${limits}`, undefined, { token: other.token })).json['counts'] as Json)[
        'tokens'
      ] as Json;
    const most = Number((await counted())['used']) + 3;
    const limited = await platform.call(`PUT ${limits}`, { counts: { tokens: most } }, { token: admin.token });
    expect(limited.status).toBe(200);
    const path = `/api/v1/token/${other.workspaceId}`;
    const made = await Promise.all(
      Array.from({ length: 12 }, (_, at) =>
        at % 2 === 0
          ? platform.call(`POST ${path}`, {}, { token: other.token })
          : platform.gateway('POST /tokens', {}, { token: other.token }),
      ),
    );
    expect(await counted()).toEqual({ used: most, limit: most });
    const refused = await platform.call(`POST ${path}`, {}, { token: other.token });
    expect([refused.status, refused.json['code']]).toEqual([429, 'too_many_tokens']);
    expect(made.filter(({ text }) => /"key":"eyJ/.test(text))).toHaveLength(3);
    // The bound of one workspace is no other's.
    expect((await platform.call(`POST ${tokens()}`, {}, { token: own.token })).status).toBe(201);
    await platform.call(`PUT ${limits}`, { counts: { tokens: null } }, { token: admin.token });
  });

  test('a key is shown once; bad wishes are refused by the name of their field', async () => {
    const { id, key } = await aToken({ name: 'once', scopes: ['invoke', 'read'], app_id: appId });
    expect(await tokenIs(id)).toEqual({
      id,
      external_id: id,
      name: 'once',
      key: `eyJ…${key.slice(-4)}`,
      token_type: 'workspace',
      active: true,
      reusable: true,
      scopes: ['invoke', 'read'],
      app_id: appId,
      expires_at: null,
      last_used_at: null,
      created_at: expect.any(String) as string,
      updated_at: expect.any(String) as string,
    });
    const bad: [Json, string][] = [
      [{ name: 'x'.repeat(101) }, 'name'],
      [{ name: ' x' }, 'name'],
      [{ expires_at: 'tomorrow' }, 'expires_at'],
      [{ expires_at: '2020-01-01T00:00:00Z' }, 'expires_at'],
      [{ expires_at: '2999-01-01T00:00:00Z' }, 'expires_at'],
      [{ scopes: ['write'] }, 'scopes'],
      [{ scopes: 'read' }, 'scopes'],
      [{ app_id: NOBODY }, 'app_id'],
      [{ app_id: 'x' }, 'app_id'],
    ];
    for (const [body, field] of bad) {
      for (const line of [`POST ${tokens()}`, `PATCH ${tokens()}/${id}`]) {
        const { status, json } = await platform.call(line, body);
        expect([status, json['code'], json['message']]).toEqual([
          422,
          'invalid_body',
          expect.stringMatching(new RegExp(`^${field}\\b`)),
        ]);
      }
    }
    expect((await platform.call(`POST ${tokens()}`, { token_type: 'admin' })).json['message']).toMatch(/^token_type /);
    const admin = platform.admin;
    const theirs = `/api/v1/token/${admin.workspaceId}`;
    const made = await platform.call(
      `POST ${theirs}`,
      { token_type: 'admin', scopes: ['read'] },
      { token: admin.token },
    );
    expect(made.json).toMatchObject({ code: 'invalid_body', message: expect.stringMatching(/^scopes/) as string });
    // Tokens of another workspace are none.
    for (const method of ['PATCH', 'DELETE']) {
      const line = `${method} /api/v1/token/${platform.other.workspaceId}/${id}`;
      expect((await platform.call(line, {}, { token: platform.other.token })).json).toMatchObject({
        code: 'token_not_found',
      });
      expect((await platform.call(line, {})).status).toBe(401);
      expect((await platform.call(`${method} ${tokens()}/${id}`, {}, { token: platform.restricted })).status).toBe(401);
    }
  });
});
