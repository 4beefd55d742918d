// Machines of pools with a provider, as the loop packs containers into them. Only machines that changed are read again.
// Invariant: a machine counts as empty since this process first saw it so, so that a new leader ends none too early.
import type { MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { gpuFactsOf } from '../../fleet/capacity.ts';
import { isInService, isSchedulable, labelsOf } from '../../fleet/machine.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { Offer, Room } from './facts.ts';

export interface RoomsParts {
  readonly machines: Pick<Machines, 'all' | 'get' | 'capacity'>;
  readonly containers: Pick<ContainerRegistry, 'ofMachine'>;
  readonly clock: Clock;
  /** Whether the pool has a provider. */
  readonly isGrowing: (poolId: number) => boolean;
}

type KnownRoom = Omit<Room, 'isMade' | 'isPending' | 'isOrderOfToday'>;

export class Rooms {
  readonly #parts: RoomsParts;
  readonly #byPool = new Map<number, Map<MachineId, KnownRoom>>();
  readonly #poolOf = new Map<MachineId, number>();
  readonly #changed = new Set<MachineId>();

  constructor(parts: RoomsParts) {
    this.#parts = parts;
  }

  /** Marks a machine as changed. @returns the pool with a provider that it is in, or was; undefined: none */
  touch(id: MachineId): number | undefined {
    const { machines, isGrowing } = this.#parts;
    const poolId = machines.get(id)?.row.poolId;
    const known = this.#poolOf.get(id);
    if (known === undefined && (poolId === undefined || !isGrowing(poolId))) return undefined;
    this.#changed.add(id);
    return poolId ?? known;
  }

  /** Marks all machines of a pool as changed: it got a provider, or lost it. */
  touchPool(poolId: number): void {
    for (const { row } of this.#parts.machines.all()) if (row.poolId === poolId) this.touch(row.id);
    for (const id of this.#byPool.get(poolId)?.keys() ?? []) this.#changed.add(id);
  }

  /** Forgets everything: another process has decided meanwhile. */
  reset(): void {
    this.#byPool.clear();
    this.#poolOf.clear();
    this.#changed.clear();
    for (const { row } of this.#parts.machines.all()) this.touch(row.id);
  }

  /** Reads the machines that changed. */
  refresh(): void {
    for (const id of this.#changed) this.#read(id);
    this.#changed.clear();
  }

  /**
   * @param made - machines of the provider that are ready
   * @param pending - those on their way
   * @param isOrderOfToday - whether the pool would order the machine so today
   */
  *of(
    poolId: number,
    made: ReadonlySet<MachineId>,
    pending: ReadonlySet<MachineId>,
    isOrderOfToday: (id: MachineId) => boolean,
  ): Iterable<Room> {
    for (const room of this.#byPool.get(poolId)?.values() ?? []) {
      const { machineId } = room;
      yield {
        ...room,
        isMade: made.has(machineId),
        isPending: pending.has(machineId),
        isOrderOfToday: isOrderOfToday(machineId),
      };
    }
  }

  #read(id: MachineId): void {
    const { machines, isGrowing } = this.#parts;
    const machine = machines.get(id);
    const before = this.#poolOf.get(id);
    const known = before === undefined ? undefined : this.#byPool.get(before)?.get(id);
    if (before !== undefined) this.#byPool.get(before)?.delete(id);
    this.#poolOf.delete(id);
    if (machine === undefined || !isGrowing(machine.row.poolId)) return;
    if (machine.health === 'PENDING' || machine.health === 'EXPIRED') return;
    const { poolId } = machine.row;
    const rooms = this.#byPool.get(poolId) ?? new Map<MachineId, KnownRoom>();
    rooms.set(id, this.#roomOf(machine, known));
    this.#byPool.set(poolId, rooms);
    this.#poolOf.set(id, poolId);
  }

  #roomOf(machine: Machine, before: KnownRoom | undefined): KnownRoom {
    const { machines, containers, clock } = this.#parts;
    const { row, inventory, health, orphans } = machine;
    const nowMs = clock.monotonicMs();
    const capacity = machines.capacity(machine);
    const [occupant] = containers.ofMachine(row.id);
    const isEmpty = occupant === undefined && orphans.size === 0;
    const healthy = (inventory?.gpus ?? []).filter(({ unhealthy }) => !unhealthy);
    const free = {
      cpuMillicores: capacity.freeCpuMillicores,
      memoryBytes: capacity.freeMemoryBytes,
      gpus: healthy.filter(({ uuid }) => !capacity.leasedGpus.has(uuid)).map(gpuFactsOf),
    };
    const isOpen = isSchedulable(machine);
    const offersAsBefore = isOpen && before?.isOpen === true && !isMore(free, before.free);
    return {
      machineId: row.id,
      isOpen,
      mayLeave: isInService(row) && (health === 'READY' || health === 'LOST'),
      total: {
        cpuMillicores: capacity.totalCpuMillicores,
        memoryBytes: capacity.totalMemoryBytes,
        gpus: healthy.map(gpuFactsOf),
        gpuDriver: inventory?.gpuDriver ?? '',
        labels: labelsOf(machine),
      },
      free,
      createdAtMs: before?.createdAtMs ?? nowMs - Math.max(0, clock.nowMs() - row.createdAtMs),
      offersSinceMs: offersAsBefore ? before.offersSinceMs : nowMs,
      emptySinceMs: isEmpty ? (before?.emptySinceMs ?? nowMs) : null,
    };
  }
}

const isMore = (now: Offer, before: Offer): boolean =>
  now.cpuMillicores > before.cpuMillicores ||
  now.memoryBytes > before.memoryBytes ||
  now.gpus.length > before.gpus.length;
