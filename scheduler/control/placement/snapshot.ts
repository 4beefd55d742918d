// Machines and containers as plain data, from which placement decides. Machines are built anew when they change.
import { isBuiltImage } from '#shared/domain/built-images.ts';
import { gpuTerms } from '#shared/domain/gpu-terms.ts';
import { pinnedTo } from '#shared/domain/image-reference.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { MountDriverName } from '#shared/domain/volume-drivers.ts';
import { isMountDriver, volumesDownCondition } from '#shared/domain/volume-drivers.ts';
import type { VolumeMount } from '#shared/protocol/generated/messages.ts';
import { MOST_NOTICE_SECONDS } from '../../domain/shares.ts';
import { isSyncKind } from '../../workspaces/deployments/kinds.ts';
import { wantedPython } from '../../domain/base-pythons.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { isPreempted } from '../../fleet/containers/spec.ts';
import { gpuFactsOf } from '../../fleet/capacity.ts';
import type { Capacity } from '../../fleet/capacity.ts';
import { basePythonsOf } from '../../fleet/host-facts.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import { blockingConditions, cachesHere, isInService, labelsOf } from '../../fleet/machine.ts';
import { takesCpuWork } from '../../fleet/pool-settings.ts';
import type { PlacementMachine } from '../plan/filter.ts';
import type { Wanted } from '../plan/fit-class.ts';
import type { Holding, Use } from '../plan/ledger.ts';
import { NO_USE, plus } from '../plan/ledger.ts';
import type { MarketMachine } from '../plan/markets.ts';
import type { Planner } from '../plan/planner.ts';

const MIB = 1024 * 1024;

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

/** Machines as placement sees them, which the planner is told of. */
export class MachineFacts {
  readonly #parts: MachineFactsParts;
  readonly #planner: Pick<Planner, 'machine' | 'setMachine' | 'deleteMachine'>;
  readonly #changed = new Set<MachineId>();
  /** Time when each device was leased last, as far as this process knows. */
  readonly #leasedAtMs = new Map<string, number>();

  constructor(parts: MachineFactsParts, planner: Pick<Planner, 'machine' | 'setMachine' | 'deleteMachine'>) {
    this.#parts = parts;
    this.#planner = planner;
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

  /**
   * Builds changed machines anew; must not run while placements of a round are being written.
   * @param isOver - asked after each machine: whether the rest waits for the next call
   * @returns whether no changed machine is left
   */
  refresh(isOver: () => boolean): boolean {
    const { machines } = this.#parts;
    for (const id of this.#changed) {
      this.#changed.delete(id);
      const machine = machines.get(id);
      if (machine === undefined || machine.health === 'PENDING' || machine.health === 'EXPIRED') {
        for (const { uuid } of this.#planner.machine(id)?.gpus ?? []) this.#leasedAtMs.delete(uuid);
        this.#planner.deleteMachine(id);
      } else this.#planner.setMachine(asCandidate(machine, this.#parts, this.#leasedAtMs));
      if (isOver()) break;
    }
    return this.#changed.size === 0;
  }
}

/** Everything that the container asks of a machine. */
export function wantedOf({ row, spec }: ContainerEntry): Wanted {
  const { wire } = spec;
  const image = wire.image ?? '';
  return {
    id: row.id,
    workspaceId: row.workspaceId,
    queue: spec.queue,
    createdAtMs: row.createdAtMs,
    poolName: spec.poolName,
    cpuMillicores: spec.cpuMillicores,
    memoryBytes: spec.memoryBytes,
    diskBytes: Number(wire.code?.size ?? 0) * CODE_ON_DISK,
    gpu: spec.gpu,
    gpuCount: spec.gpuCount,
    gpuLink: spec.gpuLink,
    minCuda: spec.minCuda ?? '',
    labels: spec.labels,
    ...(spec.priority === undefined ? {} : { priority: spec.priority }),
    basePython: image === '' ? wantedPython(wire.pythonVersion ?? '') : '',
    arch: spec.arch ?? '',
    volumeDrivers: [...new Set((wire.volumes ?? []).map(driverOf))],
    image: pinnedTo(image, wire.imageDigest ?? ''),
    caches: volumeIds(spec, 'cache'),
    builtImage: isBuiltImage(image) ? image : '',
    volumes: volumeIds(spec, 'local'),
  };
}

/** First GPU model that a container asks for, as metrics name it. */
export const gpuModelOf = (spec: Pick<ContainerEntry['spec'], 'gpu'>): string => gpuTerms(spec.gpu)[0]?.model ?? 'none';

/** Longest time that an agent takes to end a container which it was told to stop, by TERM, KILL and force. */
const STOPS_IN_MS = 90_000;

/**
 * Time by which the container ends at the latest, as far as its row tells: it is stopping, or takes no more tasks and
 * has those that it works on, whose time is limited, or which are given back. undefined: nothing ends it by a known
 * time.
 */
function endsAtMs({ row, spec }: ContainerEntry, nowMs: number): number | undefined {
  if (row.state === 'STOPPING') return nowMs + STOPS_IN_MS;
  if (isPreempted(row) && !isSyncKind(spec.kind)) return nowMs + MOST_NOTICE_SECONDS * 1000 + STOPS_IN_MS;
  const timeoutMs = spec.wire.timeoutMs ?? 0;
  return row.state === 'DRAINING' && timeoutMs > 0 ? nowMs + timeoutMs + STOPS_IN_MS : undefined;
}

/** The resources of a container that has a place. @param nowMs - the present time, from which it ends */
export function holdingOf(entry: ContainerEntry, nowMs: number): Holding {
  const { row, spec } = entry;
  const ends = endsAtMs(entry, nowMs);
  return { ...resourcesOf(row, spec), ...(ends === undefined ? {} : { endsAtMs: ends }) };
}

const resourcesOf = (row: ContainerEntry['row'], spec: ContainerEntry['spec']): Holding => ({
  workspaceId: row.workspaceId,
  queue: spec.queue,
  machineId: row.machineId,
  gpuCount: spec.gpuCount,
  cpuMillicores: spec.cpuMillicores,
  memoryBytes: spec.memoryBytes,
  gpuUuids: row.gpuUuids,
  ...(spec.interruptible === true ? { interruptible: true } : {}),
});

/** Resources of the workspace's containers, except those that wait for a machine. */
function heldBy(registry: Pick<ContainerControl, 'all'>, workspaceId: WorkspaceId): Use {
  let used = NO_USE;
  for (const { row, spec } of registry.all())
    if (row.workspaceId === workspaceId && row.state !== 'PENDING') used = plus(used, spec);
  return used;
}

/** The same, with the names and units of the API. */
export function useOf(
  registry: Pick<ContainerControl, 'all'>,
  workspaceId: WorkspaceId,
): { readonly gpu: number; readonly cpu_millicores: number; readonly memory_mib: number; readonly containers: number } {
  const { gpus, cpuMillicores, memoryBytes, containers } = heldBy(registry, workspaceId);
  return { gpu: gpus, cpu_millicores: cpuMillicores, memory_mib: Math.round(memoryBytes / MIB), containers };
}

/** Volumes of that driver that the container mounts, by their ids. */
export const volumeIds = ({ wire }: ContainerEntry['spec'], driver: MountDriverName): readonly string[] =>
  (wire.volumes ?? []).flatMap((volume) => (driverOf(volume) === driver ? (volume.volumeId ?? []) : []));

/** Driver of a volume, as stored with a container. */
export const driverOf = ({ driver }: VolumeMount): MountDriverName =>
  driver !== undefined && isMountDriver(driver) ? driver : 'local';

/** Volume drivers that the agent is set up for, except those that do not answer. */
const volumeDriversOf = ({ inventory, conditions }: Machine): MountDriverName[] =>
  ['local', ...(inventory?.volumeDrivers ?? [])]
    .filter(isMountDriver)
    .filter((driver) => !conditions.includes(volumesDownCondition(driver)));

/** Amounts that a machine adds to markets, as placement counts them. */
export function inMarkets(
  { row, inventory, health }: Machine,
  { totalCpuMillicores, totalMemoryBytes }: Pick<Capacity, 'totalCpuMillicores' | 'totalMemoryBytes'>,
  cpuWorkAllowed: MachineFactsParts['cpuWorkAllowed'],
): MarketMachine {
  return {
    machineId: row.id,
    poolOwner: row.poolWorkspaceId,
    cpuWorkAllowed: takesCpuWork(row, cpuWorkAllowed),
    isPresent: health === 'READY' || health === 'SUSPECT',
    totalCpuMillicores,
    totalMemoryBytes,
    gpus: (inventory?.gpus ?? []).map((gpu) => ({ ...gpuFactsOf(gpu), healthy: !gpu.unhealthy })),
  };
}

function asCandidate(
  machine: Machine,
  parts: MachineFactsParts,
  leasedAtMs: ReadonlyMap<string, number>,
): PlacementMachine {
  const { row, inventory } = machine;
  const capacity = parts.machines.capacity(machine);
  return {
    ...inMarkets(machine, capacity, parts.cpuWorkAllowed),
    poolName: row.poolName,
    requiresPoolSelector: row.poolSettings.requiresPoolSelector,
    poolPriority: row.poolSettings.priority,
    ready: machine.health === 'READY',
    intentActive: isInService(row) && !row.systemCordon,
    blockedBy: blockingConditions(machine),
    arch: inventory?.arch ?? '',
    gpuDriver: inventory?.gpuDriver ?? '',
    basePythons: basePythonsOf(inventory),
    freeCpuMillicores: capacity.freeCpuMillicores,
    freeMemoryBytes: capacity.freeMemoryBytes,
    freeDiskBytes: machine.diskFreeBytes,
    gpus: (inventory?.gpus ?? []).map((gpu) => ({
      uuid: gpu.uuid,
      ...gpuFactsOf(gpu),
      free: !capacity.leasedGpus.has(gpu.uuid),
      healthy: !gpu.unhealthy,
      numaNode: gpu.numaNode,
      leasedAtMs: leasedAtMs.get(gpu.uuid) ?? 0,
    })),
    volumeDrivers: new Set(volumeDriversOf(machine)),
    labels: labelsOf(machine),
    registry: inventory?.registry === true,
    images: new Set(inventory?.images ?? []),
    caches: new Set(cachesHere(machine).flatMap(({ volumeId, bytes }) => (bytes > 0 ? volumeId : []))),
  };
}
