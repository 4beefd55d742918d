// Turns of the readings of one workspace's topics: first come, first served, and a share of the time for all together.
// Invariants: without a reading that waits there is no timer. After a pause of any length, the time that is saved up is
// bounded, and so is the pause after a reading of any length.

/** A reading. It never rejects. */
export type Reading = () => Promise<void>;

/** While nothing is read, one part in so many of the time is gained. So readings take a fifth of the time. */
const SHARE = 4;
const MOST_SAVED_MS = 2_000;
const LONGEST_PAUSE_MS = 10_000;
/** Time that a reading costs at least. */
const LEAST_COST_MS = 10;
const AT_ONCE = 4;

export class Turns {
  readonly #nowMs: () => number;
  readonly #waiting = new Set<Reading>();
  #reading = 0;
  #savedMs = MOST_SAVED_MS;
  #countedMs: number;
  #timer: NodeJS.Timeout | undefined;

  /** @param nowMs - of the clock that nobody sets */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#countedMs = nowMs();
  }

  /** Whether it may be forgotten: a new one would do the same. */
  get isRested(): boolean {
    this.#count();
    return this.#waiting.size === 0 && this.#reading === 0 && this.#savedMs >= MOST_SAVED_MS;
  }

  wait(reading: Reading): void {
    this.#waiting.add(reading);
    this.#go();
  }

  leave(reading: Reading): void {
    this.#waiting.delete(reading);
    this.#go();
  }

  #go(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#count();
    for (const reading of this.#waiting) {
      if (this.#reading >= AT_ONCE) return;
      if (this.#savedMs <= 0) {
        this.#timer = setTimeout(() => this.#go(), Math.ceil((1 - this.#savedMs) * SHARE)).unref();
        return;
      }
      this.#waiting.delete(reading);
      void this.#read(reading);
    }
  }

  async #read(reading: Reading): Promise<void> {
    this.#reading += 1;
    this.#spend(LEAST_COST_MS);
    await reading();
    this.#count();
    this.#reading -= 1;
    this.#go();
  }

  /** Counts the time since the last count. */
  #count(): void {
    const nowMs = this.#nowMs();
    const passedMs = nowMs - this.#countedMs;
    this.#countedMs = nowMs;
    if (this.#reading > 0) this.#spend(passedMs);
    else this.#savedMs = Math.min(MOST_SAVED_MS, this.#savedMs + passedMs / SHARE);
  }

  #spend(ms: number): void {
    this.#savedMs = Math.max(-LONGEST_PAUSE_MS / SHARE, this.#savedMs - ms);
  }
}
