// Supply of the GPUs that a stub asks for, on the machines that its workspace may
// use. Pure. The result is a hint when a stub is made; placement decides on its own.
import { gpuMatches, gpuTerms } from '#shared/domain/gpu-terms.ts';
import type { GpuFacts } from '#shared/domain/gpu-terms.ts';
import { ANY_GPU } from '#shared/domain/gpus.ts';
import { isPoolNamed } from '../../domain/pools.ts';

export interface GpuMachine {
  readonly poolName: string;
  /** Whether the machine belongs to the workspace alone. */
  readonly isOwn: boolean;
  /** Whether only work that names the pool goes there. */
  readonly requiresPoolSelector: boolean;
  readonly gpus: readonly GpuFacts[];
  /** Version of their driver; empty: not known. */
  readonly gpuDriver: string;
  /** Free devices; none where nothing may be placed now. */
  readonly freeGpuCount: number;
}

export interface GpuSupply {
  /** low: machines have such devices, and none is free now. */
  readonly status: 'available' | 'low' | 'none';
  /** Terms of the request that no machine has a device for. */
  readonly missing: readonly string[];
  /** A pool of the workspace's own that has such devices; empty: none. */
  readonly privatePool: string;
  /** Models that the workspace's machines have. */
  readonly models: readonly string[];
}

/** Models that there are in the place of a model that nobody knows. */
export const modelsHereText = (models: readonly string[]): string =>
  models.length === 0 ? 'no machine here has a GPU' : `machines here have ${models.join(', ')}`;

export const modelsOf = (machines: readonly Pick<GpuMachine, 'gpus'>[]): readonly string[] =>
  [...new Set(machines.flatMap(({ gpus }) => gpus.map(({ model }) => model)))].toSorted();

/** Supply of the requested GPUs. @param poolName - that the stub names; empty: none */
export function gpuSupply(
  wanted: readonly string[],
  count: number,
  there: readonly GpuMachine[],
  poolName = '',
): GpuSupply {
  const machines = there.filter((machine) => isPoolNamed(machine, poolName));
  const holding = (terms: readonly string[]): readonly GpuMachine[] =>
    machines.filter(({ gpus, gpuDriver }) => gpus.some((gpu) => gpuMatches(gpu, gpuDriver, terms)));
  const fitting = holding(wanted);
  const isFree = fitting.some(({ freeGpuCount }) => freeGpuCount >= Math.max(1, count));
  return {
    status: isFree ? 'available' : fitting.length > 0 ? 'low' : 'none',
    missing: gpuTerms(wanted).flatMap(({ text }) => (text === ANY_GPU || holding([text]).length > 0 ? [] : text)),
    privatePool: fitting.find(({ isOwn }) => isOwn)?.poolName ?? '',
    models: modelsOf(machines),
  };
}
