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
