// Machines that may get containers of a workspace's work, by their pools and their GPUs.
import { gpuMatches } from '#shared/domain/gpu-terms.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { mayUsePool } from '../../domain/pools.ts';
import type { Machine } from '../machine.ts';
import { gpuFactsOf } from '../capacity.ts';
import { takesCpuWork } from '../pool-settings.ts';

export interface HostedWork {
  readonly workspaceId: WorkspaceId;
  /** Pool that the app names; empty: any. */
  readonly poolName: string;
  /** GPU terms in order of preference; empty: none. */
  readonly gpu: readonly string[];
}

/** Whether the machine's pool and GPUs suit the work, in any state of the machine. */
export function mayHost(
  { row, inventory }: Pick<Machine, 'row' | 'inventory'>,
  { workspaceId, poolName, gpu }: HostedWork,
  cpuWorkAllowed: (poolName: string) => boolean,
): boolean {
  const { requiresPoolSelector } = row.poolSettings;
  const pool = { poolName: row.poolName, poolOwner: row.poolWorkspaceId, requiresPoolSelector };
  if (!mayUsePool(pool, { workspaceId, poolName })) return false;
  const gpus = inventory?.gpus ?? [];
  if (gpu.length > 0) return gpus.some((one) => gpuMatches(gpuFactsOf(one), inventory?.gpuDriver ?? '', gpu));
  return gpus.length === 0 || takesCpuWork(row, cpuWorkAllowed);
}
