// A line in which owners take turns, with bounds on running work in all,
// on running work per owner, and on waiters. Pure except for its timers.

export interface FairLineSettings {
  readonly atOnce: number;
  readonly atOnceOfOne: number;
  readonly mostWaiting: number;
  readonly mostWaitingOfOne: number;
  readonly waitMs: number;
  /** Makes the error for a caller who finds the line full, or waits too long. */
  readonly refusal: (why: 'full' | 'late') => Error;
}

interface Waiter {
  readonly begin: () => void;
  readonly timer: NodeJS.Timeout;
}

export class FairLine {
  readonly #settings: FairLineSettings;
  readonly #runningOf = new Map<string, number>();
  /** Waiters of each owner, in the order of turns; an owner without waiters has no entry. */
  readonly #waitingOf = new Map<string, Waiter[]>();
  #running = 0;
  #waiting = 0;

  constructor(settings: FairLineSettings) {
    this.#settings = settings;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Runs `work` at the owner's turn. @throws the error that `refusal` makes */
  async run<T>(owner: string, work: () => Promise<T>): Promise<T> {
    if (this.#hasRoom(owner)) this.#enter(owner);
    else await this.#wait(owner);
    try {
      return await work();
    } finally {
      this.#leave(owner);
    }
  }

  #hasRoom(owner: string): boolean {
    const { atOnce, atOnceOfOne } = this.#settings;
    return this.#running < atOnce && (this.#runningOf.get(owner) ?? 0) < atOnceOfOne;
  }

  #enter(owner: string): void {
    this.#running += 1;
    this.#runningOf.set(owner, (this.#runningOf.get(owner) ?? 0) + 1);
  }

  #wait(owner: string): Promise<void> {
    const { mostWaiting, mostWaitingOfOne, waitMs, refusal } = this.#settings;
    const line = this.#waitingOf.get(owner) ?? [];
    if (this.#waiting >= mostWaiting || line.length >= mostWaitingOfOne) return Promise.reject(refusal('full'));
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        begin: resolve,
        timer: setTimeout(() => {
          this.#remove(owner, waiter);
          reject(refusal('late'));
        }, waitMs),
      };
      line.push(waiter);
      this.#waiting += 1;
      this.#waitingOf.set(owner, line);
    });
  }

  #remove(owner: string, waiter: Waiter): void {
    const line = this.#waitingOf.get(owner) ?? [];
    const at = line.indexOf(waiter);
    if (at === -1) return;
    line.splice(at, 1);
    this.#waiting -= 1;
    if (line.length === 0) this.#waitingOf.delete(owner);
  }

  #leave(owner: string): void {
    this.#running -= 1;
    const left = (this.#runningOf.get(owner) ?? 1) - 1;
    if (left === 0) this.#runningOf.delete(owner);
    else this.#runningOf.set(owner, left);
    for (const [next, [waiter]] of this.#waitingOf) {
      if (waiter === undefined || !this.#hasRoom(next)) continue;
      clearTimeout(waiter.timer);
      this.#remove(next, waiter);
      // The owner goes behind the others.
      const rest = this.#waitingOf.get(next);
      if (rest !== undefined) {
        this.#waitingOf.delete(next);
        this.#waitingOf.set(next, rest);
      }
      this.#enter(next);
      waiter.begin();
      return;
    }
  }
}
