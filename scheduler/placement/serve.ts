import { gpuMatches } from '#shared/domain/gpus.ts';
import type { PlacementRequest } from './filter.ts';
import { mayUsePool } from './filter.ts';

/** What a machine offers of cores and memory, less what it keeps for itself. */
export interface MachineSize {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
}

/** A machine that is registered, in whatever state it is now. */
export interface ServingMachine {
  readonly poolName: string;
  /** null: shared; else the workspace it belongs to. */
  readonly poolOwner: string | null;
  /** Only work that names the pool goes there. */
  readonly requiresPoolSelector: boolean;
  /** It has not joined yet: what it will offer is not known. */
  readonly isExpected: boolean;
  readonly gpuModels: readonly string[];
  readonly size: MachineSize;
}

/**
 * Why no machine can ever serve such a request, as long as machines and pools stay what they are; undefined: one may, though perhaps not now. Sizes and numbers that fit no machine at the moment
 * are for the placement to wait for. Pure.
 */
export function unservable(
  request: Pick<PlacementRequest, 'workspaceId' | 'poolName' | 'gpu' | 'gpuCount'>,
  machines: readonly ServingMachine[],
): string | undefined {
  const { workspaceId, poolName, gpu, gpuCount } = request;
  const usable = machines.filter((machine) => mayUsePool(machine, { workspaceId, poolName }));
  const where = poolName === '' ? '' : ` in pool ${poolName}`;
  if (poolName !== '' && usable.length === 0) return `no machine that this workspace may use is${where}`;
  if (gpuCount === 0 || usable.some((machine) => machine.isExpected)) return undefined;
  const counts = usable.map((machine) => machine.gpuModels.filter((model) => gpuMatches(model, gpu)).length);
  const most = Math.max(0, ...counts);
  const wanted = gpu.some((model) => model.toLowerCase() === 'any') ? 'a GPU' : `GPU ${gpu.join(' or ')}`;
  if (most >= gpuCount) return undefined;
  const named = poolName === '' ? hasOnlyForNamed(request, machines) : '';
  if (most === 0) return `no machine that this workspace may use${where} has ${wanted}${named}`;
  return `no machine that this workspace may use${where} has ${gpuCount} of ${wanted}: the most is ${most}${named}`;
}

/**
 * Why every machine is too small for it, even when empty; undefined: one is large enough, or none is there to be judged. Said when something is deployed: a call waits all the same, since a pool's
 * settings can make a machine offer more. Pure.
 */
export function tooLarge(
  request: Pick<PlacementRequest, 'workspaceId' | 'poolName' | keyof MachineSize>,
  machines: readonly ServingMachine[],
): string | undefined {
  const { workspaceId, poolName, cpuMillicores, memoryBytes } = request;
  const usable = machines.filter((machine) => mayUsePool(machine, { workspaceId, poolName }));
  if (usable.length === 0 || usable.some((machine) => machine.isExpected)) return undefined;
  const sizes = usable.map(({ size }) => size);
  if (sizes.some((size) => size.cpuMillicores >= cpuMillicores && size.memoryBytes >= memoryBytes)) return undefined;
  const none = `no machine that this workspace may use${poolName === '' ? '' : ` in pool ${poolName}`} offers`;
  const asked = { cpu: cores(cpuMillicores, Math.ceil), memory: gib(memoryBytes, Math.ceil) };
  const [mostCpu, mostMemory] = [
    Math.max(...sizes.map((size) => size.cpuMillicores)),
    Math.max(...sizes.map((size) => size.memoryBytes)),
  ];
  if (mostMemory < memoryBytes) return `${none} ${asked.memory} of memory: the most is ${gib(mostMemory, Math.floor)}`;
  if (mostCpu < cpuMillicores) return `${none} ${asked.cpu}: the most is ${cores(mostCpu, Math.floor)}`;
  return `${none} ${asked.cpu} together with ${asked.memory} of memory`;
}

/** What is asked for rounded up, what there is down: too little never looks like enough. */
type Rounding = (value: number) => number;
const gib = (bytes: number, round: Rounding): string => `${round((bytes / 1024 ** 3) * 10) / 10} GiB`;
const cores = (millicores: number, round: Rounding): string => `${round(millicores / 100) / 10} CPU`;

/** Some that would do are kept for work that names their pool: said, since the caller's own list shows them. */
function hasOnlyForNamed(
  { workspaceId, gpu, gpuCount }: Pick<PlacementRequest, 'workspaceId' | 'gpu' | 'gpuCount'>,
  machines: readonly ServingMachine[],
): string {
  const kept = machines
    .filter(
      (machine) => machine.requiresPoolSelector && mayUsePool(machine, { workspaceId, poolName: machine.poolName }),
    )
    .filter((machine) => machine.gpuModels.filter((model) => gpuMatches(model, gpu)).length >= gpuCount);
  const pools = [...new Set(kept.map((machine) => machine.poolName))].toSorted().slice(0, MOST_NAMED);
  return pools.length === 0 ? '' : `; machines of ${pools.join(', ')} take only work that names their pool`;
}

/** Pools in a sentence. */
const MOST_NAMED = 3;
