// Accounting of machines on the leader: keeps the counts in Redis equal to the containers'
// rows and the agents' reports. A container's resources are given back once it is proven
// gone. Counts are made anew at the start of a leadership, after Redis lost its data, before
// a machine takes work again, and every 30 s against drift. The rows decide; Redis follows.
import { isDeepStrictEqual } from 'node:util';
import type { Counter } from '#shared/metrics.ts';
import type { Clock } from '#shared/clock.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import { countedGpus } from '../../fleet/capacity.ts';
import { isSchedulable } from '../../fleet/machine.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { Drift, Reservation, ReservationOwner, Reservations } from './reservations.ts';

export interface AccountingParts {
  readonly containers: ContainerControl;
  readonly machines: Machines;
  readonly reservations: Reservations;
  /** Fencing number of the leader; undefined: this replica does not lead. */
  readonly fence: () => number | undefined;
  readonly clock: Clock;
  readonly log: Log;
  /** Number of differences found and repaired, by `resource`. */
  readonly drift: Counter<'resource'>;
}

const SWEEP_MS = 30_000;
const OVERDUE_EVERY_MS = 4_000;

export class Accounting {
  readonly name = 'accounting of machines';
  readonly #parts: AccountingParts;
  /** Releases under way; a recount meanwhile would see them as drift. */
  readonly #releasing = new Set<Promise<void>>();
  /** Time when each device was leased last. */
  readonly #leasedAtMs = new Map<string, number>();
  /** Containers that no row places on the machine, as of its last count. */
  readonly #orphans = new Map<MachineId, Machine['orphans']>();
  readonly #timers: NodeJS.Timeout[] = [];

  constructor(parts: AccountingParts) {
    this.#parts = parts;
  }

  containerChanged({ entry, before, to }: ContainerEntryChange): void {
    const { clock, machines } = this.#parts;
    if (to === 'ASSIGNED') {
      for (const uuid of entry.row.gpuUuids) this.#leasedAtMs.set(uuid, clock.nowMs());
    }
    if (before !== null && (to === 'PENDING' || isTerminalContainer(to))) {
      const owner = ownerOf(before);
      if (owner !== undefined) this.#giveBack(owner);
      const machine = owner && machines.get(owner.machineId);
      // The agent has not removed the container yet, so its devices are still in use.
      if (machine?.orphans.has(entry.row.id) === true) void this.recount([machine], { expected: true });
    }
  }

  machineChanged(machine: Machine): void {
    if (this.#parts.machines.get(machine.row.id) !== machine) void this.#forget(machine.row.id);
    // Nothing is placed on a machine that is away; its counts are made anew before it is READY again.
    else if (machine.health !== 'RECONCILING')
      void this.recount([machine], { expected: this.#orphansChanged(machine) });
  }

  /** Counts a machine whose agent came back and has reported all it has, before the machine is READY. */
  async reported(machine: Machine): Promise<void> {
    await this.recount([machine], { expected: this.#orphansChanged(machine) });
  }

  start(): void {
    const every = (ms: number, work: () => Promise<void>): void => {
      const timer = setInterval(() => void work(), ms);
      timer.unref();
      this.#timers.push(timer);
    };
    every(SWEEP_MS, () => this.recount());
    every(OVERDUE_EVERY_MS, () => this.settleOverdue());
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await Promise.allSettled(this.#releasing);
  }

  leasedAtMs(uuid: string): number {
    return this.#leasedAtMs.get(uuid) ?? 0;
  }

  /** Whether the agent has other containers without a row than at the last count; then changed counts are no drift. */
  #orphansChanged({ row, orphans }: Machine): boolean {
    const before = this.#orphans.get(row.id);
    this.#orphans.set(row.id, orphans);
    return before !== undefined && !isDeepStrictEqual(before, orphans);
  }

  /**
   * Sets the counts of these machines (all, when none are named) to what rows and reports
   * say; differences count as drift. A failure is logged: the next sweep counts again.
   * @param expected - a report just changed the counts, so a difference is no drift
   */
  async recount(only?: readonly Machine[], { expected = false } = {}): Promise<void> {
    const { machines, reservations, log } = this.#parts;
    await Promise.allSettled(this.#releasing);
    for (const { row } of only ?? machines.all()) {
      const fence = this.#parts.fence();
      const machine = machines.get(row.id);
      if (fence === undefined || machine === undefined || machine.row.joinedAtMs === null) continue;
      try {
        const drift = await reservations.recount(this.#countable(machine), fence);
        if (drift !== undefined && !expected) this.#tell(machine, drift);
      } catch (error) {
        log.warn({ err: error, machineId: machine.row.id }, 'what a machine has left was not counted, trying again');
      }
    }
  }

  /** Confirms or releases reservations that were in flight for too long: the container's row says which. */
  async settleOverdue(): Promise<void> {
    const { reservations, containers, log, fence } = this.#parts;
    if (fence() === undefined) return;
    try {
      for (const owner of await reservations.overdue()) {
        const row = containers.get(owner.containerId)?.row;
        const written = row?.assignmentId === owner.assignmentId && row.epoch === owner.epoch;
        if (written) await reservations.confirm(owner);
        else await reservations.release(owner);
        log.info({ containerId: owner.containerId, written }, 'a reservation in flight was settled');
      }
    } catch (error) {
      log.warn({ err: error }, 'reservations in flight not settled, trying again');
    }
  }

  #giveBack(owner: ReservationOwner): void {
    if (this.#parts.fence() === undefined) return;
    const releasing = this.#parts.reservations.release(owner).then(
      () => undefined,
      (error: unknown) => {
        this.#parts.log.warn(
          { err: error, containerId: owner.containerId },
          'resources not given back; the sweep will',
        );
      },
    );
    this.#releasing.add(releasing);
    void releasing.finally(() => this.#releasing.delete(releasing));
  }

  #countable(machine: Machine): Parameters<Reservations['recount']>[0] {
    const { containers, machines } = this.#parts;
    const { totalCpuMillicores, totalMemoryBytes } = machines.capacity(machine);
    const machineId = machine.row.id;
    const held: Reservation[] = [];
    for (const { row, spec } of containers.ofMachine(machineId)) {
      const owner = row.state === 'PENDING' ? undefined : ownerOf(row);
      if (owner === undefined) continue;
      const { cpuMillicores, memoryBytes } = spec;
      held.push({ ...owner, cpuMillicores, memoryBytes: Math.ceil(memoryBytes), gpuUuids: row.gpuUuids });
    }
    // A container that the agent still has, although no row places it there, holds its resources until it is gone.
    const placed = new Set(held.map((one) => one.assignmentId));
    for (const one of machine.orphans.values()) {
      if (placed.has(one.assignmentId)) continue;
      const { cpuMillicores, memoryBytes, gpuUuids, epoch } = one;
      const assignmentId = one.assignmentId || one.containerId;
      held.push({ machineId, containerId: one.containerId, assignmentId, epoch, cpuMillicores, memoryBytes, gpuUuids });
    }
    const totalGpus = countedGpus(machine, new Set(held.flatMap((one) => one.gpuUuids)));
    return { machineId, schedulable: isSchedulable(machine), totalCpuMillicores, totalMemoryBytes, totalGpus, held };
  }

  #tell(machine: Machine, drift: Drift): void {
    const { drift: counter, log } = this.#parts;
    const found = {
      cpu: drift.cpuMillicores,
      memory: drift.memoryBytes,
      gpu: drift.gpus,
      container: drift.reservations,
      gpu_leased_twice: drift.leasedTwice,
    };
    for (const [resource, amount] of Object.entries(found)) if (amount > 0) counter.inc({ resource });
    if (Object.values(found).some((amount) => amount > 0))
      log.warn({ machineId: machine.row.id, found }, 'what was counted of a machine was not what it has; repaired');
  }

  async #forget(machineId: MachineId): Promise<void> {
    this.#orphans.delete(machineId);
    try {
      if (this.#parts.fence() !== undefined) await this.#parts.reservations.forget(machineId);
    } catch (error) {
      this.#parts.log.warn({ err: error, machineId }, 'the counts of a deleted machine are left in Redis');
    }
  }
}

/** Owner of the resources that a row holds; undefined: the container is placed nowhere. */
function ownerOf(row: ContainerRow): ReservationOwner | undefined {
  const { id, machineId, assignmentId, epoch } = row;
  return machineId === null || assignmentId === null ? undefined : { machineId, containerId: id, assignmentId, epoch };
}
