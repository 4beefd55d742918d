// Why a request for a stub is refused, as callers read it; null: that part of it is fine. Pure.
import { GPU_LINKS } from '#shared/domain/gpu-terms.ts';
import type { FlowConfig } from '../../domain/flow-settings.ts';
import { PRIORITIES } from '../../domain/shares.ts';
import { AFTER_TASK } from '../../domain/stub-config.ts';
import { isIP } from 'node:net';
import { LEAST_CPU_MILLICORES, LEAST_MEMORY_MIB } from '#shared/domain/least-resources.ts';
import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import { WORKER_MODES } from '#shared/domain/worker-modes.ts';
import { poolNameOf, poolNameProblem } from '../../domain/pools.ts';
import { isMadeByHand, PYTHON_VERSIONS, STUB_TYPES } from './kinds.ts';
import type { KindRules } from './kinds.ts';
import { MOST_DEAD_LETTER_DAYS } from '../../domain/task-inputs.ts';
import type { StubLimits } from './stub-limits.ts';

const MAX_WORKERS = 128;
const MAX_CONCURRENT = 1_000;
const MAX_ALLOW_LIST = 10;
const MAX_NAME = 255;
const MAX_SECRETS = 64;
const MAX_ENV = 512;
const MAX_ENV_BYTES = 128 * 1024;
/** Most bytes of all settings as JSON: lists show them, and the scheduler keeps them in memory. */
const MAX_CONFIG_BYTES = 192 * 1024;

/** Seconds that `extra.stopAfterDisconnect: true` means; a request may also name the number. */
export const STOP_AFTER_DISCONNECT_S = 300;
const STOP_AFTER_DISCONNECT_RANGE = { min: 60, max: 86_400 };

export function refuseNames(request: GetOrCreateStubRequest, rules: KindRules): string | null {
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

/** Cores and memory of a request that names none: those that clients send. */
export const cpuOf = ({ cpu = 1000 }: Pick<GetOrCreateStubRequest, 'cpu'>): number => cpu;
export const memoryOf = ({ memory = 128 }: Pick<GetOrCreateStubRequest, 'memory'>): number => memory;

/** Everything that is wrong with the resources: one sentence for a resource. */
export function resourceRefusals(
  request: GetOrCreateStubRequest,
  gpuCount: number,
  limits: StubLimits,
): readonly string[] {
  const { maxPendingTasks } = limits;
  const isTooLong = maxPendingTasks !== null && request.maxPendingTasks > maxPendingTasks;
  return [
    refuseCpu(cpuOf(request), limits),
    refuseMemory(memoryOf(request), limits),
    refuseGpuCount(gpuCount, limits),
    isTooLong ? `maxPendingTasks must be ${maxPendingTasks} or less` : null,
  ].filter((text) => text !== null);
}

function refuseCpu(cpu: number, limits: StubLimits): string | null {
  if (cpu <= 0) return 'CPU must be greater than 0.';
  if (cpu < LEAST_CPU_MILLICORES) return `CPU must be at least ${LEAST_CPU_MILLICORES / 1000}.`;
  if (cpu > limits.maxCpuMillicores) return `CPU must be ${limits.maxCpuMillicores} or less.`;
  return null;
}

function refuseMemory(memory: number, limits: StubLimits): string | null {
  if (memory <= 0) return 'Memory must be greater than 0.';
  if (memory < LEAST_MEMORY_MIB) return `Memory must be at least ${LEAST_MEMORY_MIB} MiB.`;
  if (memory > limits.maxMemoryMib) return `Memory must be ${round(limits.maxMemoryMib / 1024)}GiB or less.`;
  return null;
}

function refuseGpuCount(gpuCount: number, limits: StubLimits): string | null {
  if (gpuCount > 0 && limits.gpuConcurrency === 0) return 'GPU concurrency limit is 0.';
  if (gpuCount > limits.maxGpuCount) return `GPU count must be ${limits.maxGpuCount} or less.`;
  return null;
}

/** Refuses settings that are too long together: texts, `extra`, `inputs`, `outputs` and their likes. */
export function refuseLength(config: object): string | null {
  return Buffer.byteLength(stringifyExactly(config)) > MAX_CONFIG_BYTES
    ? `the settings of a stub must have at most ${MAX_CONFIG_BYTES} bytes as JSON in all`
    : null;
}

const round = (value: number): number => Math.round(value * 100) / 100;

export function refuseRunning(
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

export function refuseWorkerMode(asked: unknown, gpuCount: number): string | null {
  if (asked === undefined || asked === null) return null;
  if (!WORKER_MODES.some((mode) => mode === asked))
    return `worker_mode must be ${WORKER_MODES.join(', ')}, got ${JSON.stringify(asked)}`;
  if (asked === 'fork' && gpuCount > 0) return 'worker_mode must be thread or spawn with a GPU, got "fork"';
  return null;
}

export function refuseInterruptible(asked: unknown, stubType: string): string | null {
  if (asked === undefined || asked === null || asked === false) return null;
  if (asked !== true && asked !== AFTER_TASK)
    return `extra.interruptible must be true, false or "${AFTER_TASK}", got ${JSON.stringify(asked).slice(0, 60)}`;
  // Nothing replaces such a container.
  return isMadeByHand(stubType) ? `extra.interruptible: not for ${stubType}, whose containers nothing replaces` : null;
}

export function refusePriority(asked: unknown): string | null {
  if (asked === undefined || asked === null || PRIORITIES.some((priority) => priority === asked)) return null;
  return `extra.priority must be ${PRIORITIES.map((one) => `"${one}"`).join(', ')}, got ${JSON.stringify(asked).slice(0, 60)}`;
}

function refuseDisconnect(asked: unknown): string | null {
  const { min, max } = STOP_AFTER_DISCONNECT_RANGE;
  if (asked === undefined || asked === null || typeof asked === 'boolean') return null;
  if (typeof asked === 'number' && Number.isInteger(asked) && asked >= min && asked <= max) return null;
  return `extra.stopAfterDisconnect must be true (${STOP_AFTER_DISCONNECT_S} s) or whole seconds from ${min} to ${max}, got ${JSON.stringify(asked)}`;
}

/** @param asked - `extra.minCuda` */
export function refuseMinCuda(asked: unknown, gpuCount: number): string | null {
  if (asked === undefined || asked === null || asked === '') return null;
  if (typeof asked !== 'string' || !/^\d{1,2}\.\d{1,2}$/.test(asked))
    return `extra.minCuda must be a CUDA version as text, such as "12.8" (min_cuda), got ${typeof asked === 'string' ? quoted(asked) : JSON.stringify(asked)}`;
  return gpuCount > 0 ? null : 'extra.minCuda (min_cuda) is for stubs with a GPU, and this one has none';
}

/** @param asked - `extra.gpuLink` */
export function refuseGpuLink(asked: unknown, gpuCount: number): string | null {
  if (asked === undefined || asked === null || asked === '') return null;
  if (!GPU_LINKS.some((link) => link === asked))
    return `extra.gpuLink (gpu_link) must be ${GPU_LINKS.join(' or ')}, got ${JSON.stringify(asked).slice(0, 60)}`;
  return gpuCount > 1 ? null : 'extra.gpuLink (gpu_link) is for stubs with two GPUs or more';
}

/** @param asked - `extra.startTimeout` */
export function refuseStartTimeout(asked: unknown, { maxStartTimeoutSeconds: most }: StubLimits): string | null {
  if (asked === undefined || asked === null) return null;
  if (typeof asked === 'number' && Number.isInteger(asked) && asked >= 1 && asked <= most) return null;
  return `extra.startTimeout must be whole seconds from 1 to ${most} (start_timeout; the scheduler's LONGSHORE_START_TIMEOUT_MOST_SECONDS is the bound), got ${JSON.stringify(asked)}`;
}

/** @param asked - `extra.deadLetterDays` */
export function refuseDeadLetterDays(asked: unknown): string | null {
  if (asked === undefined || asked === null) return null;
  if (typeof asked === 'number' && Number.isInteger(asked) && asked >= 0 && asked <= MOST_DEAD_LETTER_DAYS) return null;
  return `extra.deadLetterDays must be whole days from 0 to ${MOST_DEAD_LETTER_DAYS} (dead_letter_days), got ${JSON.stringify(asked)}`;
}

export const quoted = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);

/** Flow control orders the tasks of a queue that nobody waits for. Calls of an endpoint may have a rate. */
export function refuseFlowOf(kind: string, flow: FlowConfig | string | undefined): string | null {
  if (flow === undefined || typeof flow === 'string' || kind === 'taskqueue') return null;
  if (kind !== 'endpoint') return `extra.flow is for task queues, and a rate for endpoints, not for ${kind}`;
  const other = Object.keys(flow).find((name) => !OF_ENDPOINTS.has(name));
  if (other === undefined) return null;
  return `extra.flow.${other === 'skipsExcess' ? 'onExcess' : other} is for task queues; an endpoint takes rate and key`;
}

const OF_ENDPOINTS: ReadonlySet<string> = new Set(['rate', 'key', 'position']);
