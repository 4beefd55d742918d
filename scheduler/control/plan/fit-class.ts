// Containers that wait, in classes. A class has the containers for which the same machines have room: when one of them
// finds no machine, none of them does.
import { mostLinked } from '#shared/domain/gpu-terms.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Market, PriorityClass } from '../../domain/shares.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { fitsPlace, hasVolumeDrivers, wantedGpus } from './filter.ts';
import { Heap } from './heap.ts';
import type { Ledger, Quota } from './ledger.ts';
import type { Tenant } from './markets.ts';
import type { Rejections } from './place.ts';

type Asked = Pick<
  PlacementRequest,
  | 'poolName'
  | 'cpuMillicores'
  | 'memoryBytes'
  | 'diskBytes'
  | 'gpu'
  | 'gpuCount'
  | 'gpuLink'
  | 'minCuda'
  | 'basePython'
  | 'arch'
  | 'volumeDrivers'
  | 'labels'
>;

/** A container that waits for a machine. */
export interface Wanted extends Asked {
  readonly id: ContainerId;
  readonly workspaceId: WorkspaceId;
  readonly queue: QueueName;
  readonly createdAtMs: number;
  /** Priority inside its workspace. Absent: normal. */
  readonly priority?: PriorityClass;
  readonly image: string;
  readonly caches: readonly string[];
  /** Image that was built here, whose places decide; empty: any machine can get the image. */
  readonly builtImage: string;
  /** Local volumes, whose home machines decide, by their ids. */
  readonly volumes: readonly string[];
}

/** Where a built image is. */
export interface ImagePlaces {
  readonly machines: ReadonlySet<MachineId>;
  /** Whether other machines can pull it. */
  readonly inRegistry: boolean;
}

/** Facts about a class that are not in memory. */
export interface ClassFacts {
  readonly quota: Quota | undefined;
  readonly volumeHomes: ReadonlySet<MachineId>;
  /** null: no image that was built here. */
  readonly image: ImagePlaces | null;
}

/** A container in the line of its class. */
export interface Item {
  readonly wanted: Wanted;
  readonly fitClass: FitClass;
  /** Time that orders it among containers of its workspace: the smallest goes first. */
  key: number;
  /** Number that tells containers of the same age apart: the one that came first is older. */
  readonly turn: number;
  isWaiting: boolean;
}

/** Whether the first container goes before the second one of its workspace, or of all where nothing else decides. */
export const isOlder = (a: Item, b: Item): boolean => a.key < b.key || (a.key === b.key && a.turn < b.turn);

const NO_FACTS: ClassFacts = { quota: undefined, volumeHomes: new Set(), image: null };
const NO_MACHINES: ReadonlySet<MachineId> = new Set();
const NO_SIBLINGS: ReadonlyMap<MachineId, number> = new Map();
const NO_MARKETS: ReadonlySet<Market> = new Set();

export class FitClass {
  readonly key: string;
  readonly workspaceId: WorkspaceId;
  readonly tenant: Tenant;
  readonly builtImage: string;
  readonly volumes: readonly string[];
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  /** Position in the heap of its line; see `Lines`. */
  lineAt = -1;
  /** Request of any container of the class, as far as facts of a machine decide about it. */
  readonly request: PlacementRequest;
  /** Whether no machine has room, except for those that changed and are offered. */
  isBlocked = false;
  /** Number of the offers that had no room for it; see `Planner`. */
  passedAt = -1;
  /** Whether the workspace has used up its limits. */
  isHeld = false;
  /** Whether a container of the class was refused since the class began to wait. */
  wasRefused = false;
  facts = NO_FACTS;
  /** Why machines refused it when this was counted last; absent: not counted yet. */
  refusals: { readonly rejections: Rejections; readonly atMs: number } | undefined;
  /** Containers whose rows do not have the main reason. */
  readonly untold = new Set<Item>();
  /** The main reason that rows have. */
  told = '';
  /** The oldest container that waits. */
  head: Item | undefined;
  readonly #line = new Heap<Item>(isOlder);
  #size = 0;

  constructor(key: string, wanted: Wanted, ledger: Ledger) {
    const { workspaceId, queue, builtImage, volumes, cpuMillicores, memoryBytes, gpu, gpuCount } = wanted;
    this.key = key;
    this.workspaceId = workspaceId;
    this.tenant = ledger.markets.tenant(workspaceId);
    this.gpu = gpu;
    this.builtImage = builtImage;
    this.volumes = volumes;
    this.cpuMillicores = cpuMillicores;
    this.memoryBytes = memoryBytes;
    this.gpuCount = gpuCount;
    this.request = {
      workspaceId,
      ...askedOf(wanted),
      image: '',
      caches: [],
      imageOnlyOn: null,
      imageInRegistry: false,
      volumeHomes: NO_MACHINES,
      avoid: NO_MACHINES,
      overQuota: false,
      fullMarkets: NO_MARKETS,
      seed: '',
      siblings: NO_SIBLINGS,
    };
    // Only where code must fit on a disk is a class one queue's, so that only there its containers decide. The other
    // requests have no accessor, because an object with one takes many times longer to copy.
    if (wanted.diskBytes > 0)
      Object.defineProperty(this.request, 'siblings', { enumerable: true, get: () => ledger.siblingsOf(queue) });
  }

  /** Number of containers that wait. */
  get size(): number {
    return this.#size;
  }

  add(item: Item): void {
    this.#line.push(item);
    this.#size += 1;
    this.untold.add(item);
    this.#findHead();
  }

  remove(item: Item): void {
    item.isWaiting = false;
    this.#size -= 1;
    this.untold.delete(item);
    if (this.#line.size > 2 * this.#size + MOST_GONE) this.#line.keep((one) => one.isWaiting);
    this.#findHead();
    if (this.#size > 0) return;
    // Nothing keeps facts about a class up to date for which nobody waits.
    this.isBlocked = false;
    this.isHeld = false;
    this.wasRefused = false;
    this.refusals = undefined;
    this.told = '';
  }

  #findHead(): void {
    let first = this.#line.first();
    while (first !== undefined && !first.isWaiting) {
      this.#line.pop();
      first = this.#line.first();
    }
    this.head = first;
  }

  /** Orders the containers by other keys. */
  reorder(keyOf: (wanted: Wanted) => number): void {
    for (const item of this.#line.items) item.key = keyOf(item.wanted);
    this.#line.keep(({ isWaiting }) => isWaiting);
    this.#findHead();
  }

  /** The containers that wait, in no particular order. */
  waiting(): readonly Item[] {
    return this.#line.items.filter(({ isWaiting }) => isWaiting);
  }

  /** Whether any machine like this one can ever have room. */
  couldEverFit(machine: PlacementMachine): boolean {
    const { request } = this;
    return (
      fitsPlace(machine, request) &&
      hasVolumeDrivers(machine, request) &&
      machine.totalCpuMillicores >= request.cpuMillicores &&
      machine.totalMemoryBytes >= request.memoryBytes &&
      (request.gpuCount === 0 || mostLinked(wantedGpus(machine, request), request) >= request.gpuCount)
    );
  }
}

/** Containers that left a line and are still in its heap, at most, beside as many as wait. */
const MOST_GONE = 64;

/** Key of all that decides whether a machine has room for the container. */
export function classKeyOf(wanted: Wanted): string {
  const { workspaceId, queue, builtImage, volumes } = wanted;
  // A machine with a container of the same queue needs no room for its code.
  const withCode = wanted.diskBytes > 0 ? queue : '';
  return JSON.stringify([workspaceId, Object.values(askedOf(wanted)), builtImage, volumes, withCode]);
}

const askedOf = (wanted: Asked): Asked => ({
  poolName: wanted.poolName,
  cpuMillicores: wanted.cpuMillicores,
  memoryBytes: wanted.memoryBytes,
  diskBytes: wanted.diskBytes,
  gpu: wanted.gpu,
  gpuCount: wanted.gpuCount,
  gpuLink: wanted.gpuLink,
  minCuda: wanted.minCuda,
  basePython: wanted.basePython,
  arch: wanted.arch,
  volumeDrivers: wanted.volumeDrivers,
  // Wishes choose among machines that fit, and do not decide which fit.
  labels: wanted.labels === undefined ? undefined : { ...wanted.labels, prefer: {}, spread: '' },
});
