// What placement decides from: machines and requests as plain data, made once a round from the book and the machines in memory, and kept up to date with what the round itself places.
import type { MachineId } from '#shared/domain/ids.ts';
import type { Book, BookEntry } from '../containers/book.ts';
import type { Machine, Machines } from '../fleet/machines.ts';
import { blockingConditions } from '../fleet/machines.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';

/** Below this an image does not unpack: a machine with less takes nothing new. */
const DISK_FLOOR_BYTES = 512 * 1024 ** 2;
/** An archive is kept packed and unpacked. */
const CODE_ON_DISK = 4;

export interface WorldParts {
  readonly machines: Machines;
  readonly book: Book;
  /** When a device was leased last; 0: never, as far as this leader knows. */
  readonly leasedAtMs: (uuid: string) => number;
  /** May work without a GPU go to this pool's GPU machines? */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
}

/** One round's view. */
export class PlacementWorld {
  readonly #parts: WorldParts;
  readonly #machines = new Map<MachineId, PlacementMachine>();

  constructor(parts: WorldParts) {
    this.#parts = parts;
    for (const machine of parts.machines.all()) {
      if (machine.health !== 'PENDING' && machine.health !== 'EXPIRED')
        this.#machines.set(machine.row.id, asCandidate(machine, parts));
    }
  }

  machines(): Iterable<PlacementMachine> {
    return this.#machines.values();
  }

  request(
    entry: BookEntry,
    known: {
      readonly avoid: ReadonlySet<MachineId>;
      readonly volumeHomes: ReadonlySet<MachineId>;
      readonly overQuota: boolean;
    },
  ): PlacementRequest {
    const { row, spec } = entry;
    const siblings = new Map<MachineId, number>();
    for (const { row: other } of this.#parts.book.ofQueue(spec.queue)) {
      if (other.machineId !== null) siblings.set(other.machineId, (siblings.get(other.machineId) ?? 0) + 1);
    }
    return {
      workspaceId: row.workspaceId,
      poolName: spec.poolName,
      cpuMillicores: spec.cpuMillicores,
      memoryBytes: spec.memoryBytes,
      diskBytes: DISK_FLOOR_BYTES + Number(spec.wire.code?.size ?? 0) * CODE_ON_DISK,
      gpu: spec.gpu,
      gpuCount: spec.gpuCount,
      image: spec.wire.image ?? '',
      imageOnlyOn: spec.imageMachineId === undefined ? null : new Set([spec.imageMachineId]),
      arch: spec.arch ?? '',
      siblings,
      seed: row.id,
      ...known,
    };
  }

  /** Placed there: the rest of the round sees what is left. */
  take(
    machineId: MachineId,
    what: {
      readonly cpuMillicores: number;
      readonly memoryBytes: number;
      readonly gpuUuids: readonly string[];
    },
  ): void {
    const machine = this.#machines.get(machineId);
    if (machine === undefined) return;
    this.#machines.set(machineId, {
      ...machine,
      freeCpuMillicores: machine.freeCpuMillicores - what.cpuMillicores,
      freeMemoryBytes: machine.freeMemoryBytes - what.memoryBytes,
      gpus:
        what.gpuUuids.length === 0
          ? machine.gpus
          : machine.gpus.map((gpu) => (what.gpuUuids.includes(gpu.uuid) ? { ...gpu, free: false } : gpu)),
    });
  }
}

function asCandidate(machine: Machine, parts: WorldParts): PlacementMachine {
  const { row, inventory } = machine;
  const capacity = parts.machines.capacity(machine);
  return {
    machineId: row.id,
    poolName: row.poolName,
    poolOwner: row.poolWorkspaceId,
    cpuWorkAllowed: parts.cpuWorkAllowed(row.poolName),
    ready: machine.health === 'READY',
    intentActive: row.intent === 'active' && !row.systemCordon,
    blockedBy: blockingConditions(machine),
    arch: inventory?.arch ?? '',
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
      leasedAtMs: parts.leasedAtMs(gpu.uuid),
    })),
    images: new Set(inventory?.images ?? []),
  };
}
