/** Places that owners hold for a while: a bounded number for each owner. */
export class Places<Owner extends string> {
  /** Most places of one owner. */
  readonly most: number;
  readonly #of = new Map<Owner, number>();

  constructor(most: number) {
    this.most = most;
  }

  /** Counts the places that an owner holds. */
  of(owner: Owner): number {
    return this.#of.get(owner) ?? 0;
  }

  /** Takes a place. @returns a function that gives it back, once; undefined: there is none */
  take(owner: Owner): (() => void) | undefined {
    if (this.of(owner) >= this.most) return undefined;
    this.#of.set(owner, this.of(owner) + 1);
    let isBack = false;
    return () => {
      if (isBack) return;
      isBack = true;
      const left = this.of(owner) - 1;
      if (left > 0) this.#of.set(owner, left);
      else this.#of.delete(owner);
    };
  }
}

/** Places of several pools. An owner holds at most as many places of a pool as are left, so others always find some. */
export class SharedPlaces<Pool extends string, Owner extends string> {
  readonly #most: number;
  readonly #all = new Map<Pool, number>();
  readonly #of = new Map<string, number>();

  /** @param most - places of each pool */
  constructor(most: number) {
    this.#most = most;
  }

  /** Takes a place. @returns a function that gives it back, once; undefined: the owner gets none */
  take(pool: Pool, owner: Owner): (() => void) | undefined {
    const key = `${pool} ${owner}`;
    const all = this.#all.get(pool) ?? 0;
    const own = this.#of.get(key) ?? 0;
    if (own >= this.#most - all) return undefined;
    this.#all.set(pool, all + 1);
    this.#of.set(key, own + 1);
    let isBack = false;
    return () => {
      if (isBack) return;
      isBack = true;
      lessen(this.#all, pool);
      lessen(this.#of, key);
    };
  }
}

function lessen<Key>(counts: Map<Key, number>, key: Key): void {
  const left = (counts.get(key) ?? 1) - 1;
  if (left > 0) counts.set(key, left);
  else counts.delete(key);
}
