// Machines and requests as plain data, from which placement decides. Machines are kept from round to round and built
// anew when they change. A round counts other facts of the container registry once, and updates them with its own
// placements.
import { pinnedTo } from '#shared/domain/image-reference.ts';
import type { MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { MountDriverName } from '#shared/domain/volume-drivers.ts';
import { isMountDriver, volumesDownCondition } from '#shared/domain/volume-drivers.ts';
import type { VolumeMount } from '#shared/protocol/generated/messages.ts';
import { wantedPython } from '../../domain/base-pythons.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { basePythonsOf } from '../../fleet/host-facts.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import { blockingConditions, cachesHere, isInService } from '../../fleet/machine.ts';
import { takesCpuWork } from '../../fleet/pool-settings.ts';
import { Candidates } from '../plan/candidates.ts';
import type { PlacementMachine, PlacementRequest } from '../plan/filter.ts';
import type { Placement } from '../plan/place.ts';

/**
 * Factor for an archive's bytes on disk, where it is kept packed and unpacked. No room for the
 * image is asked for. Whether a disk is too full for images is a share of that disk, which the
 * machine judges and reports (`DiskPressure`); a small disk that works is refused nothing.
 */
const CODE_ON_DISK = 4;

export interface MachineFactsParts {
  readonly machines: Machines;
  /** Whether work without a GPU may go to GPU machines of a pool that has no such setting. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
}

/** Machines as placement sees them. */
export class MachineFacts {
  readonly candidates = new Candidates();
  readonly #parts: MachineFactsParts;
  readonly #changed = new Set<MachineId>();
  /** Time when each device was leased last, as far as this process knows. */
  readonly #leasedAtMs = new Map<string, number>();

  constructor(parts: MachineFactsParts) {
    this.#parts = parts;
  }

  touch(id: MachineId): void {
    this.#changed.add(id);
  }

  leased(uuids: readonly string[], nowMs: number): void {
    for (const uuid of uuids) this.#leasedAtMs.set(uuid, nowMs);
  }

  /** Marks all machines as changed: no event tells of every byte of a disk, nor of what existed before this object. */
  touchAll(): void {
    for (const { row } of this.#parts.machines.all()) this.touch(row.id);
  }

  /** Builds the changed machines anew; must not run while placements of a round are being written. */
  refresh(): void {
    const { machines } = this.#parts;
    for (const id of this.#changed) {
      const machine = machines.get(id);
      if (machine === undefined || machine.health === 'PENDING' || machine.health === 'EXPIRED')
        this.candidates.delete(id);
      else this.candidates.set(asCandidate(machine, this.#parts, this.#leasedAtMs));
    }
    this.#changed.clear();
  }
}

/** Where a built image is. */
export interface ImagePlaces {
  readonly machines: ReadonlySet<MachineId>;
  /** Whether other machines can pull it. */
  readonly inRegistry: boolean;
}

/** Limits on what a workspace may have at once; null: no bound. */
export interface Quota {
  readonly gpus: number | null;
  readonly cpuMillicores: number | null;
  readonly memoryMib?: number | null;
  readonly containers?: number | null;
}

interface Use {
  gpus: number;
  cpuMillicores: number;
  memoryBytes: number;
  containers: number;
}
const NOTHING: Use = { gpus: 0, cpuMillicores: 0, memoryBytes: 0, containers: 0 };
const MIB = 1024 * 1024;

/** View of machines and workspaces for one round. */
export class PlacementSnapshot {
  readonly #containers: ContainerControl;
  readonly #facts: MachineFacts;
  readonly #siblings = new Map<QueueName, Map<MachineId, number>>();
  readonly #used = new Map<WorkspaceId, Use>();

  constructor(containers: ContainerControl, facts: MachineFacts) {
    this.#containers = containers;
    this.#facts = facts;
  }

  place(request: PlacementRequest): Placement {
    return this.#facts.candidates.place(request);
  }

  request(
    entry: ContainerEntry,
    known: {
      readonly avoid: ReadonlySet<MachineId>;
      readonly volumeHomes: ReadonlySet<MachineId>;
      readonly image: ImagePlaces | null;
      readonly quota: Quota | undefined;
    },
  ): PlacementRequest {
    const { row, spec } = entry;
    const { quota, image, ...rest } = known;
    return {
      workspaceId: row.workspaceId,
      poolName: spec.poolName,
      cpuMillicores: spec.cpuMillicores,
      memoryBytes: spec.memoryBytes,
      diskBytes: Number(spec.wire.code?.size ?? 0) * CODE_ON_DISK,
      gpu: spec.gpu,
      gpuCount: spec.gpuCount,
      minCuda: spec.minCuda ?? '',
      basePython: (spec.wire.image ?? '') === '' ? wantedPython(spec.wire.pythonVersion ?? '') : '',
      image: pinnedTo(spec.wire.image ?? '', spec.wire.imageDigest ?? ''),
      arch: spec.arch ?? '',
      volumeDrivers: [...new Set((spec.wire.volumes ?? []).map(driverOf))],
      caches: (spec.wire.volumes ?? []).flatMap((one) => (driverOf(one) === 'cache' ? (one.volumeId ?? []) : [])),
      siblings: this.#siblingsOf(spec.queue),
      seed: row.id,
      overQuota: quota !== undefined && this.#isOver(entry, quota),
      imageOnlyOn: image === null ? null : image.machines,
      imageInRegistry: image?.inRegistry === true,
      ...rest,
    };
  }

  #siblingsOf(queue: QueueName): Map<MachineId, number> {
    let siblings = this.#siblings.get(queue);
    if (siblings !== undefined) return siblings;
    siblings = new Map();
    for (const { row } of this.#containers.ofQueue(queue)) {
      if (row.machineId !== null) siblings.set(row.machineId, (siblings.get(row.machineId) ?? 0) + 1);
    }
    this.#siblings.set(queue, siblings);
    return siblings;
  }

  #isOver({ row, spec }: ContainerEntry, quota: Quota): boolean {
    const { gpus, cpuMillicores, memoryMib = null, containers = null } = quota;
    if (gpus === null && cpuMillicores === null && memoryMib === null && containers === null) return false;
    const used = this.#usedBy(row.workspaceId);
    if (gpus !== null && spec.gpuCount > 0 && used.gpus + spec.gpuCount > gpus) return true;
    if (cpuMillicores !== null && used.cpuMillicores + spec.cpuMillicores > cpuMillicores) return true;
    if (memoryMib !== null && used.memoryBytes + spec.memoryBytes > memoryMib * MIB) return true;
    return containers !== null && used.containers + 1 > containers;
  }

  #usedBy(workspaceId: WorkspaceId): Use {
    if (this.#used.size === 0) {
      for (const { row, spec } of this.#containers.all())
        if (row.state !== 'PENDING') addUse(this.#used, row.workspaceId, spec);
    }
    return this.#used.get(workspaceId) ?? NOTHING;
  }

  /** Counts a placement, so that the rest of the round sees what is left. */
  take({ row, spec }: ContainerEntry, machineId: MachineId, gpuUuids: readonly string[]): void {
    const machine = this.#facts.candidates.get(machineId);
    if (machine === undefined) return;
    // The machine is read again after the round, whether or not this placement was written.
    this.#facts.touch(machineId);
    this.#usedBy(row.workspaceId);
    addUse(this.#used, row.workspaceId, spec);
    const siblings = this.#siblingsOf(spec.queue);
    siblings.set(machineId, (siblings.get(machineId) ?? 0) + 1);
    this.#facts.candidates.set({
      ...machine,
      freeCpuMillicores: machine.freeCpuMillicores - spec.cpuMillicores,
      freeMemoryBytes: machine.freeMemoryBytes - spec.memoryBytes,
      gpus:
        gpuUuids.length === 0
          ? machine.gpus
          : machine.gpus.map((gpu) => (gpuUuids.includes(gpu.uuid) ? { ...gpu, free: false } : gpu)),
    });
  }
}

/** Resources of the workspace's containers, except those that wait for a machine. */
export function useOf(
  registry: Pick<ContainerControl, 'all'>,
  workspaceId: WorkspaceId,
): { readonly gpu: number; readonly cpu_millicores: number; readonly memory_mib: number; readonly containers: number } {
  const used = new Map<WorkspaceId, Use>();
  for (const { row, spec } of registry.all())
    if (row.workspaceId === workspaceId && row.state !== 'PENDING') addUse(used, workspaceId, spec);
  const { gpus, cpuMillicores, memoryBytes, containers } = used.get(workspaceId) ?? NOTHING;
  return { gpu: gpus, cpu_millicores: cpuMillicores, memory_mib: Math.round(memoryBytes / MIB), containers };
}

function addUse(used: Map<WorkspaceId, Use>, workspaceId: WorkspaceId, spec: ContainerEntry['spec']): void {
  const before = used.get(workspaceId) ?? NOTHING;
  used.set(workspaceId, {
    gpus: before.gpus + spec.gpuCount,
    cpuMillicores: before.cpuMillicores + spec.cpuMillicores,
    memoryBytes: before.memoryBytes + spec.memoryBytes,
    containers: before.containers + 1,
  });
}

/** Driver of a volume, as stored with a container. */
export const driverOf = ({ driver }: VolumeMount): MountDriverName =>
  driver !== undefined && isMountDriver(driver) ? driver : 'local';

/** Volume drivers that the agent is set up for, except those that do not answer. */
const volumeDriversOf = ({ inventory, conditions }: Machine): MountDriverName[] =>
  ['local', ...(inventory?.volumeDrivers ?? [])]
    .filter(isMountDriver)
    .filter((driver) => !conditions.includes(volumesDownCondition(driver)));

function asCandidate(
  machine: Machine,
  parts: MachineFactsParts,
  leasedAtMs: ReadonlyMap<string, number>,
): PlacementMachine {
  const { row, inventory } = machine;
  const capacity = parts.machines.capacity(machine);
  return {
    machineId: row.id,
    poolName: row.poolName,
    poolOwner: row.poolWorkspaceId,
    requiresPoolSelector: row.poolSettings.requiresPoolSelector,
    poolPriority: row.poolSettings.priority,
    cpuWorkAllowed: takesCpuWork(row, parts.cpuWorkAllowed),
    ready: machine.health === 'READY',
    intentActive: isInService(row) && !row.systemCordon,
    blockedBy: blockingConditions(machine),
    arch: inventory?.arch ?? '',
    gpuDriver: inventory?.gpuDriver ?? '',
    basePythons: basePythonsOf(inventory),
    freeCpuMillicores: capacity.freeCpuMillicores,
    freeMemoryBytes: capacity.freeMemoryBytes,
    totalCpuMillicores: capacity.totalCpuMillicores,
    totalMemoryBytes: capacity.totalMemoryBytes,
    freeDiskBytes: machine.diskFreeBytes,
    gpus: (inventory?.gpus ?? []).map((gpu) => ({
      uuid: gpu.uuid,
      model: gpu.model,
      free: !capacity.leasedGpus.has(gpu.uuid),
      healthy: !gpu.unhealthy,
      numaNode: gpu.numaNode,
      leasedAtMs: leasedAtMs.get(gpu.uuid) ?? 0,
    })),
    volumeDrivers: new Set(volumeDriversOf(machine)),
    registry: inventory?.registry === true,
    images: new Set(inventory?.images ?? []),
    caches: new Set(cachesHere(machine).flatMap(({ volumeId, bytes }) => (bytes > 0 ? volumeId : []))),
  };
}
