// Facts of machines and containers that do not matter where only amounts do: in simulations, benchmarks and tests.
import type { PlacementMachine } from '../plan/filter.ts';
import type { Wanted } from '../plan/fit-class.ts';

/** A machine in service, of the shared pool `default`. */
export const PLAIN_MACHINE: Omit<
  PlacementMachine,
  'machineId' | 'freeCpuMillicores' | 'freeMemoryBytes' | 'totalCpuMillicores' | 'totalMemoryBytes' | 'gpus'
> = {
  poolName: 'default',
  poolOwner: null,
  requiresPoolSelector: false,
  poolPriority: 0,
  cpuWorkAllowed: false,
  isPresent: true,
  ready: true,
  intentActive: true,
  blockedBy: [],
  arch: 'x86_64',
  gpuDriver: '',
  basePythons: null,
  freeDiskBytes: null,
  volumeDrivers: new Set(['local'] as const),
  registry: true,
  images: new Set(),
  caches: new Set(),
};

/** A container that any pool, architecture and driver suits, without image, volumes and caches. */
export const PLAIN_WANTED: Omit<
  Wanted,
  'id' | 'workspaceId' | 'queue' | 'createdAtMs' | 'cpuMillicores' | 'memoryBytes' | 'gpu' | 'gpuCount'
> = {
  poolName: '',
  diskBytes: 0,
  minCuda: '',
  basePython: '',
  arch: '',
  volumeDrivers: [],
  image: '',
  caches: [],
  builtImage: '',
  volumes: [],
};
