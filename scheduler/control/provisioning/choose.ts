// Which pool grows for a container: whether a machine of a pool could take it, what keeps the pool from growing, what
// its machines cost, and the order of those that could. Pure. Source: decision 0255.
import { mayRunCuda } from '#shared/domain/cuda.ts';
import { gpuFit, gpuLack, gpuMatches, gpuTerms, linkedGroups, mostLinked } from '#shared/domain/gpu-terms.ts';
import type { DriverFact, GpuFacts } from '#shared/domain/gpu-terms.ts';
import { labelsFit } from '#shared/domain/labels.ts';
import { mayUsePool } from '../../domain/pools.ts';
import type { Market } from '../../domain/shares.ts';
import { CPU_MARKET } from '../../domain/shares.ts';
import { gpuMarketOf } from '../plan/filter.ts';
import type { Blocked, Demand, GrowingPool, Offer, Unfit } from './facts.ts';

/** Most machines of a pool that may be on their way at once. */
export const MOST_PENDING = 5;

/** Why no machine of the pool could ever take the container; undefined: one could. */
export function unfitFor(pool: GrowingPool, demand: Demand): Unfit | undefined {
  const { poolName, poolOwner, settings, offer } = pool;
  if (!mayUsePool({ poolName, poolOwner, requiresPoolSelector: settings.requiresPoolSelector }, demand))
    return 'not_usable';
  if (poolOwner === null && demand.fullIn?.includes(marketOf(offer, demand)) === true) return 'at_limit';
  if (!labelsFit(offer.labels ?? {}, demand.labels)) return 'label';
  // Free GPUs keep their share of a machine, so an empty machine with GPUs has no room for other work.
  if (demand.gpuCount === 0 && offer.gpus.length > 0) return 'kept_for_gpus';
  const matching = matchingGpus(offer, offer, demand);
  const { gpuDriver: driver = '' } = offer;
  const wanted = demand.gpuCount === 0 ? [] : wantedIn(offer, driver, demand);
  if (demand.gpuCount > 0 && wanted.length === 0) return gpuLack(offer.gpus, driver, demand.gpu);
  if (!driverFits(offer, demand)) return 'gpu_driver';
  if (matching < demand.gpuCount) return wanted.length < demand.gpuCount ? 'gpu_count' : 'gpu_link';
  if (!fits(offer, offer, demand)) return 'too_small';
  return pool.refused.has(demand.queue) ? 'refused' : undefined;
}

/** Market of the container on a machine of the pool. */
const marketOf = (offer: Offer, { gpuCount }: Demand): Market =>
  gpuCount === 0 ? CPU_MARKET : (gpuMarketOf(offer) ?? '');

/** Whether the free amounts of a machine suffice for the container. */
export function fits(free: Offer, total: Offer, demand: Demand): boolean {
  if (matchingGpus(free, total, demand) < demand.gpuCount || !driverFits(total, demand)) return false;
  if (!labelsFit(total.labels ?? {}, demand.labels)) return false;
  const kept = demand.gpuCount === 0 && total.gpus.length > 0 ? free.gpus.length / total.gpus.length : 0;
  return (
    free.cpuMillicores - kept * total.cpuMillicores >= demand.cpuMillicores &&
    free.memoryBytes - kept * total.memoryBytes >= demand.memoryBytes
  );
}

const matchingGpus = (free: Offer, { gpuDriver = '' }: Offer, demand: Demand): number =>
  demand.gpuCount === 0 ? 0 : mostLinked(wantedIn(free, gpuDriver, demand), demand);

const wantedIn = ({ gpus }: Offer, driver: DriverFact, { gpu: wanted }: Demand): readonly GpuFacts[] =>
  gpus.filter((gpu) => gpuMatches(gpu, driver, wanted));

const driverFits = ({ gpuDriver = '' }: Offer, { gpuCount, minCuda = '' }: Demand): boolean =>
  gpuCount === 0 || mayRunCuda(gpuDriver ?? '', minCuda);

/** Free amounts of a machine that are left after the container was taken. @param total - of the same machine */
export function without(free: Offer, { gpuDriver = '' }: Offer, demand: Demand): Offer {
  const groups = linkedGroups(wantedIn(free, gpuDriver, demand), demand);
  const enough = groups.filter(({ length }) => length >= demand.gpuCount).toSorted((a, b) => a.length - b.length);
  // Devices of an offer may be one object, so they are counted by their places.
  const taken = new Set<number>();
  for (const [index, gpu] of free.gpus.entries())
    if (taken.size < demand.gpuCount && enough[0]?.includes(gpu) === true) taken.add(index);
  return {
    cpuMillicores: free.cpuMillicores - demand.cpuMillicores,
    memoryBytes: free.memoryBytes - demand.memoryBytes,
    gpus: taken.size === 0 ? free.gpus : free.gpus.filter((_gpu, index) => !taken.has(index)),
  };
}

/** Number of such containers that an empty machine of the pool holds, at most `most`. */
export function heldBy({ offer }: GrowingPool, demand: Demand, most: number): number {
  let free = offer;
  let count = 0;
  for (; count < most && fits(free, offer, demand); count += 1) free = without(free, offer, demand);
  return count;
}

/** Price of a further machine in an hour: the pool's setting, else the mean of its known ones; null: not known. */
export function priceOf({ settings, capacity }: Pick<GrowingPool, 'settings' | 'capacity'>): number | null {
  if (settings.hourlyCost !== null) return settings.hourlyCost;
  const priced = capacity.alive - capacity.unpriced;
  return priced > 0 ? capacity.hourlyCost / priced : null;
}

/** Cost of a machine whose price nobody knows, as a budget counts it. */
const UNPRICED = 1;

/** Cost of the pool's machines in an hour, as its budget counts it. */
export function costOf(pool: Pick<GrowingPool, 'settings' | 'capacity'>): number {
  const { settings, capacity } = pool;
  if (settings.hourlyCost !== null) return capacity.alive * settings.hourlyCost;
  return capacity.hourlyCost + capacity.unpriced * (priceOf(pool) ?? UNPRICED);
}

/**
 * Bound that keeps the pool from another machine; undefined: none does.
 * @param planned - machines that this round has it make already
 */
export function blockedBy(pool: GrowingPool, planned: number, nowMs: number): Blocked | undefined {
  const { settings, capacity, isKnown } = pool;
  if (!isKnown) return 'unknown_provider';
  if (capacity.notBeforeMs > nowMs) return 'backing_off';
  if (capacity.alive + planned >= settings.maxMachines) return 'max_machines';
  if (settings.hourlyBudget !== null) {
    const price = priceOf(pool);
    const cost = costOf(pool) + (planned + 1) * (price ?? UNPRICED);
    if (cost > settings.hourlyBudget + EPSILON) return 'hourly_budget';
    // The first machine tells what a machine costs, if the provider lists prices at all; more could exceed the budget.
    const hasJoined = capacity.alive > capacity.pending;
    if (price === null && !hasJoined && capacity.pending + planned > 0) return 'price_unknown';
  }
  return capacity.pending + planned >= MOST_PENDING ? 'pending_bound' : undefined;
}
/** Sums of prices such as 0.1 are not exact. */
const EPSILON = 1e-9;

/**
 * Orders pools that could all serve the container. The order of the models it asks for and its workspace's own pools
 * come first, as in placement. Then comes the lowest cost for each container served, then the higher priority.
 * @param waiting - number of such containers that wait
 */
export function comparePools(demand: Demand, waiting: number): (a: GrowingPool, b: GrowingPool) => number {
  const known = new Map<number, number>();
  const cost = (pool: GrowingPool): number => {
    const before = known.get(pool.poolId);
    if (before !== undefined) return before;
    const price = priceOf(pool);
    const held = Math.max(1, heldBy(pool, demand, Math.min(waiting, MOST_SERVED)));
    const each = price === null ? Infinity : price / held;
    known.set(pool.poolId, each);
    return each;
  };
  return (a, b) =>
    rankOf(a, demand) - rankOf(b, demand) ||
    isOwn(b, demand) - isOwn(a, demand) ||
    difference(cost(a), cost(b)) ||
    b.settings.priority - a.settings.priority ||
    a.poolId - b.poolId;
}
/** Most containers by which the price of a machine is divided. */
const MOST_SERVED = 64;

/** Two infinite costs are equal. */
const difference = (a: number, b: number): number => (a === b ? 0 : a - b);

/** Place of the pool's GPUs in the order asked for. */
function rankOf({ offer: { gpus, gpuDriver = '' } }: GrowingPool, demand: Demand): number {
  if (demand.gpuCount === 0) return 0;
  const rank = gpuTerms(demand.gpu).findIndex((term) => {
    const fitting = gpus.filter((one) => gpuFit(one, gpuDriver, term) === 'fits');
    return mostLinked(fitting, demand) >= demand.gpuCount;
  });
  return rank === -1 ? demand.gpu.length : rank;
}

const isOwn = ({ poolOwner }: GrowingPool, { workspaceId }: Demand): number => (poolOwner === workspaceId ? 1 : 0);
