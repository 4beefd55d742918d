import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { GetOrCreateStubRequest as Schema } from '#shared/api/stubs.ts';
import { describe, expect, test } from 'vitest';
import { slotsOf, specOf } from '../../../scheduler/fleet/containers/spec.ts';
import { normaliseStub } from '../../../scheduler/workspaces/deployments/normalise.ts';
import type { StubConfig, Target } from '../../../scheduler/domain/stub-config.ts';
import { zeroOf } from '../../../scheduler/api/http/decode.ts';
import { DEFAULT_LIMITS } from '#scheduler/workspaces/deployments/stub-limits.ts';
import { jsonText } from '../../helpers/exact-json.ts';

/** A request as the binder hands it over: every missing field has its wire default. */
const aRequest = (said: Partial<GetOrCreateStubRequest> = {}): GetOrCreateStubRequest => ({
  ...(zeroOf(Schema)() as GetOrCreateStubRequest),
  stubType: 'endpoint/deployment',
  handler: 'app:handler',
  cpu: 1000,
  memory: 128,
  ...said,
});

function configOf(said: Partial<GetOrCreateStubRequest>, limits = DEFAULT_LIMITS): StubConfig {
  const result = normaliseStub(aRequest(said), limits);
  if (result.kind === 'refused') throw new Error(result.errMsg);
  return result.config;
}
const errMsgOf = (said: Partial<GetOrCreateStubRequest>, limits = DEFAULT_LIMITS): string => {
  const result = normaliseStub(aRequest(said), limits);
  return result.kind === 'refused' ? result.errMsg : '';
};

test('a stub that names no cores and no memory has those that clients send', () => {
  const { cpu: _cpu, memory: _memory, ...rest } = aRequest();
  const result = normaliseStub(rest, DEFAULT_LIMITS);
  expect(result).toMatchObject({ config: { cpuMillicores: 1000, memoryMib: 128 } });
});

describe('refusals', () => {
  test.each<[Partial<GetOrCreateStubRequest>, string | RegExp]>([
    [{ cpu: 0 }, 'CPU must be greater than 0.'],
    [{ cpu: -5 }, 'CPU must be greater than 0.'],
    [{ cpu: 128_001 }, 'CPU must be 128000 or less.'],
    [{ memory: 0 }, 'Memory must be greater than 0.'],
    [{ memory: 32_769 }, 'Memory must be 32GiB or less.'],
    [{ gpu: 'T4', gpuCount: 3 }, 'GPU count must be 2 or less.'],
    [{ gpuCount: 3 }, 'GPU count must be 2 or less.'],
    [{ stubType: 'lambda' }, /stubType "lambda" is not known; allowed: .*endpoint\/deployment/],
    [{ stubType: '' }, /stubType "" is not known/],
    [{ pythonVersion: 'python2' }, /pythonVersion "python2" is not known; allowed: python3, /],
    [
      { autoscaler: { type: 'magic', maxContainers: 1, tasksPerContainer: 1, minContainers: 0 } },
      /autoscaler.type "magic" is not known; allowed: queue_depth, llm_token_pressure/,
    ],
    [{ serving: jsonText({ serving_protocol: 'openai', llm: [] }) }, 'serving.llm must be an object'],
    [
      { serving: jsonText({ serving_protocol: 'openai', llm: { context_length: -1 } }) },
      /serving.llm.context_length must be a/,
    ],
    [
      { serving: jsonText({ servingProtocol: 'openai', llm: { cacheTokens: 1.5 } }) },
      /serving.llm.cache_tokens must be a whole/,
    ],
    [
      { serving: jsonText({ serving_protocol: 'openai', llm: { metrics_path: 'x' } }) },
      /serving.llm.metrics_path must begin/,
    ],
    [{ serving: jsonText({ serving_protocol: 'openai', llm: { engine: 7 } }) }, /serving.llm.engine must be a text/],
    [
      { imageId: '68cd7c11f0de' },
      /imageId names the image "68cd7c11f0de", which could be the id of one: .*name:latest/,
    ],
    [{ imageId: 'sha256:68c' }, /imageId names the image "sha256:68c", which could be the id/],
    [{ imageId: 'a b' }, /imageId names the image "a b", which is not such as registry/],
    [{ handler: '' }, /handler must be module:function/],
    [{ handler: 'app' }, /handler must be module:function/],
    [{ handler: 'a:b:c' }, /handler must be module:function/],
    [{ onStart: 'load' }, /onStart must be module:function/],
    [{ env: ['A=1', 'nope'] }, 'env[1] must be KEY=VALUE'],
    [{ workers: 100_000 }, /workers must be/],
    [{ concurrentRequests: 100_000 }, /concurrentRequests must be/],
    [{ allowList: Array.from({ length: 11 }, (_, index) => `10.0.0.${index}/32`) }, /allowList/],
    [{ secrets: Array.from({ length: 65 }, () => ({ name: 'KEY' })) }, /secrets must have at most 64 entries/],
    [{ blockNetwork: true, allowList: ['10.0.0.0/8'] }, /exclude each other/],
    [{ callbackUrl: 'file:///etc/passwd' }, /callbackUrl/],
    [{ pool: jsonText({ name: 'gpu less' }) }, /^pool.name must be letters, .* got "gpu less"$/],
    [{ extra: '[1]' }, 'extra must be a JSON object'],
    [{ extra: '{' }, 'extra must be a JSON object'],
    [{ extra: '{"stopAfterDisconnect":59}' }, /extra.stopAfterDisconnect must be true .* from 60 to 86400, got 59/],
    [{ extra: '{"stopAfterDisconnect":90.5}' }, /got 90.5/],
    [{ extra: '{"stopAfterDisconnect":"5m"}' }, /got "5m"/],
    [{ extra: '{"priority":"urgent"}' }, /^extra\.priority must be "high", "normal", "low", got "urgent"$/],
    [{ extra: '{"priority":5}' }, /got 5$/],
    [{ extra: '{"interruptible":"yes"}' }, /^extra\.interruptible must be true, false or "after_task", got "yes"$/],
    [{ stubType: 'sandbox', extra: '{"interruptible":true}' }, /extra\.interruptible: not for sandbox, whose/],
    [{ extra: '{"startTimeout":0}' }, /^extra\.startTimeout must be whole seconds from 1 to 7200 .*, got 0$/],
    [{ extra: '{"startTimeout":7201}' }, /LONGSHORE_START_TIMEOUT_MOST_SECONDS.*, got 7201$/],
    [{ extra: '{"startTimeout":1.5}' }, /got 1.5/],
    [{ extra: '{"startTimeout":"1h"}' }, /got "1h"/],
    [{ extra: '{"startTimeout":true}' }, /got true/],
    [
      { gpu: 'H100', extra: '{"minCuda":12.8}' },
      /^extra\.minCuda must be a CUDA version as text, such as "12\.8" \(min_cuda\), got 12\.8$/,
    ],
    [{ extra: '{"placement":{"require":{"zone":[]}}}' }, /^extra\.placement\.require\.zone must have 1 to 16 values$/],
    [
      { gpu: 'H100', gpuCount: 2, extra: '{"gpuLink":"ring"}' },
      /^extra\.gpuLink \(gpu_link\) must be island, got "ring"$/,
    ],
    [{ gpu: 'H100', extra: '{"gpuLink":"island"}' }, /^extra\.gpuLink \(gpu_link\) is for stubs with two GPUs/],
    [{ gpu: '12GiB' }, /^gpu: "12GiB" asks for a part of a shared device, which is not possible yet: /],
    [{ gpu: 'H100|any:>=40' }, /^gpu: "any:>=40": ">=40" is no condition; /],
    [{ gpu: Array.from({ length: 65 }, (_none, at) => `Z${at}`).join() }, /^gpu: names more than 64 alternatives$/],
    [{ gpu: 'H100', extra: '{"minCuda":"12"}' }, /got "12"$/],
    [{ gpu: 'H100', extra: '{"minCuda":"12.8.1"}' }, /got "12\.8\.1"$/],
    [{ gpu: 'H100', extra: '{"minCuda":">=12.8"}' }, /got ">=12\.8"$/],
    [{ gpu: 'H100', extra: '{"minCuda":["12.8"]}' }, /got \["12\.8"\]$/],
    [{ gpu: 'H100', extra: `{"minCuda":"${'1'.repeat(999)}"}` }, /got "1{1,60}…"$/],
    [{ extra: '{"minCuda":"12.8"}' }, /^extra\.minCuda \(min_cuda\) is for stubs with a GPU, and this one has none$/],
    [{ extra: '{"workerMode":"threads"}' }, /^worker_mode must be fork, thread, spawn, got "threads"$/],
    [{ extra: '{"workerMode":["spawn"]}' }, /^worker_mode must be fork, thread, spawn, got \["spawn"\]$/],
    [{ extra: '{"workerMode":"fork"}', gpu: 'H100' }, /^worker_mode must be thread or spawn with a GPU, got "fork"$/],
    [{ name: 'x'.repeat(300) }, /name must have at most/],
    [{ stubType: 'schedule' }, /^extra\.when must say when/],
    [{ stubType: 'schedule/deployment', extra: '{"when": "soon"}' }, /^extra\.when "soon" has 1 fields/],
    [
      { stubType: 'schedule/deployment', extra: '{"when": "@daily", "timezone": "Mars"}' },
      /^extra\.timezone "Mars" is not a time zone/,
    ],
    [
      {
        stubType: 'pod/deployment',
        autoscaler: { type: 'queue_depth', maxContainers: 2, tasksPerContainer: 1, minContainers: 3 },
      },
      'min replicas must be less than or equal to max replicas',
    ],
    [
      {
        stubType: 'pod/deployment',
        autoscaler: { type: 'queue_depth', maxContainers: 101, tasksPerContainer: 1, minContainers: 0 },
      },
      'max replicas must be 100 or less',
    ],
  ])('%j: %s', (said, text) => {
    if (typeof text === 'string') expect(errMsgOf(said)).toBe(text);
    else expect(errMsgOf(said)).toMatch(text);
  });

  test('a workspace without GPUs refuses every GPU', () => {
    expect(errMsgOf({ gpu: 'T4' }, { ...DEFAULT_LIMITS, gpuConcurrency: 0 })).toBe('GPU concurrency limit is 0.');
  });

  test('a value of the environment does not come back in the text', () => {
    expect(errMsgOf({ env: ['=secret'] })).not.toContain('secret');
  });
});

describe('defaults per kind', () => {
  test.each<[string, Partial<GetOrCreateStubRequest>, Partial<StubConfig>]>([
    ['endpoint', {}, { timeoutSeconds: 600, ttlSeconds: 600, keepWarmSeconds: 180, retries: 0 }],
    ['endpoint', { timeout: 30, retries: 3 }, { timeoutSeconds: 30, retries: 0 }],
    ['endpoint', { timeout: 3600 }, { timeoutSeconds: 600 }],
    ['asgi/deployment', { timeout: -1 }, { timeoutSeconds: 600, ttlSeconds: 600, keepWarmSeconds: 180 }],
    ['taskqueue', { retries: 9 }, { timeoutSeconds: 0, ttlSeconds: 7200, keepWarmSeconds: 10, retries: 5 }],
    ['function', { retries: 2, timeout: 3600 }, { timeoutSeconds: 3600, ttlSeconds: 43_200, retries: 2 }],
    ['function', { authorized: false }, { authorized: true, keepWarmSeconds: 0 }],
    [
      'schedule/deployment',
      { extra: '{"when": "@hourly", "timezone": "Europe/Berlin"}', authorized: false },
      { ttlSeconds: 43_200, retries: 0, authorized: true, schedule: { when: '@hourly', timezone: 'Europe/Berlin' } },
    ],
    ['endpoint', { keepWarmSeconds: 0 }, { keepWarmSeconds: 0 }],
    ['endpoint', { keepWarmSeconds: -1 }, { keepWarmSeconds: -1 }],
    ['endpoint', { keepWarmSeconds: 3 }, { keepWarmSeconds: 3 }],
    [
      'taskqueue',
      { taskPolicy: { timeout: 60, maxRetries: 2, ttl: 100_000 } },
      { timeoutSeconds: 60, retries: 2, ttlSeconds: 86_400 },
    ],
    ['taskqueue', { retries: 3, taskPolicy: { timeout: 0, maxRetries: 0, ttl: 0 } }, { retries: 3, ttlSeconds: 7200 }],
  ])('%s %j', (stubType, said, expected) => {
    expect(configOf({ stubType, ...said })).toMatchObject(expected);
  });

  test('zeros become what they stand for', () => {
    expect(configOf({})).toMatchObject({
      workers: 1,
      maxPendingTasks: 100,
      pythonVersion: 'python3',
      autoscaler: { type: 'queue_depth', minContainers: 0, maxContainers: 1, tasksPerContainer: 1 },
    });
  });

  test('only an explicit false makes a stub public', () => {
    expect(configOf({}).authorized).toBe(true);
    expect(configOf({ authorized: true }).authorized).toBe(true);
    expect(configOf({ authorized: false }).authorized).toBe(false);
  });
});

describe('the autoscaler', () => {
  const scaled = (
    said: Partial<GetOrCreateStubRequest['autoscaler'] & object>,
    more: Partial<GetOrCreateStubRequest> = {},
  ) =>
    configOf({
      ...more,
      autoscaler: { type: 'queue_depth', maxContainers: 0, tasksPerContainer: 0, minContainers: 0, ...said },
    }).autoscaler;

  test('zeros become 1, the maximum is capped', () => {
    expect(scaled({})).toMatchObject({ maxContainers: 1, tasksPerContainer: 1, minContainers: 0 });
    expect(scaled({ maxContainers: 5000 }).maxContainers).toBe(100);
  });

  test('more always running than at most means that many', () => {
    expect(scaled({ minContainers: 3 })).toMatchObject({ minContainers: 3, maxContainers: 3 });
  });

  test('a window is kept, left out where it is none, and refused above an hour', () => {
    expect(scaled({ windowSeconds: 3600 }).windowSeconds).toBe(3600);
    expect('windowSeconds' in scaled({ windowSeconds: 0 })).toBe(false);
    expect(() => scaled({ windowSeconds: 3601 })).toThrow(/autoscaler\.windowSeconds must be 3600 or less/);
  });

  test('the bound on ends in a minute is kept, left out where it is none, and refused above a thousand', () => {
    expect(scaled({ scaleInPerMinute: 1000 }).scaleInPerMinute).toBe(1000);
    expect('scaleInPerMinute' in scaled({ scaleInPerMinute: 0 })).toBe(false);
    expect(() => scaled({ scaleInPerMinute: 1001 })).toThrow(/autoscaler\.scaleInPerMinute must be 1000 or less/);
  });

  test('an empty type is the default whatever else is said', () => {
    expect(scaled({ type: '', maxContainers: 9 }).maxContainers).toBe(1);
  });

  test('a function without one gets a container per call up to the cap', () => {
    expect(configOf({ stubType: 'function' }).autoscaler).toMatchObject({ maxContainers: 100, tasksPerContainer: 1 });
  });

  test('a pod deployment that never goes cold keeps one', () => {
    expect(scaled({ maxContainers: 2 }, { stubType: 'pod/deployment', keepWarmSeconds: -1 }).minContainers).toBe(1);
  });
});

describe('GPUs', () => {
  test.each<[string, number, readonly string[], number]>([
    ['', 0, [], 0],
    ['NO_GPU', 0, [], 0],
    ['t4', 0, ['T4'], 1],
    ['a10g, H100', 2, ['A10G', 'H100'], 2],
    ['', 1, ['any'], 1],
    ['ANY', 1, ['any'], 1],
  ])('%j and a count of %i', (gpu, gpuCount, models, count) => {
    expect(configOf({ gpu, gpuCount })).toMatchObject({ gpu: models, gpuCount: count });
  });

  test('a model nobody knows is told, and kept', () => {
    const result = normaliseStub(aRequest({ gpu: 'T4,Z80' }));
    expect(result).toMatchObject({ kind: 'config', unsupportedGpus: ['Z80'], config: { gpu: ['T4', 'Z80'] } });
    expect(normaliseStub(aRequest({ gpu: 'h100|Z80:>= 40 gib' }))).toMatchObject({
      unsupportedGpus: ['Z80'],
      config: { gpu: ['H100', 'Z80:>=40GiB'], gpuCount: 1 },
    });
    const slice = normaliseStub(aRequest({ gpu: 'h100-mig-3g.40gb' }));
    expect(slice).toMatchObject({ warnMsg: '', unsupportedGpus: [], config: { gpu: ['H100-MIG-3g.40gb'] } });
  });
});

describe('what has no field of its own', () => {
  test('is kept; empty values are not, so that sending them makes no other stub', () => {
    expect(configOf({ tcp: true, ports: [80], hostname: '', extra: '{"when":"* * * * *"}' }).extra).toEqual({
      extra: jsonText({ when: '* * * * *' }),
      tcp: true,
      ports: [80],
    });
    expect(configOf({ extra: '{}', volumes: [] }).extra).toEqual({});
  });

  test('tracebacks are asked for in extra', () => {
    expect(configOf({ extra: '{"tracebacks":true}' }).tracebacks).toBe(true);
    expect(configOf({}).tracebacks).toBe(false);
  });

  test('so is what the workers are; who does not choose has no such field', () => {
    for (const workerMode of ['fork', 'thread', 'spawn'] as const)
      expect(configOf({ extra: JSON.stringify({ workerMode }) }).workerMode).toBe(workerMode);
    expect(configOf({ extra: '{"workerMode":null}' })).not.toHaveProperty('workerMode');
    expect(configOf({})).not.toHaveProperty('workerMode');
  });

  test('workers with a GPU and no choice count as one worker, and deploy warns', () => {
    const ask = { workers: 4, concurrentRequests: 3 };
    const slotsAndWarning = (said: Partial<GetOrCreateStubRequest>): unknown[] => {
      const result = normaliseStub(aRequest({ ...ask, ...said }));
      return result.kind === 'refused' ? [] : [slotsOf(result), result.warnMsg];
    };
    expect(slotsAndWarning({ gpu: 'H100' })).toEqual([
      3,
      'Each container serves with one worker instead of 4, because a process with a GPU cannot be forked. Choose with worker_mode: ' +
        '"spawn" (a process per worker, each runs on_start) or "thread" (handlers side by side in one process).',
    ]);
    expect(slotsAndWarning({ gpuCount: 1, extra: '{"workerMode":"spawn"}' })).toEqual([12, '']);
    expect(slotsAndWarning({})).toEqual([12, '']);
    expect(slotsAndWarning({ gpu: 'H100', workers: 1 })).toEqual([3, '']);
  });

  test('so is the time of a start; the installation’s own is kept where it is not the usual one', () => {
    const startMsOf = (config: StubConfig) => specOf({ config, code: null } as unknown as Target).wire.startTimeoutMs;
    expect(startMsOf(configOf({ extra: '{"startTimeout":3600}' }))).toBe(3_600_000);
    expect(startMsOf(configOf({ extra: '{"startTimeout":null}' }))).toBe(900_000);
    expect(configOf({})).not.toHaveProperty('startTimeoutSeconds');
    const limits = { ...DEFAULT_LIMITS, startTimeoutSeconds: 1800, maxStartTimeoutSeconds: 1800 };
    const own = normaliseStub(aRequest({}), limits);
    expect(own.kind === 'config' ? startMsOf(own.config) : undefined).toBe(1_800_000);
    expect(normaliseStub(aRequest({ extra: '{"startTimeout":1801}' }), limits)).toMatchObject({ kind: 'refused' });
  });

  test('so is the least CUDA version of its machines; who asks for none has no such field', () => {
    const needs = (changes: Partial<GetOrCreateStubRequest>) =>
      specOf({ config: configOf({ gpu: 'H100', ...changes }), code: null } as unknown as Target).minCuda;
    expect(needs({ extra: '{"minCuda":"12.8"}' })).toBe('12.8');
    expect([needs({}), needs({ extra: '{"minCuda":null}' }), needs({ extra: '{"minCuda":""}' })]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(configOf({ gpu: 'H100' })).not.toHaveProperty('minCuda');
  });

  test('callers who may wait less long than a start may take are told of at deploy', () => {
    const warning = (changes: Partial<GetOrCreateStubRequest>) => {
      const normalised = normaliseStub(aRequest(changes));
      return normalised.kind === 'config' ? normalised.warnMsg : normalised.errMsg;
    };
    const policy = { maxRetries: 0, timeout: 0, ttl: 600 };
    expect(warning({ extra: '{"startTimeout":3600}', taskPolicy: policy })).toMatch(
      /A start may take 3600 seconds \(start_timeout\), and callers wait 600 seconds .*504/,
    );
    expect(warning({ extra: '{"startTimeout":600}', taskPolicy: policy })).toBe('');
    expect(warning({ stubType: 'taskqueue', extra: '{"startTimeout":3600}', taskPolicy: policy })).toBe('');
  });

  test('so are times at which containers run without work, in a zone', () => {
    const asked = { type: 'queue_depth', maxContainers: 4, tasksPerContainer: 1, minContainers: 0 };
    const time = { when: ' 0 8 * * 1-5 ', timezone: '', min: 3, until: '18:00' };
    expect(configOf({ autoscaler: { ...asked, warm: [time] } }).autoscaler.warm).toEqual([
      { when: '0 8 * * 1-5', timezone: 'UTC', min: 3, until: '18:00' },
    ]);
    expect(configOf({ autoscaler: { ...asked, warm: [] } }).autoscaler).not.toHaveProperty('warm');
    for (const [wrong, problem] of [
      [{ when: '8' }, 'autoscaler.warm[0].when'],
      [{ timezone: 'Mars/Base' }, 'autoscaler.warm[0].timezone'],
      [{ min: 0 }, 'autoscaler.warm[0].min must be from 1 to maxContainers (4), got 0'],
      [{ min: 5 }, 'autoscaler.warm[0].min must be from 1 to maxContainers (4), got 5'],
      [{ until: '25:00' }, 'autoscaler.warm[0].until must be a time of day such as 18:00, got "25:00"'],
    ] as const)
      expect(() => configOf({ autoscaler: { ...asked, warm: [{ ...time, ...wrong }] } })).toThrow(problem);
    const many = Array.from({ length: 17 }, () => time);
    expect(() => configOf({ autoscaler: { ...asked, warm: many } })).toThrow('autoscaler.warm must have at most 16');
  });

  test('so is a priority that is not normal, which its containers have; that of a pool is another one', () => {
    expect(configOf({ extra: '{"priority":"high"}' }).priority).toBe('high');
    expect(configOf({ extra: '{"priority":"low"}' }).priority).toBe('low');
    for (const extra of ['{"priority":"normal"}', '{"priority":null}', ''])
      expect(configOf({ extra, pool: jsonText({ name: 'gpu', priority: 7 }) })).not.toHaveProperty('priority');
    const config = configOf({ extra: '{"priority":"low"}' });
    expect(specOf({ config, code: null } as unknown as Target).priority).toBe('low');
  });

  test('so is that its containers may be interrupted, which these have', () => {
    expect(configOf({ extra: '{"interruptible":true}' }).interruptible).toBe(true);
    expect(configOf({ extra: '{"interruptible":"after_task"}' }).interruptible).toBe('after_task');
    for (const extra of ['{"interruptible":false}', '{"interruptible":null}', ''])
      expect(configOf({ extra })).not.toHaveProperty('interruptible');
    const config = configOf({ extra: '{"interruptible":true}' });
    expect(specOf({ config, code: null } as unknown as Target).interruptible).toBe(true);
  });

  test('so is the silence after which an exclusive container stops; who asks for none has no such field', () => {
    expect(configOf({ extra: '{"stopAfterDisconnect":true}' }).stopAfterDisconnectSeconds).toBe(300);
    expect(configOf({ extra: '{"stopAfterDisconnect":60}' }).stopAfterDisconnectSeconds).toBe(60);
    expect(configOf({ extra: '{"stopAfterDisconnect":false}' })).not.toHaveProperty('stopAfterDisconnectSeconds');
    expect(configOf({})).not.toHaveProperty('stopAfterDisconnectSeconds');
  });
});

describe('volumes', () => {
  const ID = '0AC1E3F4-0000-4000-8000-000000000001';
  const aVolume = (mountPath: string) => ({ id: ID, mountPath, config: null });
  const aBucket = (config: Readonly<Record<string, unknown>> = {}) => ({
    id: '',
    mountPath: 'b',
    config: {
      bucketName: 'weights',
      accessKey: 'KEY',
      secretKey: 'SECRET',
      endpointUrl: 'https://s3.example.com',
      region: '',
      readOnly: true,
      forcePathStyle: false,
      ...config,
    },
  });

  test('a bucket is kept with the names of its secrets, and has no volume', () => {
    expect(configOf({ volumes: [aBucket()] }).volumes).toEqual([
      {
        volumeId: '',
        mountPath: 'b',
        driver: 'bucket',
        bucket: {
          bucket: 'weights',
          endpoint: 'https://s3.example.com',
          region: '',
          readOnly: true,
          pathStyle: false,
          accessKey: 'KEY',
          secretKey: 'SECRET',
        },
      },
    ]);
    // A client may send an empty configuration with a volume's id.
    const empty = { bucketName: '', accessKey: '', secretKey: '', endpointUrl: '' };
    expect(configOf({ volumes: [{ ...aBucket(empty), id: ID }] }).volumes).toEqual([
      { volumeId: ID.toLowerCase(), mountPath: 'b' },
    ]);
  });

  test('are kept at normalised paths', () => {
    const { volumes } = configOf({ volumes: [aVolume('./data//x/'), aVolume('/models/')] });
    expect(volumes).toEqual([
      { volumeId: ID.toLowerCase(), mountPath: 'data/x' },
      { volumeId: ID.toLowerCase(), mountPath: '/models' },
    ]);
    expect(configOf({}).volumes).toEqual([]);
  });

  test.each<[Partial<GetOrCreateStubRequest>, RegExp]>([
    [{ volumes: [aVolume('a'), aVolume('../b')] }, /^volumes\[1\]\.mountPath "\.\.\/b"/],
    [{ volumes: [aVolume('/mnt/code')] }, /^volumes\[0\]\.mountPath/],
    [{ volumes: [aVolume('a'), aVolume('/mnt/code/a')] }, /^volumes: .*same place/],
    [{ volumes: [{ ...aVolume('a'), id: '' }] }, /^volumes\[0\]\.id/],
    [{ volumes: [aBucket({ bucketName: 'a/b' })] }, /^volumes\[0\]\.config\.bucketName/],
    [{ volumes: [aBucket({ endpointUrl: 'ftp://x' })] }, /^volumes\[0\]\.config\.endpointUrl must be/],
    [{ volumes: [aBucket({ endpointUrl: 'https://a,allow_root' })] }, /^volumes\[0\]\.config\.endpointUrl must be/],
    [{ volumes: [aBucket({ endpointUrl: 'https://u:p@a' })] }, /^volumes\[0\]\.config\.endpointUrl must not carry/],
    [{ volumes: [aBucket({ region: 'a b' })] }, /^volumes\[0\]\.config\.region/],
    [{ volumes: [aBucket({ secretKey: '' })] }, /^volumes\[0\]\.config\.accessKey and/],
    [{ volumes: Array.from({ length: 33 }, (_, index) => aVolume(`v${index}`)) }, /^volumes must have at most 32/],
    [{ allowList: ['10.0.0.0/8', 'example.org'] }, /^allowList\[1\] must be an address range/],
    [{ allowList: ['10.0.0.0/33'] }, /^allowList\[0\]/],
    [{ allowList: ['fd00::/129'] }, /^allowList\[0\]/],
    [{ env: Array.from({ length: 513 }, (_, index) => `K${index}=v`) }, /^env must have at most 512/],
    [{ env: [`K=${'x'.repeat(128 * 1024)}`] }, /^env must have at most 131072 bytes/],
    // All settings count together, whichever field they are in.
    [{ inputs: jsonText({ fields: 'x'.repeat(200_000) }) }, /^the settings of a stub must have at most 196608 bytes/],
    [{ handler: `app:${'x'.repeat(200_000)}` }, /^the settings of a stub must have at most 196608 bytes/],
    [
      { env: [`K=${'x'.repeat(100_000)}`], extra: JSON.stringify({ note: 'ü'.repeat(50_000) }) },
      /^the settings of a stub must have at most 196608 bytes/,
    ],
  ])('%# is refused by the name of the field', (said, errMsg) => {
    expect(errMsgOf(said)).toMatch(errMsg);
  });

  test('address ranges of both kinds are kept', () => {
    expect(configOf({ allowList: ['10.0.0.0/8', 'fd00::/8'] }).allowList).toEqual(['10.0.0.0/8', 'fd00::/8']);
  });
});

describe('pods and sandboxes', () => {
  const pod = (said: Partial<GetOrCreateStubRequest> = {}): Partial<GetOrCreateStubRequest> => ({
    stubType: 'pod/deployment',
    handler: '',
    ...said,
  });
  const probe = (said: object) =>
    pod({
      readinessProbe: { type: '', port: 0, path: '', command: [], intervalSeconds: 0, timeoutSeconds: 0, ...said },
    });

  test.each<[string, Partial<GetOrCreateStubRequest>, string | RegExp]>([
    ['a port of 0', pod({ ports: [80, 0] }), 'ports[1] must be from 1 to 65535, got 0'],
    ['a port too high', pod({ ports: [65_536] }), 'ports[0] must be from 1 to 65535, got 65536'],
    ['a port twice', pod({ ports: [80, 81, 80] }), 'ports[2] repeats 80'],
    ['too many ports', pod({ ports: Array.from({ length: 21 }, (_, at) => at + 1) }), /ports must have at most 20/],
    ['an entrypoint without a program', pod({ entrypoint: [''] }), 'entrypoint[0] must name a program'],
    ['an entrypoint with a zero byte', pod({ entrypoint: ['a', 'b\0'] }), 'entrypoint[1] must not hold a zero byte'],
    ['an entrypoint too long', pod({ entrypoint: ['a'.repeat(70_000)] }), /entrypoint must have at most 65536 bytes/],
    ['an unknown probe', probe({ type: 'grpc' }), 'readinessProbe.type must be http, tcp, command, got "grpc"'],
    ['a probe without a port', probe({ type: 'tcp' }), 'readinessProbe.port must be from 1 to 65535, got 0'],
    ['a probe without a command', probe({ type: 'command' }), 'readinessProbe.command must name a program'],
    ['a bad path', probe({ path: 'a b', port: 1 }), /readinessProbe.path must begin with a slash/],
    [
      'a bad interval',
      probe({ port: 1, intervalSeconds: 301 }),
      /readinessProbe.intervalSeconds must be from 0.1 to 300/,
    ],
    ['a bad timeout', probe({ port: 1, timeoutSeconds: -1 }), /readinessProbe.timeoutSeconds must be from/],
  ])('%s is refused, and named', (_what, said, errMsg) => {
    if (typeof errMsg === 'string') expect(errMsgOf(said)).toBe(errMsg);
    else expect(errMsgOf(said)).toMatch(errMsg);
    expect(errMsgOf({ ...said, stubType: 'sandbox' })).not.toBe('');
  });

  test('need no handler, take many connections, and have no execution limit of their own', () => {
    const config = configOf(pod({ entrypoint: ['nginx'], ports: [80, 8080], env: ['A=1'], workers: 4 }));
    expect(config).toMatchObject({
      pod: { entrypoint: ['nginx'], ports: [80, 8080] },
      workers: 1,
      concurrentRequests: 256,
      maxPendingTasks: 256,
      timeoutSeconds: 0,
      keepWarmSeconds: 600,
      retries: 0,
    });
    expect(slotsOf({ config })).toBe(256);
    expect(configOf(pod({ concurrentRequests: 10, timeout: 900 }))).toMatchObject({
      concurrentRequests: 10,
      maxPendingTasks: 100,
      timeoutSeconds: 900,
    });
    expect(configOf(pod({ keepWarmSeconds: -1 })).autoscaler.minContainers).toBe(1);
    expect(configOf(pod({ authorized: false })).authorized).toBe(false);
  });

  test('have a probe whose fields stand for themselves', () => {
    const times = { intervalSeconds: 1, timeoutSeconds: 5 };
    const of = (said: object) => configOf({ ...probe(said), ports: [8000, 9000] }).pod?.readinessProbe;
    expect(of({})).toEqual({ type: 'tcp', port: 8000, path: '', command: [], ...times });
    expect(of({ path: '/health' })).toEqual({ type: 'http', port: 8000, path: '/health', command: [], ...times });
    expect(of({ type: 'http', port: 9000 })).toMatchObject({ port: 9000, path: '/' });
    expect(of({ command: ['true'] })).toEqual({ type: 'command', port: 0, path: '', command: ['true'], ...times });
    const { wire } = specOf({
      config: configOf({ ...probe({ path: '/h', intervalSeconds: 0.5 }), ports: [8000] }),
      code: null,
    } as Target);
    expect(wire).toMatchObject({
      ports: [8000],
      readinessProbe: { type: 'http', port: 8000, path: '/h', intervalMs: 500, timeoutMs: 5000 },
    });
  });

  test('with TCP ports are made, with a warning', () => {
    const result = normaliseStub(aRequest(pod({ tcp: true, ports: [5432] })));
    expect(result.kind === 'config' && result.warnMsg).toMatch(/TCP ports are not reached from outside yet/);
  });

  test('without ports are made, with a warning where they are deployed', () => {
    const warningOf = (stubType: string, ports: readonly number[]): string => {
      const result = normaliseStub(aRequest({ ...pod({ ports: [...ports] }), stubType }));
      return result.kind === 'config' ? result.warnMsg : result.errMsg;
    };
    expect(warningOf('pod/deployment', [])).toMatch(/^This pod has no ports: nothing reaches it by HTTP\./);
    expect(warningOf('pod/deployment', [8000])).toBe('');
    for (const stubType of ['pod', 'pod/run', 'sandbox']) expect(warningOf(stubType, [])).toBe('');
  });

  test('fields of pods change no stub of another kind', () => {
    expect(configOf({ ports: [0], entrypoint: [''] }).pod).toBeUndefined();
  });
});

describe('model servers', () => {
  const llm = { model_id: 'org/name', engine: 'vllm', context_length: 8192, cache_tokens: '60000', slo_tier: 'gold' };
  const NAMES = { modelId: 'org/name', engine: 'vllm', servedModelName: '', tokenizer: '', sloTier: 'gold' };

  test('the settings are taken in both spellings', () => {
    const serving = jsonText({ serving_protocol: 'openai', llm });
    const meant = {
      protocol: 'openai',
      llm: { ...NAMES, contextLength: 8192, cacheTokens: 60_000, metricsPath: '/metrics' },
    };
    expect(configOf({ serving }).serving).toEqual(meant);
    const camel = { modelId: 'org/name', engine: 'vllm', contextLength: 8192, cacheTokens: 60_000, sloTier: 'gold' };
    expect(configOf({ serving: jsonText({ servingProtocol: 'openai', llm: camel }) }).serving).toEqual(meant);
  });

  test('the context defaults to 4096 tokens; other protocols mean nothing', () => {
    expect(configOf({ serving: jsonText({ serving_protocol: 'openai' }) }).serving?.llm).toMatchObject({
      contextLength: 4096,
    });
    expect(configOf({ serving: jsonText({ serving_protocol: 'grpc', llm: 1 }) })).not.toHaveProperty('serving');
    expect(configOf({})).not.toHaveProperty('serving');
  });

  test('a pod is ready once one of the routes of its engine succeeds, unless it names a probe', () => {
    const serving = jsonText({ serving_protocol: 'openai', llm: { metrics_path: '/m' } });
    const pod = { stubType: 'pod/deployment', handler: '', entrypoint: ['serve'], ports: [8000, 9000], serving };
    const paths = ['/health', '/server_info', '/get_model_info'];
    const { pod: made } = configOf(pod);
    expect(made?.readinessProbe).toMatchObject({ type: 'http', port: 8000, path: '/v1/models', morePaths: paths });
    expect(made?.readinessProbe).toMatchObject({ timeoutSeconds: 5 });
    const probe = { type: 'tcp', port: 9000, path: '', command: [], intervalSeconds: 0, timeoutSeconds: 0 };
    expect(configOf({ ...pod, readinessProbe: probe }).pod?.readinessProbe).toMatchObject({ type: 'tcp', port: 9000 });
    expect(configOf({ ...pod, ports: [] }).pod).not.toHaveProperty('readinessProbe');
    const { wire, engine } = specOf({ config: configOf(pod), code: null } as unknown as Target);
    expect(wire.readinessProbe).toMatchObject({ path: '/v1/models', morePaths: paths });
    expect(engine).toEqual({ port: 8000, path: '/m' });
    expect(specOf({ config: configOf({ serving }), code: null } as unknown as Target)).not.toHaveProperty('engine');
  });

  test('their autoscaler counts tokens', () => {
    const autoscaler = { type: 'llm_token_pressure', maxContainers: 4, tasksPerContainer: 16, minContainers: 1 };
    expect(configOf({ autoscaler }).autoscaler).toEqual(autoscaler);
  });
});
