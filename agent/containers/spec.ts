/**
 * Translates an assignment into the engine's create call. Pure. The host's allow-list is here: a spec has no field for
 * privileges, host namespaces, devices or mounts, so no scheduler can ask for them. Other fields are checked. What pods
 * and sandboxes have of their own is in supervised.ts.
 */
import { createHash } from 'node:crypto';
import { LEAST_CPU_MILLICORES, LEAST_MEMORY_MIB } from '#shared/domain/least-resources.ts';
import type { Assignment__Output, ContainerSpec__Output } from '#shared/protocol/generated/messages.ts';
import type { CreateContainer, GpuDriver, ImageConfig, Mount } from './runtime.ts';
import { WORKER_MODES } from '#shared/domain/worker-modes.ts';
import { choiceProblem } from './network-filter.ts';
import type { PauseContainer } from './pause-containers.ts';
import { LABELS } from './runtime.ts';
import {
  LOADER_VARIABLES,
  SUPERVISED_CAPABILITIES,
  SUPERVISOR_COMMAND,
  SUPERVISOR_NAME,
  hasCode,
  hasCredential,
  isSupervised,
  kindOf,
  supervisedProblem,
  supervisorSettings,
} from './supervised.ts';
import { volumesProblem } from './volumes-problem.ts';

const MIN_MEMORY_BYTES = LEAST_MEMORY_MIB * 1024 * 1024;
const MAX_WORKERS = 256;
const ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}$/;
const IMAGE = /^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}$/;
/** Bounds of a handler's name; the runner judges the rest, with a message that its author sees. */
const HANDLER = /^[^\0\r\n]{1,1000}$/;
const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** Variables that a stub's environment may not set: the agent alone assigns devices. */
const RESERVED = /^(NVIDIA_|CUDA_VISIBLE_DEVICES$|LONGSHORE_)/;
/** Share of memory for /dev/shm in a container with a GPU: data loaders pass whole batches through it. */
const SHM_SHARE = 0.25;
/** Libraries of NVIDIA's driver that every container with a GPU gets; `video` is hardware decoding and encoding. */
const DRIVER_CAPABILITIES = ['compute', 'utility', 'video'] as const;
const CAPABILITIES_NAME = 'NVIDIA_DRIVER_CAPABILITIES';

/** Bound on processes: a single container with a core must not fill a machine with the smallest `pid_max` (32768). */
const PIDS_BASE = 1024;
const PIDS_PER_CORE = 1024;
const MOST_PIDS = 32_768;

/** Twelve characters that identify a container's assignment in paths (unix sockets allow 107 bytes). */
export const shortIdOf = (containerId: string, epoch: number): string =>
  createHash('sha256').update(`${containerId} ${epoch}`).digest('hex').slice(0, 12);

export const containerName = (containerId: string, epoch: number): string => `c-${containerId}-${epoch}`;

/** @returns the reason of a refusal, naming the field; undefined when the assignment is acceptable */
export function checkAssignment(assignment: Assignment__Output): string | undefined {
  const spec = assignment.spec;
  if (!ID.test(assignment.containerId)) return 'container_id is not an id';
  if (assignment.assignmentId === '') return 'assignment_id is empty';
  if (spec === null || spec === undefined) return 'spec is missing';
  if (spec.image !== '' && !IMAGE.test(spec.image)) return 'spec.image is not an image reference';
  if (spec.image === '' && !/^(python)?(3(\.\d{1,2})?)?$/.test(spec.pythonVersion))
    return `spec.python_version ${JSON.stringify(spec.pythonVersion)} is not a Python version`;
  const supervised = isSupervised(kindOf(spec));
  if (supervised ? spec.handler !== '' && !HANDLER.test(spec.handler) : !HANDLER.test(spec.handler))
    return 'spec.handler is empty or not one line';
  if (spec.onStart !== '' && !HANDLER.test(spec.onStart)) return 'spec.on_start is not one line';
  if (spec.memoryBytes < MIN_MEMORY_BYTES) return `spec.memory_bytes is below ${MIN_MEMORY_BYTES}`;
  if (spec.cpuMillicores < LEAST_CPU_MILLICORES) return `spec.cpu_millicores is below ${LEAST_CPU_MILLICORES}`;
  if (spec.workers < 1 || spec.workers > MAX_WORKERS) return `spec.workers is not from 1 to ${MAX_WORKERS}`;
  if (!['', ...WORKER_MODES].includes(spec.workerMode)) return `spec.worker_mode is not ${WORKER_MODES.join(', ')}`;
  for (const name of Object.keys(spec.env)) if (!ENV_NAME.test(name)) return `spec.env: ${name} is not a variable name`;
  const badNetwork = choiceProblem(spec);
  if (badNetwork !== undefined) return `spec.${badNetwork}`;
  return (supervised ? supervisedProblem(spec) : undefined) ?? volumesProblem(spec.workspaceId, spec.volumes);
}

export interface HostFacts {
  readonly cores: number;
  readonly hostname: string;
  readonly machineId: string;
  readonly runnerDir: string;
  readonly caBundle: string | undefined;
  readonly extraLabels: Readonly<Record<string, string>>;
  /** Limit of a container's root, where the engine enforces it; undefined: no limit, or no support. */
  readonly rootBytes?: number | undefined;
  /** How the engine is asked for the container's GPUs; absent: by NVIDIA's hook. */
  readonly gpuDriver?: GpuDriver;
  /** Bound on open files; absent: the engine's default, whose soft limit may be 1024. */
  readonly openFiles?: number | undefined;
}

const CA_TARGET = '/etc/longshore/ca-bundle.pem';
export const TOKEN_NAME = 'LONGSHORE_TOKEN';
const GATEWAY_NAME = 'LONGSHORE_GATEWAY_SOCKET';
const GATEWAY_SOCKET = '/run/longshore/gateway.sock';
export const RUNNER_TARGET = '/opt/longshore/python';

export interface ImageOfContainer {
  readonly id: string;
  readonly reference: string;
  readonly config: ImageConfig;
  /** The operator's base image. */
  readonly isBase?: boolean;
}

export interface ContainerPaths {
  readonly code: Mount;
  readonly socketDir: string;
  readonly volumes?: readonly Mount[];
  /** The Python of supervisors, needed for pods and sandboxes. */
  readonly base?: Mount | undefined;
}

/**
 * The create call of an assignment.
 * @throws AppError `image_error` where a pod has no program
 */
export function createContainerOf(
  assignment: { readonly assignmentId: string; readonly containerId: string; readonly epoch: number },
  spec: ContainerSpec__Output,
  image: ImageOfContainer,
  host: HostFacts,
  paths: ContainerPaths,
  pauseContainer: PauseContainer | undefined,
): CreateContainer {
  const supervised = isSupervised(kindOf(spec));
  const withCode = !supervised || hasCode(spec);
  const hasGpu = spec.gpuUuids.length > 0;
  const cores = coresOf(spec, host);
  const mounts: Mount[] = [
    ...(withCode ? [paths.code] : []),
    { kind: 'bind', target: '/run/longshore', readOnly: true, source: paths.socketDir },
    { kind: 'bind', target: RUNNER_TARGET, readOnly: true, source: host.runnerDir },
  ];
  if (supervised && paths.base !== undefined) mounts.push(paths.base);
  mounts.push(...(paths.volumes ?? []));
  if (host.caBundle !== undefined)
    mounts.push({ kind: 'bind', target: CA_TARGET, readOnly: true, source: host.caBundle });
  return {
    name: containerName(assignment.containerId, assignment.epoch),
    image: image.id,
    entrypoint: supervised ? SUPERVISOR_COMMAND : ['python3', '-m', 'longshore.runner'],
    // Empty: the image's own.
    workingDir: withCode ? '/mnt/code' : '',
    env: supervised
      ? supervisedEnvironment(assignment.containerId, spec, host, image)
      : environmentOf(assignment.containerId, spec, host, image, cores),
    ...(supervised ? { capabilities: SUPERVISED_CAPABILITIES } : {}),
    labels: {
      ...host.extraLabels,
      [LABELS.managed]: '1',
      [LABELS.machine]: host.machineId,
      [LABELS.assignment]: assignment.assignmentId,
      [LABELS.epoch]: String(assignment.epoch),
      [LABELS.container]: assignment.containerId,
      [LABELS.deployment]: spec.deploymentId,
      [LABELS.workspace]: spec.workspaceId,
      [LABELS.image]: image.reference,
      ...(hasGpu ? { [LABELS.gpus]: spec.gpuUuids.join(',') } : {}),
    },
    mounts,
    // Hostname, resolver and hosts file are the pause container's; without one there is no network at all.
    network: pauseContainer?.network ?? 'none',
    memoryBytes: spec.memoryBytes,
    ...(host.rootBytes === undefined ? {} : { rootBytes: host.rootBytes }),
    ...(host.openFiles === undefined ? {} : { openFiles: host.openFiles }),
    // The engine refuses more cores than the machine has; an overcommitted pool may assign them.
    cpuMillicores: Math.min(spec.cpuMillicores, host.cores * 1000),
    pids: mostPids(cores, spec.workers * Math.max(1, spec.concurrentRequests)),
    ...(hasGpu
      ? {
          gpus: {
            driver: host.gpuDriver ?? 'nvidia',
            uuids: spec.gpuUuids,
            capabilities: driverCapabilities(spec),
          },
          shmBytes: Math.floor(spec.memoryBytes * SHM_SHARE),
        }
      : {}),
  };
}

/** Whole cores that a container can use: a share of a core counts as one. */
const coresOf = (spec: ContainerSpec__Output, host: HostFacts): number =>
  Math.max(1, Math.min(Math.ceil(spec.cpuMillicores / 1000), host.cores));

/** Bound on processes: every slot may take a thread; libraries and tools take theirs by cores. */
export const mostPids = (cores: number, slots: number): number =>
  Math.min(PIDS_BASE + PIDS_PER_CORE * cores + slots, MOST_PIDS);

/**
 * Driver parts for the container. A stub asks for OpenGL's and Vulkan's libraries by the variable of NVIDIA's own
 * tools.
 */
function driverCapabilities(spec: ContainerSpec__Output): readonly string[] {
  const asked = (spec.env[CAPABILITIES_NAME] ?? '').split(',').map((word) => word.trim());
  return asked.includes('graphics') || asked.includes('all')
    ? [...DRIVER_CAPABILITIES, 'graphics']
    : DRIVER_CAPABILITIES;
}

/** Variables that the stub sets, and those of the operator's certificates. */
function ownEnvironment(spec: ContainerSpec__Output, host: HostFacts): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(spec.env)) if (!RESERVED.test(name)) env[name] = value;
  if (host.caBundle !== undefined)
    for (const name of ['SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'PIP_CERT', 'NODE_EXTRA_CA_CERTS', 'CURL_CA_BUNDLE'])
      env[name] ??= CA_TARGET;
  return env;
}

function gpuEnvironment(spec: ContainerSpec__Output, host: HostFacts): Record<string, string> {
  const hasGpu = spec.gpuUuids.length > 0;
  return {
    // The engine's value for devices that the hook passes, repeated here because an image's own value would come first.
    // With CDI, a default runtime of NVIDIA's must not add devices.
    NVIDIA_VISIBLE_DEVICES: hasGpu && host.gpuDriver !== 'cdi' ? spec.gpuUuids.join(',') : 'void',
    [CAPABILITIES_NAME]: driverCapabilities(spec).join(','),
  };
}

/** A name without a value removes the image's own value. */
const listed = (env: Readonly<Record<string, string>>, ...removed: readonly string[]): string[] => [
  ...Object.entries(env).map(([name, value]) => `${name}=${value}`),
  'CUDA_VISIBLE_DEVICES',
  ...removed,
];

/**
 * Python writes prints at once, where neither stub nor image says otherwise: else those of a program that runs on would
 * wait for 8 KiB of them.
 */
const UNBUFFERED = { PYTHONUNBUFFERED: '1' } as const;

/** Adds variables that neither the stub nor the image sets, not even to an empty text. */
function addDefaults(
  env: Record<string, string>,
  defaults: Readonly<Record<string, string>>,
  { config }: ImageOfContainer,
): void {
  for (const [name, value] of Object.entries(defaults))
    if (!config.env.some((one) => one.startsWith(`${name}=`))) env[name] ??= value;
}

/** Programs of pods and sandboxes are no handlers: no variable of a runner. */
function supervisedEnvironment(
  containerId: string,
  spec: ContainerSpec__Output,
  host: HostFacts,
  image: ImageOfContainer,
): string[] {
  const settings = supervisorSettings(containerId, spec, { ...image, isBase: image.isBase ?? false });
  const mayCall = hasCredential(kindOf(spec));
  const own = ownEnvironment(spec, host);
  for (const name of LOADER_VARIABLES) delete own[name];
  const env: Record<string, string> = {
    ...own,
    STUB_ID: spec.stubId,
    STUB_TYPE: spec.stubType,
    CONTAINER_ID: containerId,
    CONTAINER_HOSTNAME: host.hostname,
    ...gpuEnvironment(spec, host),
    ...(mayCall ? { [TOKEN_NAME]: spec.containerToken, [GATEWAY_NAME]: GATEWAY_SOCKET } : {}),
    [SUPERVISOR_NAME]: JSON.stringify(settings),
  };
  addDefaults(env, UNBUFFERED, image);
  return listed(env, ...LOADER_VARIABLES, ...(mayCall ? [] : [TOKEN_NAME, GATEWAY_NAME]));
}

function environmentOf(
  containerId: string,
  spec: ContainerSpec__Output,
  host: HostFacts,
  image: ImageOfContainer,
  cores: number,
): string[] {
  const env = ownEnvironment(spec, host);
  Object.assign(env, {
    HANDLER: spec.handler,
    ON_START: spec.onStart,
    STUB_ID: spec.stubId,
    STUB_TYPE: spec.stubType,
    WORKERS: String(spec.workers),
    LONGSHORE_WORKER_MODE: spec.workerMode,
    CONCURRENT_REQUESTS: String(Math.max(1, spec.concurrentRequests)),
    KEEP_WARM_SECONDS: String(spec.keepWarmSeconds),
    PYTHON_VERSION: spec.pythonVersion,
    // Seconds, as app authors write them; 0: no limit.
    TIMEOUT: String(spec.timeoutMs / 1000),
    CONTAINER_ID: containerId,
    CONTAINER_HOSTNAME: host.hostname,
    LONGSHORE_AGENT_SOCKET: '/run/longshore/agent.sock',
    [GATEWAY_NAME]: GATEWAY_SOCKET,
    LONGSHORE_TRACEBACKS: spec.tracebacks ? '1' : '0',
    // Core count by which the runner bounds threads of numeric libraries, where neither stub nor image sets them.
    LONGSHORE_CORES: String(cores),
    LONGSHORE_GPU: spec.gpuUuids.length > 0 ? '1' : '0',
    [TOKEN_NAME]: spec.containerToken,
    ...gpuEnvironment(spec, host),
    // The runner's folder comes before a stub's own PYTHONPATH: the runner must be found.
    PYTHONPATH: env['PYTHONPATH'] === undefined ? RUNNER_TARGET : `${RUNNER_TARGET}:${env['PYTHONPATH']}`,
  });
  addDefaults(
    env,
    {
      ...UNBUFFERED,
      PYTHONDONTWRITEBYTECODE: '1',
      // Python 3.13 and later read it before the runner's first line; without it `os.cpu_count` is the host's.
      PYTHON_CPU_COUNT: String(cores),
    },
    image,
  );
  return listed(env);
}
