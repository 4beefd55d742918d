/**
 * Every operation of the gateway: its call, its answer (exactly these fields, no others), and each way in which it may
 * fail. The walk (gateway-walk.ts) takes each operation through every caller and every spelling. Field lists are
 * written out here and not read off our schemas.
 */
import { expect } from 'vitest';
import { NOBODY } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { done, refusedWith } from './verbs-kit.ts';
import type { Expected, Kit, Verb } from './verbs-kit.ts';

export interface Failure {
  readonly line?: (id: string) => string;
  readonly body?: (id: string) => unknown;
  /** Absent: the verb's own `make`. */
  readonly make?: () => Promise<string>;
  readonly token?: () => string;
  readonly answer: Json;
}

export interface GatewayVerb extends Verb {
  /** The fields of its answer. */
  readonly fields: string;
  /** Fields of the records in the answer, by the answer's field. */
  readonly records?: Readonly<Record<string, string>>;
  /** The answer to a restricted token; absent: the token may call. */
  readonly restricted?: Json;
  /** The answer to a container's credential; absent: that of a restricted token, or a refusal. */
  readonly container?: Json;
  /** Fields of the body that are int64. */
  readonly int64?: readonly string[];
  readonly failures?: Readonly<Record<string, Failure>>;
  /** True for an operation beside the 31 of the interface. */
  readonly ours?: true;
}

const DEPLOYMENT =
  'id name active stubId stubType stubName version workspaceId workspaceName createdAt updatedAt appId serving rollout';
/** `usage` is an addition of ours. */
export const CONTAINER =
  'containerId stubId status scheduledAt startedAt workspaceId workerId machineId deploymentId usage';
const TASK = 'id status containerId startedAt endedAt stubId stubName workspaceId workspaceName createdAt updatedAt';
const TOKEN = 'tokenId key active reusable workspaceId tokenType createdAt updatedAt';
/** `conditions`, `conditionWords` and `host` are additions of ours. */
export const MACHINE =
  'id cpu memory gpu gpuCount status poolName providerName registrationToken tailscaleUrl tailscaleAuth lastKeepalive created agentVersion machineMetrics userData ssh conditions conditionWords host';
/** `drain` and `conditions` are additions of ours. */
export const WORKER =
  'id status totalCpu totalMemory totalGpuCount freeCpu freeMemory freeGpuCount gpu poolName machineId resourceVersion requiresPoolSelector priority preemptable buildVersion activeContainers runtime poolSelector cordonRequested drain rolloutGeneration rolloutBuildVersion workerImageOverride conditions';
const POOL_SETTINGS = {
  cpuOvercommit: 2,
  cpuWorkOnGpuMachines: null,
  requiresPoolSelector: false,
  priority: 0,
  reservedCpuCores: null,
  reservedMemoryMib: null,
  hourlyCost: null,
  provider: null,
  minFreeGpu: 0,
  minFreeCpuCores: 0,
  minFreeMemoryMib: 0,
  minMachines: 0,
  maxMachines: 10,
  hourlyBudget: null,
  machineGpuModel: null,
  machineGpuCount: 0,
  machineCpuCores: null,
  machineMemoryMib: null,
  idleSeconds: 600,
  demandSeconds: 5,
};
/** Text for a workspace that would spend the installation's money. */
const NOT_FOR_WORKSPACES = /^settings\.\w+ is for an administrator to change: /;
/** The last four fields are additions of ours. */
const POOL =
  'name active gpu minFreeGpu minFreeCpu minFreeMemory defaultWorkerCpu defaultWorkerMemory defaultWorkerGpuCount state settings effectiveCpuWorkOnGpuMachines declaredIn growth';

const ENROLMENT_TOKEN =
  'id name poolName state maxMachines machines joined expiresAt revokedAt lastUsedAt createdAt createdBy';

const UNAUTHORIZED = refusedWith('Unauthorized Access');
const NO_DEPLOYMENT = refusedWith('Deployment not found');
const UNSCALED = 'This type of deployment cannot be scaled directly.';
const STUB = { stubType: 'endpoint/deployment', name: 'n', handler: 'app:handler', cpu: '100', memory: 64 };

/** Calls of pods and sandboxes that published clients make, and the fields that they read. */
export const POD_ROUTES: readonly (readonly [route: string, fields: string, body: Json])[] = [
  ['POST /pods/{id}/connect', 'stubId', {}],
  ['POST /pods/{id}/exec', 'pid done exitCode stdout stderr', { command: 'true' }],
  ['GET /pods/{id}/status?pid=1', 'exitCode status', {}],
  ['GET /pods/{id}/stdout?pid=1', 'stdout', {}],
  ['GET /pods/{id}/stderr?pid=1', 'stderr', {}],
  ['POST /pods/{id}/kill', '', { pid: 1 }],
  ['GET /pods/{id}/processes', 'processes', {}],
  ['POST /pods/{id}/files/upload', '', { containerPath: '/a', data: '' }],
  ['GET /pods/{id}/files/download/{path}', 'data', {}],
  ['GET /pods/{id}/files/stat?containerPath=/a+b', 'fileInfo', {}],
  ['GET /pods/{id}/files?containerPath=/', 'files', {}],
  ['POST /pods/{id}/files/find', 'results', { containerPath: '/', pattern: 'a' }],
  ['POST /pods/{id}/files/replace', 'results', { containerPath: '/', pattern: 'a' }],
  ['DELETE /pods/{id}/files/{path}', '', {}],
  ['POST /pods/{id}/directories', '', { containerPath: '/a' }],
  ['DELETE /pods/{id}/directories/{path}', '', {}],
  ['POST /pods/{id}/ports/expose', 'url', { port: 80 }],
  ['GET /pods/{id}/urls', 'urls', {}],
  ['POST /pods/{id}/ttl', '', { ttl: 60 }],
  ['PATCH /pods/{id}/ttl', '', { ttl: 60 }],
  ['POST /pods/{id}/network/update', '', {}],
  ['POST /pods/{id}/snapshot-memory', 'checkpointId', {}],
  ['POST /pods/{id}/create-image-from-filesystem', 'imageId', {}],
];

export function gatewayVerbs(platform: () => Platform, kit: Kit): readonly GatewayVerb[] {
  const { unique, aTask, aStartedTask, statusOf } = kit;
  const groupPool = async (): Promise<string> => {
    await platform().gateway('POST /pools', { name: 'groups' });
    return 'groups';
  };
  const anEnrolmentToken = async (): Promise<string> => {
    const poolName = await groupPool();
    const made = await platform().gateway('POST /enrolment-tokens', { name: unique('group'), poolName });
    return String((made.json['token'] as Json)['id']);
  };
  const aPool = async (): Promise<string> => {
    const name = unique('pool');
    await platform().gateway('POST /pools', { name, settings: { cpuOvercommit: 2 } });
    return name;
  };
  const settingsOf = async (name: string): Promise<Json> =>
    ((await kit.list('/pools', 'pools')).find((pool) => pool['name'] === name)?.['settings'] ?? {}) as Json;
  const deleted = async (): Promise<string> => {
    const id = await kit.aDeployment();
    await platform().gateway(`DELETE /deployments/${id}`);
    return id;
  };
  const gone: Failure = { make: deleted, answer: NO_DEPLOYMENT };
  const stub = (said: Json, errMsg: unknown): Failure => ({
    body: () => ({ ...STUB, ...said }),
    answer: { ok: false, stubId: '', errMsg },
  });
  const ended = (status: string) => async (): Promise<string> => {
    const taskId = await aStartedTask();
    const end = await platform().gateway('POST /tasks/end', { taskId, taskStatus: status });
    expect(end.json).toEqual({ ok: true });
    return taskId;
  };

  const identity: readonly GatewayVerb[] = [
    {
      name: 'Authorize',
      container: { ok: true, newToken: '', errorMsg: '' },
      line: () => 'POST /auth/authorize',
      fields: 'ok workspaceId newToken errorMsg',
      ok: { ok: true, newToken: '', errorMsg: '' },
      refused: { ok: false, workspaceId: '', newToken: '', errorMsg: 'Invalid token' },
    },
    {
      name: 'SignPayload',
      container: { ok: true, errorMsg: '' },
      line: () => 'POST /auth/sign',
      body: () => ({ payload: 'aGVsbG8=' }),
      fields: 'ok signature timestamp errorMsg',
      ok: {
        ok: true,
        signature: expect.stringMatching(/^[0-9a-f]{64}$/),
        timestamp: expect.stringMatching(/^\d{10}$/),
        errorMsg: '',
      },
      malformed: { body: '{"payload": 5}' },
    },
    {
      name: 'ExportWorkspaceConfig',
      line: () => 'GET /workspace/config',
      fields:
        'gatewayHttpHost gatewayHttpPort gatewayHttpTls gatewayGrpcHost gatewayGrpcPort gatewayGrpcTls workspaceId',
      ok: { gatewayHttpHost: '127.0.0.1', gatewayHttpPort: expect.any(Number), gatewayHttpTls: false },
      restricted: { gatewayHttpHost: '', gatewayHttpPort: 0, workspaceId: '' },
      malformed: null,
    },
    {
      name: 'ListTokens',
      line: () => 'GET /tokens',
      fields: 'ok errMsg tokens',
      records: { tokens: TOKEN },
      restricted: UNAUTHORIZED,
      ok: done,
      malformed: null,
    },
    {
      name: 'CreateToken',
      line: () => 'POST /tokens',
      fields: 'ok errMsg token',
      records: { token: TOKEN },
      restricted: UNAUTHORIZED,
      ok: { ok: true, token: expect.objectContaining({ tokenType: 'workspace', active: true, reusable: true }) },
      malformed: { line: 'POST /tokens?reusable=perhaps' },
      failures: {
        'a type that is not for callers': {
          line: () => 'POST /tokens?tokenType=admin',
          answer: refusedWith('tokenType must be one of workspace, workspace_restricted'),
        },
      },
    },
    {
      name: 'ToggleToken',
      line: (id) => `POST /tokens/${id}/toggle`,
      make: async () => String((await kit.aToken())['tokenId']),
      fields: 'ok errMsg token',
      records: { token: TOKEN },
      restricted: UNAUTHORIZED,
      ok: { ok: true, token: expect.objectContaining({ active: false, key: expect.stringMatching(/^eyJ….{4}$/) }) },
      unknown: refusedWith('Unable to toggle token.'),
      done: async (id) => (await kit.tokenIs(id))?.['active'] === false,
    },
    {
      name: 'DeleteToken',
      line: (id) => `DELETE /tokens/${id}`,
      make: async () => String((await kit.aToken())['tokenId']),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      // A token that never existed counts as gone, too; another workspace's token stays.
      unknown: done,
      noId: refusedWith('Unable to delete token.'),
      done: async (id) => (await kit.tokenIs(id)) === undefined,
    },
  ];

  const objects: readonly GatewayVerb[] = [
    {
      name: 'HeadObject',
      // The object is the workspace's, not the container's own.
      container: { ok: true, exists: false, objectId: '' },
      line: (id) => `GET /objects/${id}`,
      make: async () => (await kit.anObject('zip')).hash,
      fields: 'ok exists objectId objectMetadata errorMsg useWorkspaceStorage',
      records: { objectMetadata: 'name size' },
      ok: {
        ok: true,
        exists: true,
        objectMetadata: { name: expect.any(String), size: '3' },
        errorMsg: '',
        useWorkspaceStorage: true,
      },
      unknown: { ok: true, exists: false, objectId: '', objectMetadata: null, useWorkspaceStorage: true },
      malformed: null,
      failures: {
        'announced and not uploaded': {
          make: async () => (await kit.anObject()).hash,
          answer: { ok: true, exists: false, objectId: '', objectMetadata: null, useWorkspaceStorage: true },
        },
      },
    },
    {
      name: 'CreateObject',
      container: { ok: true, errorMsg: '', presignedUrl: expect.stringContaining('/objects/upload/') },
      line: () => 'POST /objects',
      body: () => ({ objectMetadata: { name: 'h', size: '3' }, hash: unique('h'), size: '3', overwrite: true }),
      fields: 'ok objectId presignedUrl errorMsg',
      int64: ['size', 'objectMetadata.size'],
      ok: {
        ok: true,
        objectId: expect.stringMatching(/^[0-9a-f-]{36}$/),
        presignedUrl: expect.stringMatching(/^http:\/\/.*\/objects\/upload\//),
        errorMsg: '',
      },
      malformed: { body: '{"size": "three"}' },
      failures: {
        'known, not to be overwritten': {
          make: async () => (await kit.anObject('zip')).hash,
          body: (hash) => ({ hash, size: 3, overwrite: false }),
          answer: { ok: true, objectId: expect.stringMatching(/^[0-9a-f-]{36}$/), presignedUrl: '', errorMsg: '' },
        },
        'no hash': { body: () => ({ size: 3 }), answer: { ok: false, objectId: '', presignedUrl: '' } },
        'a size below zero': {
          body: () => ({ hash: 'h', size: -1 }),
          answer: { ok: false, errorMsg: expect.stringMatching(/size/) },
        },
      },
    },
    {
      name: 'GetOrCreateVolume',
      container: { ok: false, volume: null, error: 'Unauthorized Access' },
      ours: true,
      line: () => 'POST /volumes',
      body: () => ({ name: 'data', mountPath: './data' }),
      fields: 'ok volume error',
      ok: { ok: true, error: '', volume: expect.objectContaining({ name: 'data' }) },
      malformed: { body: '{"name": ["data"]}' },
      failures: {
        'a name that is none': {
          body: () => ({ name: '../x' }),
          answer: { ok: false, volume: null, error: expect.stringMatching(/^name must be/) },
        },
      },
    },
  ];

  const stubs: readonly GatewayVerb[] = [
    {
      name: 'GetOrCreateStub',
      // The app is another one. container-calls.test.ts covers the calls that the credential may make.
      container: { ok: false, stubId: '', errMsg: 'Unauthorized Access' },
      line: () => 'POST /stubs',
      body: (id) => ({
        ...STUB,
        appName: 'conforming',
        timeout: '30',
        keepWarmSeconds: 10,
        maxPendingTasks: 5,
        concurrentRequests: 2,
        forceCreate: false,
        volumes: [{ id, mountPath: 'data' }],
        autoscaler: { type: 'queue_depth', maxContainers: 2, tasksPerContainer: 1, minContainers: 0 },
        taskPolicy: { timeout: '30', maxRetries: 1, ttl: 60 },
      }),
      make: kit.aVolume,
      fields: 'ok stubId errMsg warnMsg capacityStatus unsupportedGpus matchedPrivatePool',
      int64: ['cpu', 'memory', 'timeout', 'taskPolicy.timeout'],
      ok: { ok: true, stubId: expect.stringMatching(/^[0-9a-f-]{36}$/), errMsg: '', warnMsg: '', unsupportedGpus: [] },
      unknown: { ok: false, errMsg: expect.stringMatching(/^volumes\[0\]\.id .* is not a volume of this workspace$/) },
      malformed: { body: '{"cpu": "much"}' },
      failures: {
        'no CPU': stub({ cpu: 0 }, 'CPU must be greater than 0.'),
        'too much CPU': stub({ cpu: 128_001 }, 'CPU must be 128000 or less.'),
        'no memory': stub({ memory: 0 }, 'Memory must be greater than 0.'),
        'too much memory': stub({ memory: '32769' }, 'Memory must be 32GiB or less.'),
        'too many GPUs': stub({ gpu: 'H100', gpuCount: 3 }, 'GPU count must be 2 or less.'),
        'a secret that is not there': stub(
          { secrets: [{ name: 'x' }] },
          'Secret "x" does not exist in this workspace.',
        ),
        'fewer at most than at least': stub(
          { stubType: 'pod/deployment', autoscaler: { type: 'queue_depth', minContainers: 3, maxContainers: 2 } },
          'min replicas must be less than or equal to max replicas',
        ),
        'too many containers': stub(
          { stubType: 'pod/deployment', autoscaler: { type: 'queue_depth', maxContainers: 101 } },
          'max replicas must be 100 or less',
        ),
        'a kind that is none': stub({ stubType: 'lambda' }, expect.stringMatching(/^stubType "lambda" .*endpoint/)),
        'an autoscaler that is none': stub(
          { autoscaler: { type: 'magic' } },
          expect.stringMatching(/^autoscaler.type "magic" .*queue_depth/),
        ),
        'a Python that is none': stub(
          { pythonVersion: 'python2' },
          expect.stringMatching(/^pythonVersion "python2" .*python3/),
        ),
        'no handler': stub({ handler: '' }, expect.stringMatching(/^handler must be module:function/)),
        'code that is not there': stub(
          { objectId: NOBODY },
          expect.stringMatching(/is not an object of this workspace/),
        ),
        'a serve stub for a GPU that nobody has': stub(
          { stubType: 'endpoint/serve', gpu: 'H100' },
          'There is currently no GPU capacity for H100.',
        ),
      },
    },
    {
      name: 'CheckStub',
      ours: true,
      line: () => 'POST /stubs/check',
      body: () => ({ ...STUB, appName: 'checked' }),
      fields: 'ok errMsg problems warnings config',
      int64: ['cpu', 'memory'],
      ok: { ...done, problems: [], warnings: [], config: expect.objectContaining({ cpuMillicores: 100 }) },
      malformed: { body: '{"cpu": "much"}' },
      failures: {
        'everything that is wrong': {
          body: () => ({
            ...STUB,
            gpu: 'H10',
            pool: { name: 'gpuu' },
            secrets: [{ name: 'x' }, { name: 'y' }],
          }),
          answer: {
            ...done,
            problems: [
              { field: 'secrets', value: 'x', text: 'there is no secret x in this workspace' },
              { field: 'secrets', value: 'y', text: 'there is no secret y in this workspace' },
              { field: 'gpu', value: 'H10', text: expect.stringMatching(/^no GPU model is called H10: .*H100/) },
              { field: 'pool', value: 'gpuu', text: expect.stringMatching(/^There is no pool gpuu /) },
            ],
            warnings: [],
            config: expect.objectContaining({ gpu: ['H10'], gpuCount: 1 }),
          },
        },
        'a limit': {
          body: () => ({ ...STUB, cpu: 128_001, secrets: [{ name: 'x' }] }),
          answer: {
            ...done,
            problems: [
              { field: '', value: '', text: 'CPU must be 128000 or less.' },
              { field: 'secrets', value: 'x', text: 'there is no secret x in this workspace' },
            ],
            config: null,
          },
        },
      },
    },
    {
      name: 'DeployStub',
      line: () => 'POST /stubs/deploy',
      body: (stubId) => ({ stubId, name: 'deployed' }),
      make: () => platform().stub({ forceCreate: true }),
      // `errMsg`, `warnMsg` and the object `rollout` are additions of ours.
      fields: 'ok errMsg warnMsg deploymentId version invokeUrl rollout',
      ok: {
        ok: true,
        deploymentId: expect.stringMatching(/^[0-9a-f-]{36}$/),
        version: expect.any(Number),
        invokeUrl: expect.stringMatching(/\/endpoint\/deployed\/v\d+$/),
      },
      unknown: { ok: false, deploymentId: '', version: 0, invokeUrl: '' },
      failures: {
        'a name without letters': {
          body: (stubId) => ({ stubId, name: ' - ' }),
          answer: { ok: false, deploymentId: '', version: 0, invokeUrl: '' },
        },
        'no stub': { body: () => ({ name: 'x' }), answer: { ok: false, deploymentId: '' } },
        ...Object.fromEntries(
          ['bot/deployment', 'sandbox', 'container'].map((stubType) => [
            `a stub of ${stubType}, which nothing runs`,
            {
              make: () => platform().stub({ stubType }),
              answer: {
                ok: false,
                deploymentId: '',
                errMsg: expect.stringContaining(`deployments of ${stubType.split('/')[0]} are not available`) as string,
              },
            },
          ]),
        ),
      },
    },
    {
      name: 'GetURL',
      line: (stubId) => `GET /stubs/${stubId}/url?urlType=path&isShell=false`,
      make: () => platform().stub(),
      fields: 'ok errMsg url',
      ok: { ok: true, errMsg: '', url: expect.stringContaining('/endpoint/id/') },
      unknown: { ok: false, errMsg: 'Invalid stub ID', url: '' },
      malformed: { line: `GET /stubs/${NOBODY}/url?isShell=perhaps` },
      failures: {
        'a shell, for a restricted token': {
          line: (id) => `GET /stubs/${id}/url?isShell=true`,
          token: () => platform().restricted,
          answer: refusedWith('Unauthorized access'),
        },
        'a deployment that is not there': {
          line: (id) => `GET /stubs/${id}/url?deploymentId=${NOBODY}`,
          answer: refusedWith('Unable to get deployment'),
        },
        'the parameter twice': {
          line: (id) => `GET /stubs/${id}/url?urlType=path&urlType=host`,
          answer: { code: 3, details: [] },
        },
        'a URL type that is none acts as path': {
          line: (id) => `GET /stubs/${id}/url?urlType=carrier-pigeon`,
          answer: { ok: true, url: expect.stringContaining('/endpoint/id/') },
        },
        'a pod, whose port is not known': {
          make: () => platform().stub({ stubType: 'pod', handler: '' }),
          answer: { ok: true, url: expect.stringMatching(/\/pod\/id\/[0-9a-f-]{36}\/<PORT>$/) },
        },
        'a pod of one port': {
          make: () => platform().stub({ stubType: 'pod', handler: '', ports: [8080] }),
          answer: { ok: true, url: expect.stringMatching(/\/pod\/id\/[0-9a-f-]{36}\/8080$/) },
        },
        'a pod by host': {
          line: (id) => `GET /stubs/${id}/url?urlType=host`,
          make: () => platform().stub({ stubType: 'pod', handler: '', ports: [8080] }),
          answer: { ok: true, url: expect.stringMatching(/^http:\/\/[0-9a-f-]{36}-8080\.localhost:/) },
        },
      },
    },
  ];

  const deployments: readonly GatewayVerb[] = [
    {
      name: 'ListDeployments',
      line: () => 'GET /deployments?limit=3',
      fields: 'ok errMsg deployments',
      records: { deployments: DEPLOYMENT },
      ok: done,
      malformed: { line: 'GET /deployments?limit=x' },
      failures: {
        'a limit below zero': { line: () => 'GET /deployments?limit=-1', answer: { code: 3, details: [] } },
        'filters that are none of the three': {
          line: () => 'GET /deployments?filters=x',
          answer: { code: 3, details: [] },
        },
      },
    },
    {
      name: 'StopDeployment',
      line: (id) => `POST /deployments/${id}/stop`,
      make: () => kit.aDeployment(),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      done: async (id) => !(await kit.isActive(id)),
      failures: { deleted: gone },
    },
    {
      name: 'StartDeployment',
      line: (id) => `POST /deployments/${id}/start`,
      make: async () => {
        const id = await kit.aDeployment();
        await platform().gateway(`POST /deployments/${id}/stop`);
        return id;
      },
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      done: kit.isActive,
      failures: { deleted: gone },
    },
    {
      name: 'ScaleDeployment',
      line: (id) => `POST /deployments/${id}/scale`,
      body: () => ({ containers: 1 }),
      make: () => kit.aDeployment(),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      malformed: { body: '{"containers": -1}' },
      failures: {
        deleted: gone,
        'too many': { body: () => ({ containers: 101 }), answer: refusedWith('replicas must be 100 or less') },
        'no body': { body: () => '', answer: done },
        'a function': {
          make: () => kit.aDeployment({ stubType: 'function/deployment' }),
          answer: refusedWith(UNSCALED),
        },
        'a schedule': {
          make: () => kit.aDeployment({ stubType: 'schedule/deployment', extra: '{"when": "@yearly"}' }),
          answer: refusedWith(UNSCALED),
        },
      },
    },
    {
      name: 'DeleteDeployment',
      line: (id) => `DELETE /deployments/${id}`,
      make: () => kit.aDeployment(),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: NO_DEPLOYMENT,
      done: async (id) => !(await kit.isListed(id)),
      failures: { deleted: gone },
    },
  ];

  const tasks: readonly GatewayVerb[] = [
    {
      name: 'ListTasks',
      container: { ok: true, errMsg: '', tasks: [], total: 0 },
      line: () => 'GET /tasks?limit=3',
      make: aTask,
      fields: 'ok errMsg tasks total',
      records: { tasks: TASK },
      ok: done,
      malformed: { line: 'GET /tasks?limit=x' },
      failures: {
        'a limit below zero': { line: () => 'GET /tasks?limit=-1', answer: { code: 3, details: [] } },
        'filters that are none of the three': {
          line: () => 'GET /tasks?filters=%7B',
          answer: { code: 3, details: [] },
        },
      },
    },
    {
      name: 'StartTask',
      // The task is of another stub.
      container: { ok: false },
      line: () => 'POST /tasks/start',
      body: (taskId) => ({ taskId, containerId: '' }),
      make: () => aTask(),
      fields: 'ok',
      ok: { ok: true },
      unknown: { ok: false },
      malformed: { body: '{"taskId": 7}' },
      done: async (id) => (await statusOf(id)) === 'RUNNING',
      failures: {
        'one that is over': { make: ended('COMPLETE'), answer: { ok: false } },
        'one that another container has': {
          make: () => aStartedTask({}, 'mine'),
          body: (taskId) => ({ taskId, containerId: 'other' }),
          answer: { ok: false },
        },
      },
    },
    {
      name: 'EndTask',
      container: { ok: false },
      line: () => 'POST /tasks/end',
      body: (taskId) => ({
        taskId,
        taskStatus: 'COMPLETE',
        taskDuration: 0.5,
        containerId: '',
        containerHostname: 'host',
        keepWarmSeconds: 3,
        result: 'eyJhIjoxfQ==',
      }),
      make: () => aStartedTask(),
      fields: 'ok',
      ok: { ok: true },
      unknown: { ok: false },
      malformed: { body: '{"result": "!"}' },
      done: async (id) => (await statusOf(id)) === 'COMPLETE',
      failures: {
        'a status that is none': {
          body: (taskId) => ({ taskId, taskStatus: 'SOMEHOW' }),
          answer: { ok: false },
        },
        'another container': {
          make: () => aStartedTask({}, 'mine'),
          body: (taskId) => ({ taskId, taskStatus: 'COMPLETE', containerId: 'other' }),
          answer: { ok: false },
        },
        'one that nobody started': { make: aTask, answer: { ok: false } },
        'over, and not COMPLETE': {
          make: ended('ERROR'),
          body: (taskId) => ({ taskId, taskStatus: 'ERROR' }),
          answer: { ok: true },
        },
        'over, and COMPLETE after all': { make: ended('ERROR'), answer: { ok: true } },
      },
    },
    {
      name: 'StopTasks',
      line: () => 'POST /tasks/stop',
      body: (taskId) => ({ taskIds: [taskId] }),
      make: () => aTask(),
      fields: 'ok errMsg',
      ok: done,
      unknown: refusedWith('Task not found'),
      malformed: { body: '{"taskIds": "all"}' },
      done: async (id) => (await statusOf(id)) === 'CANCELLED',
      failures: {
        'one that is over': { make: ended('COMPLETE'), answer: done },
        none: { body: () => ({ taskIds: [] }), answer: done },
      },
    },
  ];

  const fleet: readonly GatewayVerb[] = [
    {
      name: 'ListContainers',
      line: () => 'GET /containers',
      make: kit.aContainer,
      fields: 'containers ok errorMsg',
      records: { containers: CONTAINER },
      ok: { ok: true, errorMsg: '' },
      malformed: null,
    },
    {
      name: 'StopContainer',
      line: (id) => `POST /containers/${id}/stop`,
      make: kit.aContainer,
      fields: 'ok errorMsg',
      ok: { ok: true, errorMsg: '' },
      unknown: { ok: false, errorMsg: expect.stringMatching(/^Container not found: /) },
      done: async (id) => (await kit.containerIs(id)) === undefined,
      failures: { 'by the administrator': { token: () => platform().admin.token, answer: { ok: true } } },
    },
    {
      name: 'CheckpointContainer',
      ours: true,
      line: (id) => `POST /containers/${id}/checkpoint`,
      fields: 'ok checkpointId errorMsg',
      ok: { ok: false, checkpointId: '', errorMsg: 'checkpoints are not available in this version' },
    },
    {
      name: 'ListMachines',
      line: () => 'GET /machines?limit=2',
      make: kit.aMachine,
      fields: 'ok errMsg machines gpus supportedGpus maxCpuMillicores maxMemoryMb',
      records: { machines: MACHINE },
      restricted: UNAUTHORIZED,
      ok: { ...done, maxCpuMillicores: 128_000, maxMemoryMb: 32_768, gpus: expect.objectContaining({ H100: false }) },
      malformed: { line: 'GET /machines?limit=x' },
      failures: {
        'a limit below zero': { line: () => 'GET /machines?limit=-1', answer: { code: 3, details: [] } },
        'a pool that is none': { line: () => 'GET /machines?poolName=none', answer: refusedWith('pool not found') },
      },
    },
    {
      name: 'CreateMachine',
      line: () => 'POST /machines',
      body: () => ({ poolName: 'mine' }),
      fields: 'ok errMsg machine agentUpstreamUrl agentUpstreamBranch agentUpstreamToken',
      records: { machine: MACHINE },
      restricted: UNAUTHORIZED,
      ok: {
        ok: true,
        agentUpstreamUrl: expect.stringMatching(/^grpcs:\/\//),
        agentUpstreamBranch: 'stable',
        agentUpstreamToken: expect.stringMatching(/^lsj1\./),
        machine: expect.objectContaining({ status: 'pending', providerName: 'agent', machineMetrics: null }),
      },
      malformed: { body: '{"poolName": 1}' },
      failures: {
        'a name that is none': {
          body: () => ({ poolName: 'a b' }),
          answer: refusedWith(expect.stringMatching(/^poolName must be/)),
        },
      },
    },
    {
      name: 'DeleteMachine',
      line: (id) => `DELETE /machines/${id}?poolName=mine`,
      make: kit.aMachine,
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: refusedWith('machine not found'),
      done: async (id) => (await kit.machineIs(id)) === undefined,
      failures: {
        "a pool that is not the machine's": {
          line: (id) => `DELETE /machines/${id}?poolName=other`,
          answer: refusedWith('machine not found'),
        },
      },
    },
    {
      name: 'CreateEnrolmentToken',
      ours: true,
      line: () => 'POST /enrolment-tokens',
      make: groupPool,
      body: () => ({ name: unique('group'), poolName: 'groups', maxMachines: 3, expiresInSeconds: 3600 }),
      fields: 'ok errMsg token secret agentUpstreamUrl agentUpstreamBranch',
      records: { token: ENROLMENT_TOKEN },
      restricted: UNAUTHORIZED,
      ok: {
        ...done,
        secret: expect.stringMatching(/^lse1\.[0-9a-f]{64}\.[\w-]{43}$/),
        agentUpstreamUrl: expect.stringMatching(/^grpcs:\/\//),
        token: expect.objectContaining({ poolName: 'groups', state: 'active', maxMachines: 3, machines: 0, joined: 0 }),
      },
      malformed: { body: '{"name": 1}' },
      failures: {
        'a name that is none': {
          body: () => ({ name: 'a b', poolName: 'groups' }),
          answer: refusedWith(expect.stringMatching(/^name must be/)),
        },
        'a pool of somebody else': {
          body: () => ({ name: unique('group'), poolName: 'default' }),
          answer: refusedWith('poolName: there is no pool default of yours'),
        },
        'too many machines': {
          body: () => ({ name: unique('group'), poolName: 'groups', maxMachines: 10_001 }),
          answer: refusedWith('maxMachines must be from 1 to 10000'),
        },
        'too long a life': {
          body: () => ({ name: unique('group'), poolName: 'groups', expiresInSeconds: 366 * 86_400 }),
          answer: refusedWith('expiresInSeconds must be from 60 to 31536000 (365 days)'),
        },
      },
    },
    {
      name: 'ListEnrolmentTokens',
      ours: true,
      line: () => 'GET /enrolment-tokens',
      make: anEnrolmentToken,
      fields: 'ok errMsg tokens',
      records: { tokens: ENROLMENT_TOKEN },
      restricted: UNAUTHORIZED,
      ok: done,
      malformed: null,
    },
    {
      name: 'RevokeEnrolmentToken',
      ours: true,
      line: (id) => `DELETE /enrolment-tokens/${id}`,
      make: anEnrolmentToken,
      fields: 'ok errMsg token',
      records: { token: ENROLMENT_TOKEN },
      restricted: UNAUTHORIZED,
      ok: { ...done, token: expect.objectContaining({ state: 'revoked' }) },
      unknown: refusedWith('enrolment token not found'),
      done: async (id) =>
        (await kit.list('/enrolment-tokens', 'tokens')).some((one) => one['id'] === id && one['state'] === 'revoked'),
    },
    {
      name: 'ListWorkers',
      line: () => 'GET /workers',
      fields: 'ok errMsg workers',
      records: { workers: WORKER },
      restricted: UNAUTHORIZED,
      ok: done,
      malformed: null,
    },
    ...['cordon', 'uncordon', 'drain'].map((verb): GatewayVerb => ({
      name: `${verb[0]?.toUpperCase()}${verb.slice(1)}Worker`,
      line: (id) => `POST /workers/${id}/${verb}`,
      make: kit.aMachine,
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: { ok: false, errMsg: expect.stringMatching(/^worker not found/) },
    })),
    {
      name: 'ListPools',
      line: () => 'GET /pools?filters=name=mine&limit=5',
      make: kit.aMachine,
      fields: 'ok errMsg pools',
      records: { pools: POOL },
      restricted: refusedWith('This action is not permitted'),
      ok: { ok: true, pools: [expect.objectContaining({ name: 'mine', active: true })] },
      malformed: { line: 'GET /pools?limit=x' },
      failures: { 'a limit below zero': { line: () => 'GET /pools?limit=-1', answer: { code: 3, details: [] } } },
    },
    {
      name: 'CreatePool',
      ours: true,
      line: () => 'POST /pools',
      body: () => ({ name: unique('pool'), settings: { cpuOvercommit: 2 } }),
      fields: 'ok errMsg pool',
      restricted: UNAUTHORIZED,
      ok: { ...done, pool: expect.objectContaining({ settings: POOL_SETTINGS, declaredIn: '' }) },
      malformed: { body: '{"name": 1}' },
      failures: {
        'other settings than it has': {
          make: aPool,
          body: (name) => ({ name, settings: { priority: 1 } }),
          answer: refusedWith(expect.stringMatching(/^the pool is there already with other settings/)),
        },
        'a name that is none': {
          body: () => ({ name: 'a b' }),
          answer: refusedWith(expect.stringMatching(/^name must be/)),
        },
        'a setting out of bounds': {
          body: () => ({ name: unique('pool'), settings: { cpuOvercommit: 65 } }),
          answer: refusedWith('settings.cpuOvercommit must be a number from 1 to 64, or null for the default'),
        },
        'a provider, by a workspace': {
          body: () => ({ name: unique('pool'), settings: { provider: 'cloud' } }),
          answer: refusedWith(expect.stringMatching(NOT_FOR_WORKSPACES)),
        },
      },
    },
    {
      name: 'GetPool',
      ours: true,
      line: (name) => `GET /pools/${name}`,
      make: aPool,
      fields: 'ok errMsg pool',
      restricted: UNAUTHORIZED,
      ok: {
        ...done,
        pool: expect.objectContaining({ active: true, settings: POOL_SETTINGS, effectiveCpuWorkOnGpuMachines: false }),
      },
      malformed: null,
      unknown: refusedWith(expect.stringMatching(/^this workspace has no pool of its own named /)),
    },
    {
      name: 'ChangePool',
      ours: true,
      line: (name) => `PATCH /pools/${name}`,
      body: () => ({ settings: { priority: 7, cpuOvercommit: null } }),
      make: aPool,
      fields: 'ok errMsg pool',
      restricted: UNAUTHORIZED,
      ok: { ...done, pool: { settings: { ...POOL_SETTINGS, priority: 7, cpuOvercommit: 1 } } },
      unknown: refusedWith(expect.stringMatching(/^this workspace has no pool of its own named /)),
      done: async (name) => (await settingsOf(name))['priority'] === 7,
      failures: {
        'nothing said': { body: () => ({}), answer: refusedWith('settings must name at least one setting') },
        'a list': { body: () => ({ settings: [] }), answer: refusedWith('settings must be an object') },
        'a name that is no setting': {
          body: () => ({ settings: { cpuOverCommit: 2 } }),
          answer: refusedWith(expect.stringMatching(/^settings\.cpuOverCommit is no setting of a pool; there are /)),
        },
        'a value of another kind': {
          body: () => ({ settings: { priority: 3, requiresPoolSelector: 'yes' } }),
          answer: refusedWith('settings.requiresPoolSelector must be true or false, or null for the default'),
        },
        'a bound on what machines cost, by a workspace': {
          body: () => ({ settings: { max_machines: 1000 } }),
          answer: refusedWith(expect.stringMatching(NOT_FOR_WORKSPACES)),
        },
        'a pool of another workspace': {
          body: () => ({ workspaceId: '00000000-0000-4000-8000-000000000000', settings: { priority: 3 } }),
          answer: refusedWith(expect.stringMatching(/^workspaceId is for an administrator/)),
        },
      },
    },
    {
      name: 'DeletePool',
      ours: true,
      line: (name) => `DELETE /pools/${name}`,
      make: aPool,
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: refusedWith(expect.stringMatching(/^this workspace has no pool of its own named /)),
      done: async (name) => !(await kit.list('/pools', 'pools')).some((pool) => pool['name'] === name),
    },
  ];
  const image = { pythonVersion: 'python3.11', existingImageUri: 'registry.example/app:1', ignorePython: true };
  const images: readonly GatewayVerb[] = [
    {
      name: 'VerifyImageBuild',
      ours: true,
      line: () => 'POST /images/verify-build',
      body: () => ({ ...image, pythonPackages: [], commands: [], forceRebuild: false }),
      fields: 'ok errMsg imageId valid exists steps',
      ok: { ...done, imageId: 'registry.example/app:1', valid: true, exists: true },
      malformed: { body: '{"commands": "make"}' },
      failures: {
        'with packages': {
          body: () => ({ ...image, python_packages: ['numpy'] }),
          answer: { ...done, exists: false, imageId: expect.stringMatching(/^longshore\.internal\/[0-9a-f]{32}$/) },
        },
        'with secrets': {
          body: () => ({ ...image, commands: ['x'], secrets: ['TOKEN'] }),
          answer: { ...refusedWith(expect.stringMatching(/^secrets: a build gets none/)), imageId: '' },
        },
        'by the id of an image that is not there': {
          body: () => ({ image_id: 'longshore.internal/0123', commands: ['x'] }),
          answer: refusedWith(expect.stringMatching(/is not an image of this workspace$/)),
        },
        'by its id': { body: () => ({ image_id: 'mine:1', commands: ['x'] }), answer: { ...done, imageId: 'mine:1' } },
      },
    },
    {
      name: 'BuildImage',
      container: { result: expect.objectContaining({ success: false, imageId: '' }) },
      ours: true,
      line: () => 'POST /images/build',
      body: () => image,
      fields: 'result',
      records: { result: 'imageId msg done success pythonVersion warning' },
      ok: { result: { imageId: 'registry.example/app:1', done: true, success: true, pythonVersion: 'python3.11' } },
      malformed: { body: '{"env_vars": 1}' },
      failures: {
        'with commands': {
          body: () => ({ ...image, commands: ['apt-get install x'] }),
          answer: { result: { done: true, success: false, msg: expect.stringMatching(/can build images now/) } },
        },
      },
    },
  ];
  return [...images, ...identity, ...objects, ...stubs, ...deployments, ...tasks, ...fleet];
}

/** Checks that every record of the answer has these fields and no others, as the interface lists them. */
export function hasFields(json: Json, verb: Pick<GatewayVerb, 'fields' | 'records'>): void {
  expect(Object.keys(json).toSorted()).toEqual(verb.fields.split(' ').toSorted());
  for (const [field, names] of Object.entries(verb.records ?? {})) {
    const value = json[field];
    const records = (Array.isArray(value) ? value : [value]) as (Json | null)[];
    for (const record of records) {
      if (record !== null) expect(Object.keys(record).toSorted()).toEqual(names.split(' ').toSorted());
    }
  }
}

export type { Expected };
