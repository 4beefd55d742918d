// Reservations as rows, for people: what is kept, since when, and what must end yet. Made when somebody asks.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Market } from '../../domain/shares.ts';
import type { Reservations } from './reservations.ts';

/** A container that must end before the reserved machine has room. */
export interface ReservationHolder {
  readonly containerId: ContainerId;
  readonly workspaceId: WorkspaceId;
  /** GPUs that it holds of those that are kept. */
  readonly gpus: number;
  /** Time by which it ends at the latest; null: nothing ends it by a known time. */
  readonly endsAtMs: number | null;
}

export interface ReservationRow {
  readonly market: Market;
  readonly machineId: MachineId;
  /** The container for which the machine is kept. */
  readonly containerId: ContainerId;
  readonly workspaceId: WorkspaceId;
  readonly sinceMs: number;
  /** GPUs that are kept; 0: it is kept for CPU and memory. */
  readonly gpus: number;
  /** Kept GPUs that are free. */
  readonly freeGpus: number;
  /** Containers that end by a known time come first. */
  readonly heldBy: readonly ReservationHolder[];
}

export function reportReservations(reservations: Reservations): readonly ReservationRow[] {
  return [...reservations.all()].map((reservation): ReservationRow => {
    const { item, machine, machineId, market, gpuUuids, sinceMs } = reservation;
    const clearing = reservations.clearingOf(reservation);
    const heldBy = clearing.must
      .map(({ id, holding: { workspaceId, endsAtMs, gpuUuids: devices = [] } }) => ({
        containerId: id,
        workspaceId,
        gpus: devices.filter((uuid) => gpuUuids.has(uuid)).length,
        endsAtMs: endsAtMs ?? null,
      }))
      .toSorted((a, b) => (a.endsAtMs ?? Infinity) - (b.endsAtMs ?? Infinity) || b.gpus - a.gpus);
    return {
      market: market.name,
      machineId,
      containerId: item.wanted.id,
      workspaceId: item.wanted.workspaceId,
      sinceMs,
      gpus: gpuUuids.size,
      freeGpus: machine.gpus.filter(({ uuid, free }) => free && gpuUuids.has(uuid)).length,
      heldBy,
    };
  });
}
