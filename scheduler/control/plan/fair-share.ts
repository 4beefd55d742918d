// How much of a market is fair for each workspace, and how fairly it is shared. Pure.

export interface Claim {
  /** Amount that it has and waits for, within its limit. */
  readonly demand: number;
  readonly guaranteed: number;
  readonly weight: number;
}

/**
 * Shares a capacity: each gets what is guaranteed to it, and the rest goes out by weight until nobody wants more. None
 * gets more than it demands. Guarantees beyond the capacity shrink in proportion.
 * @returns amounts, in the order of the claims; their sum is the capacity or the whole demand, whichever is smaller
 */
export function fairShares(capacity: number, claims: readonly Claim[]): readonly number[] {
  const all = claims.reduce((sum, { guaranteed }) => sum + guaranteed, 0);
  const scale = all > capacity ? capacity / all : 1;
  const shares = claims.map(({ demand, guaranteed }) => Math.min(demand, guaranteed * scale));
  let left = capacity - shares.reduce((sum, share) => sum + share, 0);
  /** Amounts still wanted, for each unit of weight: who wants least is satisfied first. */
  const wants = claims
    .map(({ demand, weight }, index) => ({ index, weight, each: (demand - (shares[index] ?? 0)) / weight }))
    .filter(({ each }) => each > 0)
    .toSorted((a, b) => a.each - b.each);
  let weights = wants.reduce((sum, { weight }) => sum + weight, 0);
  for (const { index, weight, each } of wants) {
    if (left <= 0) break;
    const more = weight * Math.min(each, left / weights);
    shares[index] = (shares[index] ?? 0) + more;
    left -= more;
    weights -= weight;
  }
  return shares;
}

/** Jain's index of numbers that should be equal: 1 when they are, 1 / n when one has all. */
export function jain(values: readonly number[]): number {
  const sum = values.reduce((all, value) => all + value, 0);
  const squares = values.reduce((all, value) => all + value * value, 0);
  return squares === 0 ? 1 : (sum * sum) / (values.length * squares);
}
