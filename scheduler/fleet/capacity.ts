import type { Gpu__Output, Inventory__Output } from '#shared/protocol/generated/messages.ts';
import type { GpuFacts } from '#shared/domain/gpu-terms.ts';
import type { PoolSettings } from '#shared/api/pools.ts';
import type { MachineShape } from '../domain/provisioning.ts';
import type { ContainerEntry } from './containers/container-entry.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';

/** Resources that a container takes up which an agent has and the container registry does not know there. */
interface Holding {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpuUuids: readonly string[];
}

/** A machine, as far as its capacity is concerned. */
interface Counted {
  readonly row: Pick<MachineRow, 'poolSettings'>;
  readonly inventory: Inventory__Output | null;
  readonly orphans: ReadonlyMap<unknown, Holding>;
}

export interface Capacity {
  readonly totalCpuMillicores: number;
  readonly totalMemoryBytes: number;
  readonly freeCpuMillicores: number;
  readonly freeMemoryBytes: number;
  readonly containers: number;
  readonly leasedGpus: ReadonlySet<string>;
  /** Healthy devices without a holder. */
  readonly freeGpus: number;
}

/**
 * Capacity that a machine offers to containers, less the host's reserve, and the
 * free part of it. The reserve is the pool's, else 5 % of memory and a tenth of the
 * cores up to one. The free part is negative after a pool came to offer less. Pure.
 */
export function capacityOf(machine: Counted, placed: Iterable<ContainerEntry>): Capacity {
  const { totalCpuMillicores, totalMemoryBytes } = offeredBy(machine);
  let freeCpuMillicores = totalCpuMillicores;
  let freeMemoryBytes = totalMemoryBytes;
  let containers = 0;
  const leasedGpus = new Set<string>();
  for (const entry of placed) {
    if (entry.row.state === 'PENDING') continue;
    freeCpuMillicores -= entry.spec.cpuMillicores;
    freeMemoryBytes -= entry.spec.memoryBytes;
    for (const uuid of entry.row.gpuUuids) leasedGpus.add(uuid);
    containers += 1;
  }
  for (const one of machine.orphans.values()) {
    freeCpuMillicores -= one.cpuMillicores;
    freeMemoryBytes -= one.memoryBytes;
    for (const uuid of one.gpuUuids) leasedGpus.add(uuid);
  }
  const freeGpus = gpusOf(machine).filter((gpu) => !gpu.unhealthy && !leasedGpus.has(gpu.uuid)).length;
  return { totalCpuMillicores, totalMemoryBytes, freeCpuMillicores, freeMemoryBytes, containers, leasedGpus, freeGpus };
}

/** Amounts that the rows of a machine may hold together: its offer, less what is there without a row. */
export function roomOf(machine: Counted): { readonly cpuMillicores: number; readonly memoryBytes: number } {
  let { totalCpuMillicores: cpuMillicores, totalMemoryBytes: memoryBytes } = offeredBy(machine);
  for (const orphan of machine.orphans.values()) {
    cpuMillicores -= orphan.cpuMillicores;
    memoryBytes -= orphan.memoryBytes;
  }
  return { cpuMillicores, memoryBytes };
}

/** Capacity that a machine of the pool with that shape offers to containers, like `capacityOf` once it has joined. */
export const offeredByShape = (
  { cpuCores, memoryMib }: MachineShape,
  poolSettings: PoolSettings,
): Pick<Capacity, 'totalCpuMillicores' | 'totalMemoryBytes'> =>
  offeredBy({
    row: { poolSettings },
    inventory: { cpuMillicores: Math.round(cpuCores * 1000), memoryBytes: memoryMib * MIB },
  });

function offeredBy({
  row,
  inventory,
}: {
  readonly row: Counted['row'];
  readonly inventory: Pick<Inventory__Output, 'cpuMillicores' | 'memoryBytes'> | null;
}): Pick<Capacity, 'totalCpuMillicores' | 'totalMemoryBytes'> {
  const { cpuOvercommit, reservedCpuCores, reservedMemoryMib } = row.poolSettings;
  const { cpuMillicores = 0, memoryBytes = 0 } = inventory ?? {};
  const reservedCpu = reservedCpuCores === null ? Math.min(1000, cpuMillicores / 10) : reservedCpuCores * 1000;
  const reservedMemory = reservedMemoryMib === null ? memoryBytes * 0.05 : reservedMemoryMib * MIB;
  return {
    totalCpuMillicores: Math.floor(Math.max(0, cpuMillicores - reservedCpu) * cpuOvercommit),
    totalMemoryBytes: Math.floor(Math.max(0, memoryBytes - reservedMemory)),
  };
}
const MIB = 1024 * 1024;

/** GPUs of the machine, in any state. */
export const gpusOf = (machine: Pick<Counted, 'inventory'>): readonly Gpu__Output[] => machine.inventory?.gpus ?? [];

/** Facts of a device that requests may name. */
export const gpuFactsOf = ({ model, memoryBytes, computeCap, nvlinkIsland }: Gpu__Output): GpuFacts => ({
  model,
  memoryBytes: Number(memoryBytes) || 0,
  computeCap,
  nvlinkIsland,
});

/** `2 H100, 1 T4` has the models H100 and T4. */
export const gpuModelsOf = (machine: Pick<Counted, 'inventory'>): readonly string[] => [
  ...new Set(gpusOf(machine).map((gpu) => gpu.model)),
];
