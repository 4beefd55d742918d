import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { gpuMatches } from './filter.ts';

/**
 * Compares two machines that could both take the request; negative: `a` is better. Order: GPU preference, the workspace's own pool, image present,
 * fewest GPUs left over, spread of one deployment, best fit of memory, a stable hash.
 */
export function compareMachines(a: PlacementMachine, b: PlacementMachine, request: PlacementRequest): number {
  return (
    preferenceRank(a, request) - preferenceRank(b, request) ||
    ownPool(b, request) - ownPool(a, request) ||
    imagePresent(b, request) - imagePresent(a, request) ||
    gpusLeft(a, request) - gpusLeft(b, request) ||
    a.siblings - b.siblings ||
    leftover(a, request) - leftover(b, request) ||
    stableHash(request.seed + a.machineId) - stableHash(request.seed + b.machineId)
  );
}

function preferenceRank(machine: PlacementMachine, request: PlacementRequest): number {
  if (request.gpuCount === 0) return machine.gpus.length > 0 ? 1 : 0;
  // A model counts only where there are enough of it: that is what chooseGpus() will take.
  const rank = request.gpu.findIndex(
    (want) => machine.gpus.filter((gpu) => gpu.free && gpuMatches(gpu.model, [want])).length >= request.gpuCount,
  );
  return rank === -1 ? request.gpu.length : rank;
}

const ownPool = (machine: PlacementMachine, request: PlacementRequest): number =>
  machine.poolOwner === request.workspaceId ? 1 : 0;
const imagePresent = (machine: PlacementMachine, request: PlacementRequest): number =>
  request.image !== '' && machine.images.has(request.image) ? 1 : 0;
const gpusLeft = (machine: PlacementMachine, request: PlacementRequest): number =>
  machine.gpus.filter((gpu) => gpu.free).length - request.gpuCount;

/** Share of the machine that would stay unused, so that full machines fill up before empty ones. */
function leftover(machine: PlacementMachine, request: PlacementRequest): number {
  const cpu = (machine.freeCpuMillicores - request.cpuMillicores) / Math.max(1, machine.totalCpuMillicores);
  const memory = (machine.freeMemoryBytes - request.memoryBytes) / Math.max(1, machine.totalMemoryBytes);
  return Math.round((cpu + memory) * 1000);
}

/** FNV-1a, 32 bit. */
function stableHash(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193) >>> 0;
  }
  return hash;
}
