import type { PriorityClass } from './shares.ts';
import type { AppId, DeploymentId, ObjectId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { JsonText } from '#shared/json-text.ts';
import type { GpuLink } from '#shared/domain/gpu-terms.ts';
import type { LabelRules } from '#shared/domain/labels.ts';
import type { MountDriverName } from '#shared/domain/volume-drivers.ts';
import type { WorkerMode } from '#shared/domain/worker-modes.ts';
import type { QueueControl } from './flow.ts';
import type { FlowConfig } from './flow-settings.ts';
import type { RolloutState } from './rollouts.ts';
import type { ServingConfig } from './serving.ts';
import type { When } from './ticks.ts';
import type { WarmTime } from './warm.ts';

export const AUTOSCALER_TYPES = ['queue_depth', 'llm_token_pressure'] as const;
export type AutoscalerType = (typeof AUTOSCALER_TYPES)[number];

/** Value of `interruptible` where tasks run to their end before. */
export const AFTER_TASK = 'after_task';
export type Interruptible = true | typeof AFTER_TASK;

/**
 * Bounds on the containers of a stub, and when they start and stop. Zeros on the wire become 1 (`minContainers`: 0).
 */
export interface AutoscalerConfig {
  /** `llm_token_pressure`: by reserved tokens, too. */
  readonly type: AutoscalerType;
  readonly minContainers: number;
  readonly maxContainers: number;
  readonly tasksPerContainer: number;
  /** Seconds of the window whose largest wanted number holds containers back from scale-down; absent: 0. */
  readonly windowSeconds?: number;
  /** Most containers that end in a minute for want of work; absent: no bound. */
  readonly scaleInPerMinute?: number;
  /** Times at which more containers run without work; absent: none. */
  readonly warm?: readonly WarmTime[];
}

/**
 * A volume's mount. A relative path is below `/volumes` and the working
 * directory; an absolute path is mounted as it is, and below `/volumes`.
 */
export interface StubVolumeMount {
  readonly volumeId: string;
  readonly mountPath: string;
  /** Driver of the mount; absent: `local`. */
  readonly driver?: MountDriverName;
  /** The bucket of the driver `bucket`, whose `volumeId` is empty. */
  readonly bucket?: StubBucket;
}

/** A bucket of a workspace's own, with the names of the secrets that hold its keys. */
export interface StubBucket {
  readonly bucket: string;
  /** URL; empty: Amazon's. */
  readonly endpoint: string;
  readonly region: string;
  readonly readOnly: boolean;
  readonly pathStyle: boolean;
  /** Both empty: the bucket is public. */
  readonly accessKey: string;
  readonly secretKey: string;
}

/** Check that tells when a program is ready for calls. */
export interface ReadinessProbeConfig {
  readonly type: 'http' | 'tcp' | 'command';
  /** For http and tcp. */
  readonly port: number;
  /** For http. */
  readonly path: string;
  /** For http: further paths that are asked in turn within a try. Absent: none. */
  readonly morePaths?: readonly string[];
  /** For command: the program and its arguments. */
  readonly command: readonly string[];
  readonly intervalSeconds: number;
  readonly timeoutSeconds: number;
}

/** The program of a pod or sandbox. */
export interface PodConfig {
  /** The program and its arguments; empty: the image's own. */
  readonly entrypoint: readonly string[];
  /** Ports on which it listens; at most 20. */
  readonly ports: readonly number[];
  /** Absent: ready once the first port takes connections. */
  readonly readinessProbe?: ReadinessProbeConfig;
}

/** A stub's configuration, normalised once when the stub is made; stored as `stubs.config`. */
export interface StubConfig {
  /** Type with its suffix: `endpoint/deployment`, `taskqueue`, … */
  readonly stubType: string;
  /** Function that serves: `module:function`. */
  readonly handler: string;
  /** Function that runs at a start: `module:function`, or empty. */
  readonly onStart: string;
  /** Python version: `python3`, `python3.11`, …; never empty. */
  readonly pythonVersion: string;
  /** Image reference; empty: the base image of `pythonVersion`. */
  readonly imageId: string;
  readonly cpuMillicores: number;
  readonly memoryMib: number;
  /** Models in order of preference; empty: none. */
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  /** Least CUDA version that the driver of its machines must run, such as `12.8`. Absent: any. */
  readonly minCuda?: string;
  /** How its GPUs must be linked; absent: anyhow. */
  readonly gpuLink?: GpuLink;
  /** Rules of `placement` for labels of machines; absent: none. */
  readonly labels?: LabelRules;
  /** Priority of its containers inside the workspace. Absent: normal. */
  readonly priority?: Exclude<PriorityClass, 'normal'>;
  /** Whether its containers may end for those of other workspaces. Absent: no. */
  readonly interruptible?: Interruptible;
  readonly workers: number;
  /** Mode in which workers are created. Absent: not chosen. */
  readonly workerMode?: WorkerMode;
  readonly concurrentRequests: number;
  /** Seconds that an idle container is kept warm; negative: it is never stopped for lack of work. */
  readonly keepWarmSeconds: number;
  readonly maxPendingTasks: number;
  /** Execution limit of one task; 0: none. */
  readonly timeoutSeconds: number;
  /** Wait limit of a synchronous kind; time to live of an asynchronous one. */
  readonly ttlSeconds: number;
  readonly retries: number;
  readonly authorized: boolean;
  readonly env: readonly string[];
  readonly secrets: readonly string[];
  /** Existing volumes of the workspace, at normalised paths. */
  readonly volumes: readonly StubVolumeMount[];
  readonly blockNetwork: boolean;
  readonly allowList: readonly string[];
  readonly callbackUrl: string;
  /** `{"error": …}` answers carry the traceback too. */
  readonly tracebacks: boolean;
  /** False: inputs of its tasks go with their end. Absent: they are kept. */
  readonly keepInputs?: boolean;
  /** Days for which a task that failed for good is dead, while its input is kept; 0: never. Absent: 7. */
  readonly deadLetterDays?: number;
  /**
   * Seconds without contact to the scheduler after which a machine stops these containers; only then others replace
   * them. Absent: they run on, and are replaced when the machine is lost.
   */
  readonly stopAfterDisconnectSeconds?: number;
  /** Seconds that a start may take from the creation of its container; absent: 15 minutes. */
  readonly startTimeoutSeconds?: number;
  /** Flow control of its tasks. Absent: none. */
  readonly flow?: FlowConfig;
  readonly autoscaler: AutoscalerConfig;
  /** When a schedule runs. Absent: not a schedule. */
  readonly schedule?: When;
  /** Absent: neither a pod nor a sandbox. */
  readonly pod?: PodConfig;
  /** Absent: not a model server. */
  readonly serving?: ServingConfig;
  /** Fields of the request beyond the above, kept as they came; free JSON as {@link JsonText}. */
  readonly extra: Readonly<Record<string, unknown>>;
}

/**
 * Everything the hot path and the scaling loop need to know of
 * an invoked target; cached, and replaced when its rows change.
 */
export interface Target {
  readonly workspaceId: WorkspaceId;
  readonly appId: AppId;
  readonly stubId: StubId;
  /** Id of the deployment; null: a stub invoked by its own id. */
  readonly deploymentId: DeploymentId | null;
  readonly deploymentName: string;
  /** Host label of the deployment's name; null: a stub. */
  readonly subdomain: string | null;
  readonly version: number;
  readonly kind: string;
  /** Whether callers wait for the answer, as those of endpoints and ASGI do. */
  readonly sync: boolean;
  readonly active: boolean;
  /**
   * The version that took this one's place and stopped it. Tasks
   * in this version's queue are served before its containers stop.
   */
  readonly supersededBy: number | null;
  /** State of the version's rollout; null: it had none. */
  readonly rollout: RolloutState | null;
  readonly queue: QueueName;
  readonly code: { readonly objectId: ObjectId; readonly sha256: string; readonly sizeBytes: number } | null;
  readonly config: StubConfig;
  /** Digest that the image's name meant at deployment; empty: not known, or an image of machines alone. */
  readonly imageDigest: string;
  /** Control of its queue by an operator. Absent: none. */
  readonly queueControl?: QueueControl;
  /** ScaleDeployment's bounds; they replace the stub's. */
  readonly scale: { readonly minContainers: number; readonly maxContainers: number } | null;
}

/** A configuration in a row. The column has values alone, so that users' JSON is beside them, as text. */
export interface StubConfigRow extends StubConfig {
  readonly texts?: Readonly<Record<string, string>>;
}

/** The configuration in a stub's row, with its free JSON among `extra`. */
export function storedConfig(row: object): StubConfig {
  const { texts = {}, ...config } = row as StubConfigRow;
  const free = Object.entries(texts).map(([name, text]) => [name, new JsonText(text)] as const);
  return { ...config, volumes: config.volumes ?? [], extra: { ...config.extra, ...Object.fromEntries(free) } };
}

/** As {@link storedConfig} reads it. */
export function configForRow(config: StubConfig): StubConfigRow {
  const extra: Record<string, unknown> = {};
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(config.extra))
    if (value instanceof JsonText) texts[name] = value.text;
    else extra[name] = value;
  return { ...config, extra, ...(Object.keys(texts).length === 0 ? {} : { texts }) };
}
