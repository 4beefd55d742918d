// Limits of its workspace that a container waits for, in numbers. Pure.
import type { WorkspaceUsage } from '#shared/api/rest/limits.ts';
import type { WorkspaceLimits } from '../../workspaces/identity/limits.ts';

export interface QuotaFacts {
  readonly limits: WorkspaceLimits['concurrency'];
  /** Usage by containers that have a machine. */
  readonly used: WorkspaceUsage;
  /** Containers among these that are ready and without a task. */
  readonly idle: number;
}

/** Resources of a container that count against the limits. */
export interface Asked {
  readonly gpuCount: number;
  readonly cpuMillicores: number;
  readonly memoryMib: number;
}

/**
 * `container_limit 1, used 2 (2 of them idle)`, for each limit
 * that leaves too little; the same comparison as placement's.
 */
export function quotaTexts({ limits, used, idle }: QuotaFacts, asked: Asked): readonly string[] {
  const rows: readonly (readonly [keyof WorkspaceLimits['concurrency'], number, number])[] = [
    ['container_limit', used.containers, 1],
    ['gpu_limit', used.gpu, asked.gpuCount],
    ['cpu_millicore_limit', used.cpu_millicores, asked.cpuMillicores],
    ['memory_mib_limit', used.memory_mib, asked.memoryMib],
  ];
  return rows.flatMap(([name, has, more]) => {
    const limit = limits[name];
    if (limit === null || more === 0 || has + more <= limit) return [];
    const note = name === 'container_limit' ? `(${idle} of them idle)` : `(it asks for ${more})`;
    return [`limit of the workspace: ${name} ${limit}, used ${has} ${note}`];
  });
}

/** Whether a machine, or all of them, refused for lack of quota. */
export const isForQuota = (all: readonly { readonly rejections: Readonly<Record<string, number>> }[]): boolean =>
  all.some(({ rejections }) => (rejections['quota'] ?? 0) > 0);
