// Reclaim: which containers end for one that waits. A workspace that asks for what is guaranteed to it, or for less
// than its fair share, claims a machine from workspaces that hold more than theirs. Containers that warmth alone keeps
// end first, then interruptible ones. A reserved machine is cleared, too, once nothing else is left there that ends at
// no known time. Who was told to end for a claim that is over stays, unless another claim needs it.
//
// Invariants: a victim is a candidate, and of another workspace. Without it, its workspace still holds what is
// guaranteed to it, and has no smaller share than the one that claims gets. So nothing is claimed back and forth. At
// most a quarter of a queue's interruptible containers leave at a time, or one, and ten of a workspace are told in a
// minute.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Market } from '../../domain/shares.ts';
import type { Candidates } from './candidates.ts';
import { withEnded } from './clearing.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { rejectionOf } from './filter.ts';
import type { FitClass, Item } from './fit-class.ts';
import type { Holding, Ledger, Use } from './ledger.ts';
import { plus } from './ledger.ts';
import type { MarketState, Tenant } from './markets.ts';
import { amountIn, SHARED_TIER } from './markets.ts';
import type { Reservation, Reservations } from './reservations.ts';

/** A container that may be told to end: ready, without a synchronous call, and interruptible or only kept warm. */
export interface PossibleVictim {
  readonly id: ContainerId;
  /** Since when it is ready. */
  readonly sinceMs: number;
  /** Whether it is idle and surplus, so that warmth alone keeps it. Absent: no. */
  readonly isWarm?: boolean;
}

/** Facts beside the plan by which containers are chosen that end. */
export interface ReclaimFacts {
  readonly nowMs: number;
  readonly candidates: readonly PossibleVictim[];
  /** Containers that wait, and for which a pool makes a machine. */
  readonly growing: readonly ContainerId[];
}

/** Why a container ends: for a guarantee, for a fair share, or on a reserved machine. */
export type PreemptionReason = 'guarantee' | 'fair_share' | 'reservation';

export interface Preemption {
  readonly id: ContainerId;
  /** The container for which it ends, or one like it of the same workspace. */
  readonly claimant: ContainerId;
  readonly reason: PreemptionReason;
  /** Whether warmth alone kept it: the scaling loop lets it go. Absent: no. */
  readonly isWarm?: true;
}

export interface Reclaimed {
  /** Containers that end from now on. */
  readonly told: readonly Preemption[];
  /** Containers that were told before, and stay: nobody needs their end any more. */
  readonly spared: readonly ContainerId[];
  /** Who ends for the claims of this look, in the order of choice: `told`, and those that leave already. */
  readonly chosen: readonly Preemption[];
}

export interface ReclaimRules extends ReclaimFacts {
  /** Milliseconds that a container has waited at least whose workspace has less than is guaranteed to it. */
  readonly afterMs: number;
  /** Milliseconds that a container has run at least before it ends for another reason than a guarantee. */
  readonly minRunMs: number;
  readonly classes: Iterable<FitClass>;
  /** The request of the container, with the limits of its workspace. */
  readonly requestOf: (item: Item) => PlacementRequest;
  readonly compare: (a: Item, b: Item) => number;
  readonly doubtful: ReadonlySet<MachineId>;
  /** Amount of the market that would be fair for the workspace. */
  readonly fairShareOf: (workspaceId: WorkspaceId, market: Market) => number;
}

/** A candidate with what it holds. */
interface Victim {
  readonly id: ContainerId;
  readonly sinceMs: number;
  readonly holding: Holding;
  readonly tenant: Tenant;
  readonly isWarm: boolean;
  /** Present: it leaves already, for a claim that is over. */
  readonly freed?: Leaving;
}

/** Containers that leave for one of a class. */
interface Claim {
  readonly fitClass: FitClass;
  readonly market: MarketState;
  readonly victims: readonly ContainerId[];
  readonly atMs: number;
  /** The machine that is cleared for a reservation. */
  readonly reservation?: Reservation;
}

/** Containers that hold the same and end soon by themselves. */
interface Coming {
  readonly holding: Holding;
  count: number;
}

interface Leaving {
  readonly sinceMs: number;
  readonly holding: Holding;
  readonly atMs: number;
  readonly isWarm: boolean;
}

/** The part of a look that is the same for all victims of one claimant. */
interface Asked {
  readonly item: Item;
  readonly market: MarketState;
  readonly request: PlacementRequest;
  readonly reason: PreemptionReason;
  /** Share of its workspace once it has its place. */
  readonly share: number;
  readonly rules: ReclaimRules;
}

/** Wait of a container whose workspace has less than its fair share. */
const FAIR_SHARE_AFTER_MS = 60_000;
/** Time after which a claim lapses whose victims have not ended: a task may be shielded, or an agent silent. */
const LAPSES_MS = 180_000;
/** Time within which an order to leave is written. */
const WRITTEN_WITHIN_MS = 10_000;
/**
 * Containers that end within this time count as room that comes: those that stop, and those that had their notice from
 * an earlier leader.
 */
const ENDS_SOON_MS = 240_000;
/** Most claims of a workspace, so that nobody's claims keep those of others waiting. */
const MOST_OF_TENANT = 16;
const MOST_CLAIMS = 256;
/** Most machines and markets that one look compares with containers that wait, so that it blocks nobody. */
const MOST_COMPARED = 512;
const AT_ONCE = 0.25;
const A_MINUTE = { ms: 60_000, most: 10 } as const;
/** Amounts of a market that count as the same. */
const SAME = 1e-9;
const NOTHING: Reclaimed = { told: [], spared: [], chosen: [] };

export class Reclaim {
  readonly #candidates: Candidates;
  readonly #ledger: Ledger;
  readonly #reservations: Reservations;
  #claims: Claim[] = [];
  readonly #leaving = new Map<ContainerId, Leaving>();
  /** Containers that leave at the beginning of this look for claims that are over. */
  #freed: ReadonlyMap<ContainerId, Leaving> = new Map();
  /** Times at which containers of a workspace were told, in the last minute. */
  readonly #told = new Map<WorkspaceId, number[]>();
  /** Machines and markets that this look may compare still. */
  #left = 0;
  /** Class with which the next look begins, because this one had compared enough. */
  #goesOnWith: FitClass | undefined;

  constructor(candidates: Candidates, ledger: Ledger, reservations: Reservations) {
    this.#candidates = candidates;
    this.#ledger = ledger;
    this.#reservations = reservations;
  }

  /** Forgets all claims. How many of a workspace were told in the last minute stays, so that no more than that are. */
  clear(): void {
    this.#claims = [];
    this.#leaving.clear();
    this.#freed = new Map();
    this.#goesOnWith = undefined;
  }

  /** Forgets that, too, because a recording begins with a planner that knows nothing. */
  clearAll(): void {
    this.clear();
    this.#told.clear();
  }

  /** Number of containers that were told to end, and are there still. */
  get size(): number {
    return this.#leaving.size;
  }

  /** Number of containers that end for some of the class. */
  countFor(fitClass: FitClass): number {
    let count = 0;
    for (const claim of this.#claims)
      if (claim.fitClass === fitClass) count += claim.victims.filter((id) => this.#leaving.has(id)).length;
    return count;
  }

  /** Whether the container is to end, and the scaling loop lets it go. */
  isAwaited(id: ContainerId): boolean {
    return this.#leaving.get(id)?.isWarm === true;
  }

  /** Chooses containers that end now, and those that stay after all. @param rules - undefined: none may end */
  look(rules: ReclaimRules | undefined): Reclaimed {
    if (rules === undefined) {
      this.clear();
      return NOTHING;
    }
    const freed = (this.#freed = this.#settle(rules));
    const victims = this.#victims(rules);
    if (victims.size === 0) return { ...NOTHING, spared: [...freed.keys()] };
    const chosen: Preemption[] = [];
    for (const one of this.#reservations.all()) chosen.push(...this.#clearFor(one, victims, rules));
    chosen.push(...this.#claimAll(this.#coming(rules.nowMs), victims, rules));
    return {
      told: chosen.filter(({ id }) => !freed.has(id)),
      spared: [...freed.keys()].filter((id) => !this.#leaving.has(id)),
      chosen,
    };
  }

  #claimAll(
    coming: ReadonlyMap<MarketState, readonly Coming[]>,
    victims: ReadonlyMap<MachineId, readonly Victim[]>,
    rules: ReclaimRules,
  ): Preemption[] {
    const found: Preemption[] = [];
    const claimants = this.#claimants(rules);
    const first = Math.max(
      0,
      claimants.findIndex(({ fitClass }) => fitClass === this.#goesOnWith),
    );
    this.#left = MOST_COMPARED;
    this.#goesOnWith = undefined;
    for (const item of [...claimants.slice(first), ...claimants.slice(0, first)]) {
      const { fitClass } = item;
      if (this.#left <= 0) {
        this.#goesOnWith ??= fitClass;
        break;
      }
      const hadAll = this.#left === MOST_COMPARED;
      const its = this.#claims.filter((one) => one.fitClass.tenant === fitClass.tenant);
      const claimed = its.filter((one) => one.fitClass === fitClass).length;
      const wanting = fitClass.size - claimed - takeRoom(coming, fitClass, fitClass.size - claimed);
      const most = Math.min(wanting, MOST_OF_TENANT - its.length, MOST_CLAIMS - this.#claims.length);
      for (let count = 0; count < most; count += 1) {
        const some = this.#claimFor(item, victims, rules);
        if (some.length === 0) {
          if (this.#left <= 0 && !hadAll) this.#goesOnWith = fitClass;
          break;
        }
        found.push(...some);
      }
    }
    return found;
  }

  /**
   * Ends claims that are over: their victims are gone, or fewer containers wait.
   * @returns containers that leave for no claim any more
   */
  #settle({ nowMs, candidates }: ReclaimFacts): ReadonlyMap<ContainerId, Leaving> {
    for (const [id, { holding, isWarm }] of this.#leaving) {
      const now = this.#ledger.get(id);
      // Who was only kept warm may have got work before the scaling loop let it go.
      const isBusy = isWarm && now?.endsAtMs === undefined && !this.#ledger.spare.has(id);
      if (now?.machineId !== holding.machineId || isBusy) this.#leaving.delete(id);
    }
    // A container that is ready still was not told, because the order was not written.
    for (const { id } of candidates)
      if (nowMs - (this.#leaving.get(id)?.atMs ?? nowMs) >= WRITTEN_WITHIN_MS) this.#leaving.delete(id);
    const counts = new Map<FitClass, number>();
    const freed = new Map<ContainerId, Leaving>();
    this.#claims = this.#claims.filter(({ fitClass, victims, atMs, reservation }) => {
      const count = (counts.get(fitClass) ?? 0) + 1;
      const left = victims.flatMap((id) => {
        const leaving = this.#leaving.get(id);
        return leaving === undefined ? [] : [[id, leaving] as const];
      });
      if (left.length === 0) return false;
      const isOver =
        count > fitClass.size ||
        (reservation !== undefined && this.#reservations.on(reservation.machineId) !== reservation);
      if (isOver) for (const [id, leaving] of left) freed.set(id, leaving);
      // A task that runs to its end may take longer, and its container ends then.
      const endsAtMs = Math.max(...left.map(([id]) => this.#ledger.get(id)?.endsAtMs ?? 0));
      if (isOver || nowMs >= Math.max(atMs + LAPSES_MS, endsAtMs)) return false;
      counts.set(fitClass, count);
      return true;
    });
    for (const id of freed.keys()) this.#leaving.delete(id);
    for (const [id, times] of this.#told) {
      const recent = times.filter((atMs) => nowMs - atMs < A_MINUTE.ms);
      if (recent.length > 0) this.#told.set(id, recent);
      else this.#told.delete(id);
    }
    return freed;
  }

  /**
   * Candidates by machine: those that leave already, those that are only kept warm, then those whose workspaces hold
   * most, then the youngest.
   */
  #victims({ candidates, doubtful }: ReclaimRules): ReadonlyMap<MachineId, readonly Victim[]> {
    const { markets } = this.#ledger;
    const freed = this.#freed;
    const found: (Victim & { readonly machineId: MachineId; readonly share: number })[] = [];
    const add = (
      { id, sinceMs, isWarm = false }: PossibleVictim,
      holding: Holding | undefined,
      leaving?: Leaving,
    ): void => {
      if (holding === undefined || holding.machineId === null || doubtful.has(holding.machineId)) return;
      const { machineId, workspaceId, gpuCount } = holding;
      const tenant = markets.tenant(workspaceId);
      const { share } = markets.standing(tenant, markets.on(machineId, gpuCount));
      found.push({ id, sinceMs, isWarm, holding, tenant, machineId, share, ...(leaving && { freed: leaving }) });
    };
    for (const one of candidates) {
      const holding = this.#ledger.get(one.id);
      if (holding?.endsAtMs !== undefined || this.#leaving.has(one.id) || freed.has(one.id)) continue;
      const told = (holding && this.#told.get(holding.workspaceId)?.length) ?? 0;
      if (one.isWarm === true || told < A_MINUTE.most) add(one, holding);
    }
    for (const [id, leaving] of freed)
      add({ id, sinceMs: leaving.sinceMs, isWarm: leaving.isWarm }, this.#ledger.get(id), leaving);
    const last = (one: Victim): number => (one.freed !== undefined ? 0 : one.isWarm ? 1 : 2);
    found.sort((a, b) => last(a) - last(b) || b.share - a.share || b.sinceMs - a.sinceMs || (a.id < b.id ? -1 : 1));
    return Map.groupBy(found, ({ machineId }) => machineId);
  }

  /** Containers of machines in service that end soon by themselves, by market and by what they hold. */
  #coming(nowMs: number): ReadonlyMap<MarketState, readonly Coming[]> {
    const coming = new Map<MarketState, Map<string, Coming>>();
    for (const id of this.#ledger.ending()) {
      const holding = this.#ledger.get(id);
      if (holding === undefined || holding.machineId === null || this.#leaving.has(id)) continue;
      if (this.#freed.has(id)) continue;
      const leftMs = (holding.endsAtMs ?? Infinity) - nowMs;
      const machine = this.#candidates.get(holding.machineId);
      const market = this.#ledger.markets.on(holding.machineId, holding.gpuCount);
      if (leftMs < 0 || leftMs > ENDS_SOON_MS || market === undefined) continue;
      if (machine?.ready !== true || !machine.intentActive) continue;
      const there = coming.get(market) ?? new Map<string, Coming>();
      coming.set(market, there);
      const key = `${holding.gpuCount} ${holding.cpuMillicores} ${holding.memoryBytes}`;
      const alike = there.get(key);
      if (alike === undefined) there.set(key, { holding, count: 1 });
      else alike.count += 1;
    }
    return new Map([...coming].map(([market, there]) => [market, [...there.values()]]));
  }

  // ---- who claims ---------------------------------------------------------------------------------------------------

  /** The oldest containers of classes that fit nowhere, in the order in which they would get a machine. */
  #claimants({ nowMs, afterMs, growing, classes, compare }: ReclaimRules): readonly Item[] {
    const grown = new Set(growing);
    const late: Item[] = [];
    for (const fitClass of classes) {
      const { head, isBlocked, tenant } = fitClass;
      if (head === undefined || !isBlocked || !tenant.isRead || grown.has(head.wanted.id)) continue;
      // A reservation serves who needs much: what it needs becomes free bit by bit.
      if (nowMs - head.wanted.createdAtMs >= afterMs && !this.#reservations.isLarge(fitClass)) late.push(head);
    }
    return late.sort(compare);
  }

  /** Use of the workspace in the market, without containers that leave. */
  #useOf(tenant: Tenant, market: MarketState): Use {
    const { markets } = this.#ledger;
    let use = markets.useOf(tenant, market);
    for (const { holding } of this.#leaving.values())
      if (holding.workspaceId === tenant.workspaceId && markets.on(holding.machineId, holding.gpuCount) === market)
        use = plus(use, holding, -1);
    return use;
  }

  /** The same with the container, and with all others that are claimed for the workspace. */
  #useWith(fitClass: FitClass, market: MarketState): Use {
    const { tenant } = fitClass;
    let use = plus(this.#useOf(tenant, market), fitClass);
    for (const claim of this.#claims)
      if (claim.fitClass.tenant === tenant && claim.market === market) use = plus(use, claim.fitClass);
    return use;
  }

  /** Why the container may claim; undefined: it may not. */
  #reasonOf({ wanted, fitClass }: Item, market: MarketState, share: number, rules: ReclaimRules) {
    // With it, the workspace still has no more than is guaranteed to it.
    if (share === 0) return 'guarantee' as const;
    if (rules.nowMs - wanted.createdAtMs < Math.max(FAIR_SHARE_AFTER_MS, rules.afterMs)) return undefined;
    const amount = amountIn(market.name, this.#useWith(fitClass, market));
    return amount <= rules.fairShareOf(fitClass.workspaceId, market.name) + SAME ? ('fair_share' as const) : undefined;
  }

  #claimFor(item: Item, victims: ReadonlyMap<MachineId, readonly Victim[]>, rules: ReclaimRules): Preemption[] {
    const request = rules.requestOf(item);
    if (request.overQuota) return [];
    let best: { readonly set: readonly Victim[]; readonly asked: Asked } | undefined;
    const byMarket = new Map<MarketState, Asked | undefined>();
    const askedIn = (market: MarketState): Asked | undefined => {
      if (byMarket.has(market)) return byMarket.get(market);
      this.#left -= 1;
      const asked = this.#asked(item, market, request, rules);
      byMarket.set(market, asked);
      return asked;
    };
    for (const [machineId, there] of victims) {
      if (this.#left <= 0) break;
      const machine = this.#candidates.get(machineId);
      const market = this.#ledger.markets.on(machineId, item.fitClass.gpuCount);
      // A reserved machine is kept for another container.
      if (machine === undefined || market === undefined || this.#reservations.on(machineId) !== undefined) continue;
      const asked = askedIn(market);
      if (asked === undefined) continue;
      this.#left -= 1;
      const set = this.#setOn(machine, there, asked);
      if (set === undefined) continue;
      if (best === undefined || compareSets(set, best.set) < 0) best = { set, asked };
    }
    return best === undefined ? [] : this.#tell(best.set, best.asked);
  }

  #asked(item: Item, market: MarketState, request: PlacementRequest, rules: ReclaimRules): Asked | undefined {
    const { fitClass } = item;
    const { share } = this.#ledger.markets.standingWith(fitClass.tenant, market, this.#useWith(fitClass, market));
    const reason = this.#reasonOf(item, market, share, rules);
    return reason && { item, market, request, reason, share, rules };
  }

  // ---- whom ---------------------------------------------------------------------------------------------------------

  /** The containers that end on the machine, none of them needlessly; undefined: it has no room all the same. */
  #setOn(machine: PlacementMachine, all: readonly Victim[], asked: Asked): readonly Victim[] | undefined {
    // Beside others, none may end that may not end alone. Mostly nobody may, so this is asked first.
    const there = all.filter((one) => this.#mayEnd(one, [], asked));
    if (there.length === 0 || rejectionOf(ended(machine, there), asked.request) !== undefined) return undefined;
    let set: Victim[] = [];
    for (const one of there) {
      if (!this.#mayEnd(one, set, asked)) continue;
      set.push(one);
      if (rejectionOf(ended(machine, set), asked.request) !== undefined) continue;
      for (const other of [...set]) {
        const rest = set.filter((victim) => victim !== other);
        if (rest.length > 0 && rejectionOf(ended(machine, rest), asked.request) === undefined) set = rest;
      }
      return set;
    }
    return undefined;
  }

  /** Whether the container may end for the claimant, beside others that are chosen. */
  #mayEnd(
    { id, holding, tenant, sinceMs, isWarm, freed }: Victim,
    chosen: readonly Victim[],
    { item, market, reason, share, rules }: Asked,
  ): boolean {
    const { markets } = this.#ledger;
    const { workspaceId, machineId, gpuCount, queue } = holding;
    if (this.#leaving.has(id) || tenant === item.fitClass.tenant) return false;
    if (markets.on(machineId, gpuCount) !== market) return false;
    if (!isWarm && freed === undefined) {
      // With the container, a workspace whose share is 0 has no more than is guaranteed to it.
      if (share > 0 && rules.nowMs - sinceMs < rules.minRunMs) return false;
      const told = this.#told.get(workspaceId)?.length ?? 0;
      const interrupted = chosen.filter(isInterrupted);
      if (told + interrupted.filter((one) => one.tenant === tenant).length >= A_MINUTE.most) return false;
      const ofQueue = interrupted.filter((one) => one.holding.queue === queue).length;
      if (this.#leavingOf(queue) + ofQueue >= this.#atOnceOf(queue)) return false;
    }
    let use = this.#useOf(tenant, market);
    for (const one of chosen) if (one.tenant === tenant) use = plus(use, one.holding, -1);
    if (reason !== 'reservation' && amountIn(market.name, use) <= rules.fairShareOf(workspaceId, market.name) + SAME)
      return false;
    const after = this.#ledger.markets.standingWith(tenant, market, plus(use, holding, -1));
    return after.tier === SHARED_TIER && after.share >= share;
  }

  #leavingOf(queue: QueueName): number {
    let count = 0;
    for (const { holding, isWarm } of this.#leaving.values()) if (!isWarm && holding.queue === queue) count += 1;
    for (const [id, { holding, isWarm }] of this.#freed)
      if (!isWarm && holding.queue === queue && !this.#leaving.has(id)) count += 1;
    return count;
  }

  #atOnceOf(queue: QueueName): number {
    let count = 0;
    for (const some of this.#ledger.siblingsOf(queue).values()) count += some;
    return Math.max(1, Math.floor(count * AT_ONCE));
  }

  /** Ends what keeps a reserved machine from its container, if nothing else does. */
  #clearFor(
    reservation: Reservation,
    victims: ReadonlyMap<MachineId, readonly Victim[]>,
    rules: ReclaimRules,
  ): Preemption[] {
    const { item, machineId, market } = reservation;
    const { fitClass } = item;
    if (!fitClass.tenant.isRead || rules.doubtful.has(machineId)) return [];
    const there = new Map((victims.get(machineId) ?? []).map((one) => [one.id, one]));
    // The scaling loop lets those go that are only kept warm.
    const unbounded = this.#reservations
      .clearingOf(reservation)
      .must.filter(
        ({ id, holding }) => holding.endsAtMs === undefined && !this.#leaving.has(id) && there.get(id)?.isWarm !== true,
      );
    if (unbounded.length === 0) return [];
    const { share } = this.#ledger.markets.standingWith(fitClass.tenant, market, this.#useWith(fitClass, market));
    const asked = { item, market, request: rules.requestOf(item), reason: 'reservation' as const, share, rules };
    const set: Victim[] = [];
    for (const { id } of unbounded) {
      const victim = there.get(id);
      if (victim === undefined || !this.#mayEnd(victim, set, asked)) return [];
      set.push(victim);
    }
    return this.#tell(set, asked, reservation);
  }

  /** Counts the containers as told. */
  #tell(
    set: readonly Victim[],
    { item, market, reason, rules: { nowMs } }: Asked,
    reservation?: Reservation,
  ): Preemption[] {
    this.#claims.push({
      fitClass: item.fitClass,
      market,
      victims: set.map(({ id }) => id),
      atMs: nowMs,
      ...(reservation && { reservation }),
    });
    return set.map(({ id, sinceMs, holding, isWarm, freed }) => {
      this.#leaving.set(id, { sinceMs, holding, atMs: freed?.atMs ?? nowMs, isWarm });
      if (isWarm) return { id, claimant: item.wanted.id, reason, isWarm };
      if (freed !== undefined) return { id, claimant: item.wanted.id, reason };
      const times = this.#told.get(holding.workspaceId) ?? [];
      this.#told.set(holding.workspaceId, [...times, nowMs]);
      return { id, claimant: item.wanted.id, reason };
    });
  }
}

/** The machine once those have ended. */
function ended(machine: PlacementMachine, some: readonly Victim[]): PlacementMachine {
  const freed = new Set(some.flatMap(({ holding }) => holding.gpuUuids ?? []));
  const free = new Set(machine.gpus.flatMap(({ uuid, free: isFree }) => (isFree ? uuid : [])));
  return withEnded(machine, some, (uuid) => free.has(uuid) || freed.has(uuid));
}

/**
 * Uses up containers that end by themselves soon and whose room is enough for one of the class.
 * @returns how many, `most` at most
 */
function takeRoom(
  coming: ReadonlyMap<MarketState, readonly Coming[]>,
  { market, gpuCount, cpuMillicores, memoryBytes }: FitClass,
  most: number,
): number {
  let taken = 0;
  for (const alike of (market && coming.get(market)) ?? []) {
    const { holding } = alike;
    if (holding.gpuCount < gpuCount || holding.cpuMillicores < cpuMillicores || holding.memoryBytes < memoryBytes)
      continue;
    const some = Math.min(alike.count, most - taken);
    alike.count -= some;
    taken += some;
  }
  return taken;
}

/** Whether the container is interrupted: it is not only kept warm, and does not leave already. */
const isInterrupted = ({ isWarm, freed }: Victim): boolean => !isWarm && freed === undefined;

/**
 * Compares sets of victims: fewer interrupted containers' GPUs, then fewer of these containers, then the same of all,
 * then younger ones. Negative: the first is better.
 */
function compareSets(a: readonly Victim[], b: readonly Victim[]): number {
  const gpus = (some: readonly Victim[]): number => some.reduce((sum, { holding }) => sum + holding.gpuCount, 0);
  const since = (some: readonly Victim[]): number => Math.min(...some.map(({ sinceMs }) => sinceMs));
  const [hardA, hardB] = [a.filter(isInterrupted), b.filter(isInterrupted)];
  const order =
    gpus(hardA) - gpus(hardB) ||
    hardA.length - hardB.length ||
    gpus(a) - gpus(b) ||
    a.length - b.length ||
    since(b) - since(a);
  return order !== 0 ? order : (a[0]?.id ?? '') < (b[0]?.id ?? '') ? -1 : 1;
}
