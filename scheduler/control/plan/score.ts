import { gpuFit, gpuTerms, mostLinked } from '#shared/domain/gpu-terms.ts';
import { labelOf, labelsPreferred } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { mayLease } from './filter.ts';

/**
 * Compares two machines that could both take the request; negative: `a` is better. Order: GPU preference, the
 * workspace's own pool, the pool's priority, preferred labels, spread over a label, cache volumes filled, image
 * present, fewest GPUs left over, best fit of CPU and memory, spread of one deployment, a stable hash. (The filter
 * already leaves only the home machines of volumes.)
 */
export function compareMachines(a: PlacementMachine, b: PlacementMachine, request: PlacementRequest): number {
  return (
    preferenceRank(a, request) - preferenceRank(b, request) ||
    ownPool(b, request) - ownPool(a, request) ||
    b.poolPriority - a.poolPriority ||
    compareWishes(a, b, request) ||
    gpusLeft(a, request) - gpusLeft(b, request) ||
    compareRoom(a, b, request)
  );
}

/** The same for machines of one tier: their GPUs and pools are as good, and as many GPUs are left. */
export const compareInTier = (a: PlacementMachine, b: PlacementMachine, request: PlacementRequest): number =>
  compareWishes(a, b, request) || compareRoom(a, b, request);

const compareWishes = (a: PlacementMachine, b: PlacementMachine, request: PlacementRequest): number =>
  preferred(b, request) - preferred(a, request) ||
  spreadCount(a, request) - spreadCount(b, request) ||
  cachesFilled(b, request) - cachesFilled(a, request) ||
  imagePresent(b, request) - imagePresent(a, request);

const compareRoom = (a: PlacementMachine, b: PlacementMachine, request: PlacementRequest): number =>
  leftover(a, request) - leftover(b, request) ||
  siblings(a, request) - siblings(b, request) ||
  stableHash(request.seed + a.machineId) - stableHash(request.seed + b.machineId) ||
  (a.machineId < b.machineId ? -1 : Number(a.machineId > b.machineId));

export function preferenceRank(machine: PlacementMachine, request: PlacementRequest): number {
  if (request.gpuCount === 0) return machine.gpus.length > 0 ? 1 : 0;
  const { gpus, gpuDriver } = machine;
  // A term counts only where there are enough devices for it, because chooseGpus() takes those.
  const rank = gpuTerms(request.gpu).findIndex(
    (term) =>
      mostLinked(
        gpus.filter((gpu) => mayLease(gpu) && gpuFit(gpu, gpuDriver, term) === 'fits'),
        request,
      ) >= request.gpuCount,
  );
  return rank === -1 ? request.gpu.length : rank;
}

export const ownPool = (machine: PlacementMachine, request: PlacementRequest): number =>
  machine.poolOwner === request.workspaceId ? 1 : 0;
/** Number of the preferred labels that the machine has. */
export const preferred = (
  { labels = NO_LABELS }: PlacementMachine,
  { labels: rules }: Pick<PlacementRequest, 'labels'>,
): number => labelsPreferred(labels, rules);
/** Containers of the deployment on machines with the same value of the label over which they are spread. */
export const spreadCount = (
  { labels = NO_LABELS }: PlacementMachine,
  { spreadCounts, labels: rules }: PlacementRequest,
): number => spreadCounts?.get(labelOf(labels, rules?.spread ?? '') ?? '') ?? 0;
const NO_LABELS: Labels = {};
/** Weights come from further away than images, and are mostly larger, so their caches count first. */
export const cachesFilled = (machine: PlacementMachine, request: Pick<PlacementRequest, 'caches'>): number =>
  request.caches.length > 0 && request.caches.every((id) => machine.caches.has(id)) ? 1 : 0;
export const imagePresent = (machine: PlacementMachine, request: Pick<PlacementRequest, 'image'>): number =>
  request.image !== '' && machine.images.has(request.image) ? 1 : 0;
export const gpusLeft = (machine: PlacementMachine, request: PlacementRequest): number =>
  machine.gpus.filter(mayLease).length - request.gpuCount;
const siblings = (machine: PlacementMachine, request: PlacementRequest): number =>
  request.siblings.get(machine.machineId) ?? 0;

/**
 * Share of the machine that would stay unused, in tenths, so that full machines fill up
 * before empty ones. Machines about as full count as equal; the spread decides between them.
 */
function leftover(machine: PlacementMachine, request: PlacementRequest): number {
  const cpu = (machine.freeCpuMillicores - request.cpuMillicores) / Math.max(1, machine.totalCpuMillicores);
  const memory = (machine.freeMemoryBytes - request.memoryBytes) / Math.max(1, machine.totalMemoryBytes);
  return Math.round((cpu + memory) * LEFTOVER_STEPS);
}
const LEFTOVER_STEPS = 5;

/**
 * Unused share of the machine before anything is taken, in the steps
 * of {@link leftover}; from {@link FULLEST} to {@link EMPTIEST}.
 */
export function fullness(machine: PlacementMachine): number {
  const cpu = machine.freeCpuMillicores / Math.max(1, machine.totalCpuMillicores);
  const memory = machine.freeMemoryBytes / Math.max(1, machine.totalMemoryBytes);
  return Math.min(EMPTIEST, Math.max(FULLEST, Math.round((cpu + memory) * LEFTOVER_STEPS)));
}
export const FULLEST = 0;
export const EMPTIEST = 2 * LEFTOVER_STEPS;

/** Hash of a text: FNV-1a, 32 bit. */
export function stableHash(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193) >>> 0;
  }
  return hash;
}
