import { gpuFit, gpuMatches, gpuTerms } from '#shared/domain/gpu-terms.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementGpu, PlacementMachine, PlacementRequest, RejectionReason } from './filter.ts';
import { mayLease, rejectionOf } from './filter.ts';
import { compareMachines } from './score.ts';
import { isForeign } from '../../domain/pools.ts';

export type Rejections = Readonly<Partial<Record<RejectionReason, number>>>;

/** A machine and its devices for a container. */
export interface Choice {
  readonly machineId: MachineId;
  readonly gpuUuids: readonly string[];
}

export type Placement =
  | ({ readonly kind: 'placed'; readonly rejections: Rejections } & Choice)
  | { readonly kind: 'rejected'; readonly rejections: Rejections };

/**
 * Chooses one machine, or counts the rejections by reason; without any machine the
 * counts are empty. Machines of another workspace's pool are not counted. The counts
 * are shown to the container's owner, who must not learn how many machines others have.
 */
export function placeContainer(request: PlacementRequest, machines: Iterable<PlacementMachine>): Placement {
  const rejections: Partial<Record<RejectionReason, number>> = {};
  let best: PlacementMachine | undefined;
  for (const machine of machines) {
    if (isForeign(machine, request)) continue;
    const reason = rejectionOf(machine, request);
    if (reason !== undefined) {
      rejections[reason] = (rejections[reason] ?? 0) + 1;
    } else if (best === undefined || compareMachines(machine, best, request) < 0) {
      best = machine;
    }
  }
  if (best === undefined) return { kind: 'rejected', rejections };
  return { kind: 'placed', ...chooseOf(best, request), rejections };
}

/** Best of machines that can all take the request. */
export function bestOf(machines: readonly PlacementMachine[], request: PlacementRequest): PlacementMachine | undefined {
  let best: PlacementMachine | undefined;
  for (const machine of machines) if (best === undefined || compareMachines(machine, best, request) < 0) best = machine;
  return best;
}

/** The machine with its devices for the request. */
export const chooseOf = (machine: PlacementMachine, request: PlacementRequest): Choice => ({
  machineId: machine.machineId,
  gpuUuids: chooseGpus(machine, request),
});

/** Devices of one machine: of the most preferred term that has enough, else of any wanted one. */
function chooseGpus(machine: PlacementMachine, request: PlacementRequest): readonly string[] {
  const { gpuCount } = request;
  if (gpuCount === 0) return [];
  const { gpuDriver } = machine;
  const free = machine.gpus.filter(mayLease);
  for (const term of gpuTerms(request.gpu)) {
    const matching = free.filter((gpu) => gpuFit(gpu, gpuDriver, term) === 'fits');
    if (matching.length >= gpuCount) return pickDevices(matching, gpuCount);
  }
  return pickDevices(
    free.filter((gpu) => gpuMatches(gpu, gpuDriver, request.gpu)),
    gpuCount,
  );
}

/**
 * Picks devices, least recently leased first. Several come from one
 * NUMA node if one has enough; of such nodes, the one with the fewest.
 */
function pickDevices(devices: readonly PlacementGpu[], count: number): readonly string[] {
  const rested = devices.toSorted((a, b) => a.leasedAtMs - b.leasedAtMs || (a.uuid < b.uuid ? -1 : 1));
  let chosen: readonly PlacementGpu[] = rested;
  if (count > 1) {
    const nodes = [...Map.groupBy(rested, (gpu) => gpu.numaNode).values()].filter((node) => node.length >= count);
    chosen = nodes.sort((a, b) => a.length - b.length)[0] ?? rested;
  }
  return chosen.slice(0, count).map((gpu) => gpu.uuid);
}
