// Why pools grow or do not, as data: for a container that waits, and for a pool by itself. The sentences are in
// api/explain/. Plain data in and out.
import { blockedBy, comparePools, costOf, priceOf, unfitFor } from './choose.ts';
import { NO_TROUBLE } from '../../domain/provisioning.ts';
import type { PoolTrouble } from '../../domain/provisioning.ts';
import type { Held } from './demands.ts';
import type { Blocked, Demand, GrowingPool, PoolStatement, Unfit } from './facts.ts';

/**
 * `awaited`: a machine on its way will take the container, or the pool has some on their way · `other_first`: another
 * pool grows for it · `too_young`: it has not waited long enough · `has_room`: a machine has room, placement is at it ·
 * `enough`: nothing asks for more.
 */
export type Verdict = Unfit | Blocked | Held | 'awaited' | 'other_first' | 'too_young' | 'has_room' | 'enough';

export interface GrowthView {
  readonly poolName: string;
  readonly provider: string;
  /** Whether all workspaces use the pool. */
  readonly isShared: boolean;
  readonly verdict: Verdict;
  /** When the verdict ends by itself (epoch milliseconds); null: not known. */
  readonly untilMs: number | null;
  /** Price of a machine in an hour; null: not known. */
  readonly price: number | null;
  /** Cost of its machines in an hour, as the budget counts it. */
  readonly hourlyCost: number;
  readonly hourlyBudget: number | null;
  /** Machines of the provider: those there, on their way, and leaving. */
  readonly machines: number;
  readonly pending: number;
  readonly maxMachines: number;
  /** Driver of the machines that it makes; empty: not known. */
  readonly gpuDriver: string;
  /** Containers that wait for its machines on their way, and those for which it could not grow. */
  readonly awaiting: number;
  readonly unserved: number;
  readonly lastFailure: string | null;
  /** Calls of its provider that keep failing. */
  readonly trouble: PoolTrouble;
}

export interface Times {
  /** Monotonic and wall time of this moment. */
  readonly nowMs: number;
  readonly wallMs: number;
}

export type TroubleOf = (pool: GrowingPool) => PoolTrouble;
const noTrouble: TroubleOf = () => NO_TROUBLE;

/** Most pools that are named. */
const MOST_POOLS = 10;

/** @param pools - every pool with a provider; those that the container may not use are left out */
export function explainGrowth(
  pools: readonly GrowingPool[],
  demand: Demand,
  known: Times & { readonly held: Held | undefined; readonly awaitedFrom: number | undefined },
  troubleOf: TroubleOf = noTrouble,
): readonly GrowthView[] {
  const byCost = comparePools(demand, 1);
  const isServed = (pool: GrowingPool): number => (pool.poolId === known.awaitedFrom ? 0 : 1);
  return pools
    .filter((pool) => unfitFor(pool, demand) !== 'not_usable')
    .toSorted((a, b) => isServed(a) - isServed(b) || byCost(a, b))
    .slice(0, MOST_POOLS)
    .map((pool) => viewOf(pool, undefined, ...verdictOf(pool, demand, known), known, troubleOf(pool)));
}

function verdictOf(
  pool: GrowingPool,
  demand: Demand,
  known: Times & { readonly held: Held | undefined; readonly awaitedFrom: number | undefined },
): [Verdict, number | null] {
  const { held, awaitedFrom, nowMs } = known;
  if (held !== undefined) return [held, null];
  if (awaitedFrom === pool.poolId) return ['awaited', null];
  const unfit = unfitFor(pool, demand);
  if (unfit !== undefined) return [unfit, null];
  if (awaitedFrom !== undefined) return ['other_first', null];
  const countsAtMs = demand.sinceMs + pool.settings.demandSeconds * 1000;
  if (nowMs < countsAtMs) return ['too_young', countsAtMs];
  const blocked = blockedBy(pool, 0, nowMs);
  return blocked === undefined ? ['has_room', null] : [blocked, untilOf(pool, blocked)];
}

const untilOf = ({ capacity }: GrowingPool, blocked: Blocked): number | null =>
  blocked === 'backing_off' ? capacity.notBeforeMs : null;

/** @param statement - of the last round; undefined: it was not looked at yet */
export function explainPool(
  pool: GrowingPool,
  statement: PoolStatement | undefined,
  times: Times,
  trouble: PoolTrouble = NO_TROUBLE,
): GrowthView {
  return viewOf(pool, statement, ...verdictOfPool(pool, statement, times), times, trouble);
}

function verdictOfPool(
  pool: GrowingPool,
  statement: PoolStatement | undefined,
  times: Times,
): [Verdict, number | null] {
  const blocked = blockOf(pool, statement, times);
  if (blocked !== undefined) return [blocked, untilOf(pool, blocked)];
  if (pool.capacity.pending > 0) return ['awaited', null];
  if (statement?.isShort !== true) return ['enough', null];
  return ['too_young', (pool.shortSinceMs ?? times.nowMs) + pool.settings.demandSeconds * 1000];
}

/** A bound counts while something asks for more; a provider that is missing or fails always counts. */
function blockOf(pool: GrowingPool, statement: PoolStatement | undefined, { nowMs }: Times): Blocked | undefined {
  const blocked = blockedBy(pool, 0, nowMs);
  if (blocked === 'unknown_provider' || blocked === 'backing_off') return blocked;
  const isAsked = (statement?.blocked ?? null) !== null;
  return isAsked ? blocked : undefined;
}

function viewOf(
  pool: GrowingPool,
  statement: PoolStatement | undefined,
  verdict: Verdict,
  untilMs: number | null,
  { nowMs, wallMs }: Times,
  trouble: PoolTrouble,
): GrowthView {
  const { poolName, settings, capacity } = pool;
  return {
    poolName,
    provider: settings.provider ?? '',
    isShared: pool.poolOwner === null,
    verdict,
    // A leader that has yet to read its rows has no end of its back-off.
    untilMs: untilMs === null || untilMs === Infinity ? null : Math.round(wallMs + untilMs - nowMs),
    price: priceOf(pool),
    hourlyCost: costOf(pool),
    hourlyBudget: settings.hourlyBudget,
    machines: capacity.alive,
    pending: capacity.pending,
    maxMachines: settings.maxMachines,
    gpuDriver: pool.offer.gpuDriver ?? '',
    awaiting: statement?.awaiting ?? 0,
    unserved: statement?.unserved ?? 0,
    lastFailure: capacity.lastFailure,
    trouble,
  };
}
