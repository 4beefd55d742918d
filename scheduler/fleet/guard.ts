// The mass-disconnect guard, for the case that many machines go silent together, or that this process itself stood
// still. The network or the scheduler is then likelier to blame than the machines. While the guard is on for a pool,
// none of its machines is given up, and nothing is scaled down. Pure.

/**
 * A machine that the guard counts: joined, not lost before, and in service. A machine that an operator has cordoned or
 * drained does not count and is not guarded: that is how the guard is switched off.
 */
export interface GuardMachine {
  readonly poolId: number;
  /** Start of the silence in monotonic milliseconds, as everything here; null: the machine answers. */
  readonly silentSinceMs: number | null;
}

/** Why the guard of a pool is on. `stall`: until a minute after it; `mass`: until less than a fifth is silent. */
export type GuardCause = 'mass' | 'stall';
export type Guards = ReadonlyMap<number, GuardCause>;

const FRESH_MS = 60_000;
/**
 * Fewer silent machines never switch the guard on, even as a large
 * share: an installation of two machines must be able to lose one.
 */
const MASS = 3;
const POOL_SHARE = 0.5;
const OVERALL_SHARE = 0.3;
const OFF_BELOW = 0.2;

interface Count {
  all: number;
  silent: number;
  /** Machines silent for less than a minute. */
  fresh: number;
}

/** @param stalledAtMs - when this process last stood still for two seconds; null: never */
export function guardsAfter(
  before: Guards,
  machines: Iterable<GuardMachine>,
  nowMs: number,
  stalledAtMs: number | null,
): Guards {
  const overall: Count = { all: 0, silent: 0, fresh: 0 };
  const pools = new Map<number, Count>();
  for (const { poolId, silentSinceMs } of machines) {
    const pool = pools.get(poolId) ?? { all: 0, silent: 0, fresh: 0 };
    pools.set(poolId, pool);
    for (const count of [pool, overall]) {
      count.all += 1;
      if (silentSinceMs === null) continue;
      count.silent += 1;
      if (nowMs - silentSinceMs <= FRESH_MS) count.fresh += 1;
    }
  }
  const isMass = (count: Count, share: number): boolean => count.fresh >= MASS && count.fresh >= count.all * share;
  const everywhere = isMass(overall, OVERALL_SHARE);
  const stalled = stalledAtMs !== null && nowMs - stalledAtMs <= FRESH_MS;
  const guards = new Map<number, GuardCause>();
  for (const [poolId, pool] of pools) {
    const stays = before.get(poolId) === 'mass' && pool.silent >= pool.all * OFF_BELOW;
    if (isMass(pool, POOL_SHARE) || (everywhere && pool.silent > 0) || stays) guards.set(poolId, 'mass');
    else if (stalled && pool.silent > 0) guards.set(poolId, 'stall');
  }
  return guards;
}
