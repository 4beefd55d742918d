// Calls of create and terminate take turns: a few run at once for each provider, and the others wait.

/** Calls of one provider that run at once. */
export const MOST_AT_ONCE = 4;

interface Lane {
  running: number;
  readonly waiting: (() => void)[];
}

export class Lanes {
  readonly #of = new Map<string, Lane>();

  /** Runs the work when the provider has a free lane. The work looks again whether it is still wanted. */
  async run<T>(provider: string, work: () => Promise<T>): Promise<T> {
    const lane = this.#of.get(provider) ?? { running: 0, waiting: [] };
    this.#of.set(provider, lane);
    if (lane.running >= MOST_AT_ONCE) await new Promise<void>((resolve) => lane.waiting.push(resolve));
    else lane.running += 1;
    try {
      return await work();
    } finally {
      const next = lane.waiting.shift();
      if (next !== undefined) next();
      else {
        lane.running -= 1;
        if (lane.running === 0) this.#of.delete(provider);
      }
    }
  }
}
