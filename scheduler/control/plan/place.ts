import { gpuFit, gpuMatches, gpuTerms, mostLinked } from '#shared/domain/gpu-terms.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementGpu, PlacementMachine, PlacementRequest, RejectionReason } from './filter.ts';
import { mayLease, rejectionOf } from './filter.ts';
import { compareInTier, compareMachines } from './score.ts';
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

/** Best of machines of one tier that can all take the request. */
export function bestInTier(
  machines: readonly PlacementMachine[],
  request: PlacementRequest,
): PlacementMachine | undefined {
  let best: PlacementMachine | undefined;
  for (const machine of machines) if (best === undefined || compareInTier(machine, best, request) < 0) best = machine;
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
    if (mostLinked(matching, request) >= gpuCount) return pickDevices(matching, request);
  }
  return pickDevices(
    free.filter((gpu) => gpuMatches(gpu, gpuDriver, request.gpu)),
    request,
  );
}

/**
 * Picks devices, least recently leased first. Several come from one NVLink island and one NUMA node if there are
 * enough, else from one island, else from one node. Of such groups it is the one with the fewest.
 */
function pickDevices(devices: readonly PlacementGpu[], request: PlacementRequest): readonly string[] {
  const count = request.gpuCount;
  const rested = devices.toSorted((a, b) => a.leasedAtMs - b.leasedAtMs || (a.uuid < b.uuid ? -1 : 1));
  const islandOf = ({ nvlinkIsland = 0 }: PlacementGpu): number => nvlinkIsland;
  const linked = rested.filter((gpu) => islandOf(gpu) > 0);
  const groupings =
    count < 2
      ? []
      : [
          Map.groupBy(linked, (gpu) => `${islandOf(gpu)} ${gpu.numaNode}`),
          Map.groupBy(linked, islandOf),
          Map.groupBy(rested, ({ numaNode }) => numaNode),
        ];
  let chosen: readonly PlacementGpu[] = rested;
  for (const grouping of groupings) {
    const enough = [...grouping.values()].filter((group) => group.length >= count);
    const fewest = enough.sort((a, b) => a.length - b.length)[0];
    if (fewest === undefined) continue;
    chosen = fewest;
    break;
  }
  return chosen.slice(0, count).map((gpu) => gpu.uuid);
}
