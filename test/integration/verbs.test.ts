// Every verb of the REST API and of invoking, on a real scheduler with real stores, in every kind of call. Calls come
// as documented, with an unknown id, with another workspace's, with no token, a bad or a revoked one, and with an
// unreadable body. There is no machine: containers stay PENDING.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { restRoutes } from '#scheduler/api/http/rest/routes.ts';
import type { RestRouteParts } from '#scheduler/api/http/rest/routes.ts';
import { notBuiltRoutes } from '#scheduler/api/http/rest/not-built.ts';
import { documentedRoutes, faultOf, routeAt } from '../helpers/documented.ts';
import { waitFor } from '../helpers/programs.ts';
import { aProvidersFile } from '../helpers/providers-file.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';
import { kitOf, meets } from './verbs-kit.ts';
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

const { unique, aContainer, aDeployment, anObject, aTask, isActive, isListed, statusOf } = kitOf(() => platform);

const NOT_JSON: Expected = { status: 400 };
const rest = (path: string): string => path.replace('{ws}', platform.own.workspaceId);
const READS_NOTHING = { malformed: null } as const;
const HOUR_OF_METRICS = 'start=2030-01-01T00:00:00Z&end=2030-01-01T01:00:00Z&interval=1m';

const secretsOf = async (): Promise<Json[]> =>
  (await platform.call(rest('GET /api/v1/secret/{ws}'))).json['data'] as Json[];
const aSecret = async (): Promise<string> => {
  const name = unique('SECRET_').replace('-', '');
  await platform.call(rest('POST /api/v1/secret/{ws}'), { name, value: 'first' });
  return name;
};

const tokensNow = async (): Promise<Json[]> =>
  (await platform.call(rest('GET /api/v1/token/{ws}'))).json['data'] as Json[];
const aTokenId = async (): Promise<string> =>
  String((await platform.call(rest('POST /api/v1/token/{ws}'), {})).json['id']);

const aVolume = async (driver = 'local'): Promise<string> => {
  const name = unique('volume');
  await platform.gateway('POST /volumes', { name, driver });
  return name;
};
const volumeNames = async (): Promise<readonly unknown[]> => {
  const { json } = await platform.call(rest('GET /api/v1/volume/{ws}?limit=1000'));
  return (json['data'] as Json[]).map((row) => row['name']);
};
const entryOf = (key: string) => ({ name: 'm', key, encoding: 'json', value: '1' });
const anEntry = async (): Promise<string> => {
  const key = unique('key');
  await platform.call(rest('PUT /api/v1/map/{ws}/entry'), entryOf(key));
  return key;
};
const entry = (key: string): Promise<Answer> => platform.call(rest(`GET /api/v1/map/{ws}/entry?name=m&key=${key}`));
const aSharedQueue = async (): Promise<string> => {
  const name = unique('shared');
  await platform.call(rest('POST /api/v1/queue/{ws}'), { name, encoding: 'json', value: '1' });
  return name;
};
const sizeOf = async (name: string): Promise<unknown> =>
  (await platform.call(rest(`GET /api/v1/queue/{ws}?name=${name}`))).json['size'];
const isSet = async (name: string): Promise<boolean> =>
  (await platform.call(rest(`GET /api/v1/signal/{ws}?name=${name}`))).json['set'] === true;
const aStack = async (): Promise<string> =>
  String((await platform.call(rest('POST /api/v1/stack/{ws}'), { name: unique('stack') })).json['id']);
let outputObject = NOBODY;
const anOutput = async (): Promise<string> => {
  const body = { task_id: await aTask(), object_id: (await anObject('bytes')).objectId, name: 'a.txt' };
  return String((await platform.call(rest('POST /api/v1/output/{ws}'), body)).json['id']);
};

const HOOK = { url: 'http://127.0.0.1:1/hook' };
let webhook = NOBODY;
const aWebhook = async (): Promise<string> => {
  const { json } = await platform.call(rest('POST /api/v1/webhook/{ws}'), { ...HOOK, description: 'before' });
  webhook = String(json['id']);
  return webhook;
};
const aDelivery = async (): Promise<string> =>
  String((await platform.call(rest(`POST /api/v1/webhook/{ws}/${await aWebhook()}/test`))).json['id']);
const webhooksOf = async (): Promise<Json[]> =>
  (await platform.call(rest('GET /api/v1/webhook/{ws}?limit=1000'))).json['data'] as Json[];
const webhookIs = async (id: string): Promise<Json | undefined> => (await webhooksOf()).find((one) => one['id'] === id);
let hintBefore: unknown;

const MODEL = { type: 'chat', backends: [{ kind: 'external', base_url: 'http://127.0.0.1:1/v1' }] };
const aModel = async (): Promise<string> => {
  const { json } = await platform.call(rest('POST /api/v1/model/{ws}'), { ...MODEL, id: unique('model') });
  return String(json['id']);
};
const modelIs = async (id: string): Promise<Json> => (await platform.call(rest(`GET /api/v1/model/{ws}/${id}`))).json;

const creditNow = async (): Promise<Json> => (await platform.call(rest('GET /api/v1/credit/{ws}'))).json;

const tokenLimit = async (): Promise<unknown> => {
  const counts = (await platform.call(rest('GET /api/v1/workspace/{ws}/limits'))).json['counts'] as Json;
  return (counts['tokens'] as Json)['limit'];
};
const asAdmin = () => ({ token: platform.admin.token });
const signingKeys = async (): Promise<Json[]> =>
  (await platform.call('GET /api/v1/signing-key', undefined, asAdmin())).json['data'] as Json[];
/** Makes a key that signs no more, and has signed nothing. */
const aSigningKey = async (): Promise<string> => {
  const { json } = await platform.call('POST /api/v1/signing-key', undefined, asAdmin());
  await platform.call('POST /api/v1/signing-key', undefined, asAdmin());
  return String(json['id']);
};

const REST: readonly Verb[] = [
  { name: 'GET /workspace/current', line: () => 'GET /workspace/current', ok: { status: 200 }, ...READS_NOTHING },
  {
    name: 'GET /workspace',
    line: () => 'GET /workspace',
    ok: { status: 200 },
    byAdmin: true,
    malformed: { line: 'GET /workspace?limit=-1' },
  },
  {
    name: 'POST /workspace',
    line: () => 'POST /workspace',
    body: () => ({ name: 'third' }),
    ok: { status: 201 },
    byAdmin: true,
  },
  {
    name: 'GET /workspace/{ws}/limits',
    line: (id) => `GET /workspace/${id}/limits`,
    make: async () => platform.own.workspaceId,
    ok: {
      usage: { gpu: 0, cpu_millicores: 0, memory_mib: 0, containers: 0, volume_bytes: 0 },
      rate: { rest_per_minute: 600 },
    },
    unknown: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'PUT /workspace/{ws}/limits',
    line: (id) => `PUT /workspace/${id}/limits`,
    body: () => ({ counts: { tokens: 99 } }),
    make: async () => platform.own.workspaceId,
    ok: { counts: expect.objectContaining({ tokens: { used: expect.any(Number), limit: 99 } }) },
    unknown: { status: 400 },
    foreign: { status: 401 },
    byAdmin: true,
    done: async () => (await tokenLimit()) === 99,
  },
  {
    name: 'GET /credit/{ws}',
    line: (id) => `GET /credit/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { mode: 'postpaid', held_micros: 0 },
    unknown: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'PUT /credit/{ws}',
    line: (id) => `PUT /credit/${id}`,
    body: () => ({ spend_limit_micros: 7 }),
    make: async () => platform.own.workspaceId,
    ok: { spend_limit_micros: 7 },
    unknown: { status: 400 },
    foreign: { status: 401 },
    byAdmin: true,
    done: async () => (await creditNow())['spend_limit_micros'] === 7,
  },
  {
    name: 'POST /credit/{ws}/grant',
    line: (id) => `POST /credit/${id}/grant`,
    body: () => ({ amount_micros: 11 }),
    make: async () => platform.own.workspaceId,
    ok: { granted: true, account: expect.objectContaining({ balance_micros: 11 }) },
    unknown: { status: 400 },
    foreign: { status: 401 },
    byAdmin: true,
    done: async () => (await creditNow())['balance_micros'] === 11,
  },
  {
    name: 'GET /credit/{ws}/ledger',
    line: (id) => `GET /credit/${id}/ledger?kind=grant`,
    make: async () => platform.own.workspaceId,
    ok: { data: [expect.objectContaining({ kind: 'grant', grant_micros: 11, token_id: null })], next: '' },
    unknown: { status: 401 },
    malformed: { line: 'GET /credit/{ws}/ledger?cursor=odd' },
  },
  {
    name: 'GET /usage/{ws}',
    line: (id) => `GET /usage/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { data: [expect.objectContaining({ requests: 0 })], truncated: false },
    unknown: { status: 401 },
    malformed: { line: 'GET /usage/{ws}?from=yesterday' },
  },
  { name: 'GET /signing-key', line: () => 'GET /signing-key', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
  { name: 'POST /signing-key', line: () => 'POST /signing-key', ok: { status: 201 }, byAdmin: true },
  {
    name: 'DELETE /signing-key/{id}',
    line: (id) => `DELETE /signing-key/${id}`,
    make: aSigningKey,
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    byAdmin: true,
    done: async (id) => (await signingKeys()).find((key) => key['id'] === id)?.['retired_at'] !== null,
  },
  { name: 'GET /provider', line: () => 'GET /provider', ok: { status: 200 }, byAdmin: true, ...READS_NOTHING },
  {
    name: 'POST /provider/{name}/check',
    line: (id) => `POST /provider/${id}/check`,
    make: async () => 'cloud',
    ok: { ok: true, name: 'cloud', instances: 0 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    byAdmin: true,
  },
  ...notBuiltRoutes.map(({ method, path }): Verb => ({
    name: `${method} ${path}`,
    line: (id) => `${method} ${path.replace('{ws}', id).replace(/\{\w+\}/, NOBODY)}`,
    make: async () => platform.own.workspaceId,
    ok: { code: 'not_implemented', message: expect.stringMatching(/ not built yet in this version$/) },
    unknown: { status: 401 },
    ...(method === 'GET' ? READS_NOTHING : {}),
  })),
  ...['app', 'container', 'deployment', 'task', 'logs'].map((thing): Verb => ({
    name: `GET /${thing}/{ws}`,
    line: (id) => `GET /${thing}/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: thing === 'container' ? null : { line: `GET /${thing}/{ws}?limit=x` },
  })),
  {
    name: 'GET /metrics/{ws}/stub-timeseries',
    line: (id) => `GET /metrics/{ws}/stub-timeseries?stub_id=${id}&${HOUR_OF_METRICS}`,
    make: () => platform.stub(),
    ok: { scanned_records: 0, truncated: false, timeseries: { aggregation_buckets: [] } },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /metrics/{ws}/stub-timeseries?stub_id=x' },
  },
  ...['workspace', 'pool'].map((kind): Verb => ({
    name: `GET /metrics/{ws}/${kind}-timeseries`,
    line: (id) => `GET /metrics/${id}/${kind}-timeseries?${HOUR_OF_METRICS}`,
    make: async () => platform.own.workspaceId,
    ok: { scanned_records: 0, truncated: false },
    unknown: { status: 401 },
    malformed: { line: `GET /metrics/{ws}/${kind}-timeseries?start=yesterday` },
  })),
  {
    name: 'GET /app/{ws}/latest',
    line: (id) => `GET /app/${id}/latest`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: { line: 'GET /app/{ws}/latest?cursor=x' },
  },
  {
    name: 'GET /app/{ws}/{id}',
    line: (id) => `GET /app/{ws}/${id}`,
    make: async () => {
      const deployment = await platform.call(rest(`GET /api/v1/deployment/{ws}/${await aDeployment()}`));
      return String(deployment.json['app_id']);
    },
    ok: { running_containers: 0, stub: null, deployment: expect.objectContaining({ version: 1 }) },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'GET /deployment/{ws}/{id}',
    line: (id) => `GET /deployment/{ws}/${id}`,
    make: aDeployment,
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'GET /deployment/{id}/url',
    line: (id) => `GET /deployment/${id}/url`,
    make: aDeployment,
    ok: { url: expect.stringContaining('/v1') },
    unknown: { status: 404 },
    ...READS_NOTHING,
  },
  {
    name: 'POST /deployment/{ws}/stop/{id}',
    line: (id) => `POST /deployment/{ws}/stop/${id}`,
    make: aDeployment,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => !(await isActive(id)),
  },
  {
    name: 'POST /deployment/{ws}/start/{id}',
    line: (id) => `POST /deployment/{ws}/start/${id}`,
    make: aDeployment,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
  },
  {
    name: 'POST /deployment/{ws}/rollback/{id}',
    line: (id) => `POST /deployment/{ws}/rollback/${id}`,
    make: aDeployment,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
  },
  {
    name: 'DELETE /deployment/{ws}/{id}',
    line: (id) => `DELETE /deployment/{ws}/${id}`,
    make: aDeployment,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => !(await isListed(id)),
  },
  {
    name: 'GET /task/{ws}/{id}',
    line: (id) => `GET /task/{ws}/${id}`,
    make: aTask,
    ok: { status: 'PENDING' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'GET /task/{ws}/{taskId}/subscribe',
    line: (id) => `GET /task/{ws}/${id}/subscribe`,
    make: async () => {
      const id = await aTask();
      await platform.gateway('POST /tasks/stop', { taskIds: [id] });
      return id;
    },
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'GET /events/{ws}/history',
    line: (id) => `GET /events/${id}/history`,
    make: async () => platform.own.workspaceId,
    ok: { truncated: false },
    unknown: { status: 401 },
    malformed: { line: 'GET /events/{ws}/history?limit=x' },
  },
  {
    name: 'GET /logs/{ws}/stream',
    line: (id) => `GET /logs/${id}/stream?wait=0&tail_offset=1`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: { line: 'GET /logs/{ws}/stream?seq_num=x' },
  },
  {
    name: 'GET /events/{ws}/stream',
    line: (id) => `GET /events/${id}/stream?wait=0&tail_offset=1`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: { line: 'GET /events/{ws}/stream?seq_num=x' },
  },
  ...(['task', 'container', 'deployment'] as const).map((kind): Verb => ({
    name: `GET /explain/{ws}/{id} of a ${kind}`,
    line: (id) => `GET /explain/{ws}/${id}`,
    make: { task: aTask, container: aContainer, deployment: aDeployment }[kind],
    ok: { kind, leader_answered: true },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  })),
  {
    name: 'GET /secret/{ws}',
    line: (id) => `GET /secret/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'POST /secret/{ws}',
    line: () => 'POST /secret/{ws}',
    body: (id) => ({ name: id, value: 'v' }),
    make: async () => unique('MADE_').replace('-', ''),
    ok: { status: 201 },
    foreign: { status: 401 },
    malformed: { body: '{"name": 5}', answer: { status: 422 } },
    done: async (id) => (await secretsOf()).some((row) => row['name'] === id),
  },
  {
    name: 'PUT /secret/{ws}/{name}',
    line: (id) => `PUT /secret/{ws}/${id}`,
    body: () => ({ value: 'second' }),
    make: aSecret,
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"value": ["x"]}', answer: { status: 422 } },
  },
  {
    name: 'DELETE /secret/{ws}/{name}',
    line: (id) => `DELETE /secret/{ws}/${id}`,
    make: aSecret,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => !(await secretsOf()).some((row) => row['name'] === id),
  },
  {
    name: 'GET /token/{ws}',
    line: (id) => `GET /token/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'POST /token/{ws}',
    line: () => 'POST /token/{ws}',
    body: (id) => ({ name: id }),
    make: async () => unique('token'),
    ok: { status: 201 },
    foreign: { status: 401 },
    malformed: { body: '{"name": 5}', answer: { status: 422 } },
    done: async (id) => (await tokensNow()).some((row) => row['name'] === id),
  },
  {
    name: 'PATCH /token/{ws}/{tokenId}',
    line: (id) => `PATCH /token/{ws}/${id}`,
    body: () => ({ name: 'changed' }),
    make: aTokenId,
    ok: { name: 'changed' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"scopes": "read"}', answer: { status: 422 } },
    done: async (id) => (await tokensNow()).some((row) => row['id'] === id && row['name'] === 'changed'),
  },
  {
    name: 'DELETE /token/{ws}/{tokenId}',
    line: (id) => `DELETE /token/{ws}/${id}`,
    make: aTokenId,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => !(await tokensNow()).some((row) => row['id'] === id),
  },
  {
    name: 'PUT /map/{ws}/entry',
    line: () => 'PUT /map/{ws}/entry',
    body: (id) => ({ ...entryOf(id), value: '2' }),
    make: anEntry,
    ok: { status: 200, text: '' },
    foreign: { status: 401 },
    malformed: { body: '{"name": "m", "key": "k", "encoding": "xml", "value": ""}', answer: { status: 422 } },
    done: async (id) => (await entry(id)).json['value'] === '2',
  },
  {
    name: 'GET /map/{ws}/entry',
    line: (id) => `GET /map/{ws}/entry?name=m&key=${id}`,
    make: anEntry,
    ok: { encoding: 'json', value: '1' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /map/{ws}/entry?name=m' },
  },
  {
    name: 'GET /map/{ws}/keys',
    line: () => 'GET /map/{ws}/keys?name=m&limit=1',
    make: anEntry,
    ok: { data: [expect.any(String)], count: expect.any(Number) },
    foreign: { status: 401 },
    malformed: { line: 'GET /map/{ws}/keys?name=m&limit=x' },
  },
  {
    name: 'DELETE /map/{ws}/entry',
    line: (id) => `DELETE /map/{ws}/entry?name=m&key=${id}`,
    make: anEntry,
    ok: { status: 200, text: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'DELETE /map/{ws}/entry?key=k' },
    done: async (id) => (await entry(id)).status === 404,
  },
  {
    name: 'POST /queue/{ws}',
    line: () => 'POST /queue/{ws}',
    body: (id) => ({ name: id, encoding: 'json', value: '1' }),
    make: async () => unique('queue'),
    ok: { status: 200, text: '' },
    foreign: { status: 401 },
    malformed: { body: '{"name": ""}', answer: { status: 422 } },
    done: async (id) => (await sizeOf(id)) === 1,
  },
  {
    name: 'GET /queue/{ws}',
    line: (id) => `GET /queue/{ws}?name=${id}`,
    make: aSharedQueue,
    ok: { size: 1, first: { encoding: 'json', value: '1', expires_at: expect.any(String) } },
    foreign: { status: 401 },
    malformed: { line: 'GET /queue/{ws}' },
  },
  {
    name: 'POST /queue/{ws}/pop',
    line: () => 'POST /queue/{ws}/pop',
    body: (id) => ({ name: id }),
    make: aSharedQueue,
    ok: { item: { encoding: 'json', value: '1', expires_at: expect.any(String) } },
    foreign: { status: 401 },
    malformed: { body: '{"name": 5}', answer: { status: 422 } },
    done: async (id) => (await sizeOf(id)) === 0,
  },
  {
    name: 'PUT /signal/{ws}',
    line: () => 'PUT /signal/{ws}',
    body: (id) => ({ name: id }),
    make: async () => unique('signal'),
    ok: { status: 200, text: '' },
    foreign: { status: 401 },
    malformed: { body: '{"name": "s", "ttl_seconds": 604801}', answer: { status: 422 } },
    done: isSet,
  },
  {
    name: 'GET /signal/{ws}',
    line: (id) => `GET /signal/{ws}?name=${id}`,
    make: async () => unique('signal'),
    ok: { set: false, revision: 0 },
    foreign: { status: 401 },
    malformed: { line: 'GET /signal/{ws}' },
  },
  {
    name: 'DELETE /signal/{ws}',
    line: (id) => `DELETE /signal/{ws}?name=${id}`,
    make: async () => {
      const name = unique('signal');
      await platform.call(rest('PUT /api/v1/signal/{ws}'), { name });
      return name;
    },
    ok: { status: 200, text: '' },
    foreign: { status: 401 },
    malformed: { line: 'DELETE /signal/{ws}' },
    done: async (id) => !(await isSet(id)),
  },
  {
    name: 'POST /output/{ws}',
    line: () => 'POST /output/{ws}',
    body: (id) => ({ task_id: id, object_id: outputObject, name: 'a.txt' }),
    make: async () => {
      outputObject = (await anObject('bytes')).objectId;
      return aTask();
    },
    ok: { status: 201 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"task_id": 5}', answer: { status: 422 } },
  },
  {
    name: 'GET /output/{ws}/{outputId}/url',
    line: (id) => `GET /output/{ws}/${id}/url`,
    make: anOutput,
    ok: { name: 'a.txt', size: 5 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: `GET /output/{ws}/${NOBODY}/url?expires_in=604801` },
  },
  {
    name: 'GET /object/{ws}/{objectId}/download-url',
    line: (id) => `GET /object/{ws}/${id}/download-url`,
    make: async () => (await anObject('bytes')).objectId,
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'GET /volume/{ws}',
    line: (id) => `GET /volume/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: { line: 'GET /volume/{ws}?cursor=%21' },
  },
  {
    name: 'POST /volume/{ws}',
    line: () => 'POST /volume/{ws}',
    body: (id) => ({ name: id }),
    make: async () => unique('made'),
    ok: { status: 201 },
    foreign: { status: 401 },
    malformed: { body: '{"name": ".."}', answer: { status: 422 } },
    done: async (id) => (await volumeNames()).includes(id),
  },
  {
    name: 'GET /volume/{ws}/{volumeName}',
    line: (id) => `GET /volume/{ws}/${id}`,
    make: aVolume,
    ok: { driver: 'local', machine_id: '', deployments: [], containers: 0 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'DELETE /volume/{ws}/{volumeName}',
    line: (id) => `DELETE /volume/{ws}/${id}`,
    make: aVolume,
    ok: { removed: 0, complete: true },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => !(await volumeNames()).includes(id),
  },
  {
    name: 'GET /volume/{ws}/{volumeName}/files',
    line: (id) => `GET /volume/{ws}/${id}/files?recursive=true`,
    make: aVolume,
    ok: { kind: 'folder', data: [], next: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /volume/{ws}/v/files?path=a/../b' },
  },
  {
    // No machine has files here.
    name: 'DELETE /volume/{ws}/{volumeName}/files',
    line: (id) => `DELETE /volume/{ws}/${id}/files?path=a`,
    make: aVolume,
    ok: { status: 404 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'DELETE /volume/{ws}/v/files' },
  },
  {
    name: 'POST /volume/{ws}/{volumeName}/files/move',
    line: (id) => `POST /volume/{ws}/${id}/files/move`,
    body: () => ({ from: 'a', to: 'b' }),
    make: aVolume,
    ok: { status: 404 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"from": "a", "to": 5}', answer: { status: 422 } },
  },
  {
    name: 'GET /volume/{ws}/{volumeName}/size',
    line: (id) => `GET /volume/{ws}/${id}/size`,
    make: aVolume,
    ok: { bytes: 0, files: 0, next: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /volume/{ws}/v/size?path=/a' },
  },
  {
    name: 'GET /volume/{ws}/{volumeName}/upload',
    line: (id) => `GET /volume/{ws}/${id}/upload?path=a&size=1&key=0123456789abcdef`,
    make: aVolume,
    ok: { received: 0 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /volume/{ws}/v/upload?size=x' },
  },
  {
    name: 'GET /volume/{ws}/{volumeName}/pack-url',
    line: (id) => `GET /volume/{ws}/${id}/pack-url?method=PUT`,
    make: () => aVolume('shared'),
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /volume/{ws}/v/pack-url?method=GET' },
  },
  {
    name: 'GET /volume/{ws}/{volumeName}/file-url',
    line: (id) => `GET /volume/{ws}/${id}/file-url?path=a`,
    make: () => aVolume('shared'),
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: 'GET /volume/{ws}/files/file-url?path=..' },
  },
  {
    name: 'GET /model/{ws}',
    line: (id) => `GET /model/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: { line: 'GET /model/{ws}?cursor=%21' },
  },
  {
    name: 'POST /model/{ws}',
    line: (id) => `POST /model/${id}`,
    body: () => ({ ...MODEL, id: 'acme/walked' }),
    make: async () => platform.own.workspaceId,
    ok: { id: 'acme/walked', type: 'chat', visibility: 'workspace', active: true },
    unknown: { status: 401 },
    malformed: { body: '{"backends": 5}', answer: { status: 422 } },
    done: async () => (await modelIs('acme%2Fwalked'))['type'] === 'chat',
  },
  {
    name: 'GET /model/{ws}/{modelId}',
    line: (id) => `GET /model/{ws}/${id}`,
    make: aModel,
    ok: { type: 'chat', prices: { prompt_micros_per_million: 0 } },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'PATCH /model/{ws}/{modelId}',
    line: (id) => `PATCH /model/{ws}/${id}`,
    body: () => ({ description: 'after', active: false }),
    make: aModel,
    ok: { description: 'after', active: false },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"active": "perhaps"}', answer: { status: 422 } },
    done: async (id) => (await modelIs(id))['description'] === 'after',
  },
  {
    name: 'DELETE /model/{ws}/{modelId}',
    line: (id) => `DELETE /model/{ws}/${id}`,
    make: aModel,
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => (await modelIs(id))['code'] === 'model_not_found',
  },
  {
    name: 'GET /webhook/{ws}',
    line: (id) => `GET /webhook/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { data: [], next: '' },
    unknown: { status: 401 },
    malformed: { line: 'GET /webhook/{ws}?cursor=%21' },
  },
  {
    name: 'POST /webhook/{ws}',
    line: (id) => `POST /webhook/${id}`,
    body: () => ({ ...HOOK, event_types: ['task.*'] }),
    make: async () => platform.own.workspaceId,
    ok: { event_types: ['task.*'], active: true, retry: false, secret: expect.stringMatching(/^whsec_/) },
    unknown: { status: 401 },
    malformed: { body: '{"event_types": 5}', answer: { status: 422 } },
    done: async () => (await webhooksOf()).length > 0,
  },
  {
    name: 'GET /webhook/{ws}/{webhookId}',
    line: (id) => `GET /webhook/{ws}/${id}`,
    make: aWebhook,
    ok: { description: 'before', event_types: [], last_delivery: null, skipped_events: 0 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    ...READS_NOTHING,
  },
  {
    name: 'PUT /webhook/{ws}/{webhookId}',
    line: (id) => `PUT /webhook/{ws}/${id}`,
    body: () => ({ description: 'after', active: false }),
    make: aWebhook,
    ok: { ...HOOK, description: 'after', active: false, inactive_reason: 'switched_off' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"retry": "perhaps"}', answer: { status: 422 } },
    done: async (id) => (await webhookIs(id))?.['description'] === 'after',
  },
  {
    name: 'DELETE /webhook/{ws}/{webhookId}',
    line: (id) => `DELETE /webhook/{ws}/${id}`,
    make: aWebhook,
    ok: { status: 200, text: '{}' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => (await webhookIs(id)) === undefined,
  },
  {
    name: 'POST /webhook/{ws}/{webhookId}/rotate',
    line: (id) => `POST /webhook/{ws}/${id}/rotate`,
    make: async () => {
      const id = await aWebhook();
      hintBefore = (await webhookIs(id))?.['secret_hint'];
      return id;
    },
    ok: { secret: expect.stringMatching(/^whsec_/) },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => (await webhookIs(id))?.['secret_hint'] !== hintBefore,
  },
  {
    name: 'POST /webhook/{ws}/{webhookId}/test',
    line: (id) => `POST /webhook/{ws}/${id}/test`,
    make: aWebhook,
    ok: { event_type: 'webhook.test', state: 'failed', error: 'the connection failed (ECONNREFUSED)' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => (await webhookIs(id))?.['last_delivery'] !== null,
  },
  {
    name: 'GET /webhook/{ws}/{webhookId}/deliveries',
    line: (id) => `GET /webhook/{ws}/${id}/deliveries`,
    make: async () => {
      await aDelivery();
      return webhook;
    },
    ok: { data: [expect.objectContaining({ event_type: 'webhook.test', attempts: 1 })], next: '' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { line: `GET /webhook/{ws}/${NOBODY}/deliveries?state=lost` },
  },
  {
    name: 'POST /webhook/{ws}/{webhookId}/deliveries/{deliveryId}/redeliver',
    line: (id) => `POST /webhook/{ws}/${webhook}/deliveries/${id}/redeliver`,
    make: aDelivery,
    ok: { event_type: 'webhook.test', attempts: 2 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async () => {
      const { json } = await platform.call(rest(`GET /api/v1/webhook/{ws}/${webhook}/deliveries`));
      return (json['data'] as Json[])[0]?.['attempts'] === 2;
    },
  },
  {
    name: 'GET /image/{ws}',
    line: (id) => `GET /image/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { data: [], next: '' },
    unknown: { status: 401 },
    ...READS_NOTHING,
  },
  // No machine builds an image here.
  ...['GET /image/{ws}/{imageId}', 'GET /image/{ws}/{imageId}/output', 'DELETE /image/{ws}/{imageId}'].map(
    (name): Verb => ({
      name,
      line: (id) => name.replace('{imageId}', id),
      ok: { status: 404 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    }),
  ),
  {
    name: 'GET /stack/{ws}',
    line: (id) => `GET /stack/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: { line: 'GET /stack/{ws}?cursor=x' },
  },
  {
    name: 'POST /stack/{ws}',
    line: () => 'POST /stack/{ws}',
    body: (id) => ({ name: id }),
    make: async () => unique('stack'),
    ok: { status: 201 },
    foreign: { status: 401 },
    malformed: { body: '{"name": 5}', answer: { status: 422 } },
    done: async (id) => (await stackNames()).includes(id),
  },
  {
    name: 'PUT /stack/{ws}/{stackId}',
    line: (id) => `PUT /stack/{ws}/${id}`,
    body: (id) => ({ name: `renamed-${id}` }),
    make: aStack,
    ok: { status: 200 },
    unknown: { status: 404 },
    foreign: { status: 401 },
    malformed: { body: '{"add": "x"}', answer: { status: 422 } },
    done: async (id) => (await stackNames()).includes(`renamed-${id}`),
  },
  {
    name: 'DELETE /stack/{ws}/{stackId}',
    line: (id) => `DELETE /stack/{ws}/${id}`,
    make: aStack,
    ok: { status: 200, text: '{}' },
    unknown: { status: 404 },
    foreign: { status: 401 },
    done: async (id) => (await platform.call(rest(`PUT /api/v1/stack/{ws}/${id}`), {})).status === 404,
  },
  {
    name: 'DELETE /task/{ws}',
    line: () => 'DELETE /task/{ws}',
    body: (id) => ({ ids: [id] }),
    make: aTask,
    ok: { status: 200, text: '{}' },
    unknown: { status: 200, text: '{}' },
    foreign: { status: 401 },
    malformed: { body: '{"ids": 5}', answer: { status: 422 } },
    done: async (id) => (await statusOf(id)) === 'CANCELLED',
  },
];

const stackNames = async (): Promise<readonly unknown[]> => {
  const { json } = await platform.call(rest('GET /api/v1/stack/{ws}?limit=100'));
  return (json['data'] as Json[]).map((row) => row['name']);
};

const UNAUTHORIZED: Expected = { status: 401, text: '{"message":"Unauthorized"}' };
const aName = async (said: Json = {}): Promise<string> => {
  const name = unique('invoked');
  await platform.deploy(name, said);
  return name;
};
/** The schedule ticks once a year, so that only called tasks run. */
const YEARLY = { extra: '{"when": "@yearly"}' };
const INVOKE: readonly Verb[] = [
  ...['taskqueue', 'function', 'schedule'].flatMap((kind): Verb[] => {
    const said = { stubType: `${kind}/deployment`, ...(kind === 'schedule' ? YEARLY : {}) };
    return [
      ...['', '/latest', '/v1'].map((suffix): Verb => ({
        name: `POST /${kind}/{name}${suffix}`,
        line: (name) => `POST /${kind}/${name}${suffix}`,
        make: () => aName(said),
        body: () => ({ n: 1 }),
        ok: { task_id: expect.stringMatching(/^[0-9a-f-]{36}$/) },
        unknown: { status: 400, text: '{"message":"Invalid deployment"}' },
        refused: UNAUTHORIZED,
        malformed: { answer: { status: 400, text: '{"error":"invalid request payload"}' } },
      })),
      {
        name: `POST /${kind}/id/{stubId}`,
        line: (id) => `POST /${kind}/id/${id}`,
        make: () => platform.stub(said),
        ok: { task_id: expect.any(String) },
        unknown: { status: 400, text: '{"message":"Invalid stub"}' },
        foreign: { status: 401, text: '{"message":"Invalid token"}' },
        refused: UNAUTHORIZED,
        malformed: { body: '[1]', answer: { status: 400, text: '{"error":"invalid request payload"}' } },
      },
    ];
  }),
  {
    name: 'POST /endpoint/{name}/warmup',
    line: (name) => `POST /endpoint/${name}/warmup`,
    make: () => aName({ stubType: 'endpoint/deployment' }),
    ok: { status: 200, text: '' },
    unknown: { status: 400, text: '{"message":"Invalid deployment"}' },
    refused: UNAUTHORIZED,
    malformed: null,
  },
];

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
