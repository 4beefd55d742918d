// Effects of verbs on each other and on calls under way, on a real scheduler with real stores and no machine.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { aProvidersFile } from '../helpers/providers-file.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
const providersFile = aProvidersFile();
beforeAll(async () => {
  const settings = { LONGSHORE_INVOKE_DOMAIN: 'apps.example', LONGSHORE_PROVIDERS_FILE: providersFile.path };
  platform = await aPlatform(settings);
});
afterAll(async () => {
  await platform.stop();
  providersFile.remove();
});

const answerOf = async (line: string, body: unknown = {}, sent = {}): Promise<[number, string]> => {
  const { status, text } = await platform.call(line, body, sent);
  return [status, text];
};
const tasksOf = async (stubId: string): Promise<Json[]> =>
  (await platform.gateway(`GET /tasks?filters=stub-id=${stubId}`)).json['tasks'] as Json[];
const containersOf = async (stubId: string): Promise<Json[]> =>
  ((await platform.gateway('GET /containers')).json['containers'] as Json[]).filter((row) => row['stubId'] === stubId);
const INACTIVE = [400, '{"message":"Deployment is not active"}'];
const UNKNOWN = [400, '{"message":"Invalid deployment"}'];

describe('a deployment that is stopped', () => {
  test('refuses the very next request, by every name, and takes them again when started', async () => {
    const { id, stubId } = await platform.deploy('halted', { stubType: 'taskqueue/deployment', env: ['HALTED=1'] });
    const paths = ['halted', 'halted/latest', 'halted/v1', `id/${stubId}`].map((name) => `POST /taskqueue/${name}`);
    for (const path of paths) expect((await platform.call(path, {})).status).toBe(200);
    for (let round = 0; round < 5; round += 1) {
      expect((await platform.gateway(`POST /deployments/${id}/stop`)).json).toEqual({ ok: true, errMsg: '' });
      for (const path of paths) expect(await answerOf(path)).toEqual(INACTIVE);
      expect((await platform.gateway(`POST /deployments/${id}/start`)).json['ok']).toBe(true);
      for (const path of paths) expect((await platform.call(path, {})).status).toBe(200);
    }
    // Stopping twice is harmless, and the queued tasks are still there.
    for (let times = 0; times < 2; times += 1) await platform.gateway(`POST /deployments/${id}/stop`);
    const waiting = (await tasksOf(stubId)).filter((task) => task['status'] === 'PENDING');
    expect(waiting).toHaveLength(24);
  });

  test('answers its waiting callers at once, and its containers go', async () => {
    const { id, stubId } = await platform.deploy('waiting');
    const callers = [1, 2, 3].map(() => answerOf('POST /endpoint/waiting', { n: 1 }));
    await waitFor(
      async () => (await containersOf(stubId)).length > 0 && (await tasksOf(stubId)).length === 3,
      'all wait',
    );
    await platform.gateway(`POST /deployments/${id}/stop`);
    for (const answer of await Promise.all(callers)) expect(answer).toEqual([503, '{"error":"deployment stopped"}']);
    await waitFor(async () => (await containersOf(stubId)).length === 0, 'no container is left');
    await waitFor(
      async () => (await tasksOf(stubId)).every((task) => task['status'] === 'CANCELLED'),
      'the tasks are CANCELLED',
    );
  });

  test('leaves other versions alone', async () => {
    const first = await platform.deploy('versions', { stubType: 'taskqueue/deployment' });
    await platform.deploy('versions', { stubType: 'taskqueue/deployment', env: ['V=2'] });
    await platform.gateway(`POST /deployments/${first.id}/stop`);
    expect(await answerOf('POST /taskqueue/versions/v1')).toEqual(INACTIVE);
    expect((await platform.call('POST /taskqueue/versions', {})).status).toBe(200);
  });
});

describe('a deployment that is made anew', () => {
  test('is what the next `latest` means', async () => {
    const stubs: string[] = [];
    for (let version = 1; version <= 5; version += 1) {
      const made = await platform.deploy('moving', { stubType: 'taskqueue/deployment', env: [`V=${version}`] });
      expect(made.version).toBe(version);
      stubs.push(made.stubId);
      const { json } = await platform.call('POST /taskqueue/moving', {});
      const [task] = (await platform.gateway(`GET /tasks?filters=id=${String(json['task_id'])}`)).json[
        'tasks'
      ] as Json[];
      expect(task?.['stubId']).toBe(made.stubId);
    }
    expect(await tasksOf(stubs[0] ?? '')).toHaveLength(1);
  });

  test('under a deleted name gets the next version', async () => {
    const said = { stubType: 'taskqueue/deployment' };
    const first = await platform.deploy('again', said);
    const { json } = await platform.call('POST /taskqueue/again', {});
    expect((await platform.gateway(`DELETE /deployments/${first.id}`)).json['ok']).toBe(true);
    expect(await answerOf('POST /taskqueue/again')).toEqual(UNKNOWN);
    expect(await answerOf('POST /taskqueue/again/v1')).toEqual(UNKNOWN);
    // The queued task is cancelled.
    const [task] = (await platform.gateway(`GET /tasks?filters=id=${String(json['task_id'])}`)).json['tasks'] as Json[];
    expect(task?.['status']).toBe('CANCELLED');
    const second = await platform.deploy('again', said);
    expect([second.version, second.stubId]).toEqual([2, first.stubId]);
    expect((await platform.call('POST /taskqueue/again/v2', {})).status).toBe(200);
    expect(await answerOf('POST /taskqueue/again/v1')).toEqual(UNKNOWN);
    const list = await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}?name=again&show_deleted=true`);
    expect((list.json['data'] as Json[]).map((row) => [row['version'], row['deleted_at'] === null])).toEqual([
      [2, true],
      [1, false],
    ]);
  });
});

describe('scaling', () => {
  const scale = async (id: string, containers: number): Promise<unknown> =>
    (await platform.gateway(`POST /deployments/${id}/scale`, { containers })).json['errMsg'];

  test('starts so many containers, and none again', async () => {
    const { id, stubId } = await platform.deploy('scaled');
    expect(await scale(id, 2)).toBe('');
    await waitFor(async () => (await containersOf(stubId)).length === 2, 'two are wanted');
    expect(await scale(id, 0)).toBe('');
    await waitFor(async () => (await containersOf(stubId)).length === 0, 'none is wanted');
  });

  test('has a bound, and is for kinds that are scaled', async () => {
    const { id } = await platform.deploy('bounded');
    expect(await scale(id, 101)).toBe('replicas must be 100 or less');
    const called = await platform.deploy('called', { stubType: 'function/deployment' });
    expect(await scale(called.id, 1)).toBe('This type of deployment cannot be scaled directly.');
  });
});

describe('by host', () => {
  const at = (host: string, token?: string): Promise<[number, string]> =>
    answerOf('POST /', {}, { host, ...(token === undefined ? {} : { token }) });

  test('a deployment is invoked as by path, stopped as by path, and its label stays its own', async () => {
    const stub = { stubType: 'taskqueue/deployment' };
    const { id, stubId } = await platform.deploy('Hosted app', stub);
    const url = (await platform.gateway(`GET /stubs/${stubId}/url?deploymentId=${id}`)).json['url'];
    const { host } = new URL(String(url));
    expect(host).toMatch(/^hosted-app-[0-9a-f]{16}-v1\.apps\.example:/);
    const subdomain = host.split('-v1.')[0] ?? '';
    for (const one of [host, `${subdomain}.apps.example`, `${subdomain}-latest.localhost`, `${stubId}.apps.example`]) {
      expect((await at(one))[0]).toBe(200);
      expect(await at(one, '')).toEqual([401, '{"message":"Unauthorized"}']);
      expect(await at(one, platform.other.token)).toEqual([401, '{"message":"Invalid token"}']);
    }
    expect(await at(`${subdomain}-v2.apps.example`)).toEqual(UNKNOWN);
    await platform.gateway(`POST /deployments/${id}/stop`);
    expect(await at(host)).toEqual(INACTIVE);
    // The path form, and everything else, still answers beside such a host.
    expect((await platform.call('GET /api/v1/health/live', undefined, { host: 'apps.example' })).status).toBe(200);
    await platform.gateway(`DELETE /deployments/${id}`);
    expect(await at(host)).toEqual(UNKNOWN);
    await platform.deploy('Hosted app', stub);
    expect((await at(`${subdomain}.apps.example`))[0]).toBe(200);
  });
});

describe('a function', () => {
  test('takes calls of every form it has, and none without a token, whatever its stub says', async () => {
    const said = { stubType: 'function/deployment', authorized: false, extra: '{"f":1}' };
    const { stubId } = await platform.deploy('adds', said);
    const serve = await platform.stub({ stubType: 'function/serve' });
    expect((await answerOf(`POST /function/id/${serve}`))[0]).toBe(503);
    expect((await platform.gateway(`POST /stubs/${serve}/serve`)).json).toMatchObject({ ok: true, leaseSeconds: 60 });
    for (const path of ['adds', 'adds/v1', `id/${stubId}`, `id/${serve}`]) {
      expect((await answerOf(`POST /function/${path}`))[0]).toBe(200);
      expect((await answerOf(`POST /function/${path}`, {}, { token: '' }))[0]).toBe(401);
      expect((await answerOf(`POST /function/${path}`, {}, { token: platform.other.token }))[0]).not.toBe(200);
    }
    expect((await answerOf(`POST /function/public/${stubId}`))[0]).not.toBe(200);
    const { json } = await platform.gateway(`GET /stubs/${stubId}/url`, undefined, { token: platform.other.token });
    expect(json).toMatchObject({ ok: false, errMsg: 'Invalid stub ID' });
    const own = (await platform.gateway(`GET /stubs/${stubId}/url`)).json;
    expect(own['url']).toMatch(new RegExp(`/function/id/${stubId}$`));
  });

  test('wants a container for every call that waits, where nobody says otherwise', async () => {
    const { stubId } = await platform.deploy('wide', { stubType: 'function/deployment', extra: '{"f":2}' });
    for (let n = 0; n < 5; n += 1) await platform.call('POST /function/wide', { n });
    await waitFor(async () => (await containersOf(stubId)).length === 5, 'one for each');
    const [one] = await containersOf(stubId);
    expect(one?.['containerId']).toMatch(new RegExp(`^function-${stubId}-[0-9a-f]{8}$`));
  });

  test('is not scaled by hand', async () => {
    for (const said of [{ stubType: 'function/deployment' }, { stubType: 'schedule/deployment', ...YEARLY }]) {
      const { id } = await platform.deploy('by-hand', said);
      expect((await platform.gateway(`POST /deployments/${id}/scale`, { containers: 1 })).json).toEqual({
        ok: false,
        errMsg: 'This type of deployment cannot be scaled directly.',
      });
    }
  });
});

const YEARLY = { extra: '{"when": "@yearly"}' };

describe('a schedule', () => {
  const every = { stubType: 'schedule/deployment', extra: '{"when": "* * * * * *"}', maxPendingTasks: 1000 };
  const countOf = async (stubId: string): Promise<number> => (await tasksOf(stubId)).length;

  test('ticks by itself from its deploy on, until it is stopped, and again when it is started', async () => {
    const { id, stubId } = await platform.deploy('ticking', every);
    await waitFor(async () => (await countOf(stubId)) >= 2, 'two ticks');
    await platform.gateway(`POST /deployments/${id}/stop`);
    const stopped = await countOf(stubId);
    const { stubId: witness } = await platform.deploy('witness', { ...every, env: ['WITNESS=1'] });
    await waitFor(async () => (await countOf(witness)) >= 2, 'another one ticks on');
    expect(await countOf(stubId)).toBe(stopped);
    await platform.gateway(`POST /deployments/${id}/start`);
    await waitFor(async () => (await countOf(stubId)) >= stopped + 2, 'it ticks again');
    const missed = (await tasksOf(stubId)).length - stopped;
    expect(missed).toBeLessThan(6);
    expect((await tasksOf(stubId)).every((task) => task['status'] === 'PENDING')).toBe(true);
    await platform.gateway(`DELETE /deployments/${id}`);
    await waitFor(
      async () => (await tasksOf(stubId)).every((task) => task['status'] === 'CANCELLED'),
      'its tasks are cancelled',
    );
  });

  test('is one version at a time: a new one stops those before it, and only those of its name', async () => {
    const version = (n: number, name = 'nightly') =>
      platform.deploy(name, { stubType: 'schedule/deployment', ...YEARLY, env: [`V=${n}`] });
    const [first, other, second] = [await version(1), await version(1, 'nightly-too'), await version(2)];
    expect(await answerOf('POST /schedule/nightly/v1')).toEqual(INACTIVE);
    for (const path of ['nightly', 'nightly/v2', 'nightly-too']) {
      expect((await answerOf(`POST /schedule/${path}`))[0]).toBe(200);
    }
    const { deployments } = (await platform.gateway('GET /deployments?limit=1000')).json as { deployments: Json[] };
    const active = (made: { readonly id: string }) => deployments.find((row) => row['id'] === made.id)?.['active'];
    expect([active(first), active(other), active(second)]).toEqual([false, true, true]);
    // After an explicit start of the old version, both run.
    await platform.gateway(`POST /deployments/${first.id}/start`);
    expect((await answerOf('POST /schedule/nightly/v1'))[0]).toBe(200);
    expect((await answerOf('POST /schedule/nightly/v2'))[0]).toBe(200);
  });

  test('whose time cannot be read is refused where its stub is made, by the name of the field', async () => {
    for (const [extra, text] of [
      ['{}', /^extra\.when must say when/],
      ['{"when": "* * *"}', /^extra\.when "\* \* \*" has 3 fields/],
      ['{"when": "@daily", "timezone": "Berlin"}', /^extra\.timezone "Berlin" is not a time zone/],
    ] as const) {
      const body = {
        stubType: 'schedule/deployment',
        name: 'bad',
        handler: 'app:handler',
        cpu: 100,
        memory: 64,
        extra,
      };
      const { json } = await platform.gateway('POST /stubs', body);
      expect(json).toMatchObject({ ok: false, stubId: '', errMsg: expect.stringMatching(text) });
    }
  });
});

describe('a public stub', () => {
  test('needs no token by any of its own URLs; a bad one is refused all the same', async () => {
    const { id, stubId } = await platform.deploy('open', { stubType: 'taskqueue/deployment', authorized: false });
    for (const path of [`public/${stubId}`, `id/${stubId}`]) {
      expect((await answerOf(`POST /taskqueue/${path}`, {}, { token: '' }))[0]).toBe(200);
      expect((await answerOf(`POST /taskqueue/${path}`, {}, { token: platform.revoked }))[0]).toBe(401);
    }
    await platform.gateway(`POST /deployments/${id}/stop`);
    expect(await answerOf(`POST /taskqueue/public/${stubId}`, {}, { token: '' })).toEqual(INACTIVE);
    const closed = await platform.stub({ stubType: 'taskqueue/deployment' });
    expect(await answerOf(`POST /taskqueue/public/${closed}`)).toEqual([400, '{"error":"invalid stub id"}']);
  });
});

describe('tokens', () => {
  const made = async (query = ''): Promise<Json> => {
    const { json } = await platform.gateway(`POST /tokens${query}`);
    expect(json).toMatchObject({ ok: true });
    return json['token'] as Json;
  };
  const status = async (token: unknown): Promise<number> =>
    (await platform.gateway('GET /deployments', undefined, { token: String(token) })).status;

  test('count at once, stop counting at once, and count again', async () => {
    const { key, tokenId } = await made();
    expect(await status(key)).toBe(200);
    for (const expected of [401, 200, 401]) {
      await platform.gateway(`POST /tokens/${String(tokenId)}/toggle`);
      expect(await status(key)).toBe(expected);
    }
    await platform.gateway(`POST /tokens/${String(tokenId)}/toggle`);
    await platform.gateway(`DELETE /tokens/${String(tokenId)}`);
    expect(await status(key)).toBe(401);
  });

  test('of the restricted type bring no code, so that none reads a secret with it', async () => {
    const restricted = { token: platform.restricted };
    const ws = platform.own.workspaceId;
    await platform.call(`POST /api/v1/secret/${ws}`, { name: 'KEY', value: 'geheim' });
    const said = {
      stubType: 'function/deployment',
      name: 'known',
      appName: 'known',
      handler: 'app:handler',
      cpu: 100,
      memory: 64,
      secrets: [{ name: 'KEY' }],
    };
    const stub = await platform.stub(said);
    const refused: readonly (readonly [string, unknown])[] = [
      ['POST /stubs', { ...said, name: 'mine' }],
      ['POST /stubs', { ...said, appName: 'mine' }],
      ['POST /stubs', { ...said, handler: 'app:other' }],
      ['POST /stubs', { ...said, secrets: [] }],
      ['POST /stubs/deploy', { stubId: stub, name: 'known' }],
      ['POST /pods', { stubId: stub }],
      [`POST /stubs/${stub}/serve`, {}],
      ['POST /objects', { hash: 'h', size: '3', overwrite: true, objectMetadata: { name: 'h', size: '3' } }],
      ['POST /tasks/end', { taskId: NOBODY, taskStatus: 'COMPLETE', result: 'AAAA' }],
    ];
    for (const [line, body] of refused) {
      const { json } = await platform.gateway(line, body, restricted);
      expect([line, json['ok']]).toEqual([line, false]);
    }
    const build = { pythonVersion: 'python3.11', commands: ['env'], secrets: ['KEY'] };
    expect((await platform.gateway('POST /images/build', build, restricted)).json['result']).toMatchObject({
      success: false,
    });
    for (const line of [`GET /api/v1/secret/${ws}`, `GET /api/v1/object/${ws}/${NOBODY}/download-url`])
      expect((await platform.call(line, undefined, restricted)).status).toBe(401);
    // A client that runs a known function finds its stub, and calls it.
    for (const forceCreate of [false, true])
      expect((await platform.gateway('POST /stubs', { ...said, forceCreate }, restricted)).json['stubId']).toBe(stub);
  });

  test('may count once, or run and inspect only', async () => {
    const once = await made('?reusable=false');
    expect(once['reusable']).toBe(false);
    expect([await status(once['key']), await status(once['key'])]).toEqual([200, 401]);
    const restricted = { token: String((await made('?tokenType=workspace_restricted'))['key']) };
    const { id } = await platform.deploy('guarded', { stubType: 'taskqueue/deployment' });
    for (const line of [
      `POST /deployments/${id}/stop`,
      `POST /deployments/${id}/scale`,
      `DELETE /deployments/${id}`,
      'GET /tokens',
      'POST /tokens',
      'GET /workers',
      'DELETE /machines/x',
    ]) {
      expect((await platform.gateway(line, undefined, restricted)).json).toMatchObject({
        ok: false,
        errMsg: 'Unauthorized Access',
      });
    }
    expect((await platform.gateway('GET /pools', undefined, restricted)).json['errMsg']).toBe(
      'This action is not permitted',
    );
    expect((await platform.gateway('GET /workspace/config', undefined, restricted)).json['workspaceId']).toBe('');
    expect((await platform.call('POST /taskqueue/guarded', {}, restricted)).status).toBe(200);
    const ws = platform.own.workspaceId;
    expect((await platform.call(`POST /api/v1/deployment/${ws}/stop/${id}`, undefined, restricted)).status).toBe(401);
    expect((await platform.gateway('POST /tokens?tokenType=admin')).json).toMatchObject({
      ok: false,
      errMsg: 'tokenType must be one of workspace, workspace_restricted',
    });
  });

  test('are shown in clear once', async () => {
    const { key, tokenId } = await made();
    const listed = (await platform.gateway('GET /tokens')).json['tokens'] as Json[];
    const mine = listed.find((row) => row['tokenId'] === tokenId);
    expect(mine?.['key']).toBe(`eyJ…${String(key).slice(-4)}`);
    expect(listed.map((row) => row['tokenType'])).toContain('workspace_primary');
  });
});

describe('volumes', () => {
  const volume = async (name: string): Promise<Json> => (await platform.gateway('POST /volumes', { name })).json;
  const stubWith = async (volumes: readonly Json[]): Promise<Json> =>
    (
      await platform.gateway('POST /stubs', {
        stub_type: 'endpoint/deployment',
        name: 'v',
        handler: 'app:handler',
        cpu: 100,
        memory: 64,
        volumes,
      })
    ).json;

  test('are made once by name, in each workspace its own', async () => {
    const first = (await volume('models'))['volume'] as Json;
    expect((await volume('models'))['volume']).toEqual(first);
    const theirs = await platform.gateway('POST /volumes', { name: 'models' }, { token: platform.other.token });
    expect((theirs.json['volume'] as Json)['id']).not.toBe(first['id']);
    for (const bad of ['', '../x', 'a b', '-x', 'x'.repeat(64)]) {
      expect(await volume(bad)).toMatchObject({
        ok: false,
        volume: null,
        error: expect.stringMatching(/^name must be/),
      });
    }
  });

  test('have the driver that they were made with, for ever', async () => {
    const made = async (body: Json): Promise<Json> => (await platform.gateway('POST /volumes', body)).json;
    const first = await made({ name: 'everywhere', driver: 'shared' });
    expect(first).toMatchObject({ ok: true });
    expect((await made({ name: 'everywhere' }))['volume']).toEqual(first['volume']);
    expect(await made({ name: 'everywhere', driver: 'nfs' })).toEqual({
      ok: false,
      volume: null,
      error: 'volume everywhere is there with driver shared, and a driver does not change; choose another name',
    });
    expect(await made({ name: 'other', driver: 'floppy' })).toMatchObject({
      ok: false,
      error: 'driver must be one of local, cache, shared, nfs, s3',
    });
  });

  test('are kept in the stub at normalised paths, in either spelling', async () => {
    const id = ((await volume('kept'))['volume'] as Json)['id'];
    const made = await stubWith([{ id, mount_path: './data//' }]);
    expect(made).toMatchObject({ ok: true, warnMsg: '' });
    expect((await stubWith([{ id, mountPath: 'data' }]))['stubId']).toBe(made['stubId']);
    const deployed = await platform.gateway('POST /stubs/deploy', { stubId: made['stubId'], name: 'with-volume' });
    const { json } = await platform.call(
      `GET /api/v1/deployment/${platform.own.workspaceId}/${String(deployed.json['deploymentId'])}`,
    );
    const config = JSON.parse(String((json['stub'] as Json)['config'])) as Json;
    expect(config['volumes']).toEqual([{ id, mount_path: 'data' }]);
    for (const path of ['/', '..', '/etc/x', '/mnt/code', '']) {
      expect((await stubWith([{ id, mountPath: path }]))['errMsg']).toMatch(/^volumes\[0\]\.mountPath /);
    }
    expect((await stubWith([{ id: NOBODY, mountPath: 'data' }]))['errMsg']).toMatch(/is not a volume/);
    const twice = [
      { id, mountPath: 'data' },
      { id, mountPath: './data' },
    ];
    expect((await stubWith(twice))['errMsg']).toMatch(/are the same place/);
  });
});

describe('machines', () => {
  test('are listed with their pools and workers to their owner alone, and go when nobody joined', async () => {
    const created = await platform.gateway('POST /machines', { poolName: 'gpu' });
    const id = String((created.json['machine'] as Json)['id']);
    const pools = async (token?: string): Promise<unknown[]> =>
      (
        (await platform.gateway('GET /pools', undefined, token === undefined ? {} : { token })).json['pools'] as Json[]
      ).map((pool) => pool['name']);
    expect(await pools()).toEqual(['gpu']);
    expect(await pools(platform.other.token)).toEqual([]);
    expect(await pools(platform.admin.token)).toEqual([]);
    const wrongPool = await platform.gateway(`DELETE /machines/${id}?poolName=other`);
    expect(wrongPool.json).toEqual({ ok: false, errMsg: 'machine not found' });
    expect(
      (await platform.gateway(`DELETE /machines/${id}`, undefined, { token: platform.admin.token })).json['ok'],
    ).toBe(false);
    expect((await platform.gateway(`DELETE /machines/${id}?poolName=gpu`)).json['ok']).toBe(true);
    expect((await platform.gateway('GET /machines')).json['machines']).toEqual([]);
  });

  test("of a workspace's pool come from the provider that an administrator names, within the bounds that it sets", async () => {
    const { workspaceId } = platform.own;
    const admin = { token: platform.admin.token };
    const settings = { provider: 'cloud', machineCpuCores: 4, machineMemoryMib: 8192, maxMachines: 2 };
    expect((await platform.gateway('POST /pools', { name: 'spent' })).json['ok']).toBe(true);
    const set = async (body: Json, sent = {}) => (await platform.gateway('PATCH /pools/spent', body, sent)).json;
    expect(await set({ settings: { provider: 'cloud' } })).toMatchObject({
      errMsg: expect.stringMatching(/^settings\.provider is for an administrator/) as string,
    });
    // The administrator's own pools are the shared ones.
    expect(await set({ settings }, admin)).toMatchObject({ ok: false, errMsg: 'pool not found' });
    const unknown = { ...settings, provider: 'clod' };
    expect(await set({ settings: unknown, workspaceId }, admin)).toMatchObject({
      ok: false,
      errMsg: expect.stringMatching(/^settings\.provider: there is no provider clod: .* names cloud; /) as string,
    });
    expect(await set({ settings, workspaceId }, admin)).toMatchObject({ ok: true, pool: { settings } });
    expect(await set({ settings: { hourlyCost: 0 } })).toMatchObject({
      ok: false,
      errMsg: expect.stringMatching(/^settings\.hourlyCost is for an administrator/) as string,
    });
    expect(await set({ settings: { minFreeCpuCores: 1, minMachines: 3 } })).toMatchObject({
      ok: false,
      errMsg: 'minMachines must be at most maxMachines',
    });
    expect(await set({ settings: { minFreeCpuCores: 2 } })).toMatchObject({ ok: true });
    const shown = (await platform.gateway(`GET /pools/spent?workspaceId=${workspaceId}`, undefined, admin)).json;
    expect(shown).toMatchObject({ pool: { settings: { ...settings, minFreeCpuCores: 2, minMachines: 0 } } });
    const other = { token: platform.other.token };
    expect(await set({ workspaceId, settings: { priority: 1 } }, other)).toMatchObject({
      ok: false,
      errMsg: expect.stringMatching(/^workspaceId is for an administrator/) as string,
    });
  });
});

describe('the lists of the REST API', () => {
  test('tasks come in pages, newest first, and by every filter', async () => {
    const { stubId } = await platform.deploy('listed', { stubType: 'taskqueue/deployment', env: ['LISTED=1'] });
    const ids: string[] = [];
    for (let n = 0; n < 7; n += 1) {
      ids.push(String((await platform.call('POST /taskqueue/listed', { n })).json['task_id']));
    }
    const base = `GET /api/v1/task/${platform.own.workspaceId}?stub_ids=${stubId}`;
    await waitFor(async () => ((await platform.call(base)).json['data'] as Json[]).length === 7, 'all are written');
    const seen = new Set<unknown>();
    for (let cursor = '', page = 0; page === 0 || cursor !== ''; page += 1) {
      const { json } = await platform.call(`${base}&limit=3${cursor === '' ? '' : `&cursor=${cursor}`}`);
      for (const row of json['data'] as Json[]) {
        expect(row).toMatchObject({
          status: 'PENDING',
          result: null,
          app: null,
          deployment: { name: 'listed', version: 1 },
        });
        expect(row['stats']).toMatchObject({ queue_depth: 7 });
        seen.add(row['id']);
      }
      cursor = String(json['next']);
    }
    expect(seen).toEqual(new Set(ids));
    const count = async (query: string): Promise<number> =>
      ((await platform.call(`${base}&${query}`)).json['data'] as Json[]).length;
    expect(await count('offset=5')).toBe(2);
    expect(await count(`task_ids=${ids[0]},nonsense`)).toBe(1);
    expect(await count('task_ids=nonsense')).toBe(0);
    expect(await count('status=COMPLETE')).toBe(0);
    expect(await count('created_at_start=2000-01-01T00:00:00Z&created_at_end=2001-01-01T00:00:00Z')).toBe(0);
    expect((await platform.call(`${base}&created_at_start=yesterday`)).status).toBe(400);
    const cancelled = await platform.call(
      `DELETE /api/v1/task/${platform.own.workspaceId}?task_ids=${ids[0]},${NOBODY},nonsense`,
      { ids: [ids[1]] },
    );
    expect([cancelled.status, cancelled.text]).toEqual([200, '{}']);
    await waitFor(async () => (await count('status=cancelled')) === 2, 'two are cancelled');
  });

  test('deployments by every filter', async () => {
    const { id, stubId } = await platform.deploy('filtered', {
      appName: 'filtering',
      autoscaler: { type: 'queue_depth', minContainers: 3, maxContainers: 5 },
    });
    const first = await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/${id}`);
    const count = async (query: string): Promise<number> =>
      (
        (await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}?name=filtered&${query}`)).json[
          'data'
        ] as Json[]
      ).length;
    const now = new Date(Date.now() + 1_000).toISOString();
    for (const query of [
      '',
      `search_query=${id}`,
      'search_query=filter',
      `stub_ids=${stubId},${NOBODY}`,
      `app_id=${String(first.json['app_id'])}`,
      `subdomain=${String(first.json['subdomain'])}`,
      'min_containers=3',
      `created_at_start=2020-01-01T00:00:00Z&created_at_end=${now}`,
      'version=v1&active=true&stub_type=endpoint',
      'offset=0',
    ]) {
      expect([query, await count(query)]).toEqual([query, 1]);
    }
    for (const query of [
      `search_query=${NOBODY}`,
      `stub_ids=${NOBODY}`,
      `app_id=${NOBODY}`,
      'min_containers=4',
      `created_at_start=${now}`,
      'version=2',
      'active=false',
      'offset=1',
    ]) {
      expect([query, await count(query)]).toEqual([query, 0]);
    }
    // The bounds that were set win over the stub's.
    await platform.gateway(`POST /deployments/${id}/scale`, { containers: 4 });
    expect(await count('min_containers=4')).toBe(1);
    await platform.gateway(`DELETE /deployments/${id}`);
    expect([await count(''), await count('show_deleted=true')]).toEqual([0, 1]);
  });

  test('apps and containers', async () => {
    await platform.deploy('shown', { appName: 'Shown App' });
    await platform.call('POST /endpoint/shown/warmup');
    const ws = platform.own.workspaceId;
    const apps = (await platform.call(`GET /api/v1/app/${ws}?name=shown a`.replace(' a', '%20a'))).json[
      'data'
    ] as Json[];
    expect(apps).toMatchObject([{ name: 'Shown App', deleted_at: null }]);
    const containers = JSON.parse(
      (await platform.call(`GET /api/v1/container/${ws}?app_id=${String(apps[0]?.['id'])}`)).text,
    ) as Json[];
    expect(containers).toMatchObject([
      { status: 'PENDING', cpu: 100, memory: 64, started_at: 0, gpu: '', gpu_count: 0 },
    ]);
    const paged = await platform.call(`GET /api/v1/app/${ws}?limit=1`);
    expect(paged.json['data']).toHaveLength(1);
    expect(paged.json['next']).not.toBe('');
  });

  test('apps with what was made last in them', async () => {
    const said = { stubType: 'taskqueue/deployment', appName: 'Latest App' };
    const ws = platform.own.workspaceId;
    const latest = async (): Promise<Json> => {
      const { json } = await platform.call(`GET /api/v1/app/${ws}/latest?name=latest%20app`);
      expect(json['data']).toHaveLength(1);
      return (json['data'] as Json[])[0] ?? {};
    };
    const stubId = await platform.stub({ ...said, env: ['V=0'] });
    expect(await latest()).toMatchObject({
      deployment: null,
      stub: { id: stubId },
      invoke_url: expect.stringContaining(stubId),
      pool_name: '',
      running_containers: 0,
      is_service: false,
      serving: null,
    });
    await platform.deploy('latest-one', { ...said, env: ['V=1'] });
    const second = await platform.deploy('latest-two', { ...said, env: ['V=2'], pool: { name: 'gpu' } });
    const app = await latest();
    expect(app).toMatchObject({
      stub: null,
      deployment: { id: second.id, stub_type: said.stubType },
      pool_name: 'gpu',
    });
    const one = await platform.call(`GET /api/v1/app/${ws}/${String(app['id'])}`);
    expect(one.json).toEqual(app);
    expect((await platform.call(`GET /api/v1/app/${ws}/nothing`)).status).toBe(404);
    await platform.gateway(`DELETE /deployments/${second.id}`);
    expect((await latest())['deployment']).toMatchObject({ name: 'latest-one' });
    const other = await platform.call(`GET /api/v1/app/${platform.other.workspaceId}/${String(app['id'])}`, undefined, {
      token: platform.other.token,
    });
    expect(other.status).toBe(404);
  });

  test('log lines between two times', async () => {
    const logs = `GET /api/v1/logs/${platform.own.workspaceId}`;
    const between = '?start_time=2030-01-01T00:00:00Z&end_time=2030-01-01T00:00:01.5Z';
    expect((await platform.call(`${logs}${between}`)).json['logs']).toEqual([]);
    for (const bad of ['?start_time=noon', '?start_time=2030-01-02T00:00:00Z&end_time=2030-01-01T00:00:00Z']) {
      expect((await platform.call(`${logs}${bad}`)).json['code']).toBe('invalid_query');
    }
  });
});

describe('what runners that are not ours report', () => {
  test('a task has one start, by its holder; a result is read; the end is final', async () => {
    await platform.deploy('foreign-runner', { stubType: 'taskqueue/deployment' });
    const taskId = String((await platform.call('POST /taskqueue/foreign-runner', {})).json['task_id']);
    const start = async (containerId: string): Promise<unknown> =>
      (await platform.gateway('POST /tasks/start', { taskId, containerId })).json['ok'];
    const end = async (said: Json): Promise<unknown> =>
      (await platform.gateway('POST /tasks/end', { taskId, taskStatus: 'COMPLETE', taskDuration: 1, ...said })).json[
        'ok'
      ];
    expect([await start('c1'), await start('c1'), await start('c2')]).toEqual([true, true, false]);
    expect(await end({ containerId: 'c2' })).toBe(false);
    expect(await end({ containerId: 'c1', taskStatus: 'SOMEHOW' })).toBe(false);
    const result = Buffer.from('{"answer":42}').toString('base64');
    expect(await end({ containerId: 'c1', result })).toBe(true);
    const { json } = await platform.call(`GET /api/v1/task/${platform.own.workspaceId}/${taskId}`);
    expect(json).toMatchObject({ status: 'COMPLETE', container_id: 'c1', result: { answer: 42 } });
    expect([await end({ containerId: 'c1', taskStatus: 'ERROR' }), await start('c1')]).toEqual([true, false]);
  });
});
