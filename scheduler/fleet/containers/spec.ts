import type { QueueName } from '#shared/domain/ids.ts';
import type { GpuLink } from '#shared/domain/gpu-terms.ts';
import type { LabelRules } from '#shared/domain/labels.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { BucketMount, ContainerSpec, NetworkRules } from '#shared/protocol/generated/messages.ts';
import type { PriorityClass } from '../../domain/shares.ts';
import type { Interruptible, PodConfig, StubBucket, Target } from '../../domain/stub-config.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { poolNameOf } from '../../domain/pools.ts';
import { startTimeoutMsOf } from '../../domain/start-timeout.ts';
import { lacksChoice } from '../../domain/worker-choice.ts';

/**
 * The recipe in a container's row: enough to place the container, to send it to an
 * agent, and to know its queue. The recipe stays when the deployment changes or goes. Only the network rules of a
 * sandbox change.
 */
export interface StoredSpec {
  readonly queue: QueueName;
  readonly kind: string;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  /** How its GPUs must be linked; absent: anyhow. */
  readonly gpuLink?: GpuLink;
  /** Least CUDA version of the machine's driver; absent: any. */
  readonly minCuda?: string;
  /** Rules for labels of its machines; absent: none. */
  readonly labels?: LabelRules;
  /** Priority inside the workspace; absent: normal. */
  readonly priority?: PriorityClass;
  /** Whether it may end for a container of another workspace. Absent: no. */
  readonly interruptible?: Interruptible;
  /** Pool that the container must run in; empty: any that the workspace may use. */
  readonly poolName: string;
  /** Architecture of the machine; empty or absent: any. */
  readonly arch?: string;
  /** Whether a warm-up started the container without work. */
  readonly warmUp?: boolean;
  /** Whether CreatePod made it: scaling, drains and breakers leave it alone, and nothing replaces it. */
  readonly byHand?: boolean;
  /** Names of the secrets with the keys of its buckets, by mount path; absent: it mounts no bucket with keys. */
  readonly bucketSecrets?: readonly BucketSecrets[];
  /** Where its engine tells its metrics; absent: not a pod that serves a model. */
  readonly engine?: { readonly port: number; readonly path: string };
  /** The spec for the agent, without the fields that are known only when it is sent (token, devices). */
  readonly wire: ContainerSpec;
}

/** Reason in the row of an interruptible container that ends for another one. */
export const PREEMPTED = 'preempted';
/** Likewise, where its tasks run to their end before. */
export const YIELDED = 'yielded';
/** Reasons where an operator asked for it, and where its calls are to end, too. */
export const ADMIN_PREEMPTED = 'admin_preempted';
export const ADMIN_PREEMPTED_WITH_CALLS = 'admin_preempted_with_calls';
const PREEMPTIONS: ReadonlySet<string | null> = new Set([PREEMPTED, ADMIN_PREEMPTED, ADMIN_PREEMPTED_WITH_CALLS]);

/** Whether the container takes no more tasks, and gives those that it has back after a notice. */
export const isPreempted = ({ state, reason }: Pick<ContainerRow, 'state' | 'reason'>): boolean =>
  state === 'DRAINING' && PREEMPTIONS.has(reason);

/** Secrets with the keys of a bucket. An agent gets the values with its permission, and never the names. */
export interface BucketSecrets {
  readonly mountPath: string;
  readonly accessKey: string;
  readonly secretKey: string;
}

/** The network rules in a container's row, with their number. */
export function networkOf({ spec }: Pick<ContainerRow, 'spec'>): Required<NetworkRules> {
  const { blockNetwork = false, allowList = [], networkVersion = 0 } = (spec as Partial<StoredSpec>).wire ?? {};
  return { blockNetwork, allowList, version: networkVersion };
}

export function specOf(target: Target): StoredSpec {
  const { config } = target;
  const memoryBytes = config.memoryMib * 1024 * 1024;
  const volumes = config.volumes ?? [];
  const bucketSecrets = volumes.flatMap(({ mountPath, bucket }) =>
    bucket === undefined || bucket.accessKey === ''
      ? []
      : [{ mountPath, accessKey: bucket.accessKey, secretKey: bucket.secretKey }],
  );
  return {
    ...(bucketSecrets.length === 0 ? {} : { bucketSecrets }),
    queue: target.queue,
    kind: kindOf(config.stubType),
    cpuMillicores: config.cpuMillicores,
    memoryBytes,
    gpu: config.gpu,
    gpuCount: config.gpuCount,
    ...(config.gpuLink === undefined ? {} : { gpuLink: config.gpuLink }),
    ...(config.minCuda === undefined ? {} : { minCuda: config.minCuda }),
    ...(config.labels === undefined ? {} : { labels: config.labels }),
    ...(config.priority === undefined ? {} : { priority: config.priority }),
    ...(config.interruptible === undefined ? {} : { interruptible: config.interruptible }),
    poolName: poolNameOf(config.extra),
    ...engineOf(config),
    wire: {
      workspaceId: target.workspaceId,
      stubId: target.stubId,
      deploymentId: target.deploymentId ?? '',
      stubType: config.stubType,
      handler: config.handler,
      onStart: config.onStart,
      image: config.imageId,
      imageDigest: target.imageDigest,
      pythonVersion: config.pythonVersion,
      cpuMillicores: config.cpuMillicores,
      memoryBytes,
      workers: config.workers,
      workerMode: config.workerMode ?? '',
      concurrentRequests: config.concurrentRequests,
      timeoutMs: config.timeoutSeconds * 1000,
      ...(target.code === null
        ? {}
        : { code: { objectId: target.code.objectId, sha256: target.code.sha256, size: target.code.sizeBytes } }),
      env: Object.fromEntries(config.env.map(splitVariable)),
      secretNames: [...config.secrets],
      volumes: volumes.map(({ volumeId, mountPath, driver, bucket }) => ({
        volumeId,
        mountPath,
        driver: driver ?? 'local',
        ...(bucket === undefined ? {} : { bucket: withoutKeys(bucket) }),
      })),
      kind: kindOf(config.stubType),
      allowList: [...config.allowList],
      blockNetwork: config.blockNetwork,
      tracebacks: config.tracebacks,
      stopAfterDisconnectMs: (config.stopAfterDisconnectSeconds ?? 0) * 1000,
      startTimeoutMs: startTimeoutMsOf(config),
      ...(config.pod === undefined ? {} : programOf(config.pod)),
      keepWarmSeconds: Math.max(0, Math.min(config.keepWarmSeconds, 2 ** 31)),
    },
  };
}

function engineOf({ pod, serving }: Target['config']): Pick<StoredSpec, 'engine'> {
  const port = pod?.ports[0];
  return port === undefined || serving === undefined ? {} : { engine: { port, path: serving.llm.metricsPath } };
}

function programOf({ entrypoint, ports, readinessProbe: probe }: PodConfig): Partial<ContainerSpec> {
  const spec = { entrypoint: [...entrypoint], ports: [...ports] };
  if (probe === undefined) return spec;
  const { intervalSeconds, timeoutSeconds, command, morePaths = [], ...rest } = probe;
  const [intervalMs, timeoutMs] = [Math.round(intervalSeconds * 1000), Math.round(timeoutSeconds * 1000)];
  return {
    ...spec,
    readinessProbe: { ...rest, command: [...command], morePaths: [...morePaths], intervalMs, timeoutMs },
  };
}

/**
 * Milliseconds beyond the time after which an agent stops the container by itself.
 * The scheduler notices the silence later than the agent, and stopping takes time.
 */
const DISCONNECT_MARGIN_MS = 60_000;

/**
 * Milliseconds of silence after which the machine has stopped the container, so
 * that another may run. 0: the machine runs it on, and nothing is waited for.
 */
export function replaceableAfterMs({ wire }: Pick<StoredSpec, 'wire'>): number {
  const afterMs = wire.stopAfterDisconnectMs ?? 0;
  return afterMs === 0 ? 0 : afterMs + DISCONNECT_MARGIN_MS;
}

/** Longest time to live, ten years: longer ones are cut to it. */
const MAX_TTL_SECONDS = 315_360_000;

/** Seconds for which a container made by hand may be unused; null: it is not stopped for want of use. */
export const ttlOf = (keepWarmSeconds: number): number | null =>
  keepWarmSeconds < 0 ? null : Math.min(Math.max(1, Math.round(keepWarmSeconds)), MAX_TTL_SECONDS);

/** Number of slots: `workers` × max(1, `concurrentRequests`), as far as it is known before the container is ready. */
export function slotsOf({ config }: Pick<Target, 'config'>): number {
  const workers = lacksChoice(config) ? 1 : Math.max(1, config.workers);
  return workers * Math.max(1, config.concurrentRequests);
}

/**
 * Number of workers that a container was asked to have while it
 * serves with one; undefined: it serves as asked, or is not ready.
 */
export function fellBackFrom(row: Pick<ContainerRow, 'state' | 'slots' | 'spec'>): number | undefined {
  const { workers = 1, concurrentRequests = 0, workerMode = '' } = (row.spec as Partial<StoredSpec>).wire ?? {};
  if (row.state !== 'RUNNING' && row.state !== 'DRAINING') return undefined;
  const mayFallBack = workers > 1 && (workerMode === '' || workerMode === 'fork');
  return mayFallBack && row.slots === Math.max(1, concurrentRequests) ? workers : undefined;
}

const withoutKeys = ({ accessKey: _access, secretKey: _secret, ...bucket }: StubBucket): BucketMount => bucket;

function splitVariable(text: string): [string, string] {
  const cut = text.indexOf('=');
  return cut === -1 ? [text, ''] : [text.slice(0, cut), text.slice(cut + 1)];
}
