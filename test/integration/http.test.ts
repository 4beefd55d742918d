// The HTTP surfaces on real stores: two schedulers on one Postgres and one Redis, called over sockets.
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig } from '#shared/config.ts';
import { StartupError } from '#shared/errors.ts';
import { SchedulerSettings } from '../../scheduler/config.ts';
import { openInstallation } from '../../scheduler/workspaces/identity/installation.ts';
import { createTokens } from '../../scheduler/workspaces/identity/tokens.ts';
import { createWorkspace } from '../../scheduler/workspaces/identity/workspaces.ts';
import { startScheduler } from '../../scheduler/main.ts';
import type { Scheduler } from '../../scheduler/main.ts';
import { openSealer } from '../../scheduler/workspaces/secrets/seal.ts';
import { openDb } from '../../scheduler/stores/store/db.ts';
import { aPostgres, aRedis, tempDirectory } from '../helpers/services.ts';
import { waitFor } from '../helpers/programs.ts';

const log = pino({ level: 'silent' });
type Json = Record<string, unknown>;

const cleanup: (() => unknown)[] = [];
let first: Scheduler;
let second: Scheduler;
let settingsOf: (name: string) => SchedulerSettings;
/** Credentials of the administrator, of a workspace, and of another workspace. */
let admin = { workspaceId: '', token: '' };
const own = { workspaceId: '', token: '', restricted: '', oneUse: '' };
const other = { workspaceId: '', token: '' };

beforeAll(async () => {
  const directory = tempDirectory('http');
  const postgres = await aPostgres();
  const redis = await aRedis();
  cleanup.push(
    () => directory.remove(),
    () => postgres.stop(),
    () => redis.stop(),
  );
  settingsOf = (name) =>
    loadConfig(
      SchedulerSettings,
      {
        LONGSHORE_DATA_DIR: join(directory.path, name),
        LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
        LONGSHORE_DRAIN_SECONDS: '10',
        LONGSHORE_RATE_LIMITS: 'off',
        LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
        DATABASE_URL: postgres.url,
        REDIS_URL: redis.url,
        ...(name === 'first' ? {} : { LONGSHORE_SECRET_KEY_FILE: join(directory.path, 'first', 'secret.key') }),
      },
      { known: [] },
    );
  first = await startScheduler(settingsOf('first'), log);
  cleanup.push(() => first.stop());
  second = await startScheduler(settingsOf('second'), log);
  cleanup.push(() => second.stop());
});
afterAll(async () => {
  for (const step of cleanup.toReversed()) await step();
});

/** Asks for the fields beyond the interface document, as our own clients do. */
const WITH_FIELDS = { headers: { 'x-longshore-fields': '1' } };
interface Sent {
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly at?: Scheduler;
}
async function call(line: string, body?: unknown, { token = own.token, headers = {}, at = first }: Sent = {}) {
  const [method = 'GET', path = '/'] = line.split(' ');
  const answer = await fetch(path.startsWith('http') ? path : `http://${at.httpAddress}${path}`, {
    method,
    headers: { ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...headers },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, text, json: parsed(text) };
}
function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return {};
  }
}
const gateway = (method: string, path: string, body?: unknown, sent?: Sent) =>
  call(`${method} /api/v1/gateway${path}`, body, sent);

async function upload(hash: string, content: string, token = own.token): Promise<string> {
  const made = await gateway('POST', '/objects', { hash, size: content.length, overwrite: true }, { token });
  const put = await call(`PUT ${String(made.json['presignedUrl'])}`, content, {
    token: '',
    headers: { 'content-type': 'application/zip' },
  });
  expect(put.status).toBe(200);
  return String(made.json['objectId']);
}
const aStub = (said: Json = {}): Json => ({
  stub_type: 'endpoint/deployment',
  name: 'endpoint/app:handler',
  handler: 'app:handler',
  cpu: 1000,
  memory: '128',
  ...said,
});
async function deploy(name: string, stub: Json = {}): Promise<{ stubId: string; deploymentId: string; json: Json }> {
  const made = await gateway('POST', '/stubs', aStub(stub));
  const deployed = await gateway('POST', '/stubs/deploy', { stub_id: made.json['stubId'], name }, WITH_FIELDS);
  expect(deployed.json['ok']).toBe(true);
  return {
    stubId: String(made.json['stubId']),
    deploymentId: String(deployed.json['deploymentId']),
    json: deployed.json,
  };
}

describe('a fresh installation', () => {
  test('gives nothing to a caller behind a proxy, and the first token to one on this host, once', async () => {
    const proxied = await gateway('POST', '/auth/authorize', undefined, {
      token: '',
      headers: { 'x-forwarded-for': '10.0.0.1' },
    });
    expect(proxied.json).toEqual({ ok: false, workspaceId: '', newToken: '', errorMsg: 'Invalid token' });
    const answers = await Promise.all(
      [first, second, first, second].map((at) => gateway('POST', '/auth/authorize', '', { token: '', at })),
    );
    const made = answers.filter((answer) => answer.json['ok'] === true);
    expect(made).toHaveLength(1);
    admin = { workspaceId: String(made[0]?.json['workspaceId']), token: String(made[0]?.json['newToken']) };
    const again = await gateway('POST', '/auth/authorize', undefined, { token: admin.token });
    expect(again.json).toEqual({ ok: true, workspaceId: admin.workspaceId, newToken: '', errorMsg: '' });
  });

  test('more workspaces for what follows', async () => {
    const settings = settingsOf('second');
    const db = await openDb({ databaseUrl: settings.DATABASE_URL, dataDir: settings.LONGSHORE_DATA_DIR, log });
    cleanup.push(() => db.close());
    const sealer = await openSealer({
      keyFile: settings.LONGSHORE_SECRET_KEY_FILE,
      dataDir: settings.LONGSHORE_DATA_DIR,
    });
    const tokens = createTokens({ db, installation: await openInstallation(db, sealer) });
    for (const one of [own, other]) {
      one.workspaceId = (await createWorkspace(db, sealer)).id;
      one.token = (await tokens.issue({ workspaceId: one.workspaceId as never }, 'workspace')).token;
    }
    const owner = { workspaceId: own.workspaceId as never };
    own.restricted = (await tokens.issue(owner, 'workspace_restricted')).token;
    own.oneUse = (await tokens.issue(owner, 'workspace', { reusable: false })).token;
    expect((await gateway('POST', '/auth/authorize')).json).toMatchObject({ ok: true, workspaceId: own.workspaceId });
  });
});

describe('objects', () => {
  test('are unknown, announced, uploaded, known; the size may be a number or text', async () => {
    const head = () => gateway('GET', '/objects/hash-1');
    const absent = {
      ok: true,
      exists: false,
      objectId: '',
      objectMetadata: null,
      errorMsg: '',
      useWorkspaceStorage: true,
    };
    expect((await head()).json).toEqual(absent);
    const made = await gateway('POST', '/objects', {
      objectMetadata: { name: 'hash-1', size: 5 },
      hash: 'hash-1',
      size: '5',
      overwrite: true,
    });
    expect((await head()).json).toEqual(absent);
    expect(String(made.json['presignedUrl'])).toMatch(/^http:\/\/127\.0\.0\.1:\d+\//);
    const put = await call(`PUT ${String(made.json['presignedUrl'])}`, 'hello', { token: '' });
    expect([put.status, put.json['size']]).toEqual([200, 5]);
    expect((await head()).json).toEqual({
      ...absent,
      exists: true,
      objectId: made.json['objectId'],
      objectMetadata: { name: 'hash-1', size: '5' },
    });
    const again = await gateway('POST', '/objects', { hash: 'hash-1', size: 5, overwrite: false });
    expect(again.json).toMatchObject({ ok: true, objectId: made.json['objectId'], presignedUrl: '' });
  });

  test('an address that was changed uploads nothing', async () => {
    const made = await gateway('POST', '/objects', { hash: 'hash-2', size: 5, overwrite: true });
    const put = await call(`PUT ${String(made.json['presignedUrl'])}0`, 'hello', { token: '' });
    expect([put.status, put.json['code']]).toEqual([403, 'upload_refused']);
    expect((await gateway('GET', '/objects/hash-2')).json['exists']).toBe(false);
  });

  test('that are uploaded again keep their id and have the new bytes', async () => {
    const before = await upload('replaced', 'one');
    const after = await upload('replaced', 'other');
    expect(after).toBe(before);
    expect((await gateway('GET', '/objects/replaced')).json['objectMetadata']).toEqual({ name: 'replaced', size: '5' });
  });

  test('belong to one workspace', async () => {
    expect((await gateway('GET', '/objects/hash-1', undefined, { token: other.token })).json['exists']).toBe(false);
  });
});

describe('stubs', () => {
  test('the same request gives the same stub, in either spelling; a forced or different one another', async () => {
    const objectId = await upload('code-1', 'zip');
    const stubOf = async (said: Json) => (await gateway('POST', '/stubs', said)).json['stubId'];
    const one = await stubOf(aStub({ object_id: objectId }));
    expect(one).toMatch(/^[0-9a-f-]{36}$/);
    const camel = {
      stubType: 'endpoint/deployment',
      name: 'endpoint/app:handler',
      handler: 'app:handler',
      cpu: '1000',
      memory: 128,
      objectId,
    };
    expect(await stubOf(camel)).toBe(one);
    expect(await stubOf(aStub({ object_id: objectId, cpu: 500 }))).not.toBe(one);
    expect(await stubOf(aStub({ object_id: objectId, force_create: true }))).not.toBe(one);
    expect(await stubOf(aStub({ object_id: objectId, app_name: 'other' }))).not.toBe(one);
    expect(await stubOf(aStub({ object_id: objectId, authorized: false }))).not.toBe(one);
  });

  test('code that is unknown, somebody else’s or not uploaded is refused by name', async () => {
    const mine = await upload('code-2', 'zip');
    const announced = await gateway('POST', '/objects', { hash: 'code-3', size: 3, overwrite: true });
    const errMsg = async (objectId: unknown, token = own.token) => {
      const answer = await gateway('POST', '/stubs', aStub({ object_id: objectId }), { token });
      expect(answer.json['ok']).toBe(false);
      return answer.json['errMsg'];
    };
    expect(await errMsg(mine, other.token)).toMatch(/objectId .* is not an object of this workspace/);
    expect(await errMsg('nothing')).toMatch(/objectId "nothing"/);
    expect(await errMsg(announced.json['objectId'])).toMatch(/has no content yet: upload it first/);
    expect((await gateway('POST', '/stubs', aStub({ secrets: [{ name: 'KEY' }] }))).json['errMsg']).toBe(
      'Secret "KEY" does not exist in this workspace.',
    );
  });
});

describe('deployments', () => {
  test('get a version, a URL in both forms, and a place in the lists', async () => {
    const { stubId, deploymentId, json } = await deploy('hello');
    expect(json).toEqual({
      ok: true,
      errMsg: '',
      warnMsg: expect.any(String) as string,
      deploymentId,
      version: 1,
      invokeUrl: `http://${first.httpAddress}/endpoint/hello/v1`,
      rollout: { state: 'done', why: '', since: null, until: null },
    });
    const url = async (query: string, token = own.token) =>
      (await gateway('GET', `/stubs/${stubId}/url${query}`, undefined, { token })).json;
    expect(await url(`?deploymentId=${deploymentId}`)).toMatchObject({ ok: true, url: json['invokeUrl'] });
    expect(String((await url(`?deployment_id=${deploymentId}&urlType=host`))['url'])).toMatch(
      /^http:\/\/hello-[0-9a-f]{16}-v1\.localhost:/,
    );
    const restUrl = async (query: string): Promise<string> => {
      const answer = await fetch(`http://${first.httpAddress}/api/v1/deployment/${deploymentId}/url${query}`, {
        headers: { authorization: `Bearer ${own.token}` },
      });
      return ((await answer.json()) as { readonly url: string }).url;
    };
    expect(await restUrl('')).toBe(json['invokeUrl']);
    expect(await restUrl('?url_type=path')).toBe(json['invokeUrl']);
    expect(await restUrl('?url_type=host')).toMatch(/^http:\/\/hello-[0-9a-f]{16}-v1\.localhost:/);
    const stubUrl = async (query: string, token = own.token): Promise<Json> => {
      const answer = await fetch(`http://${first.httpAddress}/api/v1/stub/${stubId}/url${query}`, {
        headers: { authorization: `Bearer ${token}` },
      });
      return { status: answer.status, ...((await answer.json()) as Json) };
    };
    const byStub = `http://${first.httpAddress}/endpoint/id/${stubId}`;
    expect(await stubUrl('')).toEqual({ status: 200, url: byStub });
    expect(await stubUrl('?url_type=path')).toEqual({ status: 200, url: byStub });
    expect((await stubUrl('?url_type=host'))['url']).toBe(`http://${stubId}.localhost:${new URL(byStub).port}`);
    expect(await stubUrl('', other.token)).toMatchObject({ status: 404, code: 'stub_not_found' });
    expect((await url(''))['url']).toBe(`http://${first.httpAddress}/endpoint/id/${stubId}`);
    expect((await url('?isShell=true'))['url']).toBe(`http://${first.httpAddress}/shell/id/${stubId}`);
    expect(await url('?isShell=true', own.restricted)).toMatchObject({ ok: false, errMsg: 'Unauthorized access' });
    expect(await url('', other.token)).toEqual({ ok: false, errMsg: 'Invalid stub ID', url: '' });
    expect(await url('?deploymentId=nope')).toMatchObject({ errMsg: 'Unable to get deployment' });
    expect((await deploy('hello')).json['version']).toBe(2);
    const list = await gateway('GET', '/deployments?filters=name=ell;version=1&limit=5');
    expect(list.json['deployments']).toMatchObject([
      { id: deploymentId, name: 'hello', active: true, stubId, version: 1 },
    ]);
    expect((await gateway('GET', '/deployments', undefined, { token: other.token })).json['deployments']).toEqual([]);
  });

  test('addresses of volume files answer published clients below the root, as a string', async () => {
    const ask = async (path: string, token = own.token) => {
      const answer = await fetch(`http://${first.httpAddress}${path}`, {
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      });
      return { status: answer.status, body: await answer.json() };
    };
    const volumes = async () => {
      const { body } = await ask(`/api/v1/volume/${own.workspaceId}`);
      return (body as { readonly data: readonly Json[] }).data.map((volume) => volume['name']);
    };
    const upload = `/volume/${own.workspaceId}/generate-upload-url`;
    // No machine is there to be the home of a local volume.
    const homeless = { status: 409, body: { code: 'volume_without_home' } };
    expect(await ask(`${upload}/uploads/../a.bin`)).toMatchObject({ status: 404 });
    expect(await ask(`${upload}/uploads/a%2F..%2Fb`)).toMatchObject({ status: 400, body: { code: 'invalid_query' } });
    expect(await ask(`${upload}/uploads/`)).toMatchObject({ status: 404 });
    expect(await ask(`${upload}/uploads/a.bin`, other.token)).toMatchObject({ status: 401 });
    expect(await volumes()).not.toContain('uploads');
    expect(await ask(`${upload}/uploads/a.bin`)).toMatchObject(homeless);
    expect(await volumes()).toContain('uploads');
    expect(await ask(`${upload}/elsewhere/a.bin`)).toMatchObject({ status: 404, body: { code: 'volume_not_found' } });
    expect((await gateway('POST', '/volumes', { name: 'files', driver: 'shared' })).json).toMatchObject({ ok: true });
    const both = `${upload}/files//data/a b.bin`;
    for (const path of [both, both.replace('upload', 'download'), `/api/v1${both}`]) {
      const { status, body } = await ask(path);
      expect(status).toBe(200);
      const url = new URL(String(body));
      expect(url.origin).toBe(`http://${first.httpAddress}`);
      expect(url.searchParams.get('path')).toBe('data/a b.bin');
    }
  });

  test('versions made at once by two replicas are all different', async () => {
    const { json } = await gateway('POST', '/stubs', aStub());
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        gateway(
          'POST',
          '/stubs/deploy',
          { stubId: json['stubId'], name: 'raced' },
          { at: index % 2 === 0 ? first : second },
        ),
      ),
    );
    expect(answers.map((answer) => Number(answer.json['version'])).toSorted((a, b) => a - b)).toEqual([
      1, 2, 3, 4, 5, 6, 7, 8,
    ]);
  });

  test('of another workspace’s stub, or with a name without letters, are refused', async () => {
    const { json } = await gateway('POST', '/stubs', aStub());
    const documented = { ok: false, deploymentId: '', version: 0, invokeUrl: '' };
    for (const [body, sent, why] of [
      [{ stubId: json['stubId'], name: 'x' }, { token: other.token }, 'stub not found'],
      [{ stubId: json['stubId'], name: ' - ' }, {}, expect.stringContaining('name')],
      [{}, {}, 'stub not found'],
    ] as const) {
      // A client that knows the interface document alone sees its four fields; a person finds the text in a header.
      const plain = await gateway('POST', '/stubs/deploy', body, sent);
      expect(plain.json).toEqual(documented);
      expect(plain.headers.get('x-longshore-error')).toEqual(why);
      const whole = await gateway('POST', '/stubs/deploy', body, { ...sent, ...WITH_FIELDS });
      expect(whole.json).toEqual({ ...documented, errMsg: why, warnMsg: '', rollout: null });
      expect(whole.headers.get('x-longshore-error')).toBeNull();
    }
  });

  test.each(['bot/deployment', 'sandbox', 'container'])('of type %s are refused with the reason', async (stubType) => {
    const { json } = await gateway('POST', '/stubs', aStub({ stub_type: stubType }));
    const body = { stubId: json['stubId'], name: 'x' };
    const why = `deployments of ${stubType.split('/')[0]} are not available`;
    expect((await gateway('POST', '/stubs/deploy', body, WITH_FIELDS)).json['errMsg']).toContain(why);
    expect((await gateway('POST', '/stubs/deploy', body)).headers.get('x-longshore-error')).toContain(why);
  });

  test('by a restricted token are refused in the same words as ever', async () => {
    const refused = await gateway('POST', '/stubs/deploy', { name: 'x' }, { token: own.restricted, ...WITH_FIELDS });
    expect(refused.json).toMatchObject({ ok: false, errMsg: 'Unauthorized Access' });
  });

  test('the text of a refusal fits a header, whatever name it quotes', async () => {
    const { json } = await gateway('POST', '/stubs', aStub({ secrets: [{ name: 'é\n%' }] }));
    expect(json['ok']).toBe(false);
    const stubId = (await gateway('POST', '/stubs', aStub())).json['stubId'];
    const { headers } = await gateway('POST', '/stubs/deploy', { stubId, name: '§%\r\n§' });
    expect(headers.get('x-longshore-error')).toMatch(/^[ -~]+$/);
  });

  test('are listed by id, whatever else has the same name; a text that is no id selects none', async () => {
    const { json } = await gateway('POST', '/stubs', aStub());
    const made: string[] = [];
    for (const name of ['by-id', 'by-id', 'by-id-2'])
      made.push(
        String((await gateway('POST', '/stubs/deploy', { stubId: json['stubId'], name })).json['deploymentId']),
      );
    const idsOf = async (filter: string): Promise<readonly unknown[]> => {
      const listed = await gateway('GET', `/deployments?filters=${encodeURIComponent(filter)}`);
      return (listed.json['deployments'] as readonly Json[]).map(({ id }) => id);
    };
    expect(await idsOf(`id=${made[0]}`)).toEqual([made[0]]);
    expect(await idsOf(JSON.stringify({ ids: [made[2]?.toUpperCase(), 'nobody'] }))).toEqual([made[2]]);
    expect(await idsOf(`id=${made[0]};name=by-id-2`)).toEqual([]);
    expect(await idsOf('id=nobody')).toEqual([]);
    const theirs = await gateway('GET', `/deployments?filters=id=${made[0]}`, undefined, { token: other.token });
    expect(theirs.json['deployments']).toEqual([]);
    const [record = {}] = (await gateway('GET', `/deployments?filters=id=${made[1]}`)).json['deployments'] as Json[];
    expect(Object.keys(record)).toHaveLength(12);
    const whole = await gateway('GET', `/deployments?filters=id=${made[1]}`, undefined, WITH_FIELDS);
    expect(whole.json['deployments']).toEqual([
      { ...record, serving: true, rollout: expect.any(String) as string, url: expect.any(String) as string },
    ]);
  });

  test('a bound of int64 is said exactly', async () => {
    const { status, json } = await gateway('GET', '/deployments?limit=-1');
    expect([status, json['message']]).toEqual([
      400,
      'parsing field "limit": must be a 64-bit integer from 0 to 9223372036854775807',
    ]);
  });

  test('an image that asks for nothing has an id, by which a stub gets the base image of its Python version', async () => {
    const idOf = async (body: Json) => (await gateway('POST', '/images/verify-build', body)).json['imageId'];
    expect(await idOf({})).toBe('longshore.internal/base:python3');
    expect(await idOf({ existingImageUri: 'debian:12' })).toBe('debian:12');
    const imageId = await idOf({ pythonVersion: 'python3.11' });
    expect(imageId).toBe('longshore.internal/base:python3.11');
    const known = await gateway('POST', '/images/verify-build', { imageId });
    expect(known.json).toMatchObject({ ok: true, exists: true, valid: true, imageId });
    const built = await gateway('POST', '/images/build', { pythonVersion: 'python3.11' });
    expect(built.json['result']).toMatchObject({ done: true, success: true, imageId });
    const byId = await gateway('POST', '/stubs', aStub({ imageId, pythonVersion: 'python3.9' }));
    const byVersion = await gateway('POST', '/stubs', aStub({ pythonVersion: 'python3.11' }));
    expect(byId.json).toMatchObject({ ok: true, stubId: byVersion.json['stubId'] });
  });

  test('REST shows them in both spellings, in pages', async () => {
    const list = await call(
      `GET /api/v1/deployment/${own.workspaceId}?stub_type=endpoint&name=raced&limit=3&version=undefined`,
    );
    const page = list.json['data'] as Json[];
    expect(page).toHaveLength(3);
    expect(page[0]).toMatchObject({
      stub_type: 'endpoint/deployment',
      stubType: 'endpoint/deployment',
      workspaceId: own.workspaceId,
    });
    const seen = new Set(page.map((row) => row['id']));
    let next = String(list.json['next']);
    while (next !== '') {
      const more = await call(
        `GET /api/v1/deployment/${own.workspaceId}?stub_type=endpoint&name=raced&limit=3&cursor=${next}`,
      );
      for (const row of more.json['data'] as Json[]) seen.add(row['id']);
      next = String(more.json['next']);
    }
    expect(seen.size).toBe(8);
    const one = await call(`GET /api/v1/deployment/${own.workspaceId}/${String(page[0]?.['id'])}`);
    expect(one.json).toMatchObject({
      id: page[0]?.['id'],
      stub: { type: 'endpoint/deployment' },
      invoke_url: expect.stringContaining('/endpoint/raced/v'),
    });
    expect((await call(`GET /api/v1/deployment/${own.workspaceId}?cursor=x`)).status).toBe(400);
    const bare = await call(`GET /api/v1/deployment/${own.workspaceId}?pagination=false`);
    expect(Array.isArray(bare.json)).toBe(true);
  });
});

describe('invoking', () => {
  /** Makes a call that is never served, because there is no machine. */
  async function waitingCall(name: string, at = first) {
    const abort = new AbortController();
    const ended = fetch(`http://${at.httpAddress}/endpoint/${name}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${own.token}` },
      body: '{}',
      signal: abort.signal,
    }).catch(() => undefined);
    return { leave: () => (abort.abort(), ended) };
  }
  const tasksOf = async (stubId: string) =>
    (await gateway('GET', `/tasks?filters=stub-id=${stubId}`)).json['tasks'] as { id: string; status: string }[];

  test('a waiting call is a PENDING task, the bound is 429, a caller that leaves cancels it', async () => {
    const { stubId } = await deploy('bounded', { max_pending_tasks: 1 });
    const waiting = await waitingCall('bounded');
    const [task] = await waitFor(async () => {
      const tasks = await tasksOf(stubId);
      return tasks.length === 1 ? tasks : undefined;
    }, 'the call is listed');
    expect(task?.status).toBe('PENDING');
    const refused = await call('POST /endpoint/bounded/v1', '{}');
    expect([refused.status, refused.text]).toEqual([429, '{"error":"exceeded max pending tasks: 1"}']);
    const read = (token?: string) =>
      call(`GET /api/v1/task/${own.workspaceId}/${task?.id}`, undefined, token === undefined ? {} : { token });
    expect((await read()).json).toMatchObject({
      id: task?.id,
      external_id: task?.id,
      status: 'PENDING',
      container_id: '',
      result: null,
      outputs: [],
      stats: { queue_depth: 1 },
      stubId,
      stub: { id: stubId },
    });
    expect((await read(other.token)).status).toBe(401);
    expect(
      (await call(`GET /api/v1/task/${other.workspaceId}/${task?.id}`, undefined, { token: other.token })).status,
    ).toBe(404);
    await waiting.leave();
    await waitFor(async () => (await read()).json['status'] === 'CANCELLED', 'the task is cancelled');
  });

  test('a new version is what the name means at once, on every replica', async () => {
    const one = await deploy('moving', { env: ['N=1'], max_pending_tasks: 1 });
    const calls = [await waitingCall('moving', first), await waitingCall('moving/v1', second)];
    await waitFor(async () => (await tasksOf(one.stubId)).length > 0, 'the first version is called');
    const two = await deploy('moving', { env: ['N=2'] });
    calls.push(await waitingCall('moving', first));
    await waitFor(async () => (await tasksOf(two.stubId)).length === 1, 'this replica calls the second version');
    await waitFor(async () => {
      const waiting = await waitingCall('moving', second);
      calls.push(waiting);
      return (await tasksOf(two.stubId)).length >= 2;
    }, 'the other replica calls it too');
    await Promise.all(calls.map((waiting) => waiting.leave()));
  });

  test('a stop at one replica answers the callers who wait at another, and is seen there', async () => {
    const { deploymentId, stubId } = await deploy('stopped-elsewhere', { env: ['STOPPED=1'] });
    const waiting = call('POST /endpoint/stopped-elsewhere', {}, { at: second });
    await waitFor(async () => (await tasksOf(stubId)).length === 1, 'the call waits');
    expect((await gateway('POST', `/deployments/${deploymentId}/stop`, undefined, { at: first })).json['ok']).toBe(
      true,
    );
    const here = await call('POST /endpoint/stopped-elsewhere', {});
    expect([here.status, here.text]).toEqual([400, '{"message":"Deployment is not active"}']);
    const answer = await waiting;
    expect([answer.status, answer.text]).toEqual([503, '{"error":"deployment stopped"}']);
    await waitFor(async () => {
      const there = await call('POST /endpoint/stopped-elsewhere', {}, { at: second });
      return there.text === '{"message":"Deployment is not active"}';
    }, 'the other replica knows');
  });

  test('names are those of the caller’s workspace', async () => {
    await deploy('mine');
    const theirs = await call('POST /endpoint/mine', '{}', { token: other.token });
    expect([theirs.status, theirs.text]).toEqual([400, '{"message":"Invalid deployment"}']);
  });
});

describe('what a surface cannot serve', () => {
  /** Bodies that the interface document gives for calls of deployments; every other refusal has the field `error`. */
  const DOCUMENTED = new Set([
    'Unauthorized',
    'Invalid token',
    'Invalid deployment',
    'Invalid deployment version',
    'Deployment is not active',
    'Invalid stub',
  ]);
  const NOWHERE = '00000000-0000-4000-8000-000000000000';

  test('is told in one shape by every address of a deployment', async () => {
    await deploy('shaped');
    // An application, which no address of endpoints has.
    const { stubId } = await deploy('shaped-page', { stub_type: 'asgi/deployment', name: 'asgi/app:page' });
    const rows: (readonly [line: string, status: number, error: string, body?: string])[] = [];
    for (const kind of ['endpoint', 'function', 'taskqueue', 'schedule', 'asgi', 'pod', 'sandbox']) {
      rows.push([`GET /${kind}`, 404, 'Not Found'], [`POST /${kind}/`, 404, 'Not Found']);
      const isStreamed = kind === 'asgi' || kind === 'pod';
      rows.push([`POST /${kind}/%zz`, 400, isStreamed ? 'Invalid deployment' : '.*%zz.*']);
    }
    rows.push(
      ['POST /endpoint/shaped/v1/more', 404, 'Not Found', '{}'],
      ['PUT /endpoint/shaped', 405, 'Method Not Allowed'],
      ['PROPFIND /endpoint/shaped', 404, 'Not Found'],
      ['GET /taskqueue/shaped', 405, 'Method Not Allowed'],
      ['POST /endpoint/nothing', 400, 'Invalid deployment', '{}'],
      ['POST /endpoint/shaped/vx', 400, 'Invalid deployment version', '{}'],
      ['POST /function/shaped', 400, 'Invalid deployment', '{}'],
      [`POST /endpoint/id/${NOWHERE}`, 400, 'Invalid stub', '{}'],
      [`POST /endpoint/public/${stubId}`, 400, 'Invalid stub', '{}'],
      [`GET /asgi/public/${stubId}/x`, 400, 'invalid stub id'],
      [`GET /sandbox/container/${stubId}/c/80`, 400, 'Invalid stub'],
      ['POST /endpoint/shaped', 400, 'invalid request payload', '[1]'],
      ['POST /endpoint/shaped?callback_url=ftp://x', 400, 'callback_url .*', '{}'],
      [`POST /endpoint/shaped`, 413, 'request body is larger than .*', `{"a":"${'x'.repeat(17 * 1024 * 1024)}"}`],
    );
    for (const [line, status, error, body] of rows) {
      const answer = await call(line, body, { headers: { connection: 'close' } });
      const told = [line, answer.status, answer.headers.get('content-type'), Object.keys(answer.json)[0]];
      const field = DOCUMENTED.has(error) ? 'message' : 'error';
      expect(told).toEqual([line, status, 'application/json; charset=utf-8', field]);
      expect(answer.json[field]).toMatch(new RegExp(`^${error}$`));
      const more = Object.keys(answer.json).slice(1);
      expect(more.filter((name) => field === 'message' || !['code', 'detail'].includes(name))).toEqual([]);
    }
  });

  test('is told in the shape of that surface, also where no route has the address', async () => {
    for (const line of ['GET /v1/%zz', 'PROPFIND /v1/models', 'POST /v1/nothing', 'PUT /v1/models']) {
      const { status, json } = await call(line);
      expect([line, json['error']]).toEqual([line, expect.objectContaining({ message: expect.any(String) })]);
      expect([line, status]).toEqual([line, line.includes('%zz') ? 400 : line.startsWith('PUT') ? 405 : 404]);
    }
    for (const line of ['GET /api/v1/gateway/%zz', 'GET /api/v1/gateway/nothing', 'PROPFIND /api/v1/gateway/stubs']) {
      const { status, json } = await call(line);
      expect([line, status, Object.keys(json)]).toEqual([
        line,
        line.includes('%zz') ? 400 : 404,
        ['code', 'message', 'details'],
      ]);
    }
    for (const line of ['GET /api/v1/%zz', 'GET /api/v1/nothing', 'GET /nothing/%zz', 'PROPFIND /api/v1/task']) {
      const { status, json } = await call(line);
      expect([line, status, Object.keys(json)]).toEqual([
        line,
        line.includes('%zz') ? 400 : 404,
        ['message', 'code', 'request_id'],
      ]);
    }
  });
});

describe('tokens', () => {
  test('a restricted one runs and inspects only', async () => {
    const sent = { token: own.restricted };
    expect((await gateway('GET', '/deployments', undefined, sent)).json['ok']).toBe(true);
    expect((await gateway('GET', '/machines', undefined, sent)).json).toMatchObject({
      ok: false,
      errMsg: 'Unauthorized Access',
      machines: [],
    });
    expect((await gateway('POST', '/machines', {}, sent)).json).toMatchObject({
      ok: false,
      errMsg: 'Unauthorized Access',
    });
  });

  test('a one-use one counts once', async () => {
    const sent = { token: own.oneUse };
    expect((await gateway('GET', '/deployments', undefined, sent)).status).toBe(200);
    expect((await gateway('GET', '/deployments', undefined, sent)).status).toBe(401);
  });

  test('the workspace shows its signing key to its primary tokens alone', async () => {
    expect((await call('GET /api/v1/workspace/current')).json).toMatchObject({
      id: own.workspaceId,
      signing_key: null,
    });
    const current = await call('GET /api/v1/workspace/current', undefined, { token: admin.token });
    expect(String(current.json['signing_key'])).toMatch(/^sk_/);
    expect((await call(`GET /api/v1/workspace/current?auth_token=${own.token}`, undefined, { token: '' })).status).toBe(
      200,
    );
  });

  test('REST answers 401 without one, in its own shape', async () => {
    const answer = await call('GET /api/v1/workspace/current', undefined, { token: '' });
    expect(answer.status).toBe(401);
    expect(answer.json).toEqual({
      message: 'Unauthorized',
      code: 'unauthorized',
      request_id: answer.headers.get('x-request-id'),
    });
  });

  test('the administrator reads another workspace, and 400 for one that is none', async () => {
    const sent = { token: admin.token };
    expect((await call(`GET /api/v1/logs/${own.workspaceId}`, undefined, sent)).json).toMatchObject({
      logs: [],
      object_type: 'workspace',
    });
    expect((await call('GET /api/v1/logs/00000000-0000-4000-8000-000000000000', undefined, sent)).status).toBe(400);
    expect((await call(`GET /api/v1/logs/${own.workspaceId}?object_type=PLANET`)).json).toMatchObject({
      code: 'invalid_query',
    });
  });
});

describe('what operators read', () => {
  test('health, liveness and the API description are open', async () => {
    for (const path of ['/api/v1/health', '/api/v1/health/live', '/openapi.json', '/docs']) {
      expect((await call(`GET ${path}`, undefined, { token: '' })).status).toBe(200);
    }
  });

  test('a browser that opens the bare address is led to the page, and programs are told of it', async () => {
    const browser = { token: '', headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' } };
    const led = await call('GET /', undefined, browser);
    // A checkout in which the console is not built leads to the description of the API.
    const console = await call('GET /console/', undefined, browser);
    const title = console.status === 200 ? '<title>Longshore</title>' : '<title>Longshore API</title>';
    expect([led.status, led.text]).toEqual([200, expect.stringContaining(title)]);
    const told = await call('GET /', undefined, { token: '' });
    expect(told).toMatchObject({ status: 404, json: { code: 'not_found' } });
    expect(told.text).toContain('/install/');
  });

  test('metrics are for this host, and from elsewhere for the administrator', async () => {
    const proxied = { headers: { 'x-forwarded-for': '10.0.0.1' } };
    expect((await call('GET /metrics', undefined, { token: '' })).text).toContain('longshore_');
    expect((await call('GET /metrics', undefined, { token: '', ...proxied })).status).toBe(401);
    expect((await call('GET /metrics', undefined, proxied)).status).toBe(401);
    expect((await call('GET /metrics', undefined, { token: admin.token, ...proxied })).status).toBe(200);
  });

  test('a port that is taken is named with its setting', async () => {
    const taken = { ...settingsOf('third'), LONGSHORE_HTTP_ADDRESS: first.httpAddress };
    const failure = await startScheduler(taken, log).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failure).toBeInstanceOf(StartupError);
    expect((failure as StartupError).code).toBe('port_in_use');
    expect((failure as StartupError).message).toContain('LONGSHORE_HTTP_ADDRESS');
  });
});
