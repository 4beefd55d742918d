// Writes of a placement: the reservation in Redis, the home of local volumes, and the container's row.
// Invariants: free amounts never go below zero (reserve.lua verifies again). The row is
// the authority: a reservation that no row names is given back.
import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { isSchedulable } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { Accounting } from './accounting.ts';
import type { Reservation, Reservations } from './reservations.ts';
import { driverOf } from './snapshot.ts';

export interface PlacementWritesParts {
  readonly containers: ContainerControl;
  readonly machines: Machines;
  readonly reservations: Reservations;
  readonly accounting: Accounting;
  readonly clock: Clock;
  readonly log: Log;
  /** Fencing number of the leader; undefined: this replica does not lead. */
  readonly fence: () => number | undefined;
  /** Makes the machine the home of those volumes that have none. @returns false: another replica was faster */
  readonly bindVolumes: (volumeIds: readonly string[], machineId: MachineId) => Promise<boolean>;
}

/** `conflict`: the machine is taken; `gone`: the container needs no place any more. */
export type PlacementOutcome = 'placed' | 'conflict' | 'gone';

export class PlacementWrites {
  readonly #parts: PlacementWritesParts;

  constructor(parts: PlacementWritesParts) {
    this.#parts = parts;
  }

  /**
   * Makes the reservation (which expires), writes the row (which decides), then confirms the
   * reservation. After a crash before the row, the next leader, or the sweep within 15 s, gives
   * back what no row names. After a crash before the confirmation, it finds the row and confirms.
   */
  async commit(entry: ContainerEntry, machineId: MachineId, gpuUuids: readonly string[]): Promise<PlacementOutcome> {
    const { containers, reservations, clock, bindVolumes } = this.#parts;
    const { row } = entry;
    const reservation = reservationOf(entry, machineId, gpuUuids);
    if (!(await this.reserve(reservation))) return 'conflict';
    const volumes = volumesOf(entry);
    if (volumes.length > 0 && !(await bindVolumes(volumes, machineId))) {
      await reservations.release(reservation);
      return 'conflict';
    }
    const moved = await containers.transition(row.id, 'assign', {
      epoch: row.epoch,
      change: {
        gpuUuids,
        machineId,
        assignmentId: reservation.assignmentId,
        epoch: reservation.epoch,
        scheduledAtMs: clock.nowMs(),
        rejections: null,
      },
    });
    if (moved !== 'moved') {
      await reservations.release(reservation);
      return 'gone';
    }
    this.confirm(reservation);
    return 'placed';
  }

  /** Confirms a reservation that the row names now, so that it does not expire. */
  confirm(reservation: Reservation): void {
    const { reservations, accounting, machines, log } = this.#parts;
    const { machineId, containerId } = reservation;
    void reservations.confirm(reservation).then(
      (held) => {
        const machine = machines.get(machineId);
        if (!held && machine !== undefined) void accounting.recount([machine]);
      },
      (error: unknown) => log.warn({ err: error, containerId }, 'a reservation was not confirmed; the sweep will'),
    );
  }

  /** Reserves, and counts the machine first if Redis has no counts for it, or has those from before it became ready. */
  async reserve(reservation: Reservation): Promise<boolean> {
    const { reservations, accounting, machines, fence, log } = this.#parts;
    for (let tries = 0; tries < 2; tries += 1) {
      const number = fence();
      if (number === undefined) return false;
      const answer = await reservations.reserve(reservation, number);
      if (answer === 'reserved') return true;
      log.info({ containerId: reservation.containerId, machineId: reservation.machineId, answer }, 'not reserved');
      const machine = machines.get(reservation.machineId);
      const isBehind = answer === 'unknown_machine' || answer === 'not_schedulable' || answer === 'already_assigned';
      if (machine === undefined || !isSchedulable(machine) || !isBehind) return false;
      await accounting.recount([machine]);
    }
    return false;
  }
}

/** Reservation for the container's next assignment. */
export const reservationOf = (
  { row, spec }: ContainerEntry,
  machineId: MachineId,
  gpuUuids: readonly string[],
): Reservation => ({
  machineId,
  containerId: row.id,
  assignmentId: randomUUID(),
  epoch: row.epoch + 1,
  cpuMillicores: spec.cpuMillicores,
  memoryBytes: Math.ceil(spec.memoryBytes),
  gpuUuids,
});

/** Local volumes that the container mounts, which have home machines. */
export const volumesOf = (entry: ContainerEntry): readonly string[] =>
  (entry.spec.wire.volumes ?? []).flatMap((volume) => (driverOf(volume) === 'local' ? (volume.volumeId ?? []) : []));
