// Index of machines, so that few need be looked at for a request: by kind (pool and its settings, owner, architecture,
// driver, GPUs, drivers of volumes), then by fullness, then by about how much is free.
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import {
  fitsPlace,
  freeText,
  hasGpus,
  hasVolumeDrivers,
  isFullFor,
  keptForGpus,
  lastingText,
  lastsAs,
} from './filter.ts';
import { fullness, FULLEST, EMPTIEST, gpusLeft, ownPool, preferenceRank } from './score.ts';

/** Machines with about the same free amounts. */
interface Bucket {
  readonly row: Map<number, Bucket>;
  readonly key: number;
  readonly machines: PlacementMachine[];
  /** Upper bounds of what its machines have free. */
  most: Free;
  /** Whether the bounds are reached: no machine has left since they were counted. */
  isTight: boolean;
}

/** Free amounts: all of them, and those that work without a GPU may use. */
interface Free {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly cpuWorkMillicores: number;
  readonly cpuWorkMemoryBytes: number;
}
const NOTHING_FREE: Free = {
  cpuMillicores: -Infinity,
  memoryBytes: -Infinity,
  cpuWorkMillicores: -Infinity,
  cpuWorkMemoryBytes: -Infinity,
};

/** Bounds that also hold for that machine. */
function raised(most: Free, machine: PlacementMachine): Free {
  const { freeCpuMillicores, freeMemoryBytes } = machine;
  const kept = keptForGpus(machine);
  return {
    cpuMillicores: Math.max(most.cpuMillicores, freeCpuMillicores),
    memoryBytes: Math.max(most.memoryBytes, freeMemoryBytes),
    cpuWorkMillicores: Math.max(most.cpuWorkMillicores, freeCpuMillicores - kept.cpuMillicores),
    cpuWorkMemoryBytes: Math.max(most.cpuWorkMemoryBytes, freeMemoryBytes - kept.memoryBytes),
  };
}

/** Whether a machine of the bucket may have what the request asks for. */
const mayFit = ({ most }: Bucket, { gpuCount, cpuMillicores, memoryBytes }: PlacementRequest): boolean =>
  gpuCount === 0
    ? most.cpuWorkMillicores >= cpuMillicores && most.cpuWorkMemoryBytes >= memoryBytes
    : most.cpuMillicores >= cpuMillicores && most.memoryBytes >= memoryBytes;

/** Counts the bounds of a bucket anew, after every machine of it refused a request. */
function tighten(bucket: Bucket): void {
  if (bucket.isTight) return;
  bucket.most = bucket.machines.reduce(raised, NOTHING_FREE);
  bucket.isTight = true;
}

/** Machines that filter and score treat alike, except for free amounts and for requests that name machines. */
class Kind {
  readonly key: string;
  readonly owner: string | null;
  /** Buckets by fullness, the fullest machines first. */
  readonly #rows: Map<number, Bucket>[] = [];
  /** Any machine of the kind. */
  readonly #sample: PlacementMachine;
  readonly #ranks = new Map<string, number>();
  size = 0;

  constructor(key: string, one: PlacementMachine) {
    this.key = key;
    this.owner = one.poolOwner;
    this.#sample = one;
  }

  /** Standing of the kind for that request; undefined: no machine of the kind can take it. */
  tierOf(request: PlacementRequest): Tier | undefined {
    if (!fitsPlace(this.#sample, request) || !hasVolumeDrivers(this.#sample, request)) return undefined;
    if (isFullFor(this.#sample, request)) return undefined;
    const rank = this.#rankOf(request);
    if (rank === NO_RANK) return undefined;
    const { poolPriority } = this.#sample;
    return {
      rank,
      own: ownPool(this.#sample, request),
      poolPriority,
      gpusLeft: gpusLeft(this.#sample, request),
      kinds: [this],
    };
  }

  #rankOf(request: PlacementRequest): number {
    const asked = `${request.gpuCount} ${request.gpuLink ?? ''} ${request.gpu.join()}`;
    let rank = this.#ranks.get(asked);
    if (rank !== undefined) return rank;
    const fits = request.gpuCount === 0 || hasGpus(this.#sample, request);
    rank = fits ? preferenceRank(this.#sample, request) : NO_RANK;
    if (this.#ranks.size >= MOST_RANKS) this.#ranks.clear();
    this.#ranks.set(asked, rank);
    return rank;
  }

  row(index: number): Iterable<Bucket> {
    return this.#rows[index]?.values() ?? [];
  }

  bucketOf(machine: PlacementMachine): Bucket {
    const row = (this.#rows[fullness(machine) - FULLEST] ??= new Map<number, Bucket>());
    const cpuStep = stepOf(machine.freeCpuMillicores / CPU_STEP);
    const memoryStep = stepOf(machine.freeMemoryBytes / MEMORY_STEP);
    const key = cpuStep * STEPS + memoryStep;
    let bucket = row.get(key);
    if (bucket === undefined) {
      bucket = { row, key, machines: [], most: NOTHING_FREE, isTight: true };
      row.set(key, bucket);
    }
    return bucket;
  }
}

/** Kinds that are equally good for a request. */
export interface Tier {
  readonly rank: number;
  readonly own: number;
  readonly poolPriority: number;
  readonly gpusLeft: number;
  readonly kinds: Kind[];
}

interface Position {
  readonly kind: Kind;
  readonly bucket: Bucket;
  index: number;
  readonly machine: PlacementMachine;
  /** Text of all that lasts about it. */
  readonly lasting: string;
}

/** Most machines compared for one request. */
export const SAMPLE = 16;
const MOST_RANKS = 64;
const NO_RANK = -1;
/** Smallest amounts told apart; from there two steps double the amount. */
const CPU_STEP = 50;
const MEMORY_STEP = 64 * 1024 ** 2;
const STEPS = 128;
const stepOf = (amount: number): number =>
  amount < 1 ? 0 : Math.min(STEPS - 1, 1 + Math.floor(2 * Math.log2(amount)));

export class MachineIndex {
  readonly #kinds = new Map<string | null, Map<string, Kind>>();
  readonly #positions = new Map<MachineId, Position>();

  put(machine: PlacementMachine): void {
    const before = this.#positions.get(machine.machineId);
    this.drop(machine.machineId);
    const lasting = before !== undefined && lastsAs(before.machine, machine) ? before.lasting : lastingText(machine);
    const key = `${lasting}\n${machine.poolPriority}\n${freeText(machine.gpus)}`;
    let kinds = this.#kinds.get(machine.poolOwner);
    if (kinds === undefined) this.#kinds.set(machine.poolOwner, (kinds = new Map()));
    let kind = kinds.get(key);
    if (kind === undefined) kinds.set(key, (kind = new Kind(key, machine)));
    const bucket = kind.bucketOf(machine);
    this.#positions.set(machine.machineId, { kind, bucket, index: bucket.machines.length, machine, lasting });
    bucket.machines.push(machine);
    bucket.most = raised(bucket.most, machine);
    kind.size += 1;
  }

  /** Text of all that lasts about a machine that is here. */
  lastingOf(id: MachineId): string | undefined {
    return this.#positions.get(id)?.lasting;
  }

  drop(id: MachineId): void {
    const position = this.#positions.get(id);
    if (position === undefined) return;
    this.#positions.delete(id);
    const { kind, bucket, index } = position;
    const last = bucket.machines.pop();
    if (last !== undefined && last.machineId !== id) {
      bucket.machines[index] = last;
      const moved = this.#positions.get(last.machineId);
      if (moved !== undefined) moved.index = index;
    }
    bucket.isTight = false;
    if (bucket.machines.length === 0) bucket.row.delete(bucket.key);
    kind.size -= 1;
    if (kind.size > 0) return;
    const kinds = this.#kinds.get(kind.owner);
    if (kinds?.delete(kind.key) === true && kinds.size === 0) this.#kinds.delete(kind.owner);
  }

  /** Kinds that may take the request, grouped by how good they are for it, the best first. */
  tiers(request: PlacementRequest): readonly Tier[] {
    const tiers: Tier[] = [];
    for (const owner of [null, request.workspaceId]) {
      for (const kind of this.#kinds.get(owner)?.values() ?? []) {
        const tier = kind.tierOf(request);
        if (tier === undefined) continue;
        const same = tiers.find((one) => compareTiers(one, tier) === 0);
        if (same === undefined) tiers.push(tier);
        else same.kinds.push(kind);
      }
    }
    return tiers.sort(compareTiers);
  }
}

export function compareTiers(a: Tier, b: Tier): number {
  return compareStanding(a, b) || a.gpusLeft - b.gpusLeft;
}

/** Compares by the criteria that count for more than having caches or the image. */
export function compareStanding(a: Tier, b: Tier): number {
  return a.rank - b.rank || b.own - a.own || b.poolPriority - a.poolPriority;
}

/**
 * Finds machines of a tier that can take the request, the fullest first. A few machines of each bucket are looked at;
 * where none of them can take it, the others are looked at too.
 * @param from - offset of the first machine looked at of a bucket
 * @param firstLooks - machines of a bucket that are looked at before the next bucket is; more where few can take it
 * @returns at most {@link SAMPLE} machines, among those best for the request in everything that a kind has in common;
 * none: no machine of the tier can take it
 */
export function searchTier(
  tier: Tier,
  from: number,
  canTake: (machine: PlacementMachine) => boolean,
  request: PlacementRequest,
  firstLooks = SAMPLE,
): readonly PlacementMachine[] {
  const large: Bucket[] = [];
  const found: PlacementMachine[] = [];
  for (let row = 0; row <= EMPTIEST - FULLEST; row += 1) {
    for (const kind of tier.kinds) {
      for (const bucket of kind.row(row)) {
        if (!mayFit(bucket, request)) continue;
        const before = found.length;
        look(bucket, { from, first: 0, end: firstLooks }, canTake, found);
        if (found.length >= SAMPLE) return found;
        if (found.length > before) continue;
        if (bucket.machines.length > firstLooks) large.push(bucket);
        else tighten(bucket);
      }
    }
  }
  if (found.length > 0) return found;
  for (const bucket of large) {
    look(bucket, { from, first: firstLooks, end: Infinity }, canTake, found);
    if (found.length >= SAMPLE) return found;
    if (found.length === 0) tighten(bucket);
  }
  return found;
}

/** Whether a machine of the tier may have what the request asks for: no machine is looked at. */
export function mayHaveRoom(tier: Tier, request: PlacementRequest): boolean {
  for (const kind of tier.kinds)
    for (let row = EMPTIEST - FULLEST; row >= 0; row -= 1)
      for (const bucket of kind.row(row)) if (mayFit(bucket, request)) return true;
  return false;
}

/** Adds machines of a bucket that can take the request, until there are enough. */
function look(
  { machines }: Bucket,
  { from, first, end }: { readonly from: number; readonly first: number; readonly end: number },
  canTake: (machine: PlacementMachine) => boolean,
  found: PlacementMachine[],
): void {
  const size = machines.length;
  for (let tried = first; tried < size && tried < end && found.length < SAMPLE; tried += 1) {
    const machine = machines[(from + tried) % size];
    if (machine !== undefined && canTake(machine)) found.push(machine);
  }
}

/** Whether anything may be placed on the machine at all. */
export const isIndexed = (machine: PlacementMachine): boolean =>
  machine.ready && machine.intentActive && machine.blockedBy.length === 0;
