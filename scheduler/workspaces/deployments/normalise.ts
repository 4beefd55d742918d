// Turns a GetOrCreateStub request into the configuration that everything else works with: defaults and bounds per kind
// (kinds.ts), refusals (refusals.ts), limits of a workspace (stub-limits.ts). Pure.
import { GPU_LINKS } from '#shared/domain/gpu-terms.ts';
import { ANY_GPU, GPU_MODELS } from '#shared/domain/gpus.ts';
import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { basePythonOf } from '#shared/domain/built-images.ts';
import { imageProblem } from '#shared/domain/image-reference.ts';
import { readRules } from '#shared/domain/labels.ts';
import { mountPathsProblem, mountPlaces } from '#shared/domain/mount-paths.ts';
import { isServe, kindOf } from '#shared/domain/status.ts';
import { WORKER_MODES } from '#shared/domain/worker-modes.ts';
import { JsonText, plainOf } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import { readFlow } from '../../domain/flow-settings.ts';
import { isTimeOfDay } from '../../domain/warm.ts';
import type { WarmTime } from '../../domain/warm.ts';
import { readWhen } from '../../domain/ticks.ts';
import { isBucket, readBucket } from './buckets.ts';
import { parseGpus } from './gpus.ts';
import { AFTER_TASK, AUTOSCALER_TYPES } from '../../domain/stub-config.ts';
import type { AutoscalerConfig, StubConfig, StubVolumeMount } from '../../domain/stub-config.ts';
import { WORKER_CHOICE, lacksChoice } from '../../domain/worker-choice.ts';
import type { KindRules } from './kinds.ts';
import { OTHER_KIND, KIND_RULES, isSupervised } from './kinds.ts';
import {
  STOP_AFTER_DISCONNECT_S,
  quoted,
  refuseLength,
  refuseNames,
  cpuOf,
  memoryOf,
  refuseGpuLink,
  refuseMinCuda,
  refuseInterruptible,
  refusePriority,
  refuseRunning,
  refuseDeadLetterDays,
  refuseFlowOf,
  refuseStartTimeout,
  refuseWorkerMode,
  resourceRefusals,
} from './refusals.ts';
import { normalisePod } from './pods.ts';
import { normaliseServing } from './serving.ts';
import { DEAD_LETTER_DAYS } from '../../domain/task-inputs.ts';
import { START_TIMEOUT_S } from '../../domain/start-timeout.ts';
import type { StubLimits } from './stub-limits.ts';
import { DEFAULT_LIMITS, MAX_RETRIES, MAX_TTL_S } from './stub-limits.ts';

export type Normalised =
  | {
      readonly kind: 'config';
      readonly config: StubConfig;
      readonly warnMsg: string;
      readonly unsupportedGpus: readonly string[];
    }
  | {
      readonly kind: 'refused';
      /** The first of the refusals. */
      readonly errMsg: string;
      readonly refusals: readonly string[];
      readonly unsupportedGpus: readonly string[];
    };

const MAX_SYNC_TIMEOUT_S = 600;
const MAX_VOLUMES = 32;
/** Connections that a container of a pod takes at once, where the stub does not say. */
const POD_CONNECTIONS = 256;

export function normaliseStub(request: GetOrCreateStubRequest, limits: StubLimits = DEFAULT_LIMITS): Normalised {
  const kind = kindOf(request.stubType);
  const rules = KIND_RULES[kind] ?? OTHER_KIND;
  const { gpus, unknown, problems: gpuProblems } = parseGpus(request.gpu);
  const gpuCount = gpus.length > 0 ? Math.max(1, request.gpuCount) : request.gpuCount;
  const extra = parseExtra(request.extra);
  const autoscaler = normaliseAutoscaler(request, rules, limits);
  const volumes = normaliseVolumes(request);
  const serving = normaliseServing(request.serving?.value);
  const labels = readRules(extra?.['placement'], 'extra.placement');
  const flow = readFlow(extra?.['flow']);
  const pod = isSupervised(kind) ? normalisePod(request, serving !== undefined) : undefined;
  const isLater = extra?.['whenLater'] === true;
  const when = kind === 'schedule' && extra !== null && !isLater ? readWhen(extra) : undefined;
  const refusals = [
    refuseNames(request, rules),
    refuseImage(request),
    ...gpuProblems,
    ...resourceRefusals(request, gpuCount, limits),
    refuseRunning(request, extra),
    refuseWorkerMode(extra?.['workerMode'], gpuCount),
    refuseMinCuda(extra?.['minCuda'], gpuCount),
    refusePriority(extra?.['priority']),
    refuseInterruptible(extra?.['interruptible'], request.stubType),
    refuseGpuLink(extra?.['gpuLink'], gpuCount),
    refuseStartTimeout(extra?.['startTimeout'], limits),
    refuseDeadLetterDays(extra?.['deadLetterDays']),
    refuseFlowOf(kind, flow),
    ...[volumes, when, pod, serving, autoscaler, labels, flow].filter((read) => typeof read === 'string'),
  ].filter((text) => text !== null);
  const refused = (texts: readonly string[]): Normalised => ({
    kind: 'refused',
    errMsg: texts[0] ?? 'the stub cannot be read',
    refusals: texts,
    unsupportedGpus: unknown,
  });
  if (
    refusals.length > 0 ||
    typeof autoscaler === 'string' ||
    typeof volumes === 'string' ||
    typeof when === 'string' ||
    typeof pod === 'string' ||
    typeof serving === 'string' ||
    typeof labels === 'string' ||
    typeof flow === 'string' ||
    extra === null
  ) {
    return refused(refusals);
  }
  const basePython = basePythonOf(request.imageId);
  const policy = request.taskPolicy;
  const timeout = policy !== null && policy.timeout !== 0 ? policy.timeout : request.timeout;
  const retries = policy !== null && policy.maxRetries !== 0 ? policy.maxRetries : request.retries;
  const ttl = policy !== null && policy.ttl !== 0 ? policy.ttl : rules.ttlSeconds;
  const concurrentRequests =
    kind === 'pod' && request.concurrentRequests <= 1 ? POD_CONNECTIONS : request.concurrentRequests;
  const maxPendingTasks = request.maxPendingTasks === 0 ? limits.maxPendingTasksDefault : request.maxPendingTasks;
  const config: StubConfig = {
    stubType: request.stubType,
    handler: request.handler,
    onStart: request.onStart,
    pythonVersion: basePython ?? (request.pythonVersion === '' ? 'python3' : request.pythonVersion),
    imageId: basePython === undefined ? request.imageId : '',
    cpuMillicores: cpuOf(request),
    memoryMib: memoryOf(request),
    gpu: gpus.length === 0 && gpuCount > 0 ? [ANY_GPU] : gpus,
    gpuCount,
    ...cudaField(extra),
    ...linkField(extra),
    ...(labels === undefined ? {} : { labels }),
    ...priorityField(extra),
    ...interruptibleField(extra),
    // A development server is one process, which loads changed files anew.
    workers: pod === undefined && !isServe(request.stubType) ? Math.max(1, request.workers) : 1,
    concurrentRequests,
    keepWarmSeconds: request.keepWarmSeconds ?? rules.keepWarmSeconds,
    // Each connection to a pod is a task: as many may be open as its containers take.
    maxPendingTasks:
      kind === 'pod' ? Math.max(maxPendingTasks, concurrentRequests * autoscaler.maxContainers) : maxPendingTasks,
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
    ...(extra['keepInputs'] === false ? { keepInputs: false } : {}),
    ...deadLetterField(extra),
    ...workerModeField(extra),
    ...disconnectField(extra),
    ...startField(extra, limits),
    ...(flow === undefined ? {} : { flow }),
    autoscaler,
    ...(when === undefined ? {} : { schedule: when }),
    ...(pod === undefined ? {} : { pod }),
    ...(serving === undefined ? {} : { serving }),
    extra: keptFields(request, extra),
  };
  const tooLong = refuseLength(config);
  if (tooLong !== null) return refused([tooLong]);
  const warnings = [
    ...(unknown.length === 0 ? [] : [unknownGpusText(unknown)]),
    ...(lacksChoice(config) ? [oneWorkerWarning(config.workers)] : []),
    ...(pod !== undefined && request.tcp ? [TCP_STAYS_INSIDE] : []),
    ...(request.stubType === 'pod/deployment' && pod?.ports.length === 0 ? [NO_PORTS] : []),
    ...(rules.sync && typeof extra['startTimeout'] === 'number' ? longStartWarnings(config) : []),
  ];
  return { kind: 'config', config, warnMsg: warnings.join(' '), unsupportedGpus: unknown };
}

/** An image by the engine's id of it would be any workspace's. */
function refuseImage({ imageId }: Pick<GetOrCreateStubRequest, 'imageId'>): string | null {
  const why = imageId === '' ? undefined : imageProblem(imageId);
  return why === undefined ? null : `imageId ${why}`;
}

/** Warning about names that are no GPU models. */
export const unknownGpusText = (unknown: readonly string[]): string =>
  `No known GPU model: ${unknown.join(', ')}. Known are ${GPU_MODELS.join(', ')}.`;

const NO_PORTS =
  'This pod has no ports: nothing reaches it by HTTP. `ports=[…]` of the Pod names those on which its program listens.';
const TCP_STAYS_INSIDE =
  'TCP ports are not reached from outside yet: HTTP and WebSockets are, and `longshore container port-forward` carries any bytes.';

const oneWorkerWarning = (workers: number): string =>
  `Each container serves with one worker instead of ${workers}, because a process with a GPU cannot be forked. Choose with worker_mode: ${WORKER_CHOICE}.`;

/** The worker mode, absent when not chosen, so that a stub made before the field existed still equals a new one. */
function workerModeField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'workerMode'> {
  const workerMode = WORKER_MODES.find((mode) => mode === extra['workerMode']);
  return workerMode === undefined ? {} : { workerMode };
}

/** The days, absent where they are the usual ones: a stub made before the field existed equals a new one. */
function deadLetterField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'deadLetterDays'> {
  const days = extra['deadLetterDays'];
  return typeof days === 'number' && days !== DEAD_LETTER_DAYS ? { deadLetterDays: days } : {};
}

/** The least CUDA version, absent when not asked for: a stub made before the field existed equals a new one. */
function cudaField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'minCuda'> {
  const minCuda = extra['minCuda'];
  return typeof minCuda === 'string' && minCuda !== '' ? { minCuda } : {};
}

function interruptibleField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'interruptible'> {
  const { interruptible } = extra;
  return interruptible === true || interruptible === AFTER_TASK ? { interruptible } : {};
}

/** The priority, absent where it is normal: a stub made before the field existed equals a new one. */
function priorityField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'priority'> {
  const { priority } = extra;
  return priority === 'high' || priority === 'low' ? { priority } : {};
}

/** How GPUs are linked, absent when not asked for: a stub made before the field existed equals a new one. */
function linkField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'gpuLink'> {
  const gpuLink = GPU_LINKS.find((link) => link === extra['gpuLink']);
  return gpuLink === undefined ? {} : { gpuLink };
}

/** The setting, absent when not requested, so that a stub made before the field existed still equals a new one. */
function disconnectField(extra: Readonly<Record<string, unknown>>): Pick<StubConfig, 'stopAfterDisconnectSeconds'> {
  const asked = extra['stopAfterDisconnect'];
  if (asked === true) return { stopAfterDisconnectSeconds: STOP_AFTER_DISCONNECT_S };
  return typeof asked === 'number' ? { stopAfterDisconnectSeconds: asked } : {};
}

/** The time of a start, absent where it is the usual one: a stub made before the field existed equals a new one. */
function startField(
  extra: Readonly<Record<string, unknown>>,
  limits: StubLimits,
): Pick<StubConfig, 'startTimeoutSeconds'> {
  const asked = extra['startTimeout'];
  const startTimeoutSeconds = typeof asked === 'number' ? asked : limits.startTimeoutSeconds;
  return startTimeoutSeconds === START_TIMEOUT_S ? {} : { startTimeoutSeconds };
}

/** Callers do not wait for a container longer than their own limit, however long its start may take. */
function longStartWarnings({ startTimeoutSeconds = START_TIMEOUT_S, ttlSeconds }: StubConfig): readonly string[] {
  if (ttlSeconds <= 0 || startTimeoutSeconds <= ttlSeconds) return [];
  return [
    `A start may take ${startTimeoutSeconds} seconds (start_timeout), and callers wait ${ttlSeconds} seconds for a container (ttl of the task policy), then get 504: keep one warm (min_containers), or raise ttl.`,
  ];
}

function timeoutSeconds(timeout: number, rules: KindRules): number {
  if (rules.limited) return timeout <= 0 ? MAX_SYNC_TIMEOUT_S : Math.min(timeout, MAX_SYNC_TIMEOUT_S);
  return Math.max(0, timeout);
}

/** Normalises the volumes; a text is a refusal. */
function normaliseVolumes(request: GetOrCreateStubRequest): readonly StubVolumeMount[] | string {
  if (request.volumes.length > MAX_VOLUMES) return `volumes must have at most ${MAX_VOLUMES} entries`;
  const mounts: StubVolumeMount[] = [];
  for (const [index, volume] of request.volumes.entries()) {
    const bucket = isBucket(volume) ? readBucket(volume) : undefined;
    if (typeof bucket === 'string') return `volumes[${index}].${bucket}`;
    if (bucket === undefined && volume.id === '') return `volumes[${index}].id must not be empty`;
    const places = mountPlaces(volume.mountPath);
    if ('problem' in places) return `volumes[${index}].mountPath ${places.problem}`;
    const [below = '', absolute = ''] = places.targets;
    // The path as written, without parts that mean nothing: `./data/` is `data`.
    const mountPath = volume.mountPath.startsWith('/') ? absolute : below.slice('/volumes/'.length);
    mounts.push(
      bucket === undefined
        ? { volumeId: volume.id.toLowerCase(), mountPath }
        : { volumeId: '', mountPath, driver: 'bucket', bucket },
    );
  }
  const clash = mountPathsProblem(mounts.map((mount) => mount.mountPath));
  return clash === undefined ? mounts : `volumes: ${clash}`;
}

const MAX_WINDOW_SECONDS = 3600;
const MAX_SCALE_IN = 1000;
const MAX_WARM = 16;

/** Reads the times at which containers run without work; a text is a refusal. */
function readWarm(
  asked: NonNullable<NonNullable<GetOrCreateStubRequest['autoscaler']>['warm']>,
  most: number,
): readonly WarmTime[] | string {
  if (asked.length > MAX_WARM) return `autoscaler.warm must have at most ${MAX_WARM} entries`;
  const times: WarmTime[] = [];
  for (const [index, { when, timezone, min, until }] of asked.entries()) {
    const field = `autoscaler.warm[${index}]`;
    const read = readWhen({ when, timezone });
    if (typeof read === 'string') return read.replace(/^extra/, field);
    if (min < 1 || min > most) return `${field}.min must be from 1 to maxContainers (${most}), got ${min}`;
    if (!isTimeOfDay(until)) return `${field}.until must be a time of day such as 18:00, got ${quoted(until)}`;
    times.push({ ...read, min, until });
  }
  return times;
}

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
  const type = AUTOSCALER_TYPES.find((one) => one === asked.type);
  if (type === undefined)
    return `autoscaler.type ${quoted(asked.type)} is not known; allowed: ${AUTOSCALER_TYPES.join(', ')}`;
  const windowSeconds = asked.windowSeconds ?? 0;
  if (windowSeconds > MAX_WINDOW_SECONDS) return `autoscaler.windowSeconds must be ${MAX_WINDOW_SECONDS} or less`;
  const scaleInPerMinute = asked.scaleInPerMinute ?? 0;
  if (scaleInPerMinute > MAX_SCALE_IN) return `autoscaler.scaleInPerMinute must be ${MAX_SCALE_IN} or less`;
  const max = Math.max(1, asked.maxContainers);
  const warm = readWarm(asked.warm ?? [], Math.max(max, asked.minContainers));
  if (typeof warm === 'string') return warm;
  if (isPodDeployment) {
    if (asked.minContainers > max) return 'min replicas must be less than or equal to max replicas';
    if (max > limits.maxContainers) return `max replicas must be ${limits.maxContainers} or less`;
  }
  const keepOne = isPodDeployment && (request.keepWarmSeconds ?? 0) < 0 && asked.minContainers === 0;
  const minContainers = Math.min(keepOne ? 1 : asked.minContainers, limits.maxContainers);
  return {
    type,
    minContainers,
    // A minimum above the maximum raises the maximum.
    maxContainers: Math.min(Math.max(max, minContainers), limits.maxContainers),
    tasksPerContainer: Math.max(1, asked.tasksPerContainer),
    // Left out at 0, so that stubs made before the field existed equal new ones.
    ...(windowSeconds > 0 ? { windowSeconds } : {}),
    ...(scaleInPerMinute > 0 ? { scaleInPerMinute } : {}),
    ...(warm.length > 0 ? { warm } : {}),
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
  const out: Record<string, unknown> =
    Object.keys(extra).length === 0 ? {} : { extra: new JsonText(request.extra.trim()) };
  for (const field of KEPT) {
    const given = request[field];
    const value = plainOf(given);
    if (value === null || value === '' || value === false || (Array.isArray(value) && value.length === 0)) continue;
    out[field] = given;
  }
  return out;
}
