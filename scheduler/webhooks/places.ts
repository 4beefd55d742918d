// A few places for many: whoever has one gives it back, the others come in their order, and nobody waits for ever.

/** It says nothing about who waited: others had the places. */
export class NoPlaceError extends Error {
  constructor(waitMs: number) {
    super(`no place became free in ${waitMs} ms`);
    this.name = 'NoPlaceError';
  }
}

export class Places {
  readonly #most: number;
  readonly #waiting = new Set<() => void>();
  #taken = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** @returns what gives the place back, once @throws NoPlaceError when none became free in time */
  async take(waitMs: number): Promise<() => void> {
    if (this.#taken >= this.#most) await this.#handedOver(waitMs);
    else this.#taken += 1;
    let given = false;
    return () => {
      if (given) return;
      given = true;
      // It goes straight to who waits longest.
      const [next] = this.#waiting;
      if (next === undefined) this.#taken -= 1;
      else next();
    };
  }

  /** Nobody has a place, or waits for one. */
  get isEmpty(): boolean {
    return this.#taken === 0;
  }

  #handedOver(waitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(come);
        reject(new NoPlaceError(waitMs));
      }, waitMs);
      const come = (): void => {
        this.#waiting.delete(come);
        clearTimeout(timer);
        resolve();
      };
      this.#waiting.add(come);
    });
  }
}
