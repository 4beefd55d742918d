// The plan of placement: which waiting container is tried next, and which machine it gets. Events go in, decisions come
// out; nothing here reads a clock, a row or a random number. The workspace with the smallest share of a market goes
// first, with its oldest container; by arrival, the oldest of all does. One that no machine takes is passed over.
//
// Invariant: a blocked class fits no machine, except for those that are offered. A class is blocked when a search of
// all machines found none. A machine that changed is offered where a blocked class may fit it. Facts that no machine
// decides (places of an image, homes of volumes, machines to avoid, limits) are not asked then. So a freed machine
// costs a look at the classes that its kind could ever take. A further container of a blocked class costs nothing.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { labelOf } from '#shared/domain/labels.ts';
import type { Market, Sharing, WorkspaceShare } from '../../domain/shares.ts';
import { DEFAULT_SHARING, HEAD_START_MS } from '../../domain/shares.ts';
import { Candidates } from './candidates.ts';
import type { PlacementMachine, PlacementRequest } from './filter.ts';
import { isFullFor, rejectionOf } from './filter.ts';
import { classKeyOf, FitClass, isOlder } from './fit-class.ts';
import type { ClassFacts, Item, Wanted } from './fit-class.ts';
import { KeptBack } from './kept-back.ts';
import { goesFirst, Lines } from './lines.ts';
import type { Holding } from './ledger.ts';
import { Ledger } from './ledger.ts';
import { isIndexed } from './machine-index.ts';
import type { MachineKind } from './machine-kinds.ts';
import { eachAffordable, MachineKinds } from './machine-kinds.ts';
import type { MarketState, MarketTurn, Standing, Tenant } from './markets.ts';
import { amountIn, Markets } from './markets.ts';
import type { Choice, Rejections } from './place.ts';
import { chooseOf, placeContainer } from './place.ts';
import type { Reclaimed, ReclaimFacts } from './reclaim.ts';
import { Reclaim } from './reclaim.ts';
import type { Reservation } from './reservations.ts';
import { Reservations } from './reservations.ts';
import type { MarketReport, PlaceInLine } from './share-report.ts';
import { placeInLine, reportShares } from './share-report.ts';

/** Most machines that are offered at once. Of a further one the classes are searched for like new ones. */
const MOST_OFFERS = 32;
/** Most classes whose facts are asked for at once. */
const MOST_ASKED = 64;

export type Step =
  /** The facts of these classes must be known before the next container is tried. */
  | { readonly kind: 'ask'; readonly classes: readonly FitClass[] }
  /** A machine was found. It is not taken yet. */
  | { readonly kind: 'chosen'; readonly item: Item; readonly choice: Choice }
  /** No machine takes the class, or its workspace is at its limits. */
  | { readonly kind: 'refused'; readonly item: Item };

/** A machine that changed, while the round lasts. */
interface Offer {
  readonly machine: PlacementMachine;
  readonly kind: MachineKind;
  /** Markets of containers with GPUs there, and without. */
  readonly gpuMarket: MarketState | undefined;
  readonly cpuMarket: MarketState | undefined;
  /** The container that goes first of those that it may have room for. */
  best: Item | undefined;
  /** Whether another container may be the best than when it was found, or none was looked for. */
  isStale: boolean;
}

export class Planner {
  readonly candidates = new Candidates();
  readonly ledger = new Ledger(new Markets());
  /** Machines that are kept for containers that wait. */
  readonly reservations = new Reservations(this.candidates, this.ledger, (machine) => this.setMachine(machine));
  /** Interruptible containers that end for others. */
  readonly leaving = new Reclaim(this.candidates, this.ledger, this.reservations);
  /** Machines that take nothing, because it is not known what they hold. One that is none any more is set again. */
  doubtful: ReadonlySet<MachineId> = new Set();
  readonly #shunned: (wanted: Wanted) => ReadonlySet<MachineId>;
  readonly #classes = new Map<string, FitClass>();
  readonly #kinds = new MachineKinds();
  readonly #items = new Map<ContainerId, Item>();
  /** Classes that a round searches for. */
  readonly #lines = new Lines(this.ledger.markets);
  readonly #keptBack = new KeptBack(this.ledger, (fitClass) => this.#unblock(fitClass));
  readonly #offers = new Map<MachineId, Offer>();
  #known = new Set<FitClass>();
  /** Number that grows with each offer. */
  #offering = 0;
  #turn = 0;
  #shares: { readonly reports: readonly MarketReport[]; readonly atMs: number } | undefined;
  #byShare = DEFAULT_SHARING.order === 'share';
  #sharing = DEFAULT_SHARING;

  /** @param shunned - machines that take the container only where no other can */
  constructor(shunned: (wanted: Wanted) => ReadonlySet<MachineId> = () => new Set()) {
    this.#shunned = shunned;
    this.ledger.markets.onStanding = (tenant, market, isBetter) => this.#stands(tenant, market, isBetter);
  }

  // ---- order --------------------------------------------------------------------------------------------------------

  setSharing(sharing: Sharing): void {
    const byShare = sharing.order === 'share';
    this.#sharing = sharing;
    if (byShare === this.#byShare) return;
    this.#byShare = byShare;
    for (const fitClass of this.#classes.values()) fitClass.headStartMs = this.#headStartOf(fitClass);
    this.#lines.setOrder(byShare);
    for (const offer of this.#offers.values()) offer.isStale = true;
  }

  /** The share that the operator gave the workspace. */
  setShare(workspaceId: WorkspaceId, share: WorkspaceShare): void {
    this.ledger.markets.setShare(workspaceId, share);
  }

  /** Workspaces whose share is not read yet. @param most - most of them that are named */
  unread(most: number): ReadonlySet<WorkspaceId> {
    return this.ledger.markets.unread(most);
  }

  /** The share of the workspace may be another one, and is asked for again. */
  shareChanged(workspaceId: WorkspaceId): void {
    this.ledger.markets.shareChanged(workspaceId);
    this.limitsChanged(workspaceId);
  }

  #stands(tenant: Tenant, market: MarketState | undefined, isBetter: boolean): void {
    if (!this.#byShare) return;
    this.#lines.stands(tenant, market);
    // Who stands worse may be the best no more; who stands better may become it.
    for (const offer of this.#offers.values())
      if (isBetter || offer.best?.fitClass.tenant === tenant) offer.isStale = true;
  }

  /** How the class stands on the offered machine. */
  #standingOn(fitClass: FitClass, { gpuMarket, cpuMarket }: Offer): Standing {
    return this.ledger.markets.standing(fitClass.tenant, fitClass.gpuCount > 0 ? gpuMarket : cpuMarket);
  }

  #goesFirst(a: Item, of: Standing, b: Item, than: Standing): boolean {
    return this.#byShare ? goesFirst(a, of, b, than) : isOlder(a, b);
  }

  // ---- what waits ---------------------------------------------------------------------------------------------------

  /** Puts a container into the line of its class. @returns undefined: it waits there already */
  add(wanted: Wanted): Item | undefined {
    if (this.#items.has(wanted.id)) return undefined;
    const fitClass = this.classOf(wanted);
    const item: Item = { wanted, fitClass, turn: (this.#turn += 1), at: -1 };
    this.#items.set(wanted.id, item);
    fitClass.add(item);
    if (fitClass.head !== item) return item;
    this.#lines.update(fitClass);
    // The container is older than the class's oldest before, and the offers chose among those.
    if (fitClass.isBlocked) for (const offer of this.#offers.values()) offer.isStale = true;
    return item;
  }

  remove(id: ContainerId): void {
    const item = this.#items.get(id);
    if (item === undefined) return;
    this.#items.delete(id);
    const { fitClass } = item;
    const wasHead = fitClass.head === item;
    fitClass.remove(item);
    if (wasHead) this.#lines.update(fitClass);
    if (fitClass.size === 0) this.#keptBack.left(fitClass);
    this.reservations.left(id);
  }

  get(id: ContainerId): Item | undefined {
    return this.#items.get(id);
  }

  get waiting(): Iterable<Item> {
    return this.#items.values();
  }

  /** Classes for which containers wait. */
  *classes(): Generator<FitClass> {
    for (const fitClass of this.#classes.values()) if (fitClass.size > 0) yield fitClass;
  }

  classOf(wanted: Wanted): FitClass {
    const key = classKeyOf(wanted);
    let fitClass = this.#classes.get(key);
    if (fitClass === undefined) {
      fitClass = new FitClass(key, wanted, this.ledger);
      fitClass.headStartMs = this.#headStartOf(wanted);
      this.#classes.set(key, fitClass);
      this.#kinds.add(fitClass);
    }
    return fitClass;
  }

  /** Whether a round would try some container. */
  get isBusy(): boolean {
    if (!this.#lines.isEmpty) return true;
    for (const one of this.reservations.all()) if (one.isStale && mayHaveRoom(one)) return true;
    for (const offer of this.#offers.values()) if (this.#bestOf(offer) !== undefined) return true;
    return false;
  }

  /** The container that goes first of those that may find a place. */
  #first(): Item | undefined {
    let first: { readonly item: Item; readonly standing: Standing } | undefined = this.#lines.first();
    for (const [id, offer] of this.#offers) {
      const item = this.#bestOf(offer);
      if (item === undefined) {
        this.#offers.delete(id);
        continue;
      }
      const standing = this.#standingOn(item.fitClass, offer);
      if (first === undefined || this.#goesFirst(item, standing, first.item, first.standing))
        first = { item, standing };
    }
    return first?.item;
  }

  // ---- what changes -------------------------------------------------------------------------------------------------

  setMachine(whole: PlacementMachine): void {
    const machine = this.reservations.seenByOthers(whole);
    this.candidates.set(machine);
    for (const workspaceId of this.ledger.setMachine(machine)) this.#keptBack.hasLess(workspaceId);
    const { machineId } = machine;
    if (!isIndexed(machine) || this.doubtful.has(machineId)) {
      this.#offers.delete(machineId);
      return;
    }
    const offer = this.#offerOf(machine);
    if (!this.#offers.has(machineId) && this.#offers.size >= MOST_OFFERS) {
      eachAffordable(offer.machine, offer.kind, (fitClass) => {
        if (rejectionOf(machine, fitClass.request) === undefined) this.#unblock(fitClass);
      });
      return;
    }
    const before = this.#offering;
    // Classes that no offered machine took before are tried again.
    this.#offering += 1;
    if (this.#bestOf(offer) === undefined) {
      this.#offering = before;
      this.#offers.delete(machineId);
    } else this.#offers.set(machineId, offer);
  }

  #offerOf(machine: PlacementMachine): Offer {
    const { markets } = this.ledger;
    const [cpuMarket, gpuMarket] = [markets.on(machine.machineId, 0), markets.on(machine.machineId, 1)];
    return {
      machine,
      kind: this.#kinds.of(machine, this.candidates.lastingOf(machine.machineId), this.#classes.values()),
      gpuMarket,
      cpuMarket,
      best: undefined,
      isStale: true,
    };
  }

  /** The machine with all that is free there, though it may be kept for a container. */
  machine(id: MachineId): PlacementMachine | undefined {
    return this.reservations.on(id)?.machine ?? this.candidates.get(id);
  }

  deleteMachine(id: MachineId): void {
    this.reservations.gone(id);
    this.candidates.delete(id);
    this.ledger.deleteMachine(id);
    this.#offers.delete(id);
  }

  hold(id: ContainerId, holding: Holding): void {
    this.ledger.hold(id, holding);
  }

  /** The container holds nothing any more, so its workspace may have another one. */
  release(id: ContainerId, workspaceId: WorkspaceId): void {
    if (this.ledger.release(id)) this.#keptBack.hasLess(workspaceId);
  }

  /** The workspace has other limits. */
  limitsChanged(workspaceId: WorkspaceId): void {
    this.#keptBack.tryAll(workspaceId);
  }

  /** Places of images changed that were built here. */
  imagesChanged(): void {
    for (const fitClass of this.#classes.values()) if (fitClass.builtImage !== '') this.#unblock(fitClass);
  }

  /** Tries every class again: there are facts whose changes nobody tells. */
  forgetBlocks(): void {
    this.#kinds.clear();
    this.#offers.clear();
    for (const [key, fitClass] of this.#classes) {
      if (fitClass.size === 0) this.#classes.delete(key);
      else this.#unblock(fitClass);
    }
    this.#keptBack.clear();
    const { markets } = this.ledger;
    const waiting = new Set([...this.#classes.values()].map(({ tenant }) => tenant));
    for (const tenant of [...markets.tenants]) if (!waiting.has(tenant)) markets.forget(tenant);
  }

  #unblock(fitClass: FitClass): void {
    fitClass.isBlocked = false;
    this.#lines.update(fitClass);
  }

  /** Forgets all that it was told. */
  clear(): void {
    this.reservations.clear();
    this.leaving.clear();
    for (const { wanted } of [...this.#items.values()]) this.remove(wanted.id);
    this.ledger.clear();
    this.candidates.clear();
    this.forgetBlocks();
  }

  // ---- the round ----------------------------------------------------------------------------------------------------

  /** Asks for the facts of each class again before a container of the class is tried. */
  forgetFacts(): void {
    this.#known = new Set();
    this.reservations.forgetFacts();
  }

  know(fitClass: FitClass, facts: ClassFacts): void {
    fitClass.facts = facts;
    this.#known.add(fitClass);
    if (!fitClass.tenant.isRead) this.setShare(fitClass.workspaceId, fitClass.tenant.share);
  }

  /** Tries the container that goes first of those that may find a place. @returns undefined: nothing is left to try */
  next(): Step | undefined {
    const reserved = this.#nextReserved();
    if (reserved !== undefined) return reserved;
    let item = this.#first();
    const tried = new Set<Item>();
    while (item !== undefined) {
      const { fitClass } = item;
      if (!this.#known.has(fitClass) || !fitClass.tenant.isRead)
        return { kind: 'ask', classes: this.#unknown(fitClass) };
      if (this.#keptBack.isOver(fitClass)) return this.#keepBack(item);
      const choice = this.choose(item.wanted, fitClass);
      if (choice === undefined) return this.#refused(item);
      const other = this.#firstOn(choice.machineId, item);
      // Each of them prefers the machine on which another one goes first: they may have them so.
      if (other === undefined || tried.has(other)) return { kind: 'chosen', item, choice };
      tried.add(item);
      item = other;
    }
    return undefined;
  }

  /** The container that goes before that one on the machine. A machine of another market has another order. */
  #firstOn(machineId: MachineId, item: Item): Item | undefined {
    if (!this.#byShare) return undefined;
    const { markets } = this.ledger;
    const market = markets.on(machineId, item.fitClass.gpuCount);
    const offer = this.#offers.get(machineId);
    const its = markets.standing(item.fitClass.tenant, market);
    const best = offer && this.#bestOf(offer);
    if (offer !== undefined && best !== undefined && best !== item)
      if (goesFirst(best, this.#standingOn(best.fitClass, offer), item, its)) return best;
    // Who is searched for and waits in that market may go first, too.
    if (market === undefined || market === item.fitClass.market) return undefined;
    const other = this.#lines.firstIn(market);
    return other !== undefined && goesFirst(other.item, other.standing, item, its) ? other.item : undefined;
  }

  #keepBack(item: Item): Step {
    const { fitClass } = item;
    // A machine that is offered now may have room, and is not offered again when the limits allow more.
    fitClass.isBlocked = false;
    fitClass.isHeld = true;
    this.#keptBack.add(fitClass, []);
    return this.#refusedFor(item);
  }

  #refused(item: Item): Step {
    const { fitClass } = item;
    fitClass.isBlocked = true;
    fitClass.passedAt = this.#offering;
    const fullIn = [...this.#fullMarkets(fitClass)];
    if (fullIn.length > 0) this.#keptBack.add(fitClass, fullIn);
    return this.#refusedFor(item);
  }

  #refusedFor(item: Item): Step {
    const { fitClass } = item;
    this.#lines.update(fitClass);
    fitClass.refusals = undefined;
    fitClass.wasRefused = true;
    this.#keptBack.tryNext(fitClass.workspaceId);
    return { kind: 'refused', item };
  }

  #fullMarkets(fitClass: FitClass): ReadonlySet<Market> {
    return this.ledger.markets.fullFor(fitClass.tenant, fitClass);
  }

  /**
   * Chooses a machine for a container of the class, whose facts are known. Machines that just refused the container,
   * or could not get its image, are chosen only when no other can take it.
   */
  choose(wanted: Wanted, fitClass: FitClass): Choice | undefined {
    const shunned = this.#shunned(wanted);
    const elsewhere = this.#chooseWithout(shunned.union(this.doubtful), wanted, fitClass);
    return elsewhere !== undefined || shunned.size === 0
      ? elsewhere
      : this.#chooseWithout(this.doubtful, wanted, fitClass);
  }

  #chooseWithout(avoid: ReadonlySet<MachineId>, wanted: Wanted, fitClass: FitClass): Choice | undefined {
    const request = this.#requestOf(wanted, fitClass, avoid);
    if (!fitClass.isBlocked) return this.candidates.find(request);
    const placement = placeContainer(
      request,
      this.#offers.values().map(({ machine }) => machine),
    );
    if (placement.kind === 'rejected') return undefined;
    const { machineId, gpuUuids } = placement;
    return { machineId, gpuUuids };
  }

  #requestOf(wanted: Wanted, fitClass: FitClass, avoid: ReadonlySet<MachineId>): PlacementRequest {
    const { id, image, caches, queue, labels } = wanted;
    const siblings = this.ledger.siblingsOf(queue);
    const fullMarkets = this.#fullMarkets(fitClass);
    const spreadCounts = this.#spreadCounts(labels?.spread ?? '', siblings);
    const about = { image, caches, labels, spreadCounts, siblings, fullMarkets, seed: id };
    return { ...requestOf(fitClass), avoid, ...about };
  }

  /** Containers of a queue by the value of a label of their machines. @param key - empty: none */
  #spreadCounts(key: string, siblings: ReadonlyMap<MachineId, number>): ReadonlyMap<string, number> | undefined {
    if (key === '') return undefined;
    const counts = new Map<string, number>();
    for (const [id, count] of siblings) {
      const value = labelOf(this.candidates.get(id)?.labels ?? {}, key) ?? '';
      counts.set(value, (counts.get(value) ?? 0) + count);
    }
    return counts;
  }

  /**
   * Chooses machines for new containers of one class, of which none waits, and takes them.
   * @returns by container, in their order; undefined: there is no place for it now
   */
  chooseNew(wanted: readonly Wanted[], facts: ClassFacts | undefined): readonly (Choice | undefined)[] {
    let isFull = false;
    return wanted.map((one) => {
      const fitClass = this.classOf(one);
      if (facts !== undefined) fitClass.facts = facts;
      const choice = isFull || this.#keptBack.isOver(fitClass) ? undefined : this.choose(one, fitClass);
      isFull = choice === undefined;
      if (choice !== undefined) this.take(one, choice);
      return choice;
    });
  }

  /** Takes the choice, so that the next container sees what is left. The container is out of its line. */
  take(
    { id, workspaceId, queue, gpuCount, cpuMillicores, memoryBytes }: Wanted,
    { machineId, gpuUuids }: Choice,
  ): void {
    this.hold(id, { workspaceId, queue, machineId, gpuCount, cpuMillicores, memoryBytes, gpuUuids });
    this.remove(id);
    this.#keptBack.tryNext(workspaceId);
    const machine = this.machine(machineId);
    if (machine === undefined) return;
    // The rest may be offered: what the machine kept for a GPU that is leased now is free for work without one.
    this.setMachine({
      ...machine,
      freeCpuMillicores: machine.freeCpuMillicores - cpuMillicores,
      freeMemoryBytes: machine.freeMemoryBytes - memoryBytes,
      gpus:
        gpuUuids.length === 0
          ? machine.gpus
          : machine.gpus.map((gpu) => (gpuUuids.includes(gpu.uuid) ? { ...gpu, free: false } : gpu)),
    });
  }

  /** The container that goes first of those that the offered machine may have room for. */
  #bestOf(offer: Offer): Item | undefined {
    const { best } = offer;
    if (!offer.isStale && (best === undefined || this.#mayTake(best.fitClass, best))) return best;
    let first: Item | undefined;
    let standing: Standing | undefined;
    eachAffordable(offer.machine, offer.kind, (fitClass) => {
      const { head } = fitClass;
      if (head === undefined || !this.#mayTake(fitClass, head)) return;
      const its = this.#standingOn(fitClass, offer);
      if (first !== undefined && standing !== undefined && this.#goesFirst(first, standing, head, its)) return;
      if (rejectionOf(offer.machine, fitClass.request) !== undefined || this.#isAtLimit(fitClass, offer)) return;
      [first, standing] = [head, its];
    });
    offer.isStale = false;
    offer.best = first;
    return first;
  }

  /** Whether an offered machine is tried for the class, and that container is its oldest. */
  #mayTake({ isBlocked, passedAt, head }: FitClass, item: Item): boolean {
    return isBlocked && head === item && passedAt !== this.#offering;
  }

  /** Whether the workspace may have no more of the machine's market. Such a class is searched for once it may. */
  #isAtLimit(fitClass: FitClass, { gpuMarket, cpuMarket }: Offer): boolean {
    const market = fitClass.gpuCount > 0 ? gpuMarket : cpuMarket;
    if (market === undefined || !this.ledger.markets.isFull(fitClass.tenant, market, fitClass)) return false;
    this.#keptBack.add(fitClass, [market.name]);
    return true;
  }

  /** Classes that a round tries soon, and whose facts are not known, with that one. */
  #unknown(first: FitClass): readonly FitClass[] {
    const classes = new Set([first]);
    for (const { best } of this.#offers.values())
      if (best !== undefined && !this.#known.has(best.fitClass)) classes.add(best.fitClass);
    for (const fitClass of this.#lines.classes()) {
      if (classes.size >= MOST_ASKED) break;
      if (!this.#known.has(fitClass)) classes.add(fitClass);
    }
    return [...classes];
  }

  // ---- reservations -------------------------------------------------------------------------------------------------

  /**
   * Keeps machines for containers that need much and have waited long, and gives up what is kept in vain.
   * @param nowMs - null: nothing may be kept
   * @returns when to call again though nothing changes; undefined: there is no need
   */
  reserve(nowMs: number | null): number | undefined {
    const afterMs = this.#byShare ? msOf(this.#sharing.reserveAfterSeconds) : null;
    return this.reservations.look(
      nowMs ?? 0,
      nowMs === null || afterMs === null
        ? undefined
        : {
            afterMs,
            classes: () => this.classes(),
            doubtful: this.doubtful,
            requestOf: (item) => this.#wholeRequestOf(item),
            compare: (a, b) => this.#compare(a, b),
          },
    );
  }

  /** The request of a container, with the limits of its workspace. */
  #wholeRequestOf({ wanted, fitClass }: Item, avoid = this.#shunned(wanted)): PlacementRequest {
    return { ...this.#requestOf(wanted, fitClass, avoid), overQuota: this.#keptBack.isOver(fitClass) };
  }

  #compare(a: Item, b: Item): number {
    return this.#goesFirst(a, this.#standingOf(a), b, this.#standingOf(b)) ? -1 : 1;
  }

  /**
   * Chooses containers that end for others, once nothing else has room for these: those that warmth alone keeps, then
   * interruptible ones.
   * @param facts - null: none may end
   */
  reclaim(facts: ReclaimFacts | null): Reclaimed {
    this.ledger.spare = new Set(facts?.candidates.flatMap(({ id, isWarm }) => (isWarm === true ? id : [])));
    const afterMs = this.#byShare ? msOf(this.#sharing.reclaimAfterSeconds) : null;
    if (facts === null || afterMs === null) return this.leaving.look(undefined);
    let fairShares: ReadonlyMap<Market, ReadonlyMap<WorkspaceId, number>> | undefined;
    return this.leaving.look({
      ...facts,
      afterMs,
      minRunMs: this.#sharing.minRunSeconds * 1000,
      classes: this.classes(),
      doubtful: this.doubtful,
      requestOf: (item) => this.#wholeRequestOf(item),
      compare: (a, b) => this.#compare(a, b),
      fairShareOf: (workspaceId, market) => {
        // Counted anew: the reports that are kept for people depend on when they were asked for.
        fairShares ??= fairSharesOf(reportShares(this.ledger.markets, this.classes(), facts.nowMs));
        return fairShares.get(market)?.get(workspaceId) ?? 0;
      },
    });
  }

  #standingOf({ fitClass }: Item): Standing {
    return this.ledger.markets.standing(fitClass.tenant, fitClass.market);
  }

  /** The container for which a machine is kept that has room for it now. */
  #nextReserved(): Step | undefined {
    for (const one of this.reservations.all()) {
      const { item, machine } = one;
      const { fitClass, wanted } = item;
      // A limit of its workspace may end the reservation, though nothing else changes.
      if (!fitClass.tenant.isRead) return { kind: 'ask', classes: this.#unknown(fitClass) };
      if (!one.isStale) continue;
      if (mayHaveRoom(one)) {
        if (!this.#known.has(fitClass)) return { kind: 'ask', classes: this.#unknown(fitClass) };
        const request = this.#wholeRequestOf(item, this.#shunned(wanted).union(this.doubtful));
        if (rejectionOf(machine, request) === undefined)
          return { kind: 'chosen', item, choice: chooseOf(machine, request) };
        // The workspace has a new limit since the last look: the machine is free for others at once.
        if (isFullFor(machine, request)) this.reservations.left(wanted.id);
      }
      one.isStale = false;
    }
    return undefined;
  }

  // ---- shares -------------------------------------------------------------------------------------------------------

  /** Counts what workspaces hold of each market beside what would be fair; as counted a moment ago, if it was. */
  shares(nowMs: number): readonly MarketReport[] {
    const known = this.#shares;
    if (known !== undefined && Math.abs(nowMs - known.atMs) < FRESH_MS) return known.reports;
    const reports = reportShares(this.ledger.markets, this.classes(), nowMs);
    this.#shares = { reports, atMs: nowMs };
    return reports;
  }

  /** Turn of such a container among those of other workspaces. */
  turnOf(wanted: Wanted): MarketTurn {
    const { markets } = this.ledger;
    const tenant = markets.tenant(wanted.workspaceId);
    return {
      standing: this.#byShare ? markets.standing(tenant, markets.of(wanted)) : undefined,
      headStartMs: this.#headStartOf(wanted),
      limits: markets.leftFor(tenant, wanted),
    };
  }

  /** Place of a waiting container's workspace in line; undefined: there is no such machine. */
  placeOf(wanted: Wanted, nowMs: number): PlaceInLine | undefined {
    const market = this.ledger.markets.of(wanted);
    const report = market && this.shares(nowMs).find((one) => one.market === market.name);
    if (market === undefined || report === undefined) return undefined;
    const { gpuCount: gpus, cpuMillicores } = wanted;
    const place = placeInLine(report, wanted.workspaceId, amountIn(market.name, { gpus, cpuMillicores }));
    return place === undefined || this.#byShare ? place : { ...place, before: null };
  }

  /** Milliseconds by which a container counts as older inside its workspace. */
  #headStartOf({ priority = 'normal' }: Pick<Wanted, 'priority'>): number {
    return this.#byShare ? HEAD_START_MS[priority] : 0;
  }

  // ---- why ----------------------------------------------------------------------------------------------------------

  /** Counts why machines refuse the class, by a look at all of them; as counted a moment ago, if it was. */
  refusalsOf(fitClass: FitClass, nowMs: number): Rejections {
    const known = fitClass.refusals;
    if (known !== undefined && nowMs - known.atMs < FRESH_MS) return known.rejections;
    const overQuota = this.#keptBack.isOver(fitClass);
    const fullMarkets = this.#fullMarkets(fitClass);
    const request = { ...requestOf(fitClass), overQuota, fullMarkets, avoid: this.doubtful };
    const counted = this.candidates.reasons(request);
    const rejections =
      this.reservations.size === 0 ? counted : this.reservations.rejectionsFor(fitClass, request, counted);
    fitClass.refusals = { rejections, atMs: nowMs };
    return rejections;
  }
}

const FRESH_MS = 1000;

const fairSharesOf = (reports: readonly MarketReport[]): ReadonlyMap<Market, ReadonlyMap<WorkspaceId, number>> =>
  new Map(
    reports.map(({ market, rows }) => [market, new Map(rows.map((row) => [row.workspaceId, row.fairShare] as const))]),
  );

const msOf = (seconds: number | null): number | null => (seconds === null ? null : seconds * 1000);

/** Whether the reserved machine has room, by what its facts alone say. */
const mayHaveRoom = ({ machine, item }: Reservation): boolean =>
  rejectionOf(machine, item.fitClass.request) === undefined;

/** Request of any container of a class, with the facts that are known of the class. */
function requestOf({ request, facts: { volumeHomes, image } }: FitClass): PlacementRequest {
  return { ...request, volumeHomes, imageOnlyOn: image?.machines ?? null, imageInRegistry: image?.inRegistry === true };
}
