import { expect, test } from 'vitest';
import { splitAddress } from '#shared/address.ts';
import type { Assignment__Output, ContainerSpec__Output } from '#shared/protocol/generated/messages.ts';
import { closedRanges, imageOf, isBaseImage, loadAgentConfig, parseJoinToken } from '../../../agent/config.ts';
import {
  connectionOptions,
  createOptions,
  gpusOfRequest,
  rootLimitTrial,
} from '../../../agent/containers/engine/options.ts';
import type { PauseContainer } from '../../../agent/containers/pause-containers.ts';
import type { ImageConfig } from '../../../agent/containers/runtime.ts';
import type { HostFacts } from '../../../agent/containers/spec.ts';
import { checkAssignment, createContainerOf } from '../../../agent/containers/spec.ts';
import { attemptsEnd, exitMessage, exitReason } from '../../../agent/reconcile/exits.ts';
import { anAssignment } from '../../helpers/agent-assignment.ts';

const host: HostFacts = {
  cores: 2,
  hostname: 'h',
  machineId: 'm1',
  runnerDir: '/state/runner/1',
  caBundle: undefined,
  extraLabels: {},
};
const assignmentOf = (spec: Partial<ContainerSpec__Output> = {}): Assignment__Output =>
  ({
    ...anAssignment({
      onStart: '',
      env: {},
      gpuUuids: [],
      timeoutMs: 0,
      keepWarmSeconds: 0,
      allowList: [],
      ...spec,
    }),
    stop: false,
    graceMs: 0,
    stopReason: '',
  }) as Assignment__Output;
const CONFIG: ImageConfig = {
  labels: {},
  onBuild: [],
  env: [],
  user: '',
  workingDir: '',
  shell: [],
  program: [],
  architecture: 'amd64',
};
const IMAGE = { id: 'sha256:abc', reference: 'app:1', config: CONFIG };
const createOf = (
  spec: Partial<ContainerSpec__Output> = {},
  facts: Partial<HostFacts> = {},
  pauseContainer: PauseContainer | undefined = { dockerId: 'h1', network: 'container:h1', openFiles: 20_000 },
  envOfImage: readonly string[] = [],
): ReturnType<typeof createContainerOf> => {
  const assignment = assignmentOf(spec);
  return createContainerOf(
    assignment,
    assignment.spec as ContainerSpec__Output,
    { ...IMAGE, config: { ...CONFIG, env: envOfImage } },
    { ...host, ...facts },
    {
      code: { kind: 'bind', target: '/mnt/code', readOnly: false, source: '/v' },
      socketDir: '/s/1',
    },
    pauseContainer,
  );
};
const envOf = (create: { readonly env: readonly string[] }): Record<string, string> =>
  Object.fromEntries(
    create.env
      .filter((one) => one.includes('='))
      .map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)]),
  );

test('a container gets the names its runner reads, and a stub cannot set ours', () => {
  const env = envOf(
    createOf({
      env: {
        MY: '1',
        HANDLER: 'evil',
        NVIDIA_VISIBLE_DEVICES: 'all',
        CUDA_VISIBLE_DEVICES: '0',
        LONGSHORE_TOKEN: 'x',
        PYTHONPATH: '/mine',
      },
    }),
  );
  expect(env).toMatchObject({
    MY: '1',
    HANDLER: 'app:handler',
    NVIDIA_VISIBLE_DEVICES: 'void',
    LONGSHORE_TOKEN: 'container-token',
    LONGSHORE_GATEWAY_SOCKET: '/run/longshore/gateway.sock',
    WORKERS: '1',
    CONCURRENT_REQUESTS: '1',
    TIMEOUT: '0',
    PYTHONPATH: '/opt/longshore/python:/mine',
  });
  expect(env['CUDA_VISIBLE_DEVICES']).toBeUndefined();
});

test('the runner is told how its workers come to be, and a stub cannot say otherwise', () => {
  expect(envOf(createOf({ workers: 2, workerMode: 'spawn' }))['LONGSHORE_WORKER_MODE']).toBe('spawn');
  expect(envOf(createOf({ env: { LONGSHORE_WORKER_MODE: 'thread' } }))['LONGSHORE_WORKER_MODE']).toBe('');
});

test("a Python's variables have our values where neither the stub nor the image sets them", () => {
  const ours = { PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1', PYTHON_CPU_COUNT: '8' };
  const spec = { cpuMillicores: 8000 };
  expect(envOf(createOf(spec, { cores: 8 }))).toMatchObject(ours);
  for (const name of Object.keys(ours)) {
    expect(envOf(createOf({ ...spec, env: { [name]: '' } }, { cores: 8 }))).toMatchObject({ ...ours, [name]: '' });
    // A variable that the container does not name is the image's.
    const { [name]: left, ...others } = envOf(createOf(spec, { cores: 8 }, undefined, [`${name}=`]));
    expect([left, { [name]: undefined, ...others }]).toMatchObject([undefined, { ...ours, [name]: undefined }]);
  }
});

test("threads follow the container's cores, and what the stub sets wins", () => {
  const counts = (cpuMillicores: number, env: Record<string, string> = {}): unknown[] => {
    const made = envOf(createOf({ cpuMillicores, env }, { cores: 8 }));
    return [made['LONGSHORE_CORES'], made['PYTHON_CPU_COUNT']];
  };
  expect(counts(125)).toEqual(['1', '1']);
  expect(counts(2500)).toEqual(['3', '3']);
  // An overcommitted pool promises more cores than the machine has.
  expect(counts(64_000)).toEqual(['8', '8']);
  expect(counts(2000, { PYTHON_CPU_COUNT: '5', LONGSHORE_CORES: '9' })).toEqual(['2', '5']);
});

test('the most processes follow cores and slots, and have a bound', () => {
  const most = (spec: Partial<ContainerSpec__Output>): number | undefined =>
    createOptions(createOf(spec, { cores: 192 })).HostConfig.PidsLimit;
  expect(most({ cpuMillicores: 125 })).toBe(2049);
  expect(most({ cpuMillicores: 16_000 })).toBe(17_409);
  expect(most({ cpuMillicores: 1000, workers: 4, concurrentRequests: 500 })).toBe(4048);
  expect(most({ cpuMillicores: 192_000 })).toBe(32_768);
});

test.for([
  [undefined, { socketPath: '/var/run/docker.sock' }],
  ['unix:///run/x.sock', { socketPath: '/run/x.sock' }],
  ['tcp://10.0.0.1', { protocol: 'http', host: '10.0.0.1', port: 2375 }],
  ['tcp://[fd00::1]:2376', { protocol: 'http', host: 'fd00::1', port: 2376 }],
] as const)('the engine at %s is dialled where it is', ([host, at]) => expect(connectionOptions(host)).toEqual(at));

test('an engine with SELinux is asked to leave its label off; any other is not told of labels', () => {
  const security = (selinux: boolean) => createOptions(createOf(), { selinux }).HostConfig.SecurityOpt;
  expect(security(true)).toEqual(['no-new-privileges', 'label=disable']);
  expect(security(false)).toEqual(['no-new-privileges']);
});

test('on a host with memory of GPUs among its nodes, containers without a GPU stay off it; elsewhere none is told of nodes', () => {
  const memsOf = (memoryNodes: string | undefined, more: Partial<ContainerSpec__Output> = {}) =>
    createOptions(createOf(more), { selinux: false, memoryNodes }).HostConfig;
  expect(memsOf('0')).toMatchObject({ CpusetMems: '0' });
  expect(memsOf('0', { gpuUuids: ['GPU-1'] })).not.toHaveProperty('CpusetMems');
  expect(memsOf(undefined)).not.toHaveProperty('CpusetMems');
});

test('every container is hardened', () => {
  const options = createOptions(createOf({ cpuMillicores: 500, memoryBytes: 64 << 20 }));
  expect(options.HostConfig).toMatchObject({
    CapDrop: ['ALL'],
    SecurityOpt: ['no-new-privileges'],
    Init: true,
    PidsLimit: 2049,
    Memory: 64 << 20,
    MemorySwap: 64 << 20,
    NanoCpus: 500_000_000,
    RestartPolicy: { Name: 'no' },
    NetworkMode: 'container:h1',
    LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
  });
  expect(options.HostConfig?.CapAdd).toBeUndefined();
  expect(options.HostConfig).not.toHaveProperty('Privileged');
  const readOnly = options.HostConfig?.Mounts?.filter((mount) => mount.Target !== '/mnt/code');
  expect(readOnly?.every((mount) => mount.ReadOnly)).toBe(true);
});

test('a container with GPUs gets exactly those, a quarter of its memory as shared memory, and says so in its label', () => {
  const create = createOf({
    gpuUuids: ['GPU-1', 'GPU-2'],
    memoryBytes: 1 << 30,
    env: { NVIDIA_VISIBLE_DEVICES: 'all', NVIDIA_DRIVER_CAPABILITIES: 'all', CUDA_VISIBLE_DEVICES: '0' },
  });
  expect(createOptions(create).HostConfig).toMatchObject({
    DeviceRequests: [
      {
        Driver: 'nvidia',
        DeviceIDs: ['GPU-1', 'GPU-2'],
        Capabilities: [['gpu', 'compute', 'utility', 'video', 'graphics']],
      },
    ],
    ShmSize: 1 << 28,
    CapDrop: ['ALL'],
  });
  expect(envOf(create)).toMatchObject({
    NVIDIA_VISIBLE_DEVICES: 'GPU-1,GPU-2',
    NVIDIA_DRIVER_CAPABILITIES: 'compute,utility,video,graphics',
    LONGSHORE_GPU: '1',
  });
  // The entry without a value also removes an image's own setting.
  expect(create.env.filter((one) => one.startsWith('CUDA_VISIBLE_DEVICES'))).toEqual(['CUDA_VISIBLE_DEVICES']);
  expect(create.labels['io.longshore.gpus']).toBe('GPU-1,GPU-2');
  const without = createOptions(createOf());
  expect(without.HostConfig).not.toHaveProperty('DeviceRequests');
  expect(without.HostConfig).not.toHaveProperty('ShmSize');
  expect(without.Labels).not.toHaveProperty('io.longshore.gpus');
});

test.for([
  [undefined, 'compute,utility,video'],
  ['compute', 'compute,utility,video'],
  ['compute, graphics', 'compute,utility,video,graphics'],
  ['all', 'compute,utility,video,graphics'],
  ['display,ngx,nonsense', 'compute,utility,video'],
] as const)('a stub that names the driver libraries %s gets %s', ([asked, given]) => {
  const env = asked === undefined ? {} : { NVIDIA_DRIVER_CAPABILITIES: asked };
  const create = createOf({ gpuUuids: ['GPU-1'], env });
  expect(envOf(create)['NVIDIA_DRIVER_CAPABILITIES']).toBe(given);
  expect(createOptions(create).HostConfig.DeviceRequests?.[0]?.Capabilities).toEqual([['gpu', ...given.split(',')]]);
});

test('GPUs that the engine knows by CDI are asked for by those names, and no runtime adds its own', () => {
  const spec = assignmentOf({ gpuUuids: ['GPU-1', 'MIG-2'] }).spec as ContainerSpec__Output;
  const paths = {
    code: { kind: 'bind', target: '/mnt/code', readOnly: false, source: '/v' },
    socketDir: '/s/1',
  } as const;
  const create = createContainerOf(assignmentOf(), spec, IMAGE, { ...host, gpuDriver: 'cdi' }, paths, undefined);
  const { DeviceRequests: requests } = createOptions(create).HostConfig;
  expect(requests).toEqual([{ Driver: 'cdi', DeviceIDs: ['nvidia.com/gpu=GPU-1', 'nvidia.com/gpu=MIG-2'] }]);
  expect(requests?.flatMap(gpusOfRequest)).toEqual(['GPU-1', 'MIG-2']);
  expect(envOf(create)).toMatchObject({ NVIDIA_VISIBLE_DEVICES: 'void', LONGSHORE_GPU: '1' });
  expect(create.labels['io.longshore.gpus']).toBe('GPU-1,MIG-2');
});

test('a blocked network is none at all, with as many open files as other containers have', () => {
  const { network, openFiles } = createContainerOf(
    assignmentOf(),
    assignmentOf({ blockNetwork: true }).spec as ContainerSpec__Output,
    IMAGE,
    { ...host, openFiles: 20_000 },
    { code: { kind: 'bind', target: '/mnt/code', readOnly: false, source: '/v' }, socketDir: '/s/1' },
    undefined,
  );
  expect(network).toBe('none');
  expect(openFiles).toBe(20_000);
});

test('a container joins its pause container, with as many open files as the engine allows', () => {
  const { HostConfig } = createOptions(createOf({}, { openFiles: 20_000 }));
  expect(HostConfig.NetworkMode).toBe('container:h1');
  expect(HostConfig.Ulimits).toContainEqual({ Name: 'nofile', Soft: 20_000, Hard: 20_000 });
});

test('no container leaves a core dump, neither a workload nor a helper of ours', () => {
  const helper = rootLimitTrial('img', {});
  for (const one of [createOf(), createOf({ blockNetwork: true }), helper])
    expect(createOptions(one).HostConfig.Ulimits).toContainEqual({ Name: 'core', Soft: 0, Hard: 0 });
});

test('shared memory is a quarter of the memory with a GPU, and the engine’s own without', () => {
  expect(createOptions(createOf({ memoryBytes: 1 << 30 })).HostConfig).not.toHaveProperty('ShmSize');
  const withGpu = createOptions(createOf({ memoryBytes: 1 << 30, gpuUuids: ['GPU-1'] })).HostConfig;
  expect(withGpu).toMatchObject({ ShmSize: 1 << 28 });
});

test('an allow-list that is no list of ranges is refused, whatever it holds', () => {
  for (const allowList of [
    ['10.0.0.0/8; flush ruleset'],
    ['example.org'],
    ['10.0.0.0/33'],
    ['1.2.3.4'],
    [' 10.0.0.0/8'],
  ])
    expect(checkAssignment(assignmentOf({ allowList }))).toMatch(/^spec\.allow_list: .* is not an address range/);
  expect(checkAssignment(assignmentOf({ allowList: Array<string>(11).fill('10.0.0.0/8') }))).toMatch(/more than 10/);
  expect(checkAssignment(assignmentOf({ allowList: ['10.0.0.0/8'], blockNetwork: true }))).toMatch(/exclude/);
  expect(checkAssignment(assignmentOf({ allowList: ['10.0.0.0/8', 'fd00::/8'] }))).toBeUndefined();
});

test('no more cores are asked for than the machine has', () => {
  expect(createOf({ cpuMillicores: 8000 }).cpuMillicores).toBe(2000);
});

test('a CA bundle is mounted and named to everything that reads one, unless the stub says otherwise', () => {
  const create = createOf({ env: { PIP_CERT: '/own' } }, { caBundle: '/etc/ca.pem' });
  const env = envOf(create);
  expect(create.mounts.some((mount) => mount.source === '/etc/ca.pem' && mount.readOnly)).toBe(true);
  expect(env['SSL_CERT_FILE']).toBe(create.mounts.find((mount) => mount.source === '/etc/ca.pem')?.target);
  expect(env['PIP_CERT']).toBe('/own');
});

test('labels say whose it is and hold no secret', () => {
  const create = createOf({ env: { SECRET: 'hush' } });
  expect(create.labels).toMatchObject({
    'io.longshore.managed': '1',
    'io.longshore.machine': 'm1',
    'io.longshore.epoch': '1',
    'io.longshore.image': 'app:1',
  });
  expect(JSON.stringify(create.labels)).not.toMatch(/hush|container-token/);
});

test('a spec that cannot be run is refused, naming the field', () => {
  expect(checkAssignment(assignmentOf())).toBeUndefined();
  expect(checkAssignment(assignmentOf({ memoryBytes: 0 }))).toMatch(/memory_bytes/);
  expect(checkAssignment(assignmentOf({ cpuMillicores: 0 }))).toMatch(/cpu_millicores/);
  expect(checkAssignment(assignmentOf({ workers: 0 }))).toMatch(/workers/);
  expect(checkAssignment(assignmentOf({ workerMode: 'threads' }))).toMatch(/worker_mode is not fork, thread, spawn/);
  expect(checkAssignment(assignmentOf({ workerMode: 'spawn' }))).toBeUndefined();
  expect(checkAssignment(assignmentOf({ handler: '' }))).toMatch(/handler/);
  expect(checkAssignment(assignmentOf({ image: '-evil' }))).toMatch(/image/);
  expect(checkAssignment(assignmentOf({ env: { 'A=B': '1' } }))).toMatch(/env/);
  expect(checkAssignment({ ...assignmentOf(), containerId: '../x' })).toMatch(/container_id/);
  expect(checkAssignment({ ...assignmentOf(), spec: null })).toMatch(/spec/);
});

test('the image is the own one, else the base image of the Python version', () => {
  const config = loadAgentConfig({ LONGSHORE_BASE_IMAGE: 'base:{version}', LONGSHORE_DEFAULT_PYTHON: '3.12' });
  expect(imageOf(config, 'mine:1', 'python3.9')).toBe('mine:1');
  expect(imageOf(config, '', 'python3.9')).toBe('base:3.9');
  expect(['base:3.9', 'base:3.9-mine', 'mine:1', 'base:x', 'base:'].map((image) => isBaseImage(config, image))).toEqual(
    [true, false, false, false, false],
  );
  expect(imageOf(config, '', 'python3')).toBe('base:3.12');
  expect(imageOf(config, '', '')).toBe('base:3.12');
});

test('every wrong setting is named, with the exit code for wrong settings', () => {
  try {
    loadAgentConfig({ LONGSHORE_SCHEDULER_ADDRESS: 'nowhere', LONGSHORE_AGENT_CPU: 'many', LONGSHORE_NO_SUCH: '1' });
    expect.unreachable();
  } catch (error) {
    expect(error).toMatchObject({ code: 'bad_config', exitCode: 78 });
    expect(String(error)).toMatch(/LONGSHORE_SCHEDULER_ADDRESS[^]*LONGSHORE_AGENT_CPU[^]*LONGSHORE_NO_SUCH/);
  }
});

test('a join token that is none is refused without being printed', () => {
  expect(() => loadAgentConfig({ LONGSHORE_JOIN_TOKEN: 'hunter2' })).toThrow(/LONGSHORE_JOIN_TOKEN/);
  expect(() => loadAgentConfig({ LONGSHORE_JOIN_TOKEN: 'hunter2' })).not.toThrow(/hunter2/);
  expect(loadAgentConfig({ LONGSHORE_JOIN_TOKEN: 'none' }).LONGSHORE_JOIN_TOKEN).toBe('none');
  expect(parseJoinToken(`lsj1.${'A'.repeat(64)}.${'s'.repeat(32)}`)).toEqual({
    isEnrolment: false,
    fingerprint: 'a'.repeat(64),
    secret: 's'.repeat(32),
  });
  expect(parseJoinToken(`lse1.${'a'.repeat(64)}.${'s'.repeat(32)}`)).toMatchObject({ isEnrolment: true });
  expect(parseJoinToken(`lsx1.${'a'.repeat(64)}.${'s'.repeat(32)}`)).toBeUndefined();
});

test('addresses come apart, with an IPv6 host too', () => {
  expect(splitAddress('[::1]:1995')).toEqual({ host: '::1', port: 1995 });
  expect(splitAddress('example.org:80')).toEqual({ host: 'example.org', port: 80 });
});

test('the reason of an exit says whose doing it was', () => {
  const exit = {
    seen: { exitCode: 0, oomKilled: false, error: '' },
    ready: true,
    note: undefined,
    ending: undefined,
    rebooted: false,
  };
  expect(exitReason(exit)).toBe('completed');
  expect(exitReason({ ...exit, seen: { ...exit.seen, oomKilled: true } })).toBe('oom');
  expect(exitReason({ ...exit, seen: { ...exit.seen, exitCode: 3 } })).toBe('user_error');
  expect(exitReason({ ...exit, seen: { ...exit.seen, exitCode: 137 } })).toBe('killed');
  expect(exitReason({ ...exit, ending: 'drained', seen: { ...exit.seen, exitCode: 143 } })).toBe('drained');
  expect(exitReason({ ...exit, rebooted: true, seen: { ...exit.seen, exitCode: 255 } })).toBe('host_reboot');
  const note = { reason: 'protocol_violation', message: 'x'.repeat(1_000_000) };
  expect(exitReason({ ...exit, note, ending: 'protocol_violation' })).toBe('protocol_violation');
  expect(exitMessage({ ...exit, note }).length).toBeLessThanOrEqual(16 * 1024);
  expect(exitMessage({ ...exit, seen: { ...exit.seen, error: note.message } }).length).toBeLessThanOrEqual(16 * 1024);
  expect(exitReason({ ...exit, note: { reason: 'user_error', message: 'x' }, ending: 'user_error' })).toBe(
    'user_error',
  );
});

test('ranges that an operator closes are read with care: one that cannot be read ends the start by name', () => {
  const read = (text: string): readonly string[] =>
    closedRanges(loadAgentConfig({ LONGSHORE_AGENT_CLOSED_RANGES: text }));
  expect(read('')).toEqual([]);
  expect(read('10.0.0.0/8, fd00::/8')).toEqual(['10.0.0.0/8', 'fd00::/8']);
  for (const bad of ['10.0.0.0', '10.0.0.0/33', '10.0.0.0/8 }', 'office', '10.0.0.0/8;fd00::/8'])
    expect(() => read(bad), bad).toThrow(/LONGSHORE_AGENT_CLOSED_RANGES: .* is not an address range/);
  expect(() => read('10.0.0.0/8,'.repeat(257))).toThrow(/LONGSHORE_AGENT_CLOSED_RANGES: more than 256 ranges/);
});

test('a root is limited by the engine where it can, and is not where it cannot', () => {
  expect(createOptions(createOf({}, { rootBytes: 1_000_000 })).HostConfig).toMatchObject({
    StorageOpt: { size: '1000000' },
  });
  expect(createOptions(createOf()).HostConfig).not.toHaveProperty('StorageOpt');
});

test('a container that ends by its own doing takes its attempts with it in words; one that was told to end gives them back', () => {
  const told = { ending: 'disk_limit', rebooted: false };
  expect(attemptsEnd('disk_limit', 'it wrote 30 GiB', told)).toEqual({ kind: 'exited', text: 'it wrote 30 GiB' });
  expect(attemptsEnd('protocol_violation', 'a second hello', told)).toMatchObject({ kind: 'exited' });
  expect(attemptsEnd('drained', '', { ending: 'drained', rebooted: false })).toEqual({ kind: 'stopped' });
  expect(attemptsEnd('host_reboot', '', { ending: undefined, rebooted: true })).toEqual({ kind: 'stopped' });
  expect(attemptsEnd('oom', '', { ending: undefined, rebooted: false })).toEqual({ kind: 'exited' });
});
