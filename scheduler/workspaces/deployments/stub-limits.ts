import { START_TIMEOUT_S } from '../../domain/start-timeout.ts';

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
  /** Seconds that a start may take where the stub does not say, and most that it may say. */
  readonly startTimeoutSeconds: number;
  readonly maxStartTimeoutSeconds: number;
  /** Deployments of the workspace, deleted ones not counted; null: no limit. */
  readonly maxDeployments: number | null;
  /** Stubs of the workspace. */
  readonly maxStubs: number;
}

export const MAX_TTL_S = 86_400;
export const MAX_RETRIES = 5;
const DEFAULT_PENDING = 100;
export const START_LIMITS = { startTimeoutSeconds: START_TIMEOUT_S, maxStartTimeoutSeconds: 7_200 } as const;

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
  ...START_LIMITS,
  maxDeployments: null,
  maxStubs: 10_000,
};
