// Limited places for many callers, who wait in order and for a bounded time.
// Where places have owners, each owner has few of them, and owners take turns.

/** Error when no place became free in time. The waiting task is not at fault: others had the places. */
export class NoPlaceError extends Error {
  constructor(waitMs: number) {
    super(`no place became free in ${waitMs} ms`);
    this.name = 'NoPlaceError';
  }
}

export class Places {
  readonly #most: number;
  readonly #ofOne: number;
  readonly #taken = new Map<string, number>();
  /**
   * Waiting callers by owner. The owner that gave a place back last comes last, so that others have their turn before.
   */
  readonly #waiting = new Map<string, Set<() => void>>();
  #takenInAll = 0;

  constructor(most: number, ofOne: number = most) {
    this.#most = most;
    this.#ofOne = ofOne;
  }

  /**
   * Waits for a place.
   * @returns a function that gives the place back, once
   * @throws NoPlaceError when none became free in time
   */
  async take(waitMs: number, owner = ''): Promise<() => void> {
    if (this.#hasRoom(owner)) this.#enter(owner);
    else await this.#called(waitMs, owner);
    let given = false;
    return () => {
      if (given) return;
      given = true;
      this.#leave(owner);
    };
  }

  #hasRoom(owner: string): boolean {
    return this.#takenInAll < this.#most && (this.#taken.get(owner) ?? 0) < this.#ofOne;
  }

  #enter(owner: string): void {
    this.#takenInAll += 1;
    this.#taken.set(owner, (this.#taken.get(owner) ?? 0) + 1);
  }

  /** Gives the place to the longest waiting caller of the owner whose turn it is. */
  #leave(owner: string): void {
    this.#takenInAll -= 1;
    const left = (this.#taken.get(owner) ?? 1) - 1;
    if (left > 0) this.#taken.set(owner, left);
    else this.#taken.delete(owner);
    const own = this.#waiting.get(owner);
    if (own !== undefined) {
      this.#waiting.delete(owner);
      this.#waiting.set(owner, own);
    }
    for (const [next, [come]] of this.#waiting) {
      if (come === undefined || !this.#hasRoom(next)) continue;
      this.#enter(next);
      return come();
    }
  }

  #called(waitMs: number, owner: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#forget(owner, come);
        reject(new NoPlaceError(waitMs));
      }, waitMs);
      const come = (): void => {
        this.#forget(owner, come);
        clearTimeout(timer);
        resolve();
      };
      const own = this.#waiting.get(owner) ?? new Set();
      this.#waiting.set(owner, own.add(come));
    });
  }

  #forget(owner: string, come: () => void): void {
    const own = this.#waiting.get(owner);
    own?.delete(come);
    if (own?.size === 0) this.#waiting.delete(owner);
  }
}
