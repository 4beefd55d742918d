// Growth of pools, which the leader decides. Containers that wait, changed machines, capacity and pools start a round,
// and so does the next due moment; a sweep makes up for what was missed. A round looks at the pools that changed, and
// at all of them only while containers wait, so that pools at rest cost nothing.
// Invariant: the steps of a round are written before the next one decides, so nothing is made twice.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import type { CapacityChanges, MachineOrders, MachineShape } from '../../domain/provisioning.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { PoolDirectory } from '../../fleet/pool-directory.ts';
import { isOrderOfToday, shapeOf } from '../../fleet/pool-settings.ts';
import type { PoolRow } from '../../stores/store/queries/pools.ts';
import { decideCapacity } from './decide.ts';
import { Demands } from './demands.ts';
import type { DemandsParts, Held } from './demands.ts';
import { explainGrowth, explainPool } from './explain.ts';
import type { GrowthView } from './explain.ts';
import type { Decision, GrowingPool, Offer, PoolStatement, Step } from './facts.ts';
import { MadeDrivers } from './made-drivers.ts';
import type { ProvisioningMetrics } from './metrics.ts';
import { offerOf } from './offers.ts';
import type { PoolEvents } from './pool-events.ts';
import { Refusals } from './refusals.ts';
import { Rooms } from './rooms.ts';

export interface ProvisioningParts extends DemandsParts {
  readonly directory: Pick<PoolDirectory, 'all' | 'get'>;
  readonly machines: Pick<Machines, 'all' | 'get' | 'capacity'>;
  readonly containers: Pick<ContainerRegistry, 'pending' | 'all' | 'get' | 'ofMachine'>;
  readonly changes: CapacityChanges & MachineOrders;
  readonly clock: Clock;
  readonly log: Log;
  readonly loops: LoopMetrics;
  readonly metrics: Pick<ProvisioningMetrics, 'stepped'>;
  /** Writer of events; absent: nothing is told. */
  readonly told?: Pick<PoolEvents, 'decided'>;
  /** Fencing number of this leader; undefined: another replica leads. */
  readonly fence: () => number | undefined;
  /** Milliseconds between looks that nothing asked for; tests shorten it. */
  readonly sweepMs?: number;
}

/** A container that waits and changed capacity are urgent; what placement does to machines is not. */
const SOON_MS = 2;
const LATER_MS = 250;
/** Pause until placement has tried a new container. */
const UNTRIED_MS = 20;
const SWEEP_MS = 5_000;
/** Every so many sweeps, all pools are looked at. */
const WHOLE_EVERY = 12;
/** Time for which facts of all pools are good for the reason why containers give up. */
const FACTS_MS = 1_000;
/** Pause of a pool after a step that could not be written. */
const RETRY_MS = 5_000;
const LONGEST_WAIT_MS = 2 ** 31 - 1;
/** A pool without a size of its machines. */
const NO_OFFER: Offer = { cpuMillicores: 0, memoryBytes: 0, gpus: [] };

export class ProvisioningLoop {
  readonly name = 'provisioning';
  readonly #parts: ProvisioningParts;
  readonly #rooms: Rooms;
  readonly #demands: Demands;
  readonly #changed = new Set<number>();
  /** When to look at pools again, in monotonic milliseconds. */
  readonly #due = new Map<number, number>();
  readonly #shortSince = new Map<number, number>();
  readonly #refusals = new Refusals();
  readonly #drivers = new MadeDrivers();
  /** Pools whose last step could not be written, and until when they pause. */
  readonly #paused = new Map<number, number>();
  readonly #statements = new Map<number, PoolStatement>();
  /** Everything that is remembered of pools. */
  readonly #known = [this.#due, this.#shortSince, this.#refusals, this.#drivers, this.#paused, this.#statements];
  /** Facts of all pools, as some container that gave up was compared with them. */
  #lookedAt: { readonly atMs: number; readonly pools: readonly GrowingPool[] } = { atMs: -Infinity, pools: [] };
  #awaited: Decision['awaited'] = new Map();
  #held: ReadonlyMap<ContainerId, Held> = new Map();
  #timer: NodeJS.Timeout | undefined;
  #timerAtMs = Infinity;
  #sweep: NodeJS.Timeout | undefined;
  #sweeps = 0;
  #running: Promise<void> | undefined;
  #again = false;
  /** Whether containers waited in the last round. */
  #hadDemands = false;
  /** Time after which a new container counts for some pool, in milliseconds; undefined: to be read. */
  #firstDemandMs: number | undefined;
  #stopped = true;

  constructor(parts: ProvisioningParts) {
    this.#parts = parts;
    this.#rooms = new Rooms({ ...parts, isGrowing: (poolId) => parts.directory.get(poolId) !== undefined });
    this.#demands = new Demands(parts);
    parts.changes.onChange((poolId) => this.#poolChanged(poolId, SOON_MS));
  }

  start(): void {
    this.#stopped = false;
    this.leads();
    this.#sweep = setInterval(() => this.#sweepNow(), this.#parts.sweepMs ?? SWEEP_MS);
    this.#sweep.unref();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#sweep);
    await this.#running;
  }

  /** Begins to lead: what this process remembers is older than the decisions of another leader. */
  leads(): void {
    for (const known of this.#known) known.clear();
    this.#rooms.reset();
    this.#lookAtAll();
  }

  // ---- wake-ups -----------------------------------------------------------------------------------------------------

  containerChanged(change: ContainerEntryChange): void {
    this.#demands.containerChanged(change);
    const { entry, to, machineBefore } = change;
    for (const id of [entry.row.machineId, machineBefore]) if (id !== null) this.#machineTouched(id);
    if (to === 'PENDING') this.#lookIn(this.#countsAfterMs());
    if (to === 'ASSIGNED') this.#placed(entry);
  }

  /** A machine that the provider made takes the container, so a refusal of its queue was no lasting one. */
  #placed({ row: { machineId }, spec: { queue } }: ContainerEntryChange['entry']): void {
    const poolId = machineId === null ? undefined : this.#parts.machines.get(machineId)?.row.poolId;
    if (machineId === null || poolId === undefined || !this.#refusals.has(poolId, queue)) return;
    if ([...this.#parts.changes.machines(poolId)].includes(machineId)) this.#refusals.taken(poolId, queue);
  }

  machineChanged({ row }: Pick<Machine, 'row'>): void {
    this.#machineTouched(row.id);
  }

  /** The settings of a pool changed, or it got or lost its provider. */
  settingsChanged(poolId: number): void {
    this.#firstDemandMs = undefined;
    this.#refusals.delete(poolId);
    this.#drivers.delete(poolId);
    this.#rooms.touchPool(poolId);
    this.#poolChanged(poolId, SOON_MS);
  }

  /** Limits of a workspace changed. */
  limitsChanged(): void {
    this.#lookIn(SOON_MS);
  }

  #machineTouched(id: MachineId): void {
    const poolId = this.#rooms.touch(id);
    // Placement hears of it at the same moment, and acts within milliseconds.
    if (poolId !== undefined) this.#poolChanged(poolId, LATER_MS);
  }

  #poolChanged(poolId: number, delayMs: number): void {
    this.#changed.add(poolId);
    this.#lookIn(delayMs);
  }

  #lookAtAll(): void {
    for (const { id } of this.#parts.directory.all()) this.#changed.add(id);
    this.#lookIn(SOON_MS);
  }

  #sweepNow(): void {
    this.#sweeps += 1;
    if (this.#sweeps % WHOLE_EVERY === 0) this.#lookAtAll();
    else {
      const [waiting] = this.#parts.containers.pending();
      if (waiting !== undefined || this.#hadDemands) this.#lookIn(LATER_MS);
    }
  }

  /** Time after which a new container counts for some pool. */
  #countsAfterMs(): number {
    if (this.#firstDemandMs !== undefined) return this.#firstDemandMs;
    let seconds = Infinity;
    for (const { settings } of this.#parts.directory.all()) seconds = Math.min(seconds, settings.demandSeconds);
    this.#firstDemandMs = seconds * 1000 + SOON_MS;
    return this.#firstDemandMs;
  }

  #lookIn(delayMs: number): void {
    const nowMs = this.#parts.clock.monotonicMs();
    const atMs = nowMs + Math.max(0, delayMs);
    if (this.#stopped || !Number.isFinite(atMs)) return;
    // A timer that is overdue fires at once; one that comes later gives way.
    const isOverdue = this.#timerAtMs <= nowMs;
    if (!isOverdue && atMs >= this.#timerAtMs) return;
    clearTimeout(this.#timer);
    this.#timerAtMs = isOverdue ? nowMs : atMs;
    this.#timer = setTimeout(() => this.#wake(), Math.min(Math.ceil(this.#timerAtMs - nowMs), LONGEST_WAIT_MS));
    this.#timer.unref();
  }

  #wake(): void {
    this.#timer = undefined;
    this.#timerAtMs = Infinity;
    // A round under way may have read before this change.
    this.#again = true;
    this.#running ??= this.#round().finally(() => (this.#running = undefined));
  }

  // ---- a round ------------------------------------------------------------------------------------------------------

  async #round(): Promise<void> {
    const { fence, loops, log } = this.#parts;
    do {
      this.#again = false;
      if (fence() === undefined) return;
      try {
        if (this.#hasWork()) await loops.round('provisioning', () => this.#decide());
      } catch (error) {
        log.warn({ err: error }, 'growth of pools could not be decided, trying again');
        this.#lookIn(RETRY_MS);
      }
    } while (this.#again && !this.#stopped);
    this.#lookAtDue();
  }

  #hasWork(): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    for (const [poolId, atMs] of this.#due) {
      if (atMs > nowMs) continue;
      this.#due.delete(poolId);
      this.#changed.add(poolId);
    }
    const [waiting] = this.#parts.containers.pending();
    const [pool] = this.#parts.directory.all();
    return this.#changed.size > 0 || (pool !== undefined && (waiting !== undefined || this.#hadDemands));
  }

  async #decide(): Promise<void> {
    const { directory, clock } = this.#parts;
    const { demands, held, isUntried } = await this.#demands.read();
    if (isUntried) this.#lookIn(UNTRIED_MS);
    // From here to the steps nothing waits: what is decided is what is true.
    this.#rooms.refresh();
    const nowMs = clock.monotonicMs();
    for (const { poolId, unserved, awaiting } of this.#statements.values())
      if (unserved + awaiting > 0) this.#changed.add(poolId);
    const ids = demands.length > 0 ? [...directory.all()].map(({ id }) => id) : [...this.#changed];
    this.#changed.clear();
    const pools = ids.flatMap((id) => this.#factsOf(id, nowMs) ?? []);
    const decision = decideCapacity(pools, demands, nowMs);
    this.#held = held;
    this.#hadDemands = demands.length > 0;
    this.#awaited = decision.awaited;
    for (const id of ids) if (directory.get(id) === undefined) this.#forget(id);
    this.#remember(decision, nowMs);
    const known = new Map(pools.map((pool) => [pool.poolId, pool]));
    await Promise.all(decision.steps.map((step) => this.#carryOut(step, known.get(step.poolId))));
  }

  #factsOf(poolId: number, nowMs: number): GrowingPool | undefined {
    const pool = this.#parts.directory.get(poolId);
    if (pool === undefined) return undefined;
    const { changes } = this.#parts;
    const [made, pending] = [new Set(changes.machines(poolId)), new Set(changes.pending(poolId))];
    const isOfToday = (id: MachineId): boolean => {
      const order = changes.orderOf(id);
      return order !== undefined && isOrderOfToday(order, pool.settings);
    };
    return this.#poolFacts(pool, [...this.#rooms.of(poolId, made, pending, isOfToday)], nowMs);
  }

  #poolFacts({ id, name, workspaceId, settings }: PoolRow, rooms: GrowingPool['rooms'], nowMs: number): GrowingPool {
    const { changes, clock } = this.#parts;
    const shape = shapeOf(settings);
    const gpuDriver = this.#drivers.of(id, rooms, nowMs);
    const offered = (one: MachineShape): Offer => ({ ...offerOf(one, settings), gpuDriver });
    const offer = shape === undefined ? NO_OFFER : offered(shape);
    const capacity = changes.capacity(id);
    // The wall clock may be set; times of decisions are monotonic.
    const notBeforeMs = capacity.notBeforeMs === 0 ? 0 : nowMs + capacity.notBeforeMs - clock.nowMs();
    // A leader that has yet to read its rows takes no machine for granted.
    const coming = notBeforeMs === Infinity ? [] : [...changes.pending(id)];
    return {
      poolId: id,
      poolName: name,
      poolOwner: workspaceId,
      settings,
      isKnown: settings.provider !== null && changes.knows(settings.provider),
      offer,
      coming: coming.map((one) => {
        const order = changes.orderOf(one);
        return order === undefined ? offer : offered(order.shape);
      }),
      capacity: {
        ...capacity,
        pending: coming.length,
        notBeforeMs: Math.max(notBeforeMs, this.#paused.get(id) ?? 0),
      },
      rooms,
      refused: this.#refusals.of(id, (one) => rooms.some(({ machineId }) => machineId === one), nowMs),
      shortSinceMs: this.#shortSince.get(id) ?? null,
    };
  }

  #remember({ pools, refused, againAtMs }: Decision, nowMs: number): void {
    for (const statement of pools) {
      const { poolId, isShort } = statement;
      this.#statements.set(poolId, statement);
      if (isShort) this.#shortSince.set(poolId, this.#shortSince.get(poolId) ?? nowMs);
      else this.#shortSince.delete(poolId);
      const atMs = againAtMs.get(poolId);
      if (atMs === undefined) this.#due.delete(poolId);
      else this.#due.set(poolId, atMs);
    }
    for (const { poolId, queue, machineId } of refused)
      if (this.#refusals.note(poolId, queue, machineId, nowMs))
        this.#parts.log.warn({ poolId, queue, machineId }, 'an empty machine does not take a container that waits');
  }

  #forget(poolId: number): void {
    for (const one of this.#known) one.delete(poolId);
  }

  #lookAtDue(): void {
    let nextMs = Infinity;
    for (const atMs of this.#due.values()) nextMs = Math.min(nextMs, atMs);
    this.#lookIn(nextMs - this.#parts.clock.monotonicMs());
  }

  // ---- steps --------------------------------------------------------------------------------------------------------

  async #carryOut(step: Step, pool: GrowingPool | undefined): Promise<void> {
    const { changes, fence, metrics, log, clock, told } = this.#parts;
    const { poolId, reason } = step;
    if (fence() === undefined) return;
    try {
      if (step.kind === 'grow') {
        await changes.grow(poolId, reason);
        if (pool !== undefined) told?.decided(step, pool);
        log.info({ poolId, cause: step.cause }, 'a pool grows by a machine');
        metrics.stepped('grow', step.cause, this.#nameOf(poolId));
      } else if (await changes.shrink(step.machineId, reason)) {
        if (pool !== undefined) told?.decided(step, pool);
        log.info({ poolId, machineId: step.machineId }, 'an idle machine of a pool goes');
        metrics.stepped('shrink', 'idle', this.#nameOf(poolId));
      } else {
        this.#rooms.touch(step.machineId);
        this.#due.set(poolId, clock.monotonicMs() + RETRY_MS);
      }
    } catch (error) {
      log.warn({ err: error, step }, 'a step of a pool was not written, trying again');
      metrics.stepped('failed', step.kind, this.#nameOf(poolId));
      const untilMs = clock.monotonicMs() + RETRY_MS;
      this.#paused.set(poolId, untilMs);
      this.#due.set(poolId, untilMs);
    }
  }

  #nameOf(poolId: number): string {
    return this.#parts.directory.get(poolId)?.name ?? '';
  }

  // ---- explanations -------------------------------------------------------------------------------------------------

  /** Whether a machine on its way will take the container; right on the leader only. */
  isAwaited(id: ContainerId): boolean {
    return this.#awaited.has(id);
  }

  /** Whether a bound of its settings keeps a pool from growing for the container; right on the leader only. */
  isLimited(id: ContainerId): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    // Thousands may give up at once, and the facts have all machines of all pools.
    if (Math.abs(nowMs - this.#lookedAt.atMs) >= FACTS_MS) this.#lookedAt = { atMs: nowMs, pools: this.#allFacts() };
    return this.explain(id, this.#lookedAt.pools).some(
      ({ verdict }) => verdict === 'max_machines' || verdict === 'hourly_budget',
    );
  }

  #allFacts(): readonly GrowingPool[] {
    const nowMs = this.#parts.clock.monotonicMs();
    return [...this.#parts.directory.all()].flatMap((pool) => this.#factsOf(pool.id, nowMs) ?? []);
  }

  /** Pools that could get a machine for the waiting container, and why they do or not; right on the leader only. */
  explain(id: ContainerId, pools = this.#allFacts()): readonly GrowthView[] {
    const { containers, clock, changes } = this.#parts;
    const entry = containers.get(id);
    if (entry?.row.state !== 'PENDING') return [];
    const nowMs = clock.monotonicMs();
    const known = { held: this.#held.get(id), awaitedFrom: this.#awaited.get(id), nowMs, wallMs: clock.nowMs() };
    return explainGrowth(pools, this.#demands.demandOf(entry), known, ({ poolId, settings }) =>
      changes.trouble(poolId, settings.provider ?? ''),
    );
  }

  /** Why a pool grows or not, and its cost; undefined: it has no provider. Right on the leader only. */
  explainPool(poolId: number): GrowthView | undefined {
    const { directory, clock, changes } = this.#parts;
    const pool = directory.get(poolId);
    if (pool === undefined) return undefined;
    const times = { nowMs: clock.monotonicMs(), wallMs: clock.nowMs() };
    const trouble = changes.trouble(poolId, pool.settings.provider ?? '');
    return explainPool(this.#poolFacts(pool, [], times.nowMs), this.#statements.get(poolId), times, trouble);
  }
}
