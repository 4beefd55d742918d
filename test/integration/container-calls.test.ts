// The rights of a container's credential, the end of that credential, and the calls that come through its machine's
// link. A real scheduler, and agents that speak the real protocol without a machine.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { aContained } from './contained.ts';
import type { Contained } from './contained.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

const STUB = { stubType: 'taskqueue', name: 'n', handler: 'app:handler', cpu: 100, memory: 64 };
const NO_ACCESS = 'Unauthorized Access';

let platform: Platform;
let own: Contained;
/** A container of the same workspace, on another machine. */
let neighbour: Contained;
const kit = kitOf(() => platform);

beforeAll(async () => {
  platform = await aPlatform({ LONGSHORE_MACHINE_LOST_SECONDS: '5', LONGSHORE_RESTART_GRACE_SECONDS: '0' });
  const secret = { name: 'MINE', value: 'x' };
  await platform.call(`POST /api/v1/secret/${platform.own.workspaceId}`, secret);
  await platform.call(`POST /api/v1/secret/${platform.own.workspaceId}`, { ...secret, name: 'OTHERS' });
  const handle = ({ input }: { readonly input: string }): string => {
    const { text = '', ...rest } = JSON.parse(input) as { readonly text?: string };
    return JSON.stringify({ ...rest, length: text.length });
  };
  own = await aContained(platform, { appName: 'mine', secrets: [{ name: 'MINE' }] }, { handle });
  neighbour = await aContained(platform, { appName: 'others' });
});
afterAll(async () => {
  await own.stop();
  await neighbour.stop();
  await platform.stop();
});

const asContainer = (line: string, body?: unknown): Promise<Answer> => platform.call(line, body, { token: own.token });
const gateway = (line: string, body?: unknown): Promise<Answer> => platform.gateway(line, body, { token: own.token });
const taskOf = (id: unknown): string => `/api/v1/task/${platform.own.workspaceId}/${String(id)}`;
const json = (answer: { readonly text: string }): Json => JSON.parse(answer.text) as Json;

describe('a container', () => {
  test('puts a task into a queue of its workspace and reads what it put, and no other’s task', async () => {
    const queue = await kit.aQueue({ cpu: 101 });
    const put = await asContainer(`POST /taskqueue/${queue.name}`, { n: 1 });
    expect(put.status).toBe(200);
    const read = await asContainer(`GET ${taskOf(put.json['task_id'])}`);
    expect([read.status, read.json['status']]).toEqual([200, 'PENDING']);
    // The row says it, too, when the record has left Redis.
    await waitFor(async () => (await kit.statusOf(String(put.json['task_id']))) === 'PENDING', 'the row is written');
    const others = await kit.aTask({ cpu: 102 });
    expect((await asContainer(`GET ${taskOf(others)}`)).status).toBe(404);
    const byNeighbour = await platform.call(`GET ${taskOf(put.json['task_id'])}`, undefined, {
      token: neighbour.token,
    });
    expect(byNeighbour.status).toBe(404);
    const current = await asContainer('GET /api/v1/workspace/current');
    expect([current.json['id'], current.json['signing_key'] ?? null]).toEqual([platform.own.workspaceId, null]);
  });

  test('calls an endpoint, and warms up none', async () => {
    const { name } = await waitFor(
      async () =>
        (await kit.list('/deployments?limit=100', 'deployments')).find((one) => one['id'] === own.deploymentId) as
          | { name: string }
          | undefined,
      'its deployment',
    );
    const answer = await asContainer(`POST /endpoint/${name}`, { n: 2 });
    expect([answer.status, answer.json['n']]).toEqual([200, 2]);
    expect((await asContainer(`POST /endpoint/${name}/warmup`)).status).toBe(401);
  });

  test('whose network is limited has nobody send or pull anything outside in its stead', async () => {
    const closed = await aContained(platform, { appName: 'closed', env: ['CLOSED=1'], blockNetwork: true });
    const queue = await kit.aQueue({ cpu: 103 });
    const callback_url = 'https://example.com/hook';
    const put = (body: unknown, { token }: Contained, query = ''): Promise<Answer> =>
      platform.call(`POST /taskqueue/${queue.name}${query}`, body, { token });
    const tries: Promise<Answer>[] = [
      put({ callback_url }, closed),
      put({ kwargs: { callback_url } }, closed),
      put({}, closed, `?callback_url=${encodeURIComponent(callback_url)}`),
    ];
    for (const { status, json: said } of await Promise.all(tries))
      expect([status, said['error']]).toEqual([403, expect.stringMatching(/^callback_url/)]);
    expect((await put({}, closed)).status).toBe(200);
    // A container without egress limits may choose its own callback URL.
    expect((await put({ callback_url }, own)).status).toBe(200);
    const by = { token: closed.token };
    for (const said of [{ callbackUrl: callback_url }, { imageId: 'registry.example.com/a:1' }] as const) {
      const asked = await platform.gateway('POST /stubs', { ...STUB, ...said }, by);
      expect(asked.json).toMatchObject({
        ok: false,
        errMsg: NO_ACCESS,
        warnMsg: expect.stringContaining(Object.keys(said)[0] ?? ''),
      });
    }
    expect((await platform.gateway('POST /stubs', STUB, by)).json).toMatchObject({ ok: true });
    await closed.stop();
  });

  test('finds nothing of another workspace', async () => {
    const { token, workspaceId } = platform.other;
    const stubId = String(
      (await platform.gateway('POST /stubs', { ...STUB, name: 'theirs' }, { token })).json['stubId'],
    );
    const put = await platform.call(`POST /taskqueue/id/${stubId}`, {}, { token });
    expect(put.status).toBe(200);
    expect((await asContainer(`POST /taskqueue/id/${stubId}`, {})).status).toBe(401);
    const taskId = String(put.json['task_id']);
    expect((await asContainer(`GET /api/v1/task/${workspaceId}/${taskId}`)).status).toBe(401);
    expect((await asContainer(`GET ${taskOf(taskId)}`)).status).toBe(404);
    expect((await gateway('POST /tasks/start', { taskId })).json).toEqual({ ok: false });
  });

  test.each([
    'POST /api/v1/workspace',
    'GET /api/v1/workspace',
    'GET /api/v1/task/{ws}',
    'GET /api/v1/task-summary/{ws}',
    'DELETE /api/v1/task/{ws}?task_ids=1',
    'GET /api/v1/container/{ws}',
    'GET /api/v1/app/{ws}',
    'GET /api/v1/deployment/{ws}',
    'GET /api/v1/logs/{ws}',
    'GET /api/v1/secret/{ws}',
    'POST /api/v1/secret/{ws}',
    'DELETE /api/v1/secret/{ws}/MINE',
    'GET /api/v1/explain/{ws}/x',
  ])('is refused: %s', async (line) => {
    const answer = await asContainer(
      line.replace('{ws}', platform.own.workspaceId),
      line.startsWith('POST') ? {} : undefined,
    );
    expect([answer.status, answer.json['message']]).toEqual([401, 'Unauthorized']);
  });

  test('is in no list of tokens', async () => {
    const tokens = await kit.list('/tokens', 'tokens');
    expect(tokens.map((token) => token['tokenType'])).not.toContain('container');
  });
});

describe('a stub that a container asks for', () => {
  const ask = async (said: Json): Promise<Json> => (await gateway('POST /stubs', { ...STUB, ...said })).json;

  test('is of its own app, and can have what its own stub has', async () => {
    const made = await ask({ secrets: [{ name: 'MINE' }] });
    expect(made).toMatchObject({ ok: true, errMsg: '' });
    const again = await platform.gateway('POST /stubs', { ...STUB, appName: 'mine', secrets: [{ name: 'MINE' }] });
    expect(again.json['stubId']).toBe(made['stubId']);
    expect((await ask({ secrets: [{ name: 'MINE' }], appName: 'mine' }))['stubId']).toBe(made['stubId']);
    const put = await asContainer(`POST /taskqueue/id/${String(made['stubId'])}`, {});
    expect(put.status).toBe(200);
  });

  test.each<readonly [string, () => Promise<Json>]>([
    ['appName', () => Promise.resolve({ appName: 'others' })],
    ['secrets', () => Promise.resolve({ secrets: [{ name: 'MINE' }, { name: 'OTHERS' }] })],
    ['volumes', async () => ({ volumes: [{ id: await kit.aVolume(), mountPath: 'data' }] })],
    ['pool', () => Promise.resolve({ pool: { name: 'held-1' } })],
    ['authorized', () => Promise.resolve({ authorized: false })],
    ['objectId', async () => ({ objectId: (await kit.anObject('zip')).objectId })],
  ])('has no more than its own: %s', async (field, said) => {
    const refused = await ask(await said());
    expect(refused).toMatchObject({ ok: false, stubId: '', errMsg: NO_ACCESS });
    expect(refused['warnMsg']).toMatch(new RegExp(`^${field}\\b`));
  });
});

describe('objects of a container', () => {
  test('are its own, by whatever hash, and nobody else’s are touched', async () => {
    const theirs = await kit.anObject('old');
    expect((await gateway(`GET /objects/${theirs.hash}`)).json).toMatchObject({ ok: true, exists: false });
    const made = await gateway('POST /objects', { hash: theirs.hash, size: 3, overwrite: true });
    expect(made.json['objectId']).not.toBe(theirs.objectId);
    const { pathname, search } = new URL(String(made.json['presignedUrl']));
    expect((await platform.call(`PUT ${pathname}${search}`, 'new', { token: '' })).status).toBe(200);
    expect((await gateway(`GET /objects/${theirs.hash}`)).json).toMatchObject({
      exists: true,
      objectId: made.json['objectId'],
      objectMetadata: { name: theirs.hash, size: '3' },
    });
    const seen = await platform.gateway(`GET /objects/${theirs.hash}`);
    expect(seen.json).toMatchObject({ exists: true, objectId: theirs.objectId });
    const stub = await gateway('POST /stubs', { ...STUB, objectId: made.json['objectId'] });
    expect(stub.json).toMatchObject({ ok: true });
  });
});

describe('a call that comes over the link', () => {
  const signed = { payload: 'aGVsbG8=' };
  const sign = 'POST /api/v1/gateway/auth/sign';

  test('needs no credential, and may bring its own', async () => {
    for (const headers of [{}, { authorization: `Bearer ${own.token}` }, { Authorization: own.token }]) {
      const answer = await own.agent.call(own.containerId, sign, signed, { headers });
      expect([answer.status, json(answer)['ok']]).toEqual([200, true]);
    }
  });

  test('takes an upload to the path of the address it was given, which is nobody’s', async () => {
    const made = json(
      await own.agent.call(own.containerId, 'POST /api/v1/gateway/objects', {
        hash: 'by-link',
        size: 3,
        overwrite: false,
      }),
    );
    const { hostname, pathname, search } = new URL(String(made['presignedUrl']));
    expect(hostname).toBe('gateway.longshore.internal');
    expect(await own.agent.call(own.containerId, `PUT ${pathname}${search}`, 'zip')).toMatchObject({ status: 200 });
    const head = await own.agent.call(own.containerId, 'GET /api/v1/gateway/objects/by-link');
    expect(json(head)).toMatchObject({ exists: true, objectId: made['objectId'] });
  });

  test('is refused with any other, and what a query or another header says counts for nothing', async () => {
    for (const other of [neighbour.token, platform.own.token, platform.admin.token, 'nonsense']) {
      const headers = { authorization: `Bearer ${other}` };
      const answer = await own.agent.call(own.containerId, sign, signed, { headers });
      expect([answer.status, json(answer)['code']]).toEqual([401, 'unauthorized']);
    }
    const all = await own.agent.call(own.containerId, `GET /api/v1/gateway/tasks?auth_token=${platform.own.token}`);
    expect(json(all)).toMatchObject({ ok: true });
    expect((json(all)['tasks'] as Json[]).every((task) => task['stubId'] === own.stubId)).toBe(true);
    // A call through a link never counts as coming from this host itself.
    const headers = { host: 'localhost', 'x-forwarded-for': '127.0.0.1', connection: 'keep-alive' };
    expect((await own.agent.call(own.containerId, sign, signed, { headers })).status).toBe(200);
  });

  test('is refused with a token that counts once, which is not used up by that', async () => {
    const made = await platform.gateway('POST /tokens?reusable=false');
    const token = String((made.json['token'] as Json)['key']);
    const headers = { authorization: `Bearer ${token}` };
    expect((await own.agent.call(own.containerId, sign, signed, { headers })).status).toBe(401);
    const uses = [await platform.gateway('GET /tasks', undefined, { token })];
    uses.push(await platform.gateway('GET /tasks', undefined, { token }));
    expect(uses.map(({ status }) => status)).toEqual([200, 401]);
  });

  test('may have headers of any name', async () => {
    const headers = JSON.parse('{"constructor":"a","__proto__":"b","toString":"c","x-mine":"d"}') as Record<
      string,
      string
    >;
    expect((await own.agent.call(own.containerId, sign, signed, { headers })).status).toBe(200);
  });

  test('counts for a container that is placed on that machine under that epoch, and for no other', async () => {
    expect((await own.agent.call(neighbour.containerId, sign, signed, { epoch: 1 })).status).toBe(401);
    expect((await own.agent.call(own.containerId, sign, signed, { epoch: 9 })).status).toBe(401);
    expect((await own.agent.call('nobody', sign, signed, { epoch: 1 })).status).toBe(401);
  });

  test.each([
    'POST /api/v1/gateway/tokens',
    'GET /api/v1/gateway/tokens',
    'GET /metrics',
    'GET /api/v1/gateway/objects/../tokens',
    'GET /api/v1/health',
    'DELETE /api/v1/gateway/stubs',
  ])('goes nowhere that is not on the list: %s', async (line) => {
    expect((await own.agent.call(own.containerId, line, undefined)).status).toBe(401);
  });

  test('carries large bodies, and as many calls as there are', async () => {
    const name = (await kit.list('/deployments?limit=100', 'deployments')).find(({ id }) => id === own.deploymentId)?.[
      'name'
    ];
    const text = 'x'.repeat(3 * 1024 * 1024);
    const answer = await own.agent.call(own.containerId, `POST /endpoint/${String(name)}`, { text });
    expect([answer.status, json(answer)['length']]).toEqual([200, text.length]);
    const many = await Promise.all(Array.from({ length: 50 }, () => own.agent.call(own.containerId, sign, signed)));
    expect(many.every(({ status }) => status === 200)).toBe(true);
    const tooLarge = await own.agent.call(own.containerId, sign, `"${'y'.repeat(17 * 1024 * 1024)}"`);
    expect(tooLarge.status).toBe(429);
  });
});

describe('the credential dies', () => {
  const isRefused = async ({ token, agent, containerId }: Contained): Promise<void> => {
    const rest = await platform.call('GET /api/v1/workspace/current', undefined, { token });
    const byGateway = await platform.gateway('GET /tasks', undefined, { token });
    expect([rest.status, byGateway.status, byGateway.json['code']]).toEqual([401, 401, 16]);
    if (agent.linkedTo !== '') {
      const byLink = await agent.call(containerId, 'GET /api/v1/workspace/current', undefined, { epoch: 1 });
      expect(byLink.status).toBe(401);
    }
  };
  const isTaken = async ({ token }: Contained): Promise<boolean> =>
    (await platform.call('GET /api/v1/workspace/current', undefined, { token })).status === 200;

  test('with StopContainer, before that is answered', async () => {
    const one = await aContained(platform, { env: ['ONE=1'] });
    expect(await isTaken(one)).toBe(true);
    expect((await platform.gateway(`POST /containers/${one.containerId}/stop`)).json['ok']).toBe(true);
    await isRefused(one);
    await one.stop();
  });

  test('with its deployment', async () => {
    const one = await aContained(platform, { env: ['ONE=2'] });
    expect(await isTaken(one)).toBe(true);
    await platform.gateway(`DELETE /deployments/${one.deploymentId}`);
    await isRefused(one);
    await one.stop();
  });

  test('when the container ends by itself', async () => {
    const one = await aContained(platform, { env: ['ONE=3'] });
    expect(await isTaken(one)).toBe(true);
    one.agent.exit(one.containerId);
    await waitFor(async () => !(await isTaken(one)), 'the end is known');
    await isRefused(one);
    await one.stop();
  });

  test('not while its machine is out of reach, and then with the machine', async () => {
    const one = await aContained(platform, { env: ['ONE=4'], extra: '{"stopAfterDisconnect":true}' });
    await one.stop();
    const by = { token: platform.admin.token };
    const deleted = async (): Promise<boolean> => {
      const line = `DELETE /machines/${one.machineId}`;
      // The container still counts as living.
      expect(await isTaken(one)).toBe(true);
      return (await platform.gateway(line, undefined, by)).json['ok'] === true;
    };
    await waitFor(deleted, 'the machine is lost, and deleted', 30_000);
    await isRefused(one);
  });
});
