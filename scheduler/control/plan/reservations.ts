// Reservations: a machine is kept for a container that needs several GPUs, or half a machine, and has waited long.
// While requests for one GPU keep coming, each freed GPU is taken at once, so that eight are never free together.
// Others get only what the reservation leaves over. An own pool's machines are in no market, and are not reserved.
//
// Invariants: a reservation has a container that waits. A container, a class and a machine have one reservation at
// most, and a market has one for each ten of its machines, or one.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { gpuTerms } from '#shared/domain/gpu-terms.ts';
import { modelMatches } from '#shared/domain/gpus.ts';
import { isForeign } from '../../domain/pools.ts';
import { CPU_MARKET } from '../../domain/shares.ts';
import type { Candidates } from './candidates.ts';
import { besides, clearingFor, isMuchCheaper, withEnded } from './clearing.ts';
import type { Clearing, Held } from './clearing.ts';
import { ClearingSearch } from './clearing-search.ts';
import type { Found } from './clearing-search.ts';
import type { PlacementMachine, PlacementRequest, RejectionReason } from './filter.ts';
import { rejectionOf } from './filter.ts';
import type { FitClass, Item } from './fit-class.ts';
import type { Ledger } from './ledger.ts';
import type { MarketState, Tenant } from './markets.ts';
import { GUARANTEED_TIER } from './markets.ts';
import type { Rejections } from './place.ts';

export interface Reservation {
  readonly item: Item;
  readonly machineId: MachineId;
  readonly market: MarketState;
  /** Devices that are kept. */
  readonly gpuUuids: ReadonlySet<string>;
  /** Containers that were there when it was made: the reservation waits for their end, and for nobody else's. */
  readonly awaited: ReadonlySet<ContainerId>;
  readonly sinceMs: number;
  /** The machine with all that is free there; others see only what is left over. */
  machine: PlacementMachine;
  /** Whether the container may have room there since it was looked at last. */
  isStale: boolean;
  /** Containers that must end there, as they were for that state of the machine. */
  cleared?: { readonly machine: PlacementMachine; readonly ids: ReadonlySet<ContainerId> };
}

/** Rules of a look at reservations. */
export interface ReservationRules {
  /** Milliseconds that a container has waited at least. */
  readonly afterMs: number;
  /** Classes for which containers wait. */
  readonly classes: () => Iterable<FitClass>;
  /** The request of the container, with the limits of its workspace. */
  readonly requestOf: (item: Item) => PlacementRequest;
  readonly compare: (a: Item, b: Item) => number;
  /** Machines of which it is not known what they hold. */
  readonly doubtful: ReadonlySet<MachineId>;
}

/** Time between two looks at all that waits. */
const LOOK_MS = 1000;
/** Most containers for which one look searches all machines. */
const MOST_SEARCHES = 2;
/** Most machines that one look compares. In a large fleet a search goes on at the next look, so nothing is held up. */
const MACHINES_A_LOOK = 256;
/** Time until a search goes on. */
const GOES_ON_MS = 50;
const MOST_MOVE_PAUSE_MS = 60_000;
/** Time after which a container is searched for again that no machine could be kept for. */
const SEARCH_AGAIN_MS = 30_000;
const MACHINES_EACH = 10;

/** Most machines of a market that are reserved at once. */
export const mostReserved = ({ offered }: MarketState): number =>
  offered === 0 ? 0 : Math.max(1, Math.floor(offered / MACHINES_EACH));

export class Reservations {
  readonly #candidates: Candidates;
  readonly #ledger: Ledger;
  readonly #changed: (machine: PlacementMachine) => void;
  readonly #byMachine = new Map<MachineId, Reservation>();
  readonly #byContainer = new Map<ContainerId, Reservation>();
  /** Time of the last search for containers that no machine could be kept for. */
  readonly #inVain = new Map<FitClass, number>();
  /** Machines that were given up for others since the last look at all. */
  readonly #givenUp = new Set<MachineId>();
  #lookedAtMs = -Infinity;
  /** When all reservations were looked at last. */
  #checkedAtMs = -Infinity;
  /** The search that is under way, and the reservation that it moves to a cheaper machine. */
  #search: { readonly search: ClearingSearch; readonly from: Reservation | undefined } | undefined;
  #made: readonly Reservation[] = [];
  /** Machines that this look may compare still. */
  #left = 0;
  /** When a better machine is searched for again. */
  #moveAtMs = -Infinity;

  /** @param changed - told of a machine, with all that is free there, when others see another part than before */
  constructor(candidates: Candidates, ledger: Ledger, changed: (machine: PlacementMachine) => void) {
    this.#candidates = candidates;
    this.#ledger = ledger;
    this.#changed = changed;
  }

  get size(): number {
    return this.#byMachine.size;
  }

  all(): Iterable<Reservation> {
    return this.#byMachine.values();
  }

  /** Reservations that the last look made. */
  get made(): readonly Reservation[] {
    return this.#made;
  }

  on(id: MachineId): Reservation | undefined {
    return this.#byMachine.get(id);
  }

  of(id: ContainerId): Reservation | undefined {
    return this.#byContainer.get(id);
  }

  /** The part of the machine that containers may have for which it is not reserved. */
  seenByOthers(machine: PlacementMachine): PlacementMachine {
    const reservation = this.#byMachine.get(machine.machineId);
    if (reservation === undefined) return machine;
    reservation.machine = machine;
    reservation.isStale = true;
    const { gpuUuids, item } = reservation;
    const { cpuMillicores, memoryBytes } = item.fitClass;
    return besides(machine, { gpuUuids, cpuMillicores, memoryBytes }, this.#awaitedOf(reservation));
  }

  /** Whether a reservation of its machine waits for the end of the container. */
  isAwaited(id: ContainerId, machineId: MachineId): boolean {
    const reservation = this.#byMachine.get(machineId);
    if (reservation?.awaited.has(id) !== true) return false;
    const { machine } = reservation;
    // The scaling loop asks for each container of a queue, again and again.
    if (reservation.cleared?.machine !== machine)
      reservation.cleared = { machine, ids: new Set(this.clearingOf(reservation).must.map((one) => one.id)) };
    return reservation.cleared.ids.has(id);
  }

  /** Counts `reserved` where a machine has room for the class, and is kept for a container of another class. */
  rejectionsFor(fitClass: FitClass, request: PlacementRequest, rejections: Rejections): Rejections {
    const counted: Partial<Record<RejectionReason, number>> = { ...rejections };
    const count = (reason: RejectionReason | undefined, by: 1 | -1): void => {
      if (reason === undefined) return;
      const sum = (counted[reason] ?? 0) + by;
      if (sum > 0) counted[reason] = sum;
      else delete counted[reason];
    };
    for (const { machineId, machine, item } of this.#byMachine.values()) {
      const seen = this.#candidates.get(machineId);
      if (seen === undefined || isForeign(machine, request)) continue;
      const isOthers = item.fitClass !== fitClass && rejectionOf(machine, request) === undefined;
      const reason = rejectionOf(seen, request);
      count(reason, -1);
      count(isOthers && reason !== undefined ? 'reserved' : isOthers ? undefined : rejectionOf(machine, request), 1);
    }
    return counted;
  }

  /** Containers that must end before the container of the reservation has room there. */
  clearingOf(reservation: Reservation): Clearing {
    const { machine, item, gpuUuids } = reservation;
    return clearingFor(machine, item.fitClass, this.#awaitedOf(reservation), [...gpuUuids]);
  }

  #awaitedOf({ machineId, awaited }: Reservation): readonly Held[] {
    return this.#ledger.on(machineId).filter(({ id }) => awaited.has(id));
  }

  /** All of them may have room, by facts that are read again. */
  forgetFacts(): void {
    for (const reservation of this.#byMachine.values()) reservation.isStale = true;
  }

  /** The container waits no more. */
  left(id: ContainerId): void {
    const reservation = this.#byContainer.get(id);
    if (reservation !== undefined) this.#end(reservation);
  }

  /** The machine is gone. */
  gone(id: MachineId): void {
    const reservation = this.#byMachine.get(id);
    if (reservation !== undefined) this.#forget(reservation);
  }

  /** Forgets all that it knows. */
  clear(): void {
    this.#byMachine.clear();
    this.#byContainer.clear();
    this.#inVain.clear();
    this.#givenUp.clear();
    this.#lookedAtMs = -Infinity;
    this.#checkedAtMs = -Infinity;
    this.#search = undefined;
    this.#moveAtMs = -Infinity;
  }

  #end(reservation: Reservation): void {
    this.#forget(reservation);
    this.#changed(reservation.machine);
  }

  #forget({ machineId, item }: Reservation): void {
    this.#byMachine.delete(machineId);
    this.#byContainer.delete(item.wanted.id);
    // The machine may be what others wait for.
    this.#inVain.clear();
    this.#lookedAtMs = -Infinity;
  }

  /**
   * Ends reservations that are in vain, makes new ones, and moves one.
   * @param rules - undefined: there may be none
   * @returns when to look again though nothing changes; undefined: there is no need
   */
  look(nowMs: number, rules: ReservationRules | undefined): number | undefined {
    this.#made = [];
    if (rules === undefined) {
      this.#search = undefined;
      for (const one of [...this.#byMachine.values()]) this.#end(one);
      return undefined;
    }
    for (const one of this.#beyondBounds()) this.#end(one);
    const isDue = Math.abs(nowMs - this.#lookedAtMs) >= LOOK_MS;
    // A search may take longer, and what is reserved must not wait for it.
    const looksAtAll = Math.abs(nowMs - this.#checkedAtMs) >= LOOK_MS;
    if (looksAtAll) this.#checkedAtMs = nowMs;
    for (const one of [...this.#byMachine.values()])
      if ((looksAtAll || one.isStale) && !this.#mayStay(one, rules)) this.#end(one);
    this.#left = MACHINES_A_LOOK;
    if (looksAtAll) this.#giveWay(rules);
    if (!this.#goOn(nowMs, rules)) return nowMs + GOES_ON_MS;
    if (!isDue) return Math.max(nowMs, this.#lookedAtMs + LOOK_MS);
    this.#lookedAtMs = nowMs;
    const againAtMs = this.#make(nowMs, rules);
    if (this.#search === undefined) this.#move(nowMs, rules);
    if (this.#search !== undefined) return nowMs + GOES_ON_MS;
    return this.size > 0 ? nowMs + LOOK_MS : againAtMs;
  }

  /** The youngest reservations of markets that have fewer machines than before. */
  #beyondBounds(): readonly Reservation[] {
    return [...Map.groupBy(this.#byMachine.values(), ({ market }) => market)].flatMap(([market, some]) =>
      some.toSorted((a, b) => a.sinceMs - b.sinceMs).slice(mostReserved(market)),
    );
  }

  /** Whether the machine will have room for the container once those have ended who were there before. */
  #mayStay(reservation: Reservation, { requestOf }: ReservationRules): boolean {
    const { machine, machineId, market, item, gpuUuids } = reservation;
    const { gpuCount } = item.wanted;
    if (!machine.isPresent || this.#ledger.markets.on(machineId, gpuCount) !== market) return false;
    const cleared = withEnded(machine, this.#awaitedOf(reservation), (uuid) => gpuUuids.has(uuid));
    // A machine that is silent for a moment stays.
    return rejectionOf({ ...cleared, ready: true }, requestOf(item)) === undefined;
  }

  /** Gives up a machine that has room for a workspace with less than is guaranteed to it, and is kept for another. */
  #giveWay({ classes, requestOf, doubtful }: ReservationRules): void {
    this.#givenUp.clear();
    const isGuaranteed = (tenant: Tenant, market: MarketState): boolean =>
      this.#ledger.markets.standing(tenant, market).tier <= GUARANTEED_TIER;
    const kept = [...this.#byMachine.values()].filter(
      ({ item, machineId, market }) => !doubtful.has(machineId) && !isGuaranteed(item.fitClass.tenant, market),
    );
    const markets = new Set(kept.map(({ market }) => market));
    if (markets.size === 0) return;
    for (const { head, isBlocked, tenant } of classes()) {
      if (head === undefined || !isBlocked || !tenant.isRead) continue;
      const its = new Set(markets.values().filter((market) => isGuaranteed(tenant, market)));
      const request = its.size === 0 ? undefined : requestOf(head);
      if (request === undefined) continue;
      const one = kept.find(({ machine, machineId, market }) => {
        if (!its.has(market) || this.#givenUp.has(machineId) || this.#left <= 0) return false;
        this.#left -= 1;
        return rejectionOf(machine, request) === undefined;
      });
      if (one === undefined) continue;
      this.#givenUp.add(one.machineId);
      this.#end(one);
    }
  }

  // ---- new ones -----------------------------------------------------------------------------------------------------

  /** @returns when the next container has waited long enough, or is searched for again */
  #make(nowMs: number, rules: ReservationRules): number | undefined {
    for (const [fitClass, atMs] of this.#inVain)
      if (fitClass.size === 0 || Math.abs(nowMs - atMs) >= SEARCH_AGAIN_MS) this.#inVain.delete(fitClass);
    const reserved = new Set([...this.#byMachine.values()].map(({ item }) => item.fitClass));
    const late: Item[] = [];
    let againAtMs = Infinity;
    for (const fitClass of rules.classes()) {
      const { head } = fitClass;
      if (head === undefined || reserved.has(fitClass) || !this.isLarge(fitClass)) continue;
      const atMs = Math.max(
        head.wanted.createdAtMs + rules.afterMs,
        (this.#inVain.get(fitClass) ?? -Infinity) + SEARCH_AGAIN_MS,
      );
      if (atMs > nowMs) againAtMs = Math.min(againAtMs, atMs);
      // A workspace whose share is not read yet is read in this round.
      else if (!fitClass.tenant.isRead) againAtMs = Math.min(againAtMs, nowMs + LOOK_MS);
      else late.push(head);
    }
    let searches = 0;
    for (const item of late.toSorted(rules.compare)) {
      const open = this.#openMarkets(item.fitClass);
      if (open.size === 0) continue;
      if (rules.requestOf(item).overQuota) continue;
      againAtMs = Math.min(againAtMs, nowMs + LOOK_MS);
      if (searches >= MOST_SEARCHES) break;
      searches += 1;
      this.#begin(item, open, undefined);
      if (!this.#goOn(nowMs, rules)) break;
    }
    return againAtMs === Infinity ? undefined : againAtMs;
  }

  /** Whether containers of the class need several GPUs, or half of an average machine of their market. */
  isLarge(fitClass: FitClass): boolean {
    const { gpuCount, cpuMillicores, memoryBytes } = fitClass;
    if (gpuCount >= 2) return true;
    const { market } = fitClass;
    if (market === undefined || market.offered === 0) return false;
    return (
      2 * cpuMillicores * market.offered >= market.cpuMillicores ||
      2 * memoryBytes * market.offered >= market.memoryBytes
    );
  }

  /** Markets that may have machines for the class, and where one more may be reserved. */
  #openMarkets({ gpu, gpuCount }: FitClass): ReadonlySet<MarketState> {
    const open = new Set<MarketState>();
    for (const market of this.#ledger.markets.all) {
      const isWanted =
        gpuCount === 0
          ? market.name === CPU_MARKET
          : market.gpus > 0 && gpuTerms(gpu).some(({ model }) => modelMatches(market.name, [model]));
      if (isWanted && this.#countIn(market) < mostReserved(market)) open.add(market);
    }
    return open;
  }

  #countIn(market: MarketState): number {
    let count = 0;
    for (const one of this.#byMachine.values()) if (one.market === market) count += 1;
    return count;
  }

  // ---- searches -----------------------------------------------------------------------------------------------------

  /** @param from - the reservation that moves to a cheaper machine; undefined: the container has none */
  #begin(item: Item, open: ReadonlySet<MarketState>, from: Reservation | undefined): ClearingSearch {
    const search = new ClearingSearch({ candidates: this.#candidates, ledger: this.#ledger, item, open });
    this.#search = { search, from };
    return search;
  }

  /** Compares further machines for the container that is searched for. @returns whether nothing is searched for now */
  #goOn(nowMs: number, rules: ReservationRules): boolean {
    if (this.#search === undefined) return true;
    const { search, from } = this.#search;
    if (this.#isWanted(search.item, from)) {
      const request = rules.requestOf(search.item);
      const isTaken = (id: MachineId): boolean =>
        this.#byMachine.has(id) || this.#givenUp.has(id) || rules.doubtful.has(id);
      this.#left -= search.compare(this.#left, request, isTaken);
      if (!search.isOver) return false;
      if (!search.hasFound && from === undefined) this.#inVain.set(search.item.fitClass, nowMs);
      const found = search.best(request, isTaken);
      if (found !== undefined) this.#conclude(search.item, found, from, { nowMs, isOver: request.overQuota });
    }
    this.#search = undefined;
    return true;
  }

  #isWanted(item: Item, from: Reservation | undefined): boolean {
    if (item.at < 0) return false;
    if (from !== undefined) return this.#byMachine.get(from.machineId) === from;
    for (const one of this.#byMachine.values()) if (one.item.fitClass === item.fitClass) return false;
    return true;
  }

  /** Reserves the machine, if the workspace and the market may have one more, or a reservation is much better there. */
  #conclude(
    item: Item,
    found: Found,
    from: Reservation | undefined,
    { nowMs, isOver }: { readonly nowMs: number; readonly isOver: boolean },
  ): void {
    if (from === undefined) {
      if (!isOver && this.#countIn(found.market) < mostReserved(found.market)) this.#put(item, found, nowMs);
    } else if (isMuchCheaper(found.clearing, this.clearingOf(from), nowMs)) {
      this.#end(from);
      this.#lookedAtMs = nowMs;
      this.#put(item, found, nowMs);
    }
  }

  #put(item: Item, { machine, market, clearing, there }: Found, nowMs: number): void {
    const { machineId } = machine;
    const reservation: Reservation = {
      item,
      machineId,
      market,
      gpuUuids: new Set(clearing.gpuUuids),
      awaited: new Set(there.map(({ id }) => id)),
      sinceMs: nowMs,
      machine,
      isStale: true,
    };
    this.#byMachine.set(machineId, reservation);
    this.#byContainer.set(item.wanted.id, reservation);
    this.#made = [...this.#made, reservation];
    this.#changed(machine);
  }

  /**
   * Searches for a machine that is much cheaper to clear, for one reservation after the other. The more machines there
   * are, the more seldom, because each search compares them all.
   */
  #move(nowMs: number, rules: ReservationRules): void {
    if (nowMs < this.#moveAtMs && this.#moveAtMs - nowMs <= MOST_MOVE_PAUSE_MS) return;
    const all = [...this.#byMachine.values()].filter(({ sinceMs }) => sinceMs !== nowMs);
    const one = all[Math.floor(nowMs / LOOK_MS) % Math.max(1, all.length)];
    if (one === undefined) return;
    const now = this.clearingOf(one);
    if (now.unbounded === 0 && now.endsAtMs <= nowMs) return;
    const { size } = this.#begin(one.item, new Set([one.market]), one);
    const looks = Math.ceil(size / MACHINES_A_LOOK);
    this.#moveAtMs = nowMs + Math.min(MOST_MOVE_PAUSE_MS, looks * LOOK_MS);
    this.#goOn(nowMs, rules);
  }
}
