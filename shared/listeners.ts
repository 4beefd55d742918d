/**
 * The listeners of one notification. A part that notifies others has a method `onX(listener)`;
 * `wiring.ts` calls it after all parts exist. Listeners run in the order in which they were added.
 */
export class Listeners<Args extends readonly unknown[]> {
  readonly #all = new Set<(...args: Args) => void>();

  /** @returns a function that removes the listener */
  add(listener: (...args: Args) => void): () => void {
    this.#all.add(listener);
    return () => void this.#all.delete(listener);
  }

  tell(...args: Args): void {
    for (const listener of this.#all) listener(...args);
  }
}
