// Containers that wait, in classes. A class has the containers of one priority for which the same machines have room:
// when one of them finds no machine, none of them does. So the oldest one is first, whatever the order of classes is.
import { mostLinked } from '#shared/domain/gpu-terms.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Market, PriorityClass } from '../../domain/shares.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { fitsPlace, hasVolumeDrivers, wantedGpus } from './filter.ts';
import { Heap } from './heap.ts';
import type { Ledger, Quota } from './ledger.ts';
import type { Markets, MarketState, Tenant } from './markets.ts';
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
  /** Number that tells containers of the same age apart: the one that came first is older. */
  readonly turn: number;
  /** Position in the heap of its class; -1: it waits no more. */
  at: number;
}

/** Whether the first container goes before the second one of its workspace, or of all where nothing else decides. */
export function isOlder(a: Item, b: Item): boolean {
  const [key, other] = [keyOf(a), keyOf(b)];
  return key < other || (key === other && a.turn < b.turn);
}

/** Time that orders the container among those of its workspace: the smallest goes first. */
const keyOf = ({ wanted, fitClass }: Item): number => wanted.createdAtMs - fitClass.headStartMs;

const NO_FACTS: ClassFacts = { quota: undefined, volumeHomes: new Set(), image: null };
const NO_MACHINES: ReadonlySet<MachineId> = new Set();
const NO_SIBLINGS: ReadonlyMap<MachineId, number> = new Map();
const NO_MARKETS: ReadonlySet<Market> = new Set();

export class FitClass {
  readonly key: string;
  readonly workspaceId: WorkspaceId;
  readonly tenant: Tenant;
  readonly priority: PriorityClass;
  /** Milliseconds by which its containers count as older inside their workspace. */
  headStartMs = 0;
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
  /** Markets in which a limit of the workspace kept it back since it was searched for last. */
  fullIn: readonly Market[] = [];
  /** Whether a container of the class was refused since the class began to wait. */
  wasRefused = false;
  facts = NO_FACTS;
  /** Why machines refused it when this was counted last; absent: not counted yet. */
  refusals: { readonly rejections: Rejections; readonly atMs: number } | undefined;
  /** Containers whose rows do not have the main reason. */
  readonly untold = new Set<Item>();
  /** The main reason that rows have. */
  told = '';
  readonly #line = new Heap<Item>(isOlder, (item, at) => (item.at = at));
  readonly #markets: Markets;
  #market: { readonly version: number; readonly is: MarketState | undefined } = { version: -1, is: undefined };

  constructor(key: string, wanted: Wanted, ledger: Ledger) {
    const { workspaceId, queue, builtImage, volumes, cpuMillicores, memoryBytes, gpu, gpuCount } = wanted;
    this.key = key;
    this.workspaceId = workspaceId;
    this.#markets = ledger.markets;
    this.tenant = ledger.markets.tenant(workspaceId);
    this.priority = wanted.priority ?? 'normal';
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

  /** Market in which its containers count while they wait; see `Markets.of`. */
  get market(): MarketState | undefined {
    const { version } = this.#markets;
    if (this.#market.version !== version) this.#market = { version, is: this.#markets.of(this) };
    return this.#market.is;
  }

  /** The oldest container that waits. */
  get head(): Item | undefined {
    return this.#line.first();
  }

  /** The containers that wait, in no particular order. */
  get waiting(): readonly Item[] {
    return this.#line.items;
  }

  /** Number of containers that wait. */
  get size(): number {
    return this.#line.size;
  }

  add(item: Item): void {
    this.#line.push(item);
    this.untold.add(item);
  }

  remove(item: Item): void {
    this.#line.removeAt(item.at);
    item.at = -1;
    this.untold.delete(item);
    if (this.size > 0) return;
    // Nothing keeps facts about a class up to date for which nobody waits.
    this.isBlocked = false;
    this.isHeld = false;
    this.fullIn = [];
    this.wasRefused = false;
    this.refusals = undefined;
    this.told = '';
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

/** Key of all that decides whether a machine has room for the container, and of its priority. */
export function classKeyOf(wanted: Wanted): string {
  const { workspaceId, queue, builtImage, volumes, priority = 'normal' } = wanted;
  // A machine with a container of the same queue needs no room for its code.
  const withCode = wanted.diskBytes > 0 ? queue : '';
  return JSON.stringify([workspaceId, Object.values(askedOf(wanted)), builtImage, volumes, withCode, priority]);
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
