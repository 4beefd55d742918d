// Containers that must end on a machine before another one, which waits, has room there. Pure.
import { linkedGroups } from '#shared/domain/gpu-terms.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { PlacementGpu, PlacementMachine, PlacementRequest } from './filter.ts';
import { rejectionOf, wantedGpus } from './filter.ts';
import type { Holding } from './ledger.ts';

/** A container on a machine, and what it holds there. */
export interface Held {
  readonly id: ContainerId;
  readonly holding: Holding;
  /** Whether warmth alone keeps it, so that it ends at once. Absent: no. */
  readonly isSpare?: boolean;
}

export interface Clearing {
  /** Devices that the container is to have. */
  readonly gpuUuids: readonly string[];
  /**
   * GPUs of the containers that must end, and that end at no known time. A container without a GPU counts as the part
   * of the machine that it holds, and an interruptible one counts half.
   */
  readonly unbounded: number;
  /** Latest time by which the others end that must; 0: none must. */
  readonly endsAtMs: number;
  /** GPUs that are not free yet. */
  readonly heldGpus: number;
  /** The containers that must end. */
  readonly must: readonly Held[];
}

/** The part by which another machine must be cheaper before a reservation moves there. */
const MUCH_CHEAPER = 0.75;

/** Compares two clearings; negative: the first one is cheaper. */
export const compareClearings = (a: Clearing, b: Clearing): number =>
  a.unbounded - b.unbounded || a.endsAtMs - b.endsAtMs || a.heldGpus - b.heldGpus;

/** Whether the first clearing is cheaper by a quarter: in GPUs without a known end, else in the time that is left. */
export function isMuchCheaper(a: Clearing, than: Clearing, nowMs: number): boolean {
  if (than.unbounded > 0) return a.unbounded <= MUCH_CHEAPER * than.unbounded;
  const leftMs = than.endsAtMs - nowMs;
  return leftMs > 0 && a.unbounded === 0 && a.endsAtMs - nowMs <= MUCH_CHEAPER * leftMs;
}

/**
 * The cheapest way to make room for the request.
 * @returns undefined: the machine has no room even when all these containers have ended
 */
export function cheapestClearing(
  machine: PlacementMachine,
  request: PlacementRequest,
  there: readonly Held[],
): Clearing | undefined {
  if (
    rejectionOf(
      withEnded(machine, there, () => true),
      request,
    ) !== undefined
  )
    return undefined;
  if (request.gpuCount === 0) return clearingFor(machine, request, there, []);
  const holders = holdersOf(there);
  const devices = wantedGpus(machine, request).filter(({ healthy }) => healthy);
  let best: Clearing | undefined;
  for (const group of linkedGroups(devices, request)) {
    if (group.length < request.gpuCount) continue;
    const uuids = group
      .map((gpu) => ({ gpu, held: holders.get(gpu.uuid) }))
      .toSorted((a, b) => compareDevices(a.gpu, a.held, b.gpu, b.held))
      .slice(0, request.gpuCount)
      .map(({ gpu }) => gpu.uuid);
    const clearing = clearingFor(machine, request, there, uuids);
    if (best === undefined || compareClearings(clearing, best) < 0) best = clearing;
  }
  return best;
}

/** Counts the containers that must end for the request, when it is to have these devices. */
export function clearingFor(
  machine: PlacementMachine,
  request: Pick<PlacementRequest, 'cpuMillicores' | 'memoryBytes'>,
  there: readonly Held[],
  gpuUuids: readonly string[],
): Clearing {
  const wanted = new Set(gpuUuids);
  const holders = holdersOf(there);
  const taken = machine.gpus.filter(({ uuid, free }) => wanted.has(uuid) && !free);
  const must = new Set(taken.flatMap(({ uuid }) => holders.get(uuid) ?? []));
  let cpuMillicores = machine.freeCpuMillicores;
  let memoryBytes = machine.freeMemoryBytes;
  for (const { holding } of must) {
    cpuMillicores += holding.cpuMillicores;
    memoryBytes += holding.memoryBytes;
  }
  for (const one of there.toSorted((a, b) => compareHolders(machine, a, b))) {
    if (cpuMillicores >= request.cpuMillicores && memoryBytes >= request.memoryBytes) break;
    if (must.has(one)) continue;
    must.add(one);
    cpuMillicores += one.holding.cpuMillicores;
    memoryBytes += one.holding.memoryBytes;
  }
  // Nobody knows when a holder ends that has no row.
  let unbounded = taken.filter(({ uuid }) => !holders.has(uuid)).length;
  let endsAtMs = 0;
  for (const one of must) {
    if (one.holding.endsAtMs === undefined) unbounded += weightOf(machine, one);
    else endsAtMs = Math.max(endsAtMs, one.holding.endsAtMs);
  }
  return { gpuUuids, unbounded, endsAtMs, heldGpus: taken.length, must: [...must] };
}

/** The machine as it is once those containers have ended. @param isFree - whether the device is free then */
export function withEnded(
  machine: PlacementMachine,
  ended: readonly Held[],
  isFree: (uuid: string) => boolean,
): PlacementMachine {
  let { freeCpuMillicores, freeMemoryBytes } = machine;
  for (const { holding } of ended) {
    freeCpuMillicores += holding.cpuMillicores;
    freeMemoryBytes += holding.memoryBytes;
  }
  const gpus = machine.gpus.map((gpu) => ({ ...gpu, free: isFree(gpu.uuid) }));
  return { ...machine, freeCpuMillicores, freeMemoryBytes, gpus };
}

/**
 * The part of the machine that other containers may have: what is free now, less what will be missing once those have
 * ended who were there when the machine was reserved.
 */
export function besides(
  machine: PlacementMachine,
  reserved: Pick<PlacementRequest, 'cpuMillicores' | 'memoryBytes'> & { readonly gpuUuids: ReadonlySet<string> },
  awaited: readonly Held[],
): PlacementMachine {
  let cpuMillicores = -reserved.cpuMillicores;
  let memoryBytes = -reserved.memoryBytes;
  for (const { holding } of awaited) {
    cpuMillicores += holding.cpuMillicores;
    memoryBytes += holding.memoryBytes;
  }
  return {
    ...machine,
    freeCpuMillicores: machine.freeCpuMillicores + Math.min(0, cpuMillicores),
    freeMemoryBytes: machine.freeMemoryBytes + Math.min(0, memoryBytes),
    gpus: machine.gpus.map((gpu) => (gpu.free && reserved.gpuUuids.has(gpu.uuid) ? { ...gpu, free: false } : gpu)),
  };
}

const holdersOf = (there: readonly Held[]): ReadonlyMap<string, Held> =>
  new Map(there.flatMap((one) => (one.holding.gpuUuids ?? []).map((uuid) => [uuid, one] as const)));

/** Part of its cost that an interruptible container has: it may end soon, if its workspace holds more than others. */
const INTERRUPTIBLE = 0.5;

/** Cost of a container's end; that of a container which is only kept warm costs nothing. */
function weightOf({ totalCpuMillicores, totalMemoryBytes }: PlacementMachine, { holding, isSpare }: Held): number {
  if (isSpare === true) return 0;
  const { gpuCount, cpuMillicores, memoryBytes, interruptible } = holding;
  const part = Math.max(cpuMillicores / Math.max(1, totalCpuMillicores), memoryBytes / Math.max(1, totalMemoryBytes));
  return (interruptible === true ? INTERRUPTIBLE : 1) * (gpuCount > 0 ? gpuCount : Math.min(1, part));
}

/** Containers that end by a known time first, the soonest first; then those whose end costs least. */
function compareHolders(machine: PlacementMachine, a: Held, b: Held): number {
  const [ends, later] = [a.holding.endsAtMs ?? Infinity, b.holding.endsAtMs ?? Infinity];
  if (ends !== later) return ends - later;
  return weightOf(machine, a) - weightOf(machine, b) || (a.id < b.id ? -1 : 1);
}

/**
 * Free devices first, then those of containers that end soonest, then those of containers that are only kept warm, then
 * of interruptible ones, then those of containers with the fewest devices.
 */
function compareDevices(a: PlacementGpu, of: Held | undefined, b: PlacementGpu, than: Held | undefined): number {
  if (a.free !== b.free) return a.free ? -1 : 1;
  const [ends, later] = [of?.holding.endsAtMs ?? Infinity, than?.holding.endsAtMs ?? Infinity];
  if (ends !== later) return ends - later;
  const firmness = (held: Held | undefined): number =>
    held?.isSpare === true ? 0 : held?.holding.interruptible === true ? 1 : 2;
  const firm = firmness(of) - firmness(than);
  if (firm !== 0) return firm;
  const fewer = (of?.holding.gpuCount ?? 1) - (than?.holding.gpuCount ?? 1);
  if (fewer !== 0) return fewer;
  // Devices of one container stay together.
  const [holder, other] = [of?.id ?? '', than?.id ?? ''];
  if (holder !== other) return holder < other ? -1 : 1;
  return a.uuid < b.uuid ? -1 : Number(a.uuid > b.uuid);
}
