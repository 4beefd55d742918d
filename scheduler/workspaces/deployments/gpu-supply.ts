// Supply of the GPUs that a stub asks for, on the machines that its workspace may
// use. Pure. The result is a hint when a stub is made; placement decides on its own.
import { ANY_GPU, gpuMatches } from '#shared/domain/gpus.ts';
import { isPoolNamed } from '../../domain/pools.ts';

export interface GpuMachine {
  readonly poolName: string;
  /** Whether the machine belongs to the workspace alone. */
  readonly isOwn: boolean;
  /** Whether only work that names the pool goes there. */
  readonly requiresPoolSelector: boolean;
  readonly gpuModels: readonly string[];
  /** Free devices; none where nothing may be placed now. */
  readonly freeGpuCount: number;
}

export interface GpuSupply {
  /** low: machines have such devices, and none is free now. */
  readonly status: 'available' | 'low' | 'none';
  /** Requested models that no machine has. */
  readonly missing: readonly string[];
  /** A pool of the workspace's own that has such devices; empty: none. */
  readonly privatePool: string;
  /** Models that the workspace's machines have. */
  readonly models: readonly string[];
}

/** Models that there are in the place of a model that nobody knows. */
export const modelsHereText = (models: readonly string[]): string =>
  models.length === 0 ? 'no machine here has a GPU' : `machines here have ${models.join(', ')}`;

export const modelsOf = (machines: readonly Pick<GpuMachine, 'gpuModels'>[]): readonly string[] =>
  [...new Set(machines.flatMap(({ gpuModels }) => gpuModels))].toSorted();

/** Supply of the requested GPUs. @param poolName - that the stub names; empty: none */
export function gpuSupply(
  wanted: readonly string[],
  count: number,
  there: readonly GpuMachine[],
  poolName = '',
): GpuSupply {
  const machines = there.filter((machine) => isPoolNamed(machine, poolName));
  const fitting = machines.filter(({ gpuModels }) => gpuModels.some((model) => gpuMatches(model, wanted)));
  const isFree = fitting.some(({ freeGpuCount }) => freeGpuCount >= Math.max(1, count));
  const has = (name: string): boolean =>
    machines.some(({ gpuModels }) => gpuModels.some((model) => gpuMatches(model, [name])));
  return {
    status: isFree ? 'available' : fitting.length > 0 ? 'low' : 'none',
    missing: wanted.filter((name) => name !== ANY_GPU && !has(name)),
    privatePool: fitting.find(({ isOwn }) => isOwn)?.poolName ?? '',
    models: modelsOf(machines),
  };
}
