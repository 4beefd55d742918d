// Facts for tests of the growth of pools; everything unsaid is ordinary.
import { POOL_DEFAULTS } from '#shared/api/pools.ts';
import type { PoolSettings } from '#shared/api/pools.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Demand, GrowingPool, Offer, Room } from '#scheduler/control/provisioning/facts.ts';
import type { PoolCapacity } from '#scheduler/domain/provisioning.ts';

const GIB = 1024 ** 3;

export const anOffer = (cores: number, gib: number, gpuModels: readonly string[] = []): Offer => ({
  cpuMillicores: cores * 1000,
  memoryBytes: gib * GIB,
  gpus: gpuModels.map((model) => ({ model })),
});

export const aCapacity = (said: Partial<PoolCapacity> = {}): PoolCapacity => ({
  poolId: 1,
  workspaceId: null,
  pending: 0,
  alive: 0,
  hourlyCost: 0,
  unpriced: 0,
  notBeforeMs: 0,
  lastFailure: null,
  ...said,
});

export const aPool = (
  said: Omit<Partial<GrowingPool>, 'settings' | 'capacity'> & {
    readonly settings?: Partial<PoolSettings>;
    readonly capacity?: Partial<PoolCapacity>;
  } = {},
): GrowingPool => {
  const poolId = said.poolId ?? 1;
  const capacity = aCapacity({ poolId, ...said.capacity });
  const offer = said.offer ?? anOffer(4, 16);
  return {
    poolId,
    poolName: `pool-${poolId}`,
    poolOwner: null,
    isKnown: true,
    offer,
    coming: Array.from({ length: capacity.pending }, () => offer),
    rooms: [],
    refused: new Set(),
    shortSinceMs: null,
    ...said,
    settings: {
      ...POOL_DEFAULTS,
      provider: 'cloud',
      machineCpuCores: 4,
      machineMemoryMib: 16_384,
      hourlyCost: 1,
      ...said.settings,
    },
    capacity,
  };
};

export const aDemand = (said: Omit<Partial<Demand>, 'id'> & { readonly id?: string } = {}): Demand => ({
  queue: 'tq-1' as QueueName,
  workspaceId: 'w-1' as WorkspaceId,
  poolName: '',
  cpuMillicores: 1000,
  memoryBytes: GIB,
  gpu: [],
  gpuCount: 0,
  sinceMs: 0,
  ...said,
  id: (said.id ?? 'c-1') as ContainerId,
});

export const aRoom = (said: Omit<Partial<Room>, 'machineId'> & { readonly machineId?: string } = {}): Room => {
  const total = said.total ?? anOffer(4, 16);
  return {
    isMade: true,
    isPending: false,
    isOrderOfToday: said.isMade ?? true,
    isOpen: true,
    mayLeave: true,
    total,
    free: total,
    createdAtMs: 0,
    offersSinceMs: 0,
    emptySinceMs: 0,
    ...said,
    machineId: (said.machineId ?? 'm-1') as MachineId,
  };
};
