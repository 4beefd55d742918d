// Markets, and how workspaces stand in them by what they hold. A market has the machines with GPUs of one model, or is
// `cpu`, for containers without a GPU. Machines that a workspace owns are in no market, because nobody else uses them.
//
// The share of a workspace in a market is its part of the GPUs, of the CPU or of the memory there, whichever is the
// largest, less the part that is guaranteed to it, divided by its weight. The smaller share goes first.
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { gpuTerms } from '#shared/domain/gpu-terms.ts';
import { modelMatches } from '#shared/domain/gpus.ts';
import type { Market, WorkspaceShare } from '../../domain/shares.ts';
import { CPU_MARKET, DEFAULT_SHARE } from '../../domain/shares.ts';
import type { PlacementGpu, PlacementMachine } from './filter.ts';
import { gpuMarketOf } from './filter.ts';
import type { Amounts, Use } from './ledger.ts';
import { NO_USE, plus } from './ledger.ts';

/** How a workspace stands in a market. The smaller tier goes first, then the smaller share. */
export interface Standing {
  readonly tier: number;
  readonly share: number;
}

/** A workspace whose share is not read yet is first, so that it is read before anything is decided by it. */
const UNREAD: Standing = { tier: 0, share: 0 };
/** Tier of a workspace that has less than is guaranteed to it, and of all others. */
export const GUARANTEED_TIER = 1;
export const SHARED_TIER = 2;
/** Standing where nothing is shared: on machines of an own pool, and where no machine is. */
const ALONE: Standing = { tier: SHARED_TIER, share: 0 };
const LEAST_WEIGHT = 1e-6;

/** Turn of a container that waits among those of other workspaces. */
export interface MarketTurn {
  /** How its workspace stands in its market; undefined: who waits longest is first. */
  readonly standing: Standing | undefined;
  /** Milliseconds by which it counts as older inside its workspace. */
  readonly headStartMs: number;
  /** Amounts that its workspace may have yet, in markets where it has a limit and the container may count. */
  readonly limits: readonly { readonly market: Market; readonly left: number }[];
}

/** Facts about a machine that decide what it adds to markets. */
export type MarketMachine = Pick<
  PlacementMachine,
  'machineId' | 'poolOwner' | 'totalCpuMillicores' | 'totalMemoryBytes' | 'isPresent' | 'cpuWorkAllowed'
> & { readonly gpus: readonly Pick<PlacementGpu, 'model' | 'healthy'>[] };

/** Machines that are shared, and their amounts. */
export interface MarketState {
  readonly name: Market;
  readonly index: number;
  gpus: number;
  cpuMillicores: number;
  memoryBytes: number;
  /** Sum of what is guaranteed to workspaces. */
  guaranteed: number;
  /** Number that grows when a standing may change that is not of one workspace alone. */
  version: number;
  /** Machines that are in the market. */
  machines: number;
  /** Machines of them that are present, and whose amounts count. */
  offered: number;
}

/** Markets of containers on a machine; absent: they count in none. */
interface Seat {
  readonly gpu: MarketState | undefined;
  readonly cpu: MarketState | undefined;
  readonly gpus: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  /** Whether its CPU and memory are for work without a GPU, too. */
  readonly takesCpuWork: boolean;
  /** Whether the machine is gone, and containers are there still. */
  readonly isGone: boolean;
}

interface Place extends Standing {
  readonly market: MarketState;
  used: Use;
  tier: number;
  share: number;
  /** Version of the market by which the standing was counted. */
  version: number;
}

export class Tenant {
  readonly workspaceId: WorkspaceId;
  share: WorkspaceShare = DEFAULT_SHARE;
  /** Whether the share is what the operator gave. */
  isRead = false;
  /** By the index of the market. */
  readonly places: (Place | undefined)[] = [];

  constructor(workspaceId: WorkspaceId) {
    this.workspaceId = workspaceId;
  }
}

/** Amounts that a container asks of a market. */
export type AskedOfMarket = Amounts & { readonly gpu: readonly string[] };

export class Markets {
  readonly #byName = new Map<Market, MarketState>();
  readonly #free: number[] = [];
  readonly #tenants = new Map<WorkspaceId, Tenant>();
  /** Workspaces whose share is not read yet. */
  readonly #unread = new Set<WorkspaceId>();
  readonly #seats = new Map<MachineId, Seat>();
  readonly #guaranteed = new Map<Market, number>();
  #made = 0;
  /** Number that grows when a market comes or goes, or its capacity changes. */
  version = 0;
  /** Told when a workspace stands better or worse in a market than before; undefined: in all of them. */
  onStanding: (tenant: Tenant, market: MarketState | undefined, isBetter: boolean) => void = () => undefined;

  constructor() {
    this.#market(CPU_MARKET);
  }

  get all(): Iterable<MarketState> {
    return this.#byName.values();
  }

  get(name: Market): MarketState | undefined {
    return this.#byName.get(name);
  }

  get tenants(): Iterable<Tenant> {
    return this.#tenants.values();
  }

  tenant(workspaceId: WorkspaceId): Tenant {
    let tenant = this.#tenants.get(workspaceId);
    if (tenant === undefined) {
      this.#tenants.set(workspaceId, (tenant = new Tenant(workspaceId)));
      this.#unread.add(workspaceId);
    }
    return tenant;
  }

  /** Forgets a workspace that holds nothing. */
  forget(tenant: Tenant): void {
    if (tenant.places.some((place) => place !== undefined && place.used.containers > 0)) return;
    this.#guarantees(tenant.share, -1);
    this.#tenants.delete(tenant.workspaceId);
    this.#unread.delete(tenant.workspaceId);
  }

  /** Workspaces whose share is not read yet. @param most - most of them that are named */
  unread(most: number): ReadonlySet<WorkspaceId> {
    return new Set(this.#unread.values().take(most));
  }

  setShare(workspaceId: WorkspaceId, share: WorkspaceShare): void {
    const tenant = this.tenant(workspaceId);
    if (tenant.isRead && isSame(tenant.share, share)) return;
    this.#guarantees(tenant.share, -1);
    tenant.share = share;
    tenant.isRead = true;
    this.#unread.delete(workspaceId);
    this.#guarantees(share, 1);
    for (const place of tenant.places) if (place !== undefined) place.version = -1;
    this.onStanding(tenant, undefined, true);
  }

  /** The share of the workspace may be another one, and is read again. */
  shareChanged(workspaceId: WorkspaceId): void {
    const tenant = this.#tenants.get(workspaceId);
    if (tenant === undefined || !tenant.isRead) return;
    tenant.isRead = false;
    this.#unread.add(workspaceId);
    this.onStanding(tenant, undefined, true);
  }

  #guarantees({ guaranteed }: WorkspaceShare, sign: 1 | -1): void {
    for (const [name, amount] of Object.entries(guaranteed)) {
      const sum = (this.#guaranteed.get(name) ?? 0) + sign * amount;
      if (sum > 0) this.#guaranteed.set(name, sum);
      else this.#guaranteed.delete(name);
      const market = this.#byName.get(name);
      if (market === undefined) continue;
      market.guaranteed = Math.max(0, sum);
      this.#changed(market);
    }
  }

  #changed(market: MarketState): void {
    market.version += 1;
    this.version += 1;
  }

  // ---- machines -----------------------------------------------------------------------------------------------------

  /** Whether containers on the machine count elsewhere once it is put. */
  isOther(machine: PlacementMachine): boolean {
    const seat = this.#seats.get(machine.machineId);
    const isShared = machine.poolOwner === null;
    return seat === undefined
      ? isShared
      : (seat.cpu !== undefined) !== isShared || (isShared ? gpuMarketOf(machine) : undefined) !== seat.gpu?.name;
  }

  /** Counts what the machine offers to all, as long as it is present. */
  put(machine: MarketMachine): void {
    const { machineId, poolOwner, totalCpuMillicores, totalMemoryBytes, gpus, isPresent } = machine;
    const before = this.#seats.get(machineId);
    const name = poolOwner === null ? gpuMarketOf(machine) : undefined;
    const seat: Seat = {
      gpu: name === undefined ? undefined : this.#market(name),
      cpu: poolOwner === null ? this.#market(CPU_MARKET) : undefined,
      gpus: isPresent ? gpus.filter(({ healthy }) => healthy).length : 0,
      cpuMillicores: isPresent ? totalCpuMillicores : 0,
      memoryBytes: isPresent ? totalMemoryBytes : 0,
      takesCpuWork: gpus.length === 0 || machine.cpuWorkAllowed,
      isGone: false,
    };
    if (before !== undefined && isAlike(before, seat)) return;
    this.#seats.set(machineId, seat);
    this.#counted(seat, 1);
    if (before !== undefined) this.#counted(before, -1);
  }

  /** The machine is gone. @param isEmpty - whether no container is there; others count as before */
  drop(id: MachineId, isEmpty: boolean): void {
    const seat = this.#seats.get(id);
    if (seat === undefined || seat.isGone) return;
    if (isEmpty) this.#seats.delete(id);
    else {
      const rest = { ...seat, gpus: 0, cpuMillicores: 0, memoryBytes: 0, isGone: true };
      this.#seats.set(id, rest);
      this.#counted(rest, 1);
    }
    this.#counted(seat, -1);
  }

  /** No container is there any more. */
  left(id: MachineId): void {
    const seat = this.#seats.get(id);
    if (seat === undefined || !seat.isGone) return;
    this.#seats.delete(id);
    this.#counted(seat, -1);
  }

  #counted({ gpu, cpu, gpus, cpuMillicores, memoryBytes, takesCpuWork }: Seat, sign: 1 | -1): void {
    for (const market of [gpu, cpu]) {
      if (market === undefined) continue;
      market.machines += sign;
      const isOffered = market === gpu || takesCpuWork;
      market.offered += isOffered && cpuMillicores > 0 ? sign : 0;
      market.gpus += market === gpu ? sign * gpus : 0;
      market.cpuMillicores += isOffered ? sign * cpuMillicores : 0;
      market.memoryBytes += isOffered ? sign * memoryBytes : 0;
      this.#changed(market);
      if (market.machines > 0 || market.name === CPU_MARKET) continue;
      this.#byName.delete(market.name);
      this.#free.push(market.index);
    }
  }

  #market(name: Market): MarketState {
    let market = this.#byName.get(name);
    if (market === undefined) {
      const index = this.#free.pop() ?? (this.#made += 1) - 1;
      const guaranteed = this.#guaranteed.get(name) ?? 0;
      market = {
        name,
        index,
        gpus: 0,
        cpuMillicores: 0,
        memoryBytes: 0,
        guaranteed,
        version: 0,
        machines: 0,
        offered: 0,
      };
      this.#byName.set(name, market);
    }
    return market;
  }

  /** Market of a container on that machine; undefined: it counts in none. */
  on(machineId: MachineId | null, gpuCount: number): MarketState | undefined {
    const seat = machineId === null ? undefined : this.#seats.get(machineId);
    return gpuCount > 0 ? seat?.gpu : seat?.cpu;
  }

  /**
   * Market in which a container counts while it waits: that of the first model it wants of which there are machines.
   * Of several such models (`any`), the one with most devices counts.
   */
  of({ gpu, gpuCount }: AskedOfMarket): MarketState | undefined {
    if (gpuCount === 0) return this.#byName.get(CPU_MARKET);
    for (const { model } of gpuTerms(gpu)) {
      let first: MarketState | undefined;
      for (const market of this.#byName.values())
        if (market.gpus > 0 && modelMatches(market.name, [model]) && (first === undefined || isLarger(market, first)))
          first = market;
      if (first !== undefined) return first;
    }
    return undefined;
  }

  // ---- use ----------------------------------------------------------------------------------------------------------

  count(workspaceId: WorkspaceId, market: MarketState | undefined, amounts: Amounts, sign: 1 | -1): void {
    if (market === undefined) return;
    const tenant = this.tenant(workspaceId);
    const place = this.#place(tenant, market);
    place.used = plus(place.used, amounts, sign);
    place.version = -1;
    this.onStanding(tenant, market, sign < 0);
  }

  /** Forgets workspaces and machines. */
  clear(): void {
    this.#tenants.clear();
    this.#unread.clear();
    this.#guaranteed.clear();
    this.#seats.clear();
    this.#byName.clear();
    this.#free.length = 0;
    this.#made = 0;
    this.version += 1;
    this.#market(CPU_MARKET);
  }

  #place(tenant: Tenant, market: MarketState): Place {
    const place = tenant.places[market.index];
    // Another market had the number before.
    if (place?.market === market) return place;
    return (tenant.places[market.index] = { market, used: NO_USE, version: -1, ...ALONE });
  }

  /** Markets in which containers of the workspace hold something. */
  *usedBy({ places }: Tenant): Generator<MarketState> {
    for (const place of places)
      if (place !== undefined && place.used.containers > 0 && this.#byName.get(place.market.name) === place.market)
        yield place.market;
  }

  useOf(tenant: Tenant, market: MarketState): Use {
    const place = tenant.places[market.index];
    return place?.market === market ? place.used : NO_USE;
  }

  standing(tenant: Tenant, market: MarketState | undefined): Standing {
    if (!tenant.isRead) return UNREAD;
    if (market === undefined) return ALONE;
    const place = this.#place(tenant, market);
    if (place.version === market.version) return place;
    const { tier, share } = this.standingWith(tenant, market, place.used);
    place.tier = tier;
    place.share = share;
    place.version = market.version;
    return place;
  }

  /** How the workspace would stand if it held that much. */
  standingWith(tenant: Tenant, market: MarketState, used: Use): Standing {
    const part = dominantPart(used, market);
    const guaranteed = guaranteedPart(tenant, market);
    const tier = part < guaranteed ? GUARANTEED_TIER : SHARED_TIER;
    return { tier, share: Math.max(0, part - guaranteed) / Math.max(LEAST_WEIGHT, tenant.share.weight) };
  }

  /** Whether one more such container would pass the limit of the workspace in the market. */
  isFull(tenant: Tenant, market: MarketState | undefined, asked: Amounts): boolean {
    if (market === undefined) return false;
    const limit = tenant.share.limits[market.name];
    return limit !== undefined && amountIn(market.name, plus(this.useOf(tenant, market), asked)) > limit;
  }

  /** Amounts that the workspace may have yet where it has a limit, in the markets of a container that waits. */
  leftFor(tenant: Tenant, { gpu, gpuCount }: AskedOfMarket): MarketTurn['limits'] {
    const models = gpuTerms(gpu).map(({ model }) => model);
    const mayCount = (name: Market): boolean =>
      gpuCount === 0 ? name === CPU_MARKET : name !== CPU_MARKET && modelMatches(name, models);
    return Object.entries(tenant.share.limits).flatMap(([name, limit]) => {
      // A pool may make the first machine of a model.
      const market = this.#byName.get(name);
      return mayCount(name)
        ? [{ market: name, left: limit - (market === undefined ? 0 : amountIn(name, this.useOf(tenant, market))) }]
        : [];
    });
  }

  /** Names of the markets in which one more such container would pass a limit. */
  fullFor(tenant: Tenant, asked: Amounts): ReadonlySet<Market> {
    const names = Object.keys(tenant.share.limits);
    if (names.length === 0) return NONE;
    return new Set(
      names.filter(
        (name) =>
          (name === CPU_MARKET) === (asked.gpuCount === 0) && this.isFull(tenant, this.#byName.get(name), asked),
      ),
    );
  }
}

const NONE: ReadonlySet<Market> = new Set();

const isSame = (a: WorkspaceShare, b: WorkspaceShare): boolean => a === b || JSON.stringify(a) === JSON.stringify(b);

const isAlike = (a: Seat, b: Seat): boolean =>
  a.gpu === b.gpu &&
  a.cpu === b.cpu &&
  a.gpus === b.gpus &&
  a.cpuMillicores === b.cpuMillicores &&
  a.memoryBytes === b.memoryBytes &&
  a.takesCpuWork === b.takesCpuWork &&
  a.isGone === b.isGone;

const isLarger = (a: MarketState, b: MarketState): boolean => a.gpus > b.gpus || (a.gpus === b.gpus && a.name < b.name);

const partOf = (amount: number, all: number): number => (all > 0 ? amount / all : 0);

const dominantPart = (used: Use, market: MarketState): number =>
  Math.max(
    partOf(used.gpus, market.gpus),
    partOf(used.cpuMillicores, market.cpuMillicores),
    partOf(used.memoryBytes, market.memoryBytes),
  );

/** Part of the market that is guaranteed to the workspace. Guarantees beyond its capacity shrink in proportion. */
function guaranteedPart({ share }: Tenant, market: MarketState): number {
  const amount = share.guaranteed[market.name] ?? 0;
  return amount === 0 ? 0 : partOf(amount, Math.max(capacityOf(market), market.guaranteed));
}

const CORE = 1000;

/** Amounts as operators count them: GPUs, or cores in the market `cpu`. */
export const amountIn = (market: Market, { gpus, cpuMillicores }: Pick<Use, 'gpus' | 'cpuMillicores'>): number =>
  market === CPU_MARKET ? cpuMillicores / CORE : gpus;

export const capacityOf = (market: MarketState): number => amountIn(market.name, market);
