/**
 * Work apart from a loop, which never waits for it. One run at a time; what is added meanwhile is the next run, and an
 * item that waits already is replaced.
 */
export class Apart<Item> {
  readonly #work: (items: readonly Item[]) => Promise<void>;
  readonly #next = new Map<string, Item>();
  #running: Promise<void> | undefined;

  /** @param work - must not throw */
  constructor(work: (items: readonly Item[]) => Promise<void>) {
    this.#work = work;
  }

  add(key: string, item: Item): void {
    this.#next.set(key, item);
  }

  /** Begins a run, unless one goes on. */
  begin(): void {
    if (this.#next.size > 0) this.#running ??= this.#run();
  }

  /** Returns when nothing runs or waits. */
  async settled(): Promise<void> {
    await this.#running;
  }

  forgetWaiting(): void {
    this.#next.clear();
  }

  async #run(): Promise<void> {
    while (this.#next.size > 0) {
      const items = [...this.#next.values()];
      this.#next.clear();
      await this.#work(items);
    }
    this.#running = undefined;
  }
}
