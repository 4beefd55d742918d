import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementMachine, PlacementRequest, RejectionReason } from './filter.ts';
import { gpuMatches, rejectionOf } from './filter.ts';
import { compareMachines } from './score.ts';

export type Rejections = Readonly<Partial<Record<RejectionReason, number>>>;

export type Placement =
  | {
      readonly kind: 'placed';
      readonly machineId: MachineId;
      readonly gpuUuids: readonly string[];
      readonly rejections: Rejections;
    }
  | { readonly kind: 'rejected'; readonly rejections: Rejections };

/** Chooses one machine, or says how many were rejected for which reason; without any machine the counts are empty. */
export function placeContainer(request: PlacementRequest, machines: Iterable<PlacementMachine>): Placement {
  const rejections: Partial<Record<RejectionReason, number>> = {};
  let best: PlacementMachine | undefined;
  for (const machine of machines) {
    const reason = rejectionOf(machine, request);
    if (reason !== undefined) {
      rejections[reason] = (rejections[reason] ?? 0) + 1;
    } else if (best === undefined || compareMachines(machine, best, request) < 0) {
      best = machine;
    }
  }
  if (best === undefined) return { kind: 'rejected', rejections };
  return { kind: 'placed', machineId: best.machineId, gpuUuids: chooseGpus(best, request), rejections };
}

/** All from one machine; of the most preferred model that has enough. */
function chooseGpus(machine: PlacementMachine, request: PlacementRequest): readonly string[] {
  if (request.gpuCount === 0) return [];
  const free = machine.gpus.filter((gpu) => gpu.free);
  for (const want of request.gpu) {
    const matching = free.filter((gpu) => gpuMatches(gpu.model, [want]));
    if (matching.length >= request.gpuCount) return matching.slice(0, request.gpuCount).map((gpu) => gpu.uuid);
  }
  return free
    .filter((gpu) => gpuMatches(gpu.model, request.gpu))
    .slice(0, request.gpuCount)
    .map((gpu) => gpu.uuid);
}
