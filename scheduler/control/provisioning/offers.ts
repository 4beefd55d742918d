// Amounts of machines that providers make, and machines that they could make, for the check whether a call can ever be
// served.
import { readLabels } from '#shared/domain/labels.ts';
import type { PoolSettings } from '#shared/api/pools.ts';
import type { MachineShape } from '../../domain/provisioning.ts';
import { offeredByShape } from '../../fleet/capacity.ts';
import { shapeOf } from '../../fleet/pool-settings.ts';
import type { PoolRow } from '../../stores/store/queries/pools.ts';
import type { OfferedMachine } from '../placement/feasibility.ts';
import type { Offer } from './facts.ts';

/** Amounts that a machine of that shape offers in a pool with these settings. */
export function offerOf(shape: MachineShape, settings: PoolSettings): Offer {
  const { totalCpuMillicores, totalMemoryBytes } = offeredByShape(shape, settings);
  // A machine that was ordered before the pool got another model has memory that the settings do not tell.
  const memoryMib = shape.gpuModel === settings.machineGpuModel ? (settings.machineGpuMemoryMib ?? 0) : 0;
  // The links of a machine that is not made yet count as those that are asked for, as its driver does.
  const gpu = { model: shape.gpuModel, memoryBytes: memoryMib * MIB, nvlinkIsland: 1 };
  return {
    cpuMillicores: totalCpuMillicores,
    memoryBytes: totalMemoryBytes,
    gpus: Array.from({ length: shape.gpuCount }, () => gpu),
    gpuDriver: null,
    labels: readLabels(settings.labels ?? ''),
  };
}

const MIB = 1024 * 1024;

/**
 * A machine of each pool whose provider could make one.
 * @param knows - whether the installation has the provider
 */
export function* offersOf(
  pools: Iterable<PoolRow>,
  knows: (provider: string) => boolean,
): Generator<OfferedMachine, void> {
  for (const { name, workspaceId, settings } of pools) {
    const shape = shapeOf(settings);
    if (shape === undefined || settings.provider === null || !knows(settings.provider)) continue;
    if (settings.maxMachines === 0) continue;
    const { gpus, gpuDriver = null, labels = {}, cpuMillicores, memoryBytes } = offerOf(shape, settings);
    yield {
      poolName: name,
      poolOwner: workspaceId,
      requiresPoolSelector: settings.requiresPoolSelector,
      isExpected: false,
      gpus,
      gpuDriver,
      labels,
      size: { cpuMillicores, memoryBytes },
      basePythons: null,
      basePythonsHere: [],
    };
  }
}
