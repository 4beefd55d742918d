// How pools with a provider grow and shrink. Containers that wait are packed into machines that are there, then into
// those on their way; what is left asks for new ones, and so do floors. Empty machines that nothing asks for go.
// Workspaces take turns, and a container counts only for pools that could serve it, so that none holds up another's.
// Invariants: no pool exceeds its bounds, no machine with a container goes, and what one round does no later one
// undoes while the facts stay: a machine goes only where the pool would not grow without it. Pure.
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import { blockedBy, comparePools, costOf, fits, priceOf, unfitFor, without } from './choose.ts';
import type { Blocked, Cause, Decision, Demand, GrowingPool, Offer, PoolStatement, Room, Step } from './facts.ts';

/** Time after which an open machine that has room for a waiting container counts as one that does not take it. */
export const REFUSED_MS = 30_000;
/** Pause before a leader's rows are looked for again. */
const UNREAD_MS = 1_000;
/** Most machines of a pool that are told to go at once. */
const MOST_LEAVING = 5;
/** Most containers that are looked at for a pool: the oldest ones of each workspace in turn. */
export const MOST_DEMANDS = 2_000;

/** Free amounts of a machine during a round; without a room: of one that is on its way. */
interface Bin {
  readonly room: Room | null;
  readonly total: Offer;
  free: Offer;
  /** Whether a waiting container was packed into it. */
  isUsed: boolean;
}

interface Plan {
  readonly pool: GrowingPool;
  readonly bins: Bin[];
  readonly grows: Partial<Record<Cause, number>>;
  planned: number;
  /** Containers that it could serve and that were looked at. */
  looked: number;
  unserved: number;
  /** Containers that machines on their way will take. */
  readonly awaited: ContainerId[];
  blocked: Blocked | null;
  isShort: boolean;
  readonly refused: Map<QueueName, MachineId>;
  againAtMs: number;
}

/**
 * Decides for these pools.
 * @param pools - with demands: every pool with a provider; without: those that changed will do
 */
export function decideCapacity(pools: readonly GrowingPool[], demands: readonly Demand[], nowMs: number): Decision {
  const plans = pools.map(planOf);
  serveAll(plans, demands, nowMs);
  for (const plan of plans) {
    keepFloors(plan, nowMs);
    keepMachines(plan, nowMs);
  }
  const leaving = plans.flatMap((plan) => letGo(plan, nowMs));
  return {
    steps: [...plans.flatMap(growthOf), ...leaving],
    pools: plans.map(statementOf),
    awaited: new Map(plans.flatMap(({ pool, awaited }) => awaited.map((id) => [id, pool.poolId] as const))),
    refused: plans.flatMap(({ pool, refused }) =>
      [...refused].map(([queue, machineId]) => ({ poolId: pool.poolId, queue, machineId })),
    ),
    againAtMs: new Map(
      plans.filter(({ againAtMs }) => againAtMs < Infinity).map(({ pool, againAtMs }) => [pool.poolId, againAtMs]),
    ),
  };
}

function planOf(pool: GrowingPool): Plan {
  const bins = pool.rooms
    .filter(({ isOpen, isPending }) => isOpen && !isPending)
    .map((room): Bin => ({ room, total: room.total, free: room.free, isUsed: false }));
  bins.push(...pool.coming.map(newBin));
  return {
    pool,
    bins,
    grows: {},
    planned: 0,
    looked: 0,
    unserved: 0,
    awaited: [],
    blocked: null,
    isShort: false,
    refused: new Map(),
    againAtMs: Infinity,
  };
}

const newBin = (offer: Offer): Bin => ({ room: null, total: offer, free: offer, isUsed: false });

const lookAgain = (plan: Plan, atMs: number): void => void (plan.againAtMs = Math.min(plan.againAtMs, atMs));

// ---- containers that wait -------------------------------------------------------------------------------------------

/** A pool that could serve containers of a kind, and its machines that had room for one. */
interface Candidate {
  readonly plan: Plan;
  readonly bins: Bin[];
  /** Machines of the plan that were looked at. */
  seen: number;
}

function serveAll(plans: readonly Plan[], demands: readonly Demand[], nowMs: number): void {
  const fitting = fittingIn(plans);
  const kinds = kindsOf(demands);
  const workspaces = [...Map.groupBy(kinds, ({ oldest }) => oldest.workspaceId).values()];
  let turns = workspaces.sort(byStanding).map((own) => serve(fitting, own, nowMs));
  while (turns.length > 0) turns = turns.filter((turn) => turn.next().done !== true);
}

/** Containers that are alike for every pool. */
interface Kind {
  oldest: Demand;
  readonly all: Demand[];
}

const keyOf = ({ sinceMs, headStartMs = 0 }: Demand): number => sinceMs - headStartMs;
const byAge = (a: Demand, b: Demand): number => keyOf(a) - keyOf(b) || (a.id < b.id ? -1 : 1);

/** Orders workspaces by how they stand in the markets of their oldest containers, where that is said. */
function byStanding([a]: readonly Kind[], [b]: readonly Kind[]): number {
  const [of, than] = [a?.oldest.standing, b?.oldest.standing];
  return of === undefined || than === undefined ? 0 : of.tier - than.tier || of.share - than.share;
}

/** Containers by kind, the kind of the oldest first. */
function kindsOf(demands: readonly Demand[]): readonly Kind[] {
  const byQueue = new Map<QueueName, Kind[]>();
  for (const demand of demands) {
    const kinds = byQueue.get(demand.queue) ?? [];
    const kind = kinds.find(({ oldest }) => isAlike(oldest, demand));
    if (kind === undefined) kinds.push({ oldest: demand, all: [demand] });
    else {
      kind.all.push(demand);
      if (byAge(demand, kind.oldest) < 0) kind.oldest = demand;
    }
    byQueue.set(demand.queue, kinds);
  }
  return [...byQueue.values()].flat().sort((a, b) => byAge(a.oldest, b.oldest));
}

/** Whether two containers of a queue are alike for every pool. */
const isAlike = (a: Demand, b: Demand): boolean =>
  a.workspaceId === b.workspaceId &&
  a.poolName === b.poolName &&
  a.cpuMillicores === b.cpuMillicores &&
  a.memoryBytes === b.memoryBytes &&
  a.gpuCount === b.gpuCount &&
  a.minCuda === b.minCuda &&
  a.gpuLink === b.gpuLink &&
  a.fullIn?.join() === b.fullIn?.join() &&
  (a.labels === b.labels || JSON.stringify(a.labels) === JSON.stringify(b.labels)) &&
  (a.gpu === b.gpu || a.gpu.join() === b.gpu.join());

/** Fields that decide which pools could serve a container, besides refusals of its queue. */
function shapeOf(demand: Demand): string {
  const { workspaceId, poolName, cpuMillicores, memoryBytes, gpu, gpuCount, gpuLink, minCuda, fullIn, labels } = demand;
  const amounts = [cpuMillicores, memoryBytes, gpu, gpuCount, gpuLink, minCuda];
  return JSON.stringify([workspaceId, poolName, ...amounts, fullIn, labels]);
}

/** Pools that could serve a container; those for one shape are looked for once. */
function fittingIn(plans: readonly Plan[]): (demand: Demand) => readonly Plan[] {
  const known = new Map<string, readonly Plan[]>();
  return (demand) => {
    const shape = shapeOf(demand);
    const fitting =
      known.get(shape) ?? plans.filter(({ pool }) => unfitFor({ ...pool, refused: NONE }, demand) === undefined);
    known.set(shape, fitting);
    return fitting.filter(({ pool }) => !pool.refused.has(demand.queue));
  };
}
const NONE: ReadonlySet<QueueName> = new Set();

/** Serves the containers of a workspace, one in each turn. */
function* serve(
  fitting: (demand: Demand) => readonly Plan[],
  kinds: readonly Kind[],
  nowMs: number,
): Generator<undefined, void> {
  for (const { oldest, all } of kinds) {
    const byCost = comparePools(oldest, countOf(all));
    const able = fitting(oldest)
      .filter((plan) => !isRefused(plan, oldest, nowMs))
      .toSorted((a, b) => byCost(a.pool, b.pool))
      .map((plan): Candidate => ({ plan, bins: [], seen: 0 }));
    if (able.length === 0) continue;
    for (const demand of each(all.sort(byAge))) {
      const open = able.filter(({ plan }) => plan.looked < MOST_DEMANDS);
      if (open.length === 0) break;
      serveOne(open, demand, nowMs);
      yield;
    }
  }
}

const countOf = (demands: readonly Demand[]): number => demands.reduce((sum, { count = 1 }) => sum + count, 0);

/** Demands, each as often as it counts. */
function* each(demands: readonly Demand[]): Iterable<Demand> {
  for (const demand of demands) for (let nth = 0; nth < (demand.count ?? 1); nth += 1) yield demand;
}

function serveOne(able: readonly Candidate[], demand: Demand, nowMs: number): void {
  for (const candidate of able) {
    candidate.plan.looked += 1;
    lookAtNew(candidate, demand);
  }
  if (able.some(({ plan, bins }) => takesNow(plan, bins, demand, nowMs))) return;
  if (able.some(({ plan, bins }) => takesLater(plan, bins, demand))) return;
  const grown = growingFor(
    able.map(({ plan }) => plan),
    demand,
    nowMs,
  );
  if (grown !== undefined) takesLater(grown, [grow(grown, 'demand')], demand);
}

/** Other workspaces have new machines made meanwhile, where there may be room, too. */
function lookAtNew(candidate: Candidate, demand: Demand): void {
  const { plan, bins } = candidate;
  if (candidate.seen === plan.bins.length) return;
  for (const bin of plan.bins.slice(candidate.seen)) if (fits(bin.free, bin.total, demand)) bins.push(bin);
  candidate.seen = plan.bins.length;
}

/** Whether an empty machine of the pool does not take such a container; the pool does not grow for its queue then. */
function isRefused(plan: Plan, demand: Demand, nowMs: number): boolean {
  const refuses = plan.pool.rooms.find(
    (room) => room.isMade && room.isOpen && room.emptySinceMs !== null && doesNotTake(room, demand, nowMs),
  );
  if (refuses !== undefined) plan.refused.set(demand.queue, refuses.machineId);
  return refuses !== undefined;
}

function doesNotTake(room: Room, demand: Demand, nowMs: number): boolean {
  // A machine that was made after the container began to wait, and is smaller than was ordered. A machine that was
  // ordered before the pool got its present size has no fault: it was never meant for the container.
  if (!fits(room.free, room.total, demand)) return room.isOrderOfToday && room.createdAtMs >= demand.sinceMs;
  return nowMs >= takenUntilMs(room, demand);
}

/** Time until which placement may yet put the container there. */
const takenUntilMs = (room: Room, demand: Demand): number => Math.max(demand.sinceMs, room.offersSinceMs) + REFUSED_MS;

/** Whether a machine that is there has room: placement will see to it. */
function takesNow(plan: Plan, bins: readonly Bin[], demand: Demand, nowMs: number): boolean {
  for (const bin of bins) {
    // Placement tried the machines that were admitted by hand, and they do not take it.
    if (bin.room === null || !bin.room.isMade) continue;
    const untilMs = takenUntilMs(bin.room, demand);
    if (nowMs >= untilMs || !pack(bin, demand)) continue;
    lookAgain(plan, untilMs);
    return true;
  }
  return false;
}

/** Whether a machine on its way has room. */
function takesLater(plan: Plan, bins: readonly Bin[], demand: Demand): boolean {
  const isTaken = bins.some((bin) => bin.room === null && pack(bin, demand));
  if (isTaken) plan.awaited.push(demand.id);
  return isTaken;
}

function pack(bin: Bin, demand: Demand): boolean {
  if (!fits(bin.free, bin.total, demand)) return false;
  bin.free = without(bin.free, bin.total, demand);
  bin.isUsed = true;
  return true;
}

/** The first of the pools that can make a machine for the container now; undefined: none can. */
function growingFor(able: readonly Plan[], demand: Demand, nowMs: number): Plan | undefined {
  let first: Plan | undefined;
  for (const plan of able) {
    const countsAtMs = demand.sinceMs + plan.pool.settings.demandSeconds * 1000;
    if (nowMs < countsAtMs) {
      lookAgain(plan, countsAtMs);
      continue;
    }
    first ??= plan;
    const blocked = blockOf(plan, nowMs);
    if (blocked === undefined) return plan;
    // The pool goes on as soon as a machine has joined or told its price; a dearer pool is not asked meanwhile.
    if (blocked === 'pending_bound' || blocked === 'price_unknown') break;
  }
  if (first !== undefined) first.unserved += 1;
  return undefined;
}

function blockOf(plan: Plan, nowMs: number): Blocked | undefined {
  const blocked = blockedBy(plan.pool, plan.planned, nowMs);
  if (blocked === undefined) return undefined;
  plan.blocked ??= blocked;
  // A leader that has yet to read its rows names no end.
  const { notBeforeMs } = plan.pool.capacity;
  if (blocked === 'backing_off') lookAgain(plan, notBeforeMs === Infinity ? nowMs + UNREAD_MS : notBeforeMs);
  return blocked;
}

function grow(plan: Plan, cause: Cause): Bin {
  const bin = newBin(plan.pool.offer);
  plan.planned += 1;
  plan.grows[cause] = (plan.grows[cause] ?? 0) + 1;
  plan.bins.push(bin);
  return bin;
}

// ---- floors ---------------------------------------------------------------------------------------------------------

const MIB = 1024 * 1024;

/** Whether less is free than the floors ask for. @param but - left out */
function isShort({ pool, bins }: Plan, but: ReadonlySet<Bin> = new Set()): boolean {
  const { minFreeGpu, minFreeCpuCores, minFreeMemoryMib } = pool.settings;
  if (minFreeGpu === 0 && minFreeCpuCores === 0 && minFreeMemoryMib === 0) return false;
  const sum = { gpus: 0, cpuMillicores: 0, memoryBytes: 0 };
  for (const bin of bins) {
    if (but.has(bin)) continue;
    sum.gpus += bin.free.gpus.length;
    sum.cpuMillicores += Math.max(0, bin.free.cpuMillicores);
    sum.memoryBytes += Math.max(0, bin.free.memoryBytes);
  }
  return (
    sum.gpus < minFreeGpu || sum.cpuMillicores < minFreeCpuCores * 1000 || sum.memoryBytes < minFreeMemoryMib * MIB
  );
}

function keepFloors(plan: Plan, nowMs: number): void {
  plan.isShort = isShort(plan);
  if (!plan.isShort) return;
  const { settings, shortSinceMs } = plan.pool;
  // A machine that is away for a moment is no reason to make another.
  const countsAtMs = (shortSinceMs ?? nowMs) + settings.demandSeconds * 1000;
  if (nowMs < countsAtMs) {
    lookAgain(plan, countsAtMs);
    return;
  }
  while (isShort(plan) && blockOf(plan, nowMs) === undefined) grow(plan, 'floor');
}

/** Machines of the provider that are there or on their way. */
const madeBy = ({ pool, planned }: Plan): number =>
  pool.rooms.filter(({ isMade }) => isMade).length + pool.capacity.pending + planned;

function keepMachines(plan: Plan, nowMs: number): void {
  while (madeBy(plan) < plan.pool.settings.minMachines && blockOf(plan, nowMs) === undefined)
    grow(plan, 'min_machines');
}

// ---- machines that go -----------------------------------------------------------------------------------------------

function letGo(plan: Plan, nowMs: number): Step[] {
  const { pool, bins } = plan;
  if (plan.planned > 0 || plan.isShort) return [];
  const idleMs = pool.settings.idleSeconds * 1000;
  const used = new Set(bins.filter(({ isUsed }) => isUsed).map(({ room }) => room?.machineId));
  const empty = pool.rooms
    .filter(
      ({ isMade, mayLeave, emptySinceMs, machineId }) =>
        isMade && mayLeave && emptySinceMs !== null && !used.has(machineId),
    )
    .toSorted((a, b) => (a.emptySinceMs ?? 0) - (b.emptySinceMs ?? 0) || (a.machineId < b.machineId ? -1 : 1));
  const steps: Step[] = [];
  const gone = new Set<Bin>();
  let left = madeBy(plan);
  for (const { machineId, emptySinceMs } of empty) {
    const goesAtMs = (emptySinceMs ?? nowMs) + idleMs;
    if (nowMs < goesAtMs) {
      lookAgain(plan, goesAtMs);
      continue;
    }
    if (left <= pool.settings.minMachines || steps.length >= MOST_LEAVING) break;
    const bin = bins.find(({ room }) => room?.machineId === machineId);
    if (bin !== undefined && isShort(plan, new Set([...gone, bin]))) continue;
    if (bin !== undefined) gone.add(bin);
    left -= 1;
    steps.push({
      kind: 'shrink',
      poolId: pool.poolId,
      machineId,
      reason: `no container for ${pool.settings.idleSeconds} s`,
    });
  }
  return steps;
}

// ---- outcome --------------------------------------------------------------------------------------------------------

const REASONS: Readonly<Record<Cause, string>> = {
  demand: 'containers wait for a machine',
  floor: 'less is free than the pool asks for',
  min_machines: 'fewer machines than the pool keeps',
};

function growthOf({ pool, grows }: Plan): Step[] {
  return (Object.entries(grows) as [Cause, number][]).flatMap(([cause, count]) =>
    Array.from(
      { length: count },
      () => ({ kind: 'grow', poolId: pool.poolId, cause, reason: REASONS[cause] }) as const,
    ),
  );
}

function statementOf(plan: Plan): PoolStatement {
  const { pool, grows, unserved, awaited, blocked } = plan;
  return {
    poolId: pool.poolId,
    poolName: pool.poolName,
    grows,
    unserved,
    awaiting: awaited.length,
    blocked,
    isShort: plan.isShort,
    price: priceOf(pool),
    hourlyCost: costOf(pool),
  };
}
