// A few places for many: whoever has one gives it back, the others come in their order, and nobody waits for ever.
export class Places {
  readonly #most: number;
  readonly #waiting = new Set<() => void>();
  #taken = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** @returns what gives the place back, once @throws when none became free in time */
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

  #handedOver(waitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(come);
        reject(new Error(`no place became free in ${waitMs} ms`));
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
