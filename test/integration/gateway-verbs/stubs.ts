/** Operations of stubs. */
import { expect } from 'vitest';
import { NOBODY } from '../verbs-fixture.ts';
import type { Json, Platform } from '../verbs-fixture.ts';
import { done, refusedWith } from '../verbs-kit.ts';
import type { Kit } from '../verbs-kit.ts';
import type { Failure, GatewayVerb } from './row.ts';

const STUB = { stubType: 'endpoint/deployment', name: 'n', handler: 'app:handler', cpu: '100', memory: 64 };

export function stubVerbs(platform: () => Platform, kit: Kit): readonly GatewayVerb[] {
  const stub = (said: Json, errMsg: unknown): Failure => ({
    body: () => ({ ...STUB, ...said }),
    answer: { ok: false, stubId: '', errMsg },
  });
  return [
    {
      name: 'GetOrCreateStub',
      restricted: { ok: false, stubId: '', errMsg: 'Unauthorized Access' },
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
        'every limit, and a model that nobody knows': {
          body: () => ({ ...STUB, cpu: 128_001, memory: '65536', gpu: 'H20O', secrets: [{ name: 'x' }] }),
          answer: {
            ...done,
            problems: [
              { field: '', value: '', text: 'CPU must be 128000 or less.' },
              { field: '', value: '', text: 'Memory must be 32GiB or less.' },
              { field: 'secrets', value: 'x', text: 'there is no secret x in this workspace' },
              { field: 'gpu', value: 'H20O', text: expect.stringMatching(/^no GPU model is called H20O: /) },
            ],
            config: null,
          },
        },
      },
    },
    {
      name: 'DeployStub',
      restricted: { ok: false, deploymentId: '', version: 0, invokeUrl: '' },
      line: () => 'POST /stubs/deploy',
      body: (stubId) => ({ stubId, name: 'deployed' }),
      make: () => platform().stub({ forceCreate: true }),
      fields: 'ok deploymentId version invokeUrl',
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
}
