// Turns a GetOrCreateStub request into the configuration that everything else works
// with: defaults, bounds and refusals per kind. Pure; the only place that knows them.
import { isIP } from 'node:net';
import { ANY_GPU, GPU_MODELS } from '#shared/domain/gpus.ts';
import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { mountPathsProblem, mountPlaces } from '#shared/domain/mount-paths.ts';
import { kindOf } from '#shared/domain/status.ts';
import { WORKER_MODES } from '#shared/domain/worker-modes.ts';
import { isRecord } from '#shared/json.ts';
import { readWhen } from '../../domain/ticks.ts';
import { parseGpus } from './gpus.ts';
import type { AutoscalerConfig, StubConfig, StubVolumeMount } from '../../domain/stub-config.ts';
import { WORKER_CHOICE, lacksChoice } from '../../domain/worker-choice.ts';
import { poolNameOf, poolNameProblem } from '../../domain/pools.ts';

export const STUB_TYPES = [
  'endpoint',
  'endpoint/deployment',
  'endpoint/serve',
  'asgi',
  'asgi/deployment',
  'asgi/serve',
  'taskqueue',
  'taskqueue/deployment',
  'taskqueue/serve',
  'function',
  'function/deployment',
  'function/serve',
  'schedule',
  'schedule/deployment',
  'pod',
  'pod/deployment',
  'pod/run',
  'bot',
  'bot/deployment',
  'bot/serve',
  'container',
  'shell',
  'sandbox',
] as const;
const PYTHON_MINORS = [8, 9, 10, 11, 12, 13, 14];
export const PYTHON_VERSIONS: readonly string[] = [
  'python3',
  ...PYTHON_MINORS.map((minor) => `python3.${minor}`),
  ...PYTHON_MINORS.filter((minor) => minor <= 12).map((minor) => `micromamba3.${minor}`),
];

/** Bounds of a workspace's stubs; the defaults apply where its limits do not set them. */
export interface StubLimits {
  readonly maxCpuMillicores: number;
  readonly maxMemoryMib: number;
  readonly maxGpuCount: number;
  readonly maxContainers: number;
  /** Most GPUs at once; 0 refuses every GPU; null: no limit. */
  readonly gpuConcurrency: number | null;
  readonly maxRetries: number;
  readonly maxTtlSeconds: number;
  /** Bound on pending tasks; null: no limit. */
  readonly maxPendingTasks: number | null;
  /** Default of stubs that do not set it. */
  readonly maxPendingTasksDefault: number;
  /** Deployments of the workspace, deleted ones not counted; null: no limit. */
  readonly maxDeployments: number | null;
  /** Stubs of the workspace. */
  readonly maxStubs: number;
}
const MAX_TTL_S = 86_400;
const MAX_RETRIES = 5;
const DEFAULT_PENDING = 100;
export const DEFAULT_LIMITS: StubLimits = {
  maxCpuMillicores: 128_000,
  maxMemoryMib: 32_768,
  maxGpuCount: 2,
  maxContainers: 100,
  gpuConcurrency: null,
  maxRetries: MAX_RETRIES,
  maxTtlSeconds: MAX_TTL_S,
  maxPendingTasks: null,
  maxPendingTasksDefault: DEFAULT_PENDING,
  maxDeployments: null,
  maxStubs: 10_000,
};

export type Normalised =
  | {
      readonly kind: 'config';
      readonly config: StubConfig;
      readonly warnMsg: string;
      readonly unsupportedGpus: readonly string[];
    }
  | { readonly kind: 'refused'; readonly errMsg: string };

interface KindRules {
  /** Whether callers wait: then the execution limit is bounded, and there are no retries. */
  readonly sync: boolean;
  readonly ttlSeconds: number;
  readonly keepWarmSeconds: number;
  /** Whether a Python function serves it, which `handler` names. */
  readonly handler: boolean;
  /** Whether each call gets a container, up to the cap; such a kind is never public. */
  readonly perCall: boolean;
}
const OTHER: KindRules = { sync: false, ttlSeconds: 0, keepWarmSeconds: 0, handler: false, perCall: false };
const RULES: Readonly<Record<string, KindRules>> = {
  endpoint: { sync: true, ttlSeconds: 600, keepWarmSeconds: 180, handler: true, perCall: false },
  asgi: { sync: true, ttlSeconds: 600, keepWarmSeconds: 180, handler: true, perCall: false },
  taskqueue: { sync: false, ttlSeconds: 7_200, keepWarmSeconds: 10, handler: true, perCall: false },
  function: { sync: false, ttlSeconds: 43_200, keepWarmSeconds: 0, handler: true, perCall: true },
  schedule: { sync: false, ttlSeconds: 43_200, keepWarmSeconds: 0, handler: true, perCall: true },
};
const MAX_SYNC_TIMEOUT_S = 600;
const MAX_WORKERS = 128;
const MAX_CONCURRENT = 1_000;
const MAX_ALLOW_LIST = 10;
const MAX_NAME = 255;
const MAX_VOLUMES = 32;
const MAX_SECRETS = 64;
const MAX_ENV = 512;
const MAX_ENV_BYTES = 128 * 1024;
/** Seconds that `extra.stopAfterDisconnect: true` means; a request may also name the number. */
const STOP_AFTER_DISCONNECT_S = 300;
const STOP_AFTER_DISCONNECT_RANGE = { min: 60, max: 86_400 };

export const isSyncKind = (kind: string): boolean => RULES[kind]?.sync === true;

export function normaliseStub(request: GetOrCreateStubRequest, limits: StubLimits = DEFAULT_LIMITS): Normalised {
  const kind = kindOf(request.stubType);
  const rules = RULES[kind] ?? OTHER;
  const { gpus, unknown } = parseGpus(request.gpu);
  const gpuCount = gpus.length > 0 ? Math.max(1, request.gpuCount) : request.gpuCount;
  const extra = parseExtra(request.extra);
  const autoscaler = normaliseAutoscaler(request, rules, limits);
  const volumes = normaliseVolumes(request);
  const when = kind === 'schedule' && extra !== null ? readWhen(extra) : undefined;
  const refusal =
    refuseNames(request, rules) ??
    refuseResources(request, gpuCount, limits) ??
    refuseRunning(request, extra) ??
    refuseWorkerMode(extra?.['workerMode'], gpuCount) ??
    (typeof volumes === 'string' ? volumes : null) ??
    (typeof when === 'string' ? when : null) ??
    (typeof autoscaler === 'string' ? autoscaler : null);
  if (
    refusal !== null ||
    typeof autoscaler === 'string' ||
    typeof volumes === 'string' ||
    typeof when === 'string' ||
    extra === null
  ) {
    return { kind: 'refused', errMsg: refusal ?? 'the stub cannot be read' };
  }
  const policy = request.taskPolicy;
  const timeout = policy !== null && policy.timeout !== 0 ? policy.timeout : request.timeout;
  const retries = policy !== null && policy.maxRetries !== 0 ? policy.maxRetries : request.retries;
  const ttl = policy !== null && policy.ttl !== 0 ? policy.ttl : rules.ttlSeconds;
  const config: StubConfig = {
    stubType: request.stubType,
    handler: request.handler,
    onStart: request.onStart,
    pythonVersion: request.pythonVersion === '' ? 'python3' : request.pythonVersion,
    imageId: request.imageId,
    cpuMillicores: request.cpu,
    memoryMib: request.memory,
    gpu: gpus.length === 0 && gpuCount > 0 ? [ANY_GPU] : gpus,
    gpuCount,
    workers: Math.max(1, request.workers),
    concurrentRequests: request.concurrentRequests,
    keepWarmSeconds: request.keepWarmSeconds ?? rules.keepWarmSeconds,
    maxPendingTasks: request.maxPendingTasks === 0 ? limits.maxPendingTasksDefault : request.maxPendingTasks,
    timeoutSeconds: timeoutSeconds(timeout, rules),
    ttlSeconds: Math.min(ttl, MAX_TTL_S, limits.maxTtlSeconds),
    retries: rules.sync ? 0 : Math.min(retries, MAX_RETRIES, limits.maxRetries),
    authorized: rules.perCall || request.authorized !== false,
    env: request.env,
    secrets: request.secrets.map((secret) => secret.name),
    volumes,
    blockNetwork: request.blockNetwork,
    allowList: request.allowList,
    callbackUrl: request.callbackUrl,
    tracebacks: extra['tracebacks'] === true,
    ...workerModeField(extra),
    ...disconnectField(extra),
    autoscaler,
    ...(when === undefined ? {} : { schedule: when }),
    extra: keptFields(request, extra),
  };
  const warnings = [
    ...(unknown.length === 0 ? [] : [`No known GPU model: ${unknown.join(', ')}. Known are ${GPU_MODELS.join(', ')}.`]),
    ...(lacksChoice(config) ? [oneWorkerWarning(config.workers)] : []),
  ];
  return { kind: 'config', config, warnMsg: warnings.join(' '), unsupportedGpus: unknown };
}

const oneWorkerWarning = (workers: number): string =>
  `Each container serves with one worker instead of ${workers}, because a process with a GPU cannot be forked. Choose with worker_mode: ${WORKER_CHOICE}.`;

/** The worker mode, absent when not chosen, so that a stub made before the field existed still equals a new one. */
function workerModeField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'workerMode'> {
  const workerMode = WORKER_MODES.find((mode) => mode === extra['workerMode']);
  return workerMode === undefined ? {} : { workerMode };
}

function refuseWorkerMode(asked: unknown, gpuCount: number): string | null {
  if (asked === undefined || asked === null) return null;
  if (!WORKER_MODES.some((mode) => mode === asked))
    return `extra.workerMode must be ${WORKER_MODES.join(', ')}, got ${JSON.stringify(asked)}`;
  if (asked === 'fork' && gpuCount > 0) return 'extra.workerMode must be thread or spawn with a GPU, got "fork"';
  return null;
}

/** The setting, absent when not requested, so that a stub made before the field existed still equals a new one. */
function disconnectField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'stopAfterDisconnectSeconds'> {
  const asked = extra['stopAfterDisconnect'];
  if (asked === true) return { stopAfterDisconnectSeconds: STOP_AFTER_DISCONNECT_S };
  return typeof asked === 'number' ? { stopAfterDisconnectSeconds: asked } : {};
}

function refuseDisconnect(asked: unknown): string | null {
  const { min, max } = STOP_AFTER_DISCONNECT_RANGE;
  if (asked === undefined || asked === null || typeof asked === 'boolean') return null;
  if (typeof asked === 'number' && Number.isInteger(asked) && asked >= min && asked <= max) return null;
  return `extra.stopAfterDisconnect must be true (${STOP_AFTER_DISCONNECT_S} s) or whole seconds from ${min} to ${max}, got ${JSON.stringify(asked)}`;
}

function timeoutSeconds(timeout: number, rules: KindRules): number {
  if (rules.sync) return timeout <= 0 ? MAX_SYNC_TIMEOUT_S : Math.min(timeout, MAX_SYNC_TIMEOUT_S);
  return Math.max(0, timeout);
}

function refuseNames(request: GetOrCreateStubRequest, rules: KindRules): string | null {
  if (!(STUB_TYPES as readonly string[]).includes(request.stubType)) {
    return `stubType ${quoted(request.stubType)} is not known; allowed: ${STUB_TYPES.join(', ')}`;
  }
  if (request.pythonVersion !== '' && !PYTHON_VERSIONS.includes(request.pythonVersion)) {
    return `pythonVersion ${quoted(request.pythonVersion)} is not known; allowed: ${PYTHON_VERSIONS.join(', ')}`;
  }
  if (rules.handler && !isReference(request.handler)) {
    return `handler must be module:function, got ${quoted(request.handler)}`;
  }
  if (request.onStart !== '' && !isReference(request.onStart)) {
    return `onStart must be module:function, got ${quoted(request.onStart)}`;
  }
  for (const field of ['name', 'appName'] as const) {
    if (request[field].length > MAX_NAME) return `${field} must have at most ${MAX_NAME} characters`;
  }
  return null;
}

/** Whether the text has exactly one colon with text on both sides. */
const isReference = (text: string): boolean => /^[^:\s]+:[^:\s]+$/.test(text);

function refuseResources(request: GetOrCreateStubRequest, gpuCount: number, limits: StubLimits): string | null {
  if (request.cpu <= 0) return 'CPU must be greater than 0.';
  if (request.cpu > limits.maxCpuMillicores) return `CPU must be ${limits.maxCpuMillicores} or less.`;
  if (request.memory <= 0) return 'Memory must be greater than 0.';
  if (request.memory > limits.maxMemoryMib) return `Memory must be ${round(limits.maxMemoryMib / 1024)}GiB or less.`;
  if (gpuCount > 0 && limits.gpuConcurrency === 0) return 'GPU concurrency limit is 0.';
  if (gpuCount > limits.maxGpuCount) return `GPU count must be ${limits.maxGpuCount} or less.`;
  const { maxPendingTasks } = limits;
  if (maxPendingTasks !== null && request.maxPendingTasks > maxPendingTasks) {
    return `maxPendingTasks must be ${maxPendingTasks} or less`;
  }
  return null;
}

const round = (value: number): number => Math.round(value * 100) / 100;

function refuseRunning(
  request: GetOrCreateStubRequest,
  extra: Readonly<Record<string, unknown>> | null,
): string | null {
  if (request.workers > MAX_WORKERS) return `workers must be ${MAX_WORKERS} or less`;
  if (request.concurrentRequests > MAX_CONCURRENT) return `concurrentRequests must be ${MAX_CONCURRENT} or less`;
  const badEnv = request.env.findIndex((entry) => !/^[A-Za-z_][A-Za-z0-9_.-]*=/.test(entry));
  if (badEnv !== -1) return `env[${badEnv}] must be KEY=VALUE`;
  if (request.env.length > MAX_ENV) return `env must have at most ${MAX_ENV} entries`;
  if (request.env.reduce((sum, entry) => sum + Buffer.byteLength(entry), 0) > MAX_ENV_BYTES) {
    return `env must have at most ${MAX_ENV_BYTES} bytes in all`;
  }
  if (request.secrets.length > MAX_SECRETS) return `secrets must have at most ${MAX_SECRETS} entries`;
  if (request.allowList.length > MAX_ALLOW_LIST) return `allowList must have at most ${MAX_ALLOW_LIST} entries`;
  const badRange = request.allowList.findIndex((entry) => !isCidr(entry));
  if (badRange !== -1) {
    return `allowList[${badRange}] must be an address range such as 10.0.0.0/8, got ${quoted(request.allowList[badRange] ?? '')}`;
  }
  if (request.blockNetwork && request.allowList.length > 0) return 'blockNetwork and allowList exclude each other';
  if (request.callbackUrl !== '' && !isHttpUrl(request.callbackUrl)) return 'callbackUrl must be an http or https URL';
  const poolName = poolNameOf({ pool: request.pool });
  const badPool = poolName === '' ? undefined : poolNameProblem('pool.name', poolName);
  if (badPool !== undefined) return `${badPool}, got ${quoted(poolName)}`;
  if (extra === null) return 'extra must be a JSON object';
  return refuseDisconnect(extra['stopAfterDisconnect']);
}

function isCidr(text: string): boolean {
  const [, address, bits] = /^([0-9A-Fa-f:.]+)\/([0-9]{1,3})$/.exec(text) ?? [];
  const version = isIP(address ?? '');
  return version !== 0 && Number(bits) <= (version === 4 ? 32 : 128);
}

function isHttpUrl(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:');
}

/** Normalises the volumes; a text is a refusal. */
function normaliseVolumes(request: GetOrCreateStubRequest): readonly StubVolumeMount[] | string {
  if (request.volumes.length > MAX_VOLUMES) return `volumes must have at most ${MAX_VOLUMES} entries`;
  const mounts: StubVolumeMount[] = [];
  for (const [index, volume] of request.volumes.entries()) {
    if (volume.id === '') return `volumes[${index}].id must not be empty`;
    if (volume.config !== null) return `volumes[${index}].config: external buckets are not available in this version`;
    const places = mountPlaces(volume.mountPath);
    if ('problem' in places) return `volumes[${index}].mountPath ${places.problem}`;
    const [below = '', absolute = ''] = places.targets;
    // The path as written, without parts that mean nothing: `./data/` is `data`.
    const mountPath = volume.mountPath.startsWith('/') ? absolute : below.slice('/volumes/'.length);
    mounts.push({ volumeId: volume.id.toLowerCase(), mountPath });
  }
  const clash = mountPathsProblem(mounts.map((mount) => mount.mountPath));
  return clash === undefined ? mounts : `volumes: ${clash}`;
}

const MAX_WINDOW_SECONDS = 3600;

/** Normalises the autoscaler's settings; a text is a refusal. */
function normaliseAutoscaler(
  request: GetOrCreateStubRequest,
  { perCall }: KindRules,
  limits: StubLimits,
): AutoscalerConfig | string {
  const asked = request.autoscaler;
  const isPodDeployment = request.stubType === 'pod/deployment';
  if (asked === null || asked.type === '') {
    // A function's default is a container per call up to the cap.
    const minContainers = isPodDeployment && (request.keepWarmSeconds ?? 0) < 0 ? 1 : 0;
    return {
      type: 'queue_depth',
      minContainers,
      maxContainers: perCall ? limits.maxContainers : 1,
      tasksPerContainer: 1,
    };
  }
  if (asked.type !== 'queue_depth') {
    return `autoscaler.type ${quoted(asked.type)} is not known; allowed: queue_depth`;
  }
  const windowSeconds = asked.windowSeconds ?? 0;
  if (windowSeconds > MAX_WINDOW_SECONDS) return `autoscaler.windowSeconds must be ${MAX_WINDOW_SECONDS} or less`;
  const max = Math.max(1, asked.maxContainers);
  if (isPodDeployment) {
    if (asked.minContainers > max) return 'min replicas must be less than or equal to max replicas';
    if (max > limits.maxContainers) return `max replicas must be ${limits.maxContainers} or less`;
  }
  const keepOne = isPodDeployment && (request.keepWarmSeconds ?? 0) < 0 && asked.minContainers === 0;
  const minContainers = Math.min(keepOne ? 1 : asked.minContainers, limits.maxContainers);
  return {
    type: 'queue_depth',
    minContainers,
    // A minimum above the maximum raises the maximum.
    maxContainers: Math.min(Math.max(max, minContainers), limits.maxContainers),
    tasksPerContainer: Math.max(1, asked.tasksPerContainer),
    // Left out at 0, so that stubs made before the field existed equal new ones.
    ...(windowSeconds > 0 ? { windowSeconds } : {}),
  };
}

function parseExtra(text: string): Readonly<Record<string, unknown>> | null {
  if (text.trim() === '') return {};
  try {
    const parsed: unknown = JSON.parse(text);
    return isRecord(parsed) ? parsed : null;
  } catch {
    return null;
  }
}

const KEPT = [
  'checkpointEnabled',
  'onDeploy',
  'onDeployStubId',
  'entrypoint',
  'ports',
  'pricing',
  'inputs',
  'outputs',
  'tcp',
  'dockerEnabled',
  'pool',
  'isService',
  'serving',
  'disks',
  'allowMarketplace',
  'checkpointTrigger',
  'hostname',
  'persistentRoot',
] as const satisfies readonly (keyof GetOrCreateStubRequest)[];

/**
 * Fields of the request that have no place of their own yet. Empty values are
 * left out, so that sending and not sending them gives the same configuration.
 */
function keptFields(
  request: GetOrCreateStubRequest,
  extra: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const out: Record<string, unknown> = Object.keys(extra).length === 0 ? {} : { extra };
  for (const field of KEPT) {
    const value = request[field];
    if (value === null || value === '' || value === false || (Array.isArray(value) && value.length === 0)) continue;
    out[field] = value;
  }
  return out;
}

const quoted = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
