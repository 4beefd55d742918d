// Every verb, on a real scheduler with real stores, in every way that it can be called: as it should be, with an id of nobody's, with another workspace's, with
// no token, a bad one, one that was switched off, and with a body that cannot be read. There is no machine: containers stay PENDING.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

/** What an answer must hold: part of its JSON, or its status and text. */
type Expected = Json | { readonly status: number; readonly text?: string };

interface Verb {
  readonly name: string;
  /** The request for an id; `{ws}` is the own workspace. */
  readonly line: (id: string) => string;
  readonly body?: (id: string) => unknown;
  /** Makes what the verb is about in the own workspace. */
  readonly make?: () => Promise<string>;
  readonly ok: Expected;
  /** Absent: the verb is about nothing that has an id. */
  readonly unknown?: Expected;
  /** An id that is none; absent: as unknown. */
  readonly noId?: Expected;
  /** Another workspace's caller with an id of ours; absent: as unknown. */
  readonly foreign?: Expected;
  /** As the caller with no token, or a bad one; absent: the surface's own. */
  readonly refused?: Expected;
  /** Absent: a body that is no JSON. null: the verb reads nothing. */
  readonly malformed?: { readonly line?: string; readonly body?: string; readonly answer?: Expected } | null;
  /** The caller who must be the administrator. */
  readonly byAdmin?: boolean;
  /** True once the verb was carried out, false before, whoever else tried. */
  readonly done?: (id: string) => Promise<boolean>;
}

const gateway = (line: string): string => line.replace(' ', ' /api/v1/gateway');
const list = async (path: string, field: string): Promise<Json[]> =>
  ((await platform.gateway(`GET ${path}`)).json[field] ?? []) as Json[];

let counter = 0;
const unique = (name: string): string => `${name}-${(counter += 1)}`;
const aDeployment = async (): Promise<string> => (await platform.deploy(unique('app'))).id;
const isActive = async (id: string): Promise<boolean> =>
  (await list('/deployments', 'deployments')).some((row) => row['id'] === id && row['active'] === true);
const isListed = async (id: string): Promise<boolean> =>
  (await list('/deployments', 'deployments')).some((row) => row['id'] === id);
const aTask = async (): Promise<string> => {
  const name = unique('queue');
  await platform.deploy(name, { stubType: 'taskqueue/deployment' });
  return String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
};
const statusOf = async (taskId: string): Promise<unknown> =>
  (await list(`/tasks?filters=task-id=${taskId}`, 'tasks'))[0]?.['status'];
const aContainer = async (): Promise<string> => {
  const name = unique('warm');
  const { stubId } = await platform.deploy(name);
  expect((await platform.call(`POST /endpoint/${name}/warmup`)).status).toBe(200);
  const found = (await list('/containers', 'containers')).find((row) => row['stubId'] === stubId);
  return String(found?.['containerId']);
};
const aMachine = async (): Promise<string> => {
  const made = await platform.gateway('POST /machines', { poolName: 'mine' });
  return String((made.json['machine'] as Json)['id']);
};
const aToken = async (): Promise<string> =>
  String(((await platform.gateway('POST /tokens')).json['token'] as Json)['tokenId']);
const tokenIs = async (id: string): Promise<Json | undefined> =>
  (await list('/tokens', 'tokens')).find((row) => row['tokenId'] === id);

const refusedWith = (errMsg: string): Json => ({ ok: false, errMsg });
const NO_DEPLOYMENT = refusedWith('Deployment not found');
const done: Json = { ok: true, errMsg: '' };

const GATEWAY: readonly Verb[] = [
  {
    name: 'Authorize',
    line: () => 'POST /auth/authorize',
    ok: { ok: true, newToken: '', errorMsg: '' },
    refused: { ok: false, workspaceId: '', newToken: '', errorMsg: 'Invalid token' },
  },
  {
    name: 'SignPayload',
    line: () => 'POST /auth/sign',
    body: () => ({ payload: 'aGVsbG8=' }),
    ok: { ok: true, signature: expect.stringMatching(/^[0-9a-f]{64}$/), timestamp: expect.stringMatching(/^\d{10}$/) },
    malformed: { body: '{"payload": 5}' },
  },
  {
    name: 'ExportWorkspaceConfig',
    line: () => 'GET /workspace/config',
    ok: { gatewayHttpTls: false },
    malformed: null,
  },
  {
    name: 'HeadObject',
    line: (id) => `GET /objects/${id}`,
    make: async () => {
      const hash = unique('hash');
      await platform.gateway('POST /objects', { hash, size: 1, overwrite: true });
      return hash;
    },
    ok: { ok: true, exists: false, useWorkspaceStorage: true },
    unknown: { ok: true, exists: false },
    malformed: null,
  },
  {
    name: 'CreateObject',
    line: () => 'POST /objects',
    body: () => ({ hash: 'h', size: 3 }),
    ok: { ok: true, presignedUrl: expect.stringContaining('/objects/upload/') },
    malformed: { body: '{"size": "three"}' },
  },
  {
    name: 'GetOrCreateVolume',
    line: () => 'POST /volumes',
    body: () => ({ name: 'data', mount_path: './data' }),
    ok: { ok: true, error: '', volume: expect.objectContaining({ name: 'data' }) },
    malformed: { body: '{"name": ["data"]}' },
  },
  {
    name: 'GetOrCreateStub',
    line: () => 'POST /stubs',
    body: (id) => ({
      stubType: 'endpoint/deployment',
      name: 'n',
      handler: 'app:handler',
      cpu: '100',
      memory: 64,
      volumes: [{ id, mountPath: 'data' }],
    }),
    make: async () =>
      String(((await platform.gateway('POST /volumes', { name: unique('v') })).json['volume'] as Json)['id']),
    ok: { ok: true, errMsg: '' },
    unknown: { ok: false, errMsg: expect.stringMatching(/^volumes\[0\]\.id .* is not a volume of this workspace$/) },
    malformed: { body: '{"cpu": "much"}' },
  },
  {
    name: 'DeployStub',
    line: () => 'POST /stubs/deploy',
    body: (stubId) => ({ stubId, name: 'deployed' }),
    make: () => platform.stub(),
    ok: { ok: true, version: 1, invokeUrl: expect.stringContaining('/endpoint/deployed/v1') },
    unknown: { ok: false, deploymentId: '', version: 0, invokeUrl: '' },
  },
  {
    name: 'GetURL',
    line: (stubId) => `GET /stubs/${stubId}/url`,
    make: () => platform.stub(),
    ok: { ok: true, url: expect.stringContaining('/endpoint/id/') },
    unknown: { ok: false, errMsg: 'Invalid stub ID', url: '' },
    malformed: { line: `GET /stubs/${NOBODY}/url?isShell=perhaps` },
  },
  {
    name: 'ListDeployments',
    line: () => 'GET /deployments',
    ok: done,
    malformed: { line: 'GET /deployments?limit=x' },
  },
  {
    name: 'StopDeployment',
    line: (id) => `POST /deployments/${id}/stop`,
    make: aDeployment,
    ok: done,
    unknown: NO_DEPLOYMENT,
    done: async (id) => !(await isActive(id)),
  },
  {
    name: 'StartDeployment',
    line: (id) => `POST /deployments/${id}/start`,
    make: async () => {
      const id = await aDeployment();
      await platform.gateway(`POST /deployments/${id}/stop`);
      return id;
    },
    ok: done,
    unknown: NO_DEPLOYMENT,
    done: isActive,
  },
  {
    name: 'ScaleDeployment',
    line: (id) => `POST /deployments/${id}/scale`,
    body: () => ({ containers: 2 }),
    make: aDeployment,
    ok: done,
    unknown: NO_DEPLOYMENT,
    malformed: { body: '{"containers": -1}' },
  },
  {
    name: 'DeleteDeployment',
    line: (id) => `DELETE /deployments/${id}`,
    make: aDeployment,
    ok: done,
    unknown: NO_DEPLOYMENT,
    done: async (id) => !(await isListed(id)),
  },
  { name: 'ListTasks', line: () => 'GET /tasks', ok: done, malformed: { line: 'GET /tasks?limit=x' } },
  {
    name: 'StartTask',
    line: () => 'POST /tasks/start',
    body: (taskId) => ({ taskId, containerId: '' }),
    make: aTask,
    ok: { ok: true },
    unknown: { ok: false },
    malformed: { body: '{"taskId": 7}' },
    done: async (id) => (await statusOf(id)) === 'RUNNING',
  },
  {
    name: 'EndTask',
    line: () => 'POST /tasks/end',
    body: (taskId) => ({ taskId, taskStatus: 'COMPLETE', taskDuration: 0.5, result: 'eyJhIjoxfQ==' }),
    make: async () => {
      const taskId = await aTask();
      expect((await platform.gateway('POST /tasks/start', { taskId })).json).toEqual({ ok: true });
      return taskId;
    },
    ok: { ok: true },
    unknown: { ok: false },
    malformed: { body: '{"result": "!"}' },
    done: async (id) => (await statusOf(id)) === 'COMPLETE',
  },
  {
    name: 'StopTasks',
    line: () => 'POST /tasks/stop',
    body: (taskId) => ({ taskIds: [taskId] }),
    make: aTask,
    ok: done,
    unknown: refusedWith('Task not found'),
    malformed: { body: '{"taskIds": "all"}' },
    done: async (id) => (await statusOf(id)) === 'CANCELLED',
  },
  { name: 'ListContainers', line: () => 'GET /containers', ok: { ok: true, errorMsg: '' }, malformed: null },
  {
    name: 'StopContainer',
    line: (id) => `POST /containers/${id}/stop`,
    make: aContainer,
    ok: { ok: true, errorMsg: '' },
    unknown: { ok: false, errorMsg: expect.stringMatching(/^Container not found: /) },
    done: async (id) => !(await list('/containers', 'containers')).some((row) => row['containerId'] === id),
  },
  {
    name: 'CheckpointContainer',
    line: (id) => `POST /containers/${id}/checkpoint`,
    ok: { ok: false, checkpointId: '', errorMsg: 'checkpoints are not available in this version' },
  },
  {
    name: 'CreateMachine',
    line: () => 'POST /machines',
    body: () => ({ poolName: 'mine' }),
    ok: { ok: true, agentUpstreamToken: expect.stringMatching(/^lsj1\./) },
    malformed: { body: '{"poolName": 1}' },
  },
  { name: 'ListMachines', line: () => 'GET /machines', ok: done, malformed: { line: 'GET /machines?limit=x' } },
  {
    name: 'DeleteMachine',
    line: (id) => `DELETE /machines/${id}?poolName=mine`,
    make: aMachine,
    ok: done,
    unknown: refusedWith('machine not found'),
    done: async (id) => !(await list('/machines', 'machines')).some((row) => row['id'] === id),
  },
  { name: 'ListWorkers', line: () => 'GET /workers', ok: { ...done, workers: [] }, malformed: null },
  ...['cordon', 'uncordon', 'drain'].map((verb): Verb => ({
    name: `${verb[0]?.toUpperCase()}${verb.slice(1)}Worker`,
    line: (id) => `POST /workers/${id}/${verb}`,
    make: aMachine,
    ok: done,
    unknown: { ok: false, errMsg: expect.stringMatching(/^worker not found: /) },
  })),
  {
    name: 'ListPools',
    line: () => 'GET /pools?filters=name=mine',
    ok: { ok: true, pools: [expect.objectContaining({ name: 'mine', active: true })] },
    malformed: { line: 'GET /pools?limit=x' },
  },
  { name: 'ListTokens', line: () => 'GET /tokens', ok: done, malformed: null },
  {
    name: 'CreateToken',
    line: () => 'POST /tokens',
    ok: { ok: true, token: expect.objectContaining({ tokenType: 'workspace', active: true, reusable: true }) },
    malformed: { line: 'POST /tokens?reusable=perhaps' },
  },
  {
    name: 'ToggleToken',
    line: (id) => `POST /tokens/${id}/toggle`,
    make: aToken,
    ok: { ok: true, token: expect.objectContaining({ active: false, key: expect.stringMatching(/^eyJ….{4}$/) }) },
    unknown: refusedWith('Unable to toggle token.'),
    done: async (id) => (await tokenIs(id))?.['active'] === false,
  },
  {
    name: 'DeleteToken',
    line: (id) => `DELETE /tokens/${id}`,
    make: aToken,
    ok: done,
    // What never was is as gone as what was; another workspace's stays where it is.
    unknown: done,
    noId: refusedWith('Unable to delete token.'),
    done: async (id) => (await tokenIs(id)) === undefined,
  },
];

const NOT_JSON: Expected = { status: 400 };
const rest = (path: string): string => path.replace('{ws}', platform.own.workspaceId);
const READS_NOTHING = { malformed: null } as const;

const secretsOf = async (): Promise<Json[]> =>
  (await platform.call(rest('GET /api/v1/secret/{ws}'))).json['data'] as Json[];
const aSecret = async (): Promise<string> => {
  const name = unique('SECRET_').replace('-', '');
  await platform.call(rest('POST /api/v1/secret/{ws}'), { name, value: 'first' });
  return name;
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
  ...['app', 'container', 'deployment', 'task', 'logs'].map((thing): Verb => ({
    name: `GET /${thing}/{ws}`,
    line: (id) => `GET /${thing}/${id}`,
    make: async () => platform.own.workspaceId,
    ok: { status: 200 },
    unknown: { status: 401 },
    malformed: thing === 'container' ? null : { line: `GET /${thing}/{ws}?limit=x` },
  })),
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

const UNAUTHORIZED: Expected = { status: 401, text: '{"message":"Unauthorized"}' };
const aName = async (said: Json = {}): Promise<string> => {
  const name = unique('invoked');
  await platform.deploy(name, { stubType: 'taskqueue/deployment', ...said });
  return name;
};
const INVOKE: readonly Verb[] = [
  ...['', '/latest', '/v1'].map((suffix): Verb => ({
    name: `POST /taskqueue/{name}${suffix}`,
    line: (name) => `POST /taskqueue/${name}${suffix}`,
    make: aName,
    body: () => ({ n: 1 }),
    ok: { task_id: expect.stringMatching(/^[0-9a-f-]{36}$/) },
    unknown: { status: 400, text: '{"message":"Invalid deployment"}' },
    refused: UNAUTHORIZED,
    malformed: { answer: { status: 400, text: '{"error":"invalid request payload"}' } },
  })),
  {
    name: 'POST /taskqueue/id/{stubId}',
    line: (id) => `POST /taskqueue/id/${id}`,
    make: () => platform.stub({ stubType: 'taskqueue/deployment' }),
    ok: { task_id: expect.any(String) },
    unknown: { status: 400, text: '{"message":"Invalid stub"}' },
    foreign: { status: 401, text: '{"message":"Invalid token"}' },
    refused: UNAUTHORIZED,
    malformed: { body: '[1]', answer: { status: 400, text: '{"error":"invalid request payload"}' } },
  },
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
    name: 'gateway',
    verbs: GATEWAY,
    path: gateway,
    refused: { code: 16, message: 'invalid or missing token', details: [] },
    malformed: { code: 3, details: [] },
  },
  {
    name: 'REST',
    verbs: REST,
    path: (line) => rest(line.replace(' ', ' /api/v1')),
    refused: { code: 'unauthorized', message: 'Unauthorized' },
    malformed: NOT_JSON,
  },
  { name: 'invoke', verbs: INVOKE, path: (line) => line, refused: UNAUTHORIZED, malformed: NOT_JSON },
];

function meets(answer: Answer, expected: Expected): void {
  if (typeof expected['status'] !== 'number') {
    expect(answer.json).toMatchObject(expected);
    return;
  }
  expect([answer.status, answer.text]).toEqual([expected['status'], expected['text'] ?? answer.text]);
}

let walked = 0;
describe.each(SURFACES)('$name', (surface) => {
  describe.each(surface.verbs)('$name', (verb) => {
    let id = NOBODY;
    const send = async (token: string, about: string = id, body: unknown = verb.body?.(about)): Promise<Answer> =>
      platform.call(surface.path(verb.line(about)), body, { token });
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
      // On this host Authorize makes the first workspace; there is one.
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
            : await platform.call(surface.path(line), undefined, { token: caller() });
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

test('every verb was walked through every case', () => {
  const verbs = GATEWAY.length + REST.length + INVOKE.length;
  const cases = [...GATEWAY, ...REST, ...INVOKE].reduce(
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
